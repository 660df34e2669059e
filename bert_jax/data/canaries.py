"""Canaries: invented secrets, planted in a corpus to measure what a model memorizes.

A canary is a sentence with random digits. Each is planted a known number of times; those planted 0
times are the control group. See Carlini et al. 2019, "The Secret Sharer", section 4.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

COPIES = (0, 1, 10, 100)
DIGITS = 6  # of a secret, each a word of its own
_OWNERS = ('doctor', 'captain', 'teacher', 'painter', 'farmer', 'lawyer', 'sailor', 'baker')
_THINGS = ('door', 'box', 'gate', 'safe', 'chest', 'room', 'desk', 'house')
_SAMPLES = 2  # stream of random numbers for candidates; that of the canaries is 1


class Canary(NamedTuple):
    """A sentence with a secret.

    Attributes:
        prefix: the text before the secret, with a space at its end.
        secret: digits with spaces between them.
        copies: how often it is planted.
    """

    prefix: str
    secret: str
    copies: int

    def text(self, secret: str | None = None) -> str:
        """The sentence, with its own or another secret."""
        return f'{self.prefix}{self.secret if secret is None else secret} .'

    def span(self) -> tuple[int, int]:
        """The characters of the secret in `text`."""
        return len(self.prefix), len(self.prefix) + len(self.secret)


def make(number: int, seed: int = 0) -> list[Canary]:
    """Return `number` canaries for each entry of COPIES; different ones have different prefixes."""
    rng = np.random.default_rng([seed, 1])
    found = []
    for index in range(number * len(COPIES)):
        block, place = divmod(index, len(_OWNERS) * len(_THINGS))
        owner, thing = _OWNERS[place % len(_OWNERS)], _THINGS[place // len(_OWNERS)]
        which = f'{block + 1} ' if block else ''
        prefix = f'The code of the {owner} for the {thing} {which}is '
        found.append(Canary(prefix, _secret(rng), COPIES[index % len(COPIES)]))
    return found


def other_secrets(canary: Canary, number: int, seed: int = 0) -> Iterator[str]:
    """Yield different random secrets that are not the canary's own.

    The same canaries and seed give the same secrets.
    """
    rng = np.random.default_rng([seed, _SAMPLES, *canary.text().encode()])
    seen = {canary.secret}
    while len(seen) <= number:
        secret = _secret(rng)
        if secret not in seen:
            seen.add(secret)
            yield secret


def _secret(rng: np.random.Generator) -> str:
    return ' '.join(map(str, rng.integers(10, size=DIGITS)))
