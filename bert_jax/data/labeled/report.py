"""Counts of what was read and of what could not be, with the places where it was met first."""

import collections

from bert_jax.errors import UserError

_SHOWN = 3


class Report(collections.Counter):
    """Counts by name; `places` has the first few places of each name."""

    def __init__(self):
        super().__init__()
        self.places: dict[str, list[str]] = collections.defaultdict(list)

    def note(self, name: str, place: str):
        """Counts one, met at this place."""
        self[name] += 1
        if len(self.places[name]) < _SHOWN:
            self.places[name].append(place)

    def merge(self, other: 'Report'):
        """Adds the counts and places of another."""
        self.update(other)
        for name, places in other.places.items():
            self.places[name] = (self.places[name] + places)[:_SHOWN]

    def check(self, name: str, share: float, rows: int, key: str):
        """Raises UserError if more than this share of so many rows was counted under a name."""
        if self[name] <= share * rows:
            return
        raise UserError(
            f'{self[name]} of {rows} rows {name.replace("_", " ")}: {"; ".join(self.places[name])}'
            f' (data.{key}={share:g} is the share that may be left out)'
        )

    def lines(self) -> list[str]:
        """For the log: a line a count."""
        found = []
        for name, count in sorted(self.items()):
            places = '; '.join(self.places[name]) if name in self.places else ''
            more = '; …' if places and count > _SHOWN else ''
            if count:
                found.append(
                    f'{name.replace("_", " ")}: {count:,}' + f' ({places}{more})' * bool(places)
                )
        return found
