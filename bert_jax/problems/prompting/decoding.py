"""Scores answers of several subwords (pieces): the order in which their masks are filled.

An answer of k pieces is scored on a prompt with k masks; its score is the sum of the log
probabilities of its pieces, each given the pieces filled in before (Schick & Schütze 2021,
"It's Not Just Size That Matters", section 3.1, and timoschick/pet).
"""

from collections.abc import Callable, Iterable, Sequence

import numpy as np

# Name → function from log p of the pieces at their masks [K] and the open masks to the masks to
# fill next.
DECODINGS: dict[str, Callable[[np.ndarray, Sequence[int]], Sequence[int]]] = {
    'max_first': lambda log_p_K, masks: [max(masks, key=lambda mask: log_p_K[mask])],
    'left_to_right': lambda log_p_K, masks: masks[:1],
    'parallel': lambda log_p_K, masks: masks,
}


class PartialScore:
    """An answer whose masks are being filled.

    Attributes:
        log_p: log probability of the filled pieces, in nats.
        masks: indices of the open masks.
    """

    def __init__(self, num_pieces: int) -> None:
        self.log_p, self.masks = 0.0, list(range(num_pieces))

    def fill(self, decoding: str, rounds: Iterable[np.ndarray]) -> 'PartialScore':
        """Fill masks from the outputs of successive rounds, fp32 [K] each, until all are filled."""
        for log_p_K in rounds:
            for mask in list(DECODINGS[decoding](log_p_K, self.masks)):
                self.log_p += float(log_p_K[mask])
                self.masks.remove(mask)
            if not self.masks:
                break
        return self
