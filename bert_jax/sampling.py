"""Stateless random numbers for NumPy: every draw is a hash of a key and a counter.

A batch can therefore be made from its number alone, on any host and in any order.
"""

import numpy as np

_GOLDEN = 0x9E3779B97F4A7C15
_LANE = 0xD1342543DE82EF95
_ROUNDS = 8
_ROUND_KEYS = np.arange(_ROUNDS, dtype=np.uint64) * _LANE


def key(seed: int, *parts: int | np.ndarray) -> np.ndarray:
    """Return the key of a seed and further integers: uint64 [1] or [N]; see `fold`."""
    return fold(np.zeros(1, np.uint64), seed, *parts)


def fold(key_N: np.ndarray, *parts: int | np.ndarray) -> np.ndarray:
    """Derive a key from a key and integers or integer arrays [N], whose order matters."""
    for part in parts:
        key_N = _mix(key_N ^ _unsigned(part))
    return key_N


def random_bits(key_N: np.ndarray, counter_N: np.ndarray, lanes: int) -> np.ndarray:
    """Draw `lanes` independent 64-bit numbers for every counter: uint64 [lanes, N]."""
    lane_L = np.arange(lanes, dtype=np.uint64) * _LANE
    return _mix(fold(key_N, counter_N) + lane_L[:, None])


def uniform(bits: np.ndarray) -> np.ndarray:
    """Convert 64 random bits to float64 in [0, 1)."""
    return (bits >> 11) * 2.0**-53


def integers(bits: np.ndarray, bound: int | np.ndarray) -> np.ndarray:
    """Convert 64 random bits to int64 in [0, bound); the bias is below bound / 2^64."""
    return np.asarray(bits % _unsigned(bound), np.int64)


def fair_coins(bits_N: np.ndarray, count_N: np.ndarray) -> np.ndarray:
    """Draw the number of heads among count_N fair coins, Binomial(count, 1/2): int64 [N].

    The coins are bits: the given 64 random bits and, if needed, more bits hashed from them.
    """
    heads_N = np.zeros(count_N.shape, np.int64)
    open_R = np.flatnonzero(count_N > 0)
    bits_R, left_R = bits_N[open_R], count_N[open_R]
    while open_R.size:
        unused_R = 64 - np.minimum(left_R, 64)
        heads_N[open_R] += np.bitwise_count(bits_R >> _unsigned(unused_R))
        more = left_R > 64
        open_R, bits_R, left_R = open_R[more], _mix(bits_R[more]), left_R[more] - 64
    return heads_N


def permute(index_N: np.ndarray, size: int | np.ndarray, key_N: np.ndarray) -> np.ndarray:
    """Apply a keyed random permutation of [0, size) to indices.

    A Feistel network over the two digits of index = left · columns + right, where rows · columns is
    slightly above `size`; the rare results outside [0, size) pass through the network again until
    they are inside (generalized Feistel and cycle-walking ciphers of Black and Rogaway 2002,
    'Ciphers with arbitrary finite domains').

    Args:
        index_N: int64 [N], indices in [0, size).
        size: Size of the set; or int64 [N], to permute several sets at once.
        key_N: uint64 [1] or [N].

    Returns:
        int64 [N].
    """
    rows = _unsigned(np.ceil(np.sqrt(size)))  # exact up to 2^52
    columns = (_unsigned(size) + rows - 1) // rows
    network = [np.broadcast_to(value, index_N.shape) for value in (rows, columns, key_N)]
    size_N = np.broadcast_to(size, index_N.shape)
    result_N = _feistel(_unsigned(index_N), *network)
    while (outside_R := np.flatnonzero(result_N >= size_N)).size:
        parts = (value_N[outside_R] for value_N in network)
        result_N[outside_R] = _feistel(result_N[outside_R], *parts)
    return result_N.astype(np.int64)


def _feistel(
    value: np.ndarray, rows: np.ndarray, columns: np.ndarray, key: np.ndarray
) -> np.ndarray:
    left, right = np.divmod(value, columns)
    # Half of a hash, so that the sum does not wrap at 2^64, which would break the bijection.
    for number in range(0, _ROUNDS, 2):
        left = (left + (_mix(key + _ROUND_KEYS[number] ^ right) >> 1)) % rows
        right = (right + (_mix(key + _ROUND_KEYS[number + 1] ^ left) >> 1)) % columns
    return np.asarray(left * columns + right)


def _mix(value: np.ndarray) -> np.ndarray:
    """The finalizer of SplitMix64 (Steele, Lea and Flood 2014), Stafford's mix 13."""
    value = value + _GOLDEN
    value ^= value >> 30
    value *= 0xBF58476D1CE4E5B9
    value ^= value >> 27
    value *= 0x94D049BB133111EB
    value ^= value >> 31
    return value


def _unsigned(value: int | np.ndarray) -> np.ndarray:
    if isinstance(value, int):
        return np.array([value % 2**64], np.uint64)
    return np.asarray(value).astype(np.uint64)
