"""Isotropy: the mean cosine of two vectors, and the variance and correlation of dimensions.

Sources: Ethayarajh 2019, "How Contextual are Contextualized Word Representations?" (anisotropy);
Timkey and van Schijndel 2021, "All Bark and No Bite" (contribution of each dimension). Both papers
sample pairs; here, running sums give the mean over all pairs in one pass.
"""

from typing import NamedTuple

import numpy as np

# A dimension is dead if its standard deviation is below this share of the largest absolute value of
# any dimension: z-scores would turn its rounding errors into features.
DEAD = 1e-5
ROGUE_SHARE = 0.05  # share of the mean cosine above which a dimension counts as rogue


class UnitSums(NamedTuple):
    """Sums over unit vectors, by group (such as a document).

    Attributes:
        sums_GD: float64, sum of the unit vectors.
        squares_GD: float64, sum of the squared unit vectors.
        counts_G: float64, number of vectors.
    """

    sums_GD: np.ndarray
    squares_GD: np.ndarray
    counts_G: np.ndarray

    def add(self, group: int, vectors_ND: np.ndarray) -> None:
        """Normalize vectors and add them to a group, in place; zero vectors are ignored."""
        norms_N = np.linalg.norm(vectors_ND, axis=1)
        unit_ND = vectors_ND[norms_N > 0] / norms_N[norms_N > 0, None]
        self.sums_GD[group] += unit_ND.sum(0, dtype=np.float64)
        self.squares_GD[group] += np.square(unit_ND).sum(0, dtype=np.float64)
        self.counts_G[group] += len(unit_ND)

    def contributions(self, weights_G: np.ndarray | None = None) -> np.ndarray:
        """Contribution of each dimension to the mean cosine of two different vectors, float64 [D].

        For n unit vectors x, the contribution of dimension d is ((Σ x_d)² − Σ x_d²) / (n (n − 1));
        the contributions sum to the mean cosine.

        Args:
            weights_G: how often a resample drew each group. Pairs of a vector and its copies are
                excluded.
        """
        weights_G = np.ones(len(self.counts_G)) if weights_G is None else weights_G
        n, num_self_pairs = weights_G @ self.counts_G, np.square(weights_G) @ self.counts_G
        products_D = np.square(weights_G @ self.sums_GD) - np.square(weights_G) @ self.squares_GD
        return np.asarray(products_D / (n * n - num_self_pairs))


def unit_sums(num_groups: int, size: int) -> UnitSums:
    """Zero sums for vectors of `size` dimensions."""
    return UnitSums(
        np.zeros((num_groups, size)), np.zeros((num_groups, size)), np.zeros(num_groups)
    )


class Moments(NamedTuple):
    """Running sums for the mean and the standard deviation of vectors.

    Attributes:
        sums_2D: float64, sum of (vector − origin_D), and sum of its square.
        largest_D: float32, the largest absolute value.
        number: int64 [1], number of vectors.
        origin_D: float64, the first vector; subtracting it keeps the squares small.
    """

    sums_2D: np.ndarray
    largest_D: np.ndarray
    number: np.ndarray
    origin_D: np.ndarray

    def add(self, vectors_ND: np.ndarray) -> None:
        """Add vectors, in place."""
        if not self.number[0] and len(vectors_ND):
            self.origin_D[:] = vectors_ND[0]
        shifted_ND = vectors_ND - self.origin_D
        self.sums_2D[0] += shifted_ND.sum(0)
        self.sums_2D[1] += np.square(shifted_ND).sum(0)
        self.largest_D[:] = np.maximum(self.largest_D, np.abs(vectors_ND).max(0, initial=0))
        self.number[0] += len(vectors_ND)

    def scale(self) -> 'Scale':
        """The mean and standard deviation of each dimension, and which dimensions are dead."""
        mean_D, square_D = self.sums_2D / self.number[0]
        deviation_D = np.sqrt(np.maximum(square_D - mean_D**2, 0))
        return Scale(
            self.origin_D + mean_D, deviation_D, deviation_D <= DEAD * self.largest_D.max()
        )


def moments(size: int) -> Moments:
    """Zero sums for vectors of `size` dimensions."""
    return Moments(
        np.zeros((2, size)), np.zeros(size, np.float32), np.zeros(1, np.int64), np.zeros(size)
    )


class Scale(NamedTuple):
    """Mean and standard deviation of each dimension over a corpus, for z-scores.

    Attributes:
        mean_D, deviation_D: float64.
        is_dead_D: bool, whether the standard deviation is too small to divide by; see DEAD.
    """

    mean_D: np.ndarray
    deviation_D: np.ndarray
    is_dead_D: np.ndarray

    def standardize(self, vectors_ND: np.ndarray) -> np.ndarray:
        """Return z-scores: (x − mean) / deviation; 0 in dead dimensions."""
        deviation_D = np.where(self.is_dead_D, np.inf, self.deviation_D)
        dtype = vectors_ND.dtype
        return np.asarray((vectors_ND - self.mean_D.astype(dtype)) / deviation_D.astype(dtype))

    def variance_ratio(self) -> float:
        """The largest variance of a dimension divided by the smallest; dead ones do not count."""
        variance_D = np.square(self.deviation_D[~self.is_dead_D])
        return float(variance_D.max() / variance_D.min())


def mean_correlation(products_DD: np.ndarray, is_dead_D: np.ndarray) -> float:
    """The mean absolute correlation of two dimensions; 0 with fewer than two that are not dead.

    Args:
        products_DD: sum over all vectors of the products of their z-scores.
        is_dead_D: dimensions that do not count.
    """
    products_DD = products_DD[np.ix_(~is_dead_D, ~is_dead_D)]
    size = len(products_DD)
    if size < 2:
        return 0.0
    deviation_D = np.sqrt(np.diag(products_DD))
    correlations_DD = products_DD / np.outer(deviation_D, deviation_D)
    return float((np.abs(correlations_DD).sum() - size) / (size * (size - 1)))
