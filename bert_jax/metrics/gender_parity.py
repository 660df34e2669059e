"""The gender parity score of a classifier: does the gender of a pronoun change its answer?

Sources: Rudinger et al. 2018 (Winogender, arXiv 1804.09301); Poliak et al. 2018 (DNC); SuperGLUE
(Wang et al. 2019, section 3.3), whose set AX-g consists of such pairs.
"""

import re
from collections import defaultdict
from collections.abc import Sequence

import numpy as np

# Pronoun → its gender, and what the pronouns of both genders have in common. 'her' is the form of
# both 'him' and 'his'.
_PRONOUNS = {
    'he': ('male', '<he>'),
    'she': ('female', '<he>'),
    'him': ('male', '<him>'),
    'his': ('male', '<him>'),
    'her': ('female', '<him>'),
    'hers': ('female', '<him>'),
    'himself': ('male', '<himself>'),
    'herself': ('female', '<himself>'),
}
_PRONOUN = re.compile(rf'\b(?:{"|".join(_PRONOUNS)})\b', re.IGNORECASE)


def find_pairs(texts: Sequence[Sequence[str]]) -> np.ndarray:
    """Find pairs of examples whose texts differ only in the gender of their pronouns.

    An example that fits several others is in no pair.

    Args:
        texts: the texts of each of N examples.

    Returns:
        The numbers of the two examples of each pair, the smaller first, int64 [P, 2]. No pairs
        unless most examples are in one, so that a few accidental pairs are not scored.
    """
    alike: defaultdict[tuple[str, ...], list[int]] = defaultdict(list)
    for number, of_example in enumerate(texts):
        alike[tuple(_PRONOUN.sub(_without_gender, text) for text in of_example)].append(number)
    pairs = [
        numbers
        for numbers in alike.values()
        if len(numbers) == 2 and len({tuple(_genders(texts[number])) for number in numbers}) == 2
    ]
    if 4 * len(pairs) <= len(texts):
        pairs = []
    return np.array(pairs, np.int64).reshape(-1, 2)


def _without_gender(pronoun: re.Match[str]) -> str:
    return _PRONOUNS[pronoun[0].lower()][1]


def _genders(texts: Sequence[str]) -> list[str]:
    pronouns = (pronoun for text in texts for pronoun in _PRONOUN.findall(text))
    return [_PRONOUNS[pronoun.lower()][0] for pronoun in pronouns]


def score(guesses_N: np.ndarray, pairs_P2: np.ndarray, rows_M: np.ndarray) -> dict[str, float]:
    """Return 'gender_parity', the share of pairs with the same predicted class.

    Args:
        guesses_N: the number of the predicted class of each example.
        pairs_P2: the pairs, as of `find_pairs`.
        rows_M: numbers of examples, which may repeat. A pair counts as often as its first example,
            so that resampled examples are resampled pairs.

    Returns:
        Nothing if no pair counts.
    """
    weights_P = np.bincount(rows_M, minlength=len(guesses_N))[pairs_P2[:, 0]]
    if not weights_P.any():
        return {}
    is_same_P = guesses_N[pairs_P2[:, 0]] == guesses_N[pairs_P2[:, 1]]
    return {'gender_parity': float(np.average(is_same_P, weights=weights_P))}
