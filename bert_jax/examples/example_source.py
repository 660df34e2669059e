"""Sources of examples: batches as pure functions of (seed, step)."""

import abc
from typing import Protocol

import numpy as np


class BatchSource(Protocol):
    """Batches by step, as the input pipeline needs them."""

    @property
    def batch_size(self) -> int:
        """Rows of a global batch."""

    def batch(
        self, step: int | np.ndarray, rows: slice | np.ndarray = slice(None)
    ) -> dict[str, np.ndarray]:
        """Return rows of the global batch of a step; see `ExampleSource.batch`."""


class ExampleSource(abc.ABC):
    """A `BatchSource` whose example number n is a pure function of (seed, n).

    Row `row` of the batch of step `step` is example number step · batch_size + row.

    Attributes:
        batch_size: Rows of a global batch.
        num_examples: Examples of an epoch.
    """

    batch_size: int
    num_examples: int

    @abc.abstractmethod
    def examples(self, number_B: np.ndarray) -> dict[str, np.ndarray]:
        """Return the examples with these numbers (int64 [B]), as arrays [B, …]."""

    def batch(
        self, step: int | np.ndarray, rows: slice | np.ndarray = slice(None)
    ) -> dict[str, np.ndarray]:
        """Return rows of the global batch of a step; the same in any process and any order.

        Args:
            step: Number of the step. An int array [G] gives G batches as arrays [G, B, …], much
                faster than G calls.
            rows: Rows of the global batch.
        """
        row_B = np.arange(self.batch_size)[rows]
        number = np.multiply(step, self.batch_size)[..., None] + row_B
        batch = self.examples(number.ravel())
        return {
            name: array.reshape(*number.shape, *array.shape[1:]) for name, array in batch.items()
        }

    def statistics(self) -> dict[str, int]:
        """Return counts for the log."""
        return {}

    def language_shares(self, number: int) -> dict[str, tuple[float, float]]:
        """Return language → share of the first `number` examples, target; {} without a mixture."""
        return {}


class FirstExamples:
    """The first examples of a source, at most one epoch; the last batch is filled up.

    Attributes:
        batch_size: Rows of a global batch.
        num_examples: Examples that count; `blank_rows` fill the rest of the last batch.
        num_batches: Batches that hold them.
    """

    def __init__(self, source: ExampleSource, number: int):
        self.batch_size = source.batch_size
        self.num_examples = min(number, source.num_examples)
        self.num_batches = -(-self.num_examples // self.batch_size)
        self._source = source

    def batch(
        self, step: int | np.ndarray, rows: slice | np.ndarray = slice(None)
    ) -> dict[str, np.ndarray]:
        """Return rows of a batch; see `ExampleSource.batch`."""
        number = np.multiply(step, self.batch_size)[..., None] + np.arange(self.batch_size)[rows]
        return blank_rows(self._source.batch(step, rows), number >= self.num_examples)


def blank_rows(batch: dict[str, np.ndarray], is_blank_R: np.ndarray) -> dict[str, np.ndarray]:
    """Take all tokens out of the attention of some rows, so that these rows count for nothing."""
    if not is_blank_R.any():
        return batch
    outside = {'attention_mask': 0, 'segment_ids': 0, 'first_positions': -1}
    return batch | {
        name: np.where(is_blank_R[..., None], value, batch[name]).astype(batch[name].dtype)
        for name, value in outside.items()
        if name in batch
    }


def ranges(count_N: np.ndarray) -> np.ndarray:
    """Return 0, …, count − 1 for each count, concatenated."""
    return np.asarray(np.arange(count_N.sum()) - np.repeat(np.cumsum(count_N) - count_N, count_N))
