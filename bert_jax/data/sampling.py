"""Randomness without state: every draw is a hash of its key and a counter.

A batch can thus be rebuilt from its number alone, on any host and in any order.
"""

import math

import numpy as np

_GOLDEN = 0x9E3779B97F4A7C15
_LANE = 0xD1342543DE82EF95
_ROUNDS = 8
_ROUND_KEYS = np.arange(_ROUNDS, dtype=np.uint64) * _LANE


def key(seed: int, *parts) -> np.ndarray:
    """uint64 [1] or [N]: the key of a seed and further integers (see `fold`)."""
    return fold(np.zeros(1, np.uint64), seed, *parts)


def fold(key_N: np.ndarray, *parts) -> np.ndarray:
    """The key made from a key and ints or int arrays [N]; their order matters."""
    for part in parts:
        key_N = _mix(key_N ^ _unsigned(part))
    return key_N


def random_bits(key_N: np.ndarray, counter_N: np.ndarray, lanes: int) -> np.ndarray:
    """uint64 [lanes, N]: `lanes` independent 64-bit draws for every counter."""
    lane_L = np.arange(lanes, dtype=np.uint64) * _LANE
    return _mix(fold(key_N, counter_N) + lane_L[:, None])


def uniform(bits: np.ndarray) -> np.ndarray:
    """float64 in [0, 1) from 64 random bits."""
    return (bits >> 11) * 2.0**-53


def integers(bits: np.ndarray, bound) -> np.ndarray:
    """int64 in [0, bound) from 64 random bits; the bias, bound / 2^64, is far below notice."""
    return (bits % _unsigned(bound)).astype(np.int64)


def fair_coins(bits_N: np.ndarray, count_N: np.ndarray) -> np.ndarray:
    """int64 [N]: heads among count_N fair coins, exactly Binomial(count, 1/2).

    Set bits are counted: the first 64 coins are the given random bits, more are hashed from them.
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


def permute(index_N: np.ndarray, size, key_N: np.ndarray) -> np.ndarray:
    """A keyed bijection of [0, size): int64 [N] → int64 [N]. The size may be an int array [N] too:
    numbers of several sets, each mapped within its own.

    A Feistel network over the two digits of index = left · columns + right, where rows · columns is
    just above `size`, so that its rare results outside [0, size) can be sent through again (cycle
    walking) until they fall inside. After Black and Rogaway 2002, 'Ciphers with arbitrary finite
    domains', generalized Feistel and cycle-walking ciphers.
    """
    if isinstance(size, np.ndarray):
        digits = _unsigned(np.ceil(np.sqrt(size)))  # exact up to 2^52
        digits = digits, (_unsigned(size) + digits - 1) // digits
    else:
        rows = math.isqrt(size - 1) + 1
        digits = rows, -(-size // rows)
    key_N = np.broadcast_to(key_N, index_N.shape)
    result_N = _feistel(_unsigned(index_N), *digits, key_N)
    size_N = np.broadcast_to(size, index_N.shape)
    while (outside_R := np.flatnonzero(result_N >= size_N)).size:
        some = [x if np.ndim(x) == 0 else x[outside_R] for x in digits]
        result_N[outside_R] = _feistel(result_N[outside_R], *some, key_N[outside_R])
    return result_N.astype(np.int64)


def _feistel(value, rows, columns, key_N):
    left, right = np.divmod(value, columns)
    # Half of a hash, lest the sum wrap at 2^64: wrapping would not be a bijection modulo rows.
    for number in range(0, _ROUNDS, 2):
        left = (left + (_mix(key_N + _ROUND_KEYS[number] ^ right) >> 1)) % rows
        right = (right + (_mix(key_N + _ROUND_KEYS[number + 1] ^ left) >> 1)) % columns
    return left * columns + right


def _mix(value: np.ndarray) -> np.ndarray:
    """The finaliser of SplitMix64 (Steele, Lea and Flood 2014; constants: Stafford's mix 13)."""
    value = value + _GOLDEN
    value ^= value >> 30
    value *= 0xBF58476D1CE4E5B9
    value ^= value >> 27
    value *= 0x94D049BB133111EB
    value ^= value >> 31
    return value


def _unsigned(value) -> np.ndarray:
    if isinstance(value, int):
        return np.array([value % 2**64], np.uint64)
    return np.asarray(value).astype(np.uint64)
