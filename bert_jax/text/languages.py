"""Shares of languages: q_i ∝ p_i^alpha (Conneau and Lample 2019, section 3.1).

p_i is a language's share of the text, and alpha an exponent: 1 keeps the shares, 0 makes them
equal, XLM-R used 0.3.
"""

from collections.abc import Sequence

import numpy as np

from bert_jax.errors import UserError


def shares(amounts: Sequence[int], alpha: float) -> np.ndarray:
    """Return q_i ∝ (amount_i / Σ amounts)^alpha, float64 [L].

    Raises:
        UserError: alpha is not between 0 and 1, or a language has no text.
    """
    check_alpha(alpha)
    amounts_L = np.asarray(amounts, np.float64)
    if not (amounts_L > 0).all():
        raise UserError('a language has no text: remove its source')
    powers_L = (amounts_L / amounts_L.sum()) ** alpha
    return np.asarray(powers_L / powers_L.sum())


def check_alpha(alpha: float) -> None:
    """Raise UserError unless 0 ≤ alpha ≤ 1."""
    if not 0 <= alpha <= 1:
        raise UserError(
            f'language_alpha is {alpha}, but must be between 0 (equal shares) and 1 (by amount)'
        )


def largest_remainder(shares_L: np.ndarray, total: int) -> np.ndarray:
    """Round shares · total to integers with the sum `total`, up for the largest remainders.

    Returns int64 [L].
    """
    exact_L = shares_L * total
    count_L: np.ndarray = np.floor(exact_L).astype(np.int64)
    order_L = np.argsort(count_L - exact_L, kind='stable')
    count_L[order_L[: total - count_L.sum()]] += 1
    return count_L
