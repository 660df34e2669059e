"""Examples by number, in batches by step: what every source of examples answers."""

import numpy as np


class Examples:
    """A source of examples: example number step · batch_size + row is row `row` of batch `step`,
    and a pure function of the source's seed and this number.

    Attributes:
      batch_size: rows of a global batch.
      num_examples: in an epoch.
    """

    batch_size: int
    num_examples: int

    def batch(self, step, rows: slice | np.ndarray = slice(None)) -> dict[str, np.ndarray]:
        """These rows of the global batch of a step; the same whoever asks, and in any order.

        For an int array of steps [G] it makes G batches at once, arrays [G, B, …]: much faster.
        """
        row_B = np.arange(self.batch_size)[rows]
        number = np.multiply(step, self.batch_size)[..., None] + row_B
        batch = self.examples(number.ravel())
        return {
            name: array.reshape(*number.shape, *array.shape[1:]) for name, array in batch.items()
        }
