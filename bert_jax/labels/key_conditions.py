"""When keys of the config's `data` have no effect: other files or other problems use them."""

import dataclasses
from collections.abc import Mapping, Sequence

from ml_collections import ConfigDict

from bert_jax.labels.formats import format_of, matching_files


@dataclasses.dataclass(frozen=True)
class UsedBy:
    """The condition that a key is for files, and only for some formats and kinds of problems.

    Attributes:
        readable: Formats that the kind of problem of the config can read; (): unknown.
        used_keys: Keys of `data` that are only for some kinds of problems and that this kind uses,
            with the formats of files, or () for `formats`; None: this one is for all kinds.
        formats: Formats of files that the key is for; (): all.
        without: A key of `data`; if it is set, this one is not used.
        also_with: A key of `data`; if it is set, this one is used in all formats.
    """

    readable: tuple[str, ...]
    used_keys: Mapping[str, Sequence[str]] | None = None
    formats: Sequence[str] = ()
    without: str = ''
    also_with: str = ''

    def __call__(self, config: ConfigDict, name: str) -> str:
        data, key = config.data, name.removeprefix('data.')
        if data.dataset:
            return f'data.dataset is {data.dataset!r}'
        if self.used_keys is not None and key not in self.used_keys:
            return f'task is {config.task!r}'
        if self.without and data[self.without]:
            return f'data.{self.without} is {data[self.without]!r}'
        formats = (self.used_keys or {}).get(key) or self.formats
        is_limited = formats and self.readable and not (self.also_with and data[self.also_with])
        used = self._formats_in_use(config) if is_limited else set()
        if used and not used & {*formats}:
            return f'the format of the files is {" and ".join(sorted(used))}'
        return ''

    def _formats_in_use(self, config: ConfigDict) -> set[str]:
        """Return the formats of the files; a missing file is reported when it is read."""
        data = config.data
        return {
            format_of(path, data, self.readable, config.task)
            for pattern in (*data.train, *data.dev, *data.test, *data.unlabeled)
            for path in matching_files(pattern) or [pattern]
        }


def unused_fraction(config: ConfigDict, name: str) -> str:
    """Why no examples are split off train, for the key of their share."""
    split = name.removeprefix('data.').removesuffix('_fraction')
    if config.data[split]:
        return f'data.{split} is {config.data[split]!r}'
    if split == 'dev' and config.data.shots:
        return f'data.shots is {config.data.shots}'
    return ''


def unused_split_seed(config: ConfigDict, name: str) -> str:
    """Why the seed of random splits and subsets is not used."""
    data = config.data
    if data.shots and config.sweep.seeds:
        return f'sweep.seeds is {config.sweep.seeds}, which draw the examples'
    fractions = [
        data[f'{split}_fraction']
        for split in ('dev', 'test')
        if not unused_fraction(config, f'data.{split}_fraction')
    ]
    is_random = data.shots or data.train_examples or any(fractions)
    return '' if is_random else 'no examples are drawn or split off at random'
