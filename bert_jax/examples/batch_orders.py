"""The order of training examples in an epoch, which decides what is in a batch together.

Every order is a pure function of the number of the epoch.
"""

import abc
import collections
import dataclasses

import numpy as np

from bert_jax import sampling
from bert_jax.errors import UserError

_ORDER, _STRATIFY = 200, 201  # random streams
_STRETCH_BATCHES = 32  # batches whose examples are stratified by length together


@dataclasses.dataclass(frozen=True, eq=False)
class BatchOrder(abc.ABC):
    """How batches are composed.

    Attributes:
        length_N: int64 [N], tokens of each example.
        batch_size: examples of a batch.
        seed: seed of the order.
    """

    length_N: np.ndarray
    batch_size: int
    seed: int

    @property
    def size(self) -> int:
        """The number of examples in an epoch."""
        return len(self.length_N)

    @abc.abstractmethod
    def epoch(self, number: int) -> np.ndarray:
        """Return the examples of an epoch in their order, int64 [size]."""

    def shuffled(self, epoch: int) -> np.ndarray:
        """Return all examples in a random order, int64 [N]."""
        total = len(self.length_N)
        return sampling.permute(np.arange(total), total, sampling.key(self.seed, epoch, _ORDER))


class Stratified(BatchOrder):
    """A random order in which every batch has examples of all lengths.

    The shuffled examples are divided into stretches of _STRETCH_BATCHES batches. In a stretch of k
    batches, the k longest are distributed over the batches at random, then the k next longest, and
    so on; finally the order in each batch is shuffled.
    """

    def epoch(self, number: int) -> np.ndarray:
        order_N, length_N = self.shuffled(number), self.length_N
        total = len(order_N)
        key = sampling.key(self.seed, number, _STRATIFY)
        random_N = sampling.random_bits(key, np.arange(total), 2)
        stretch = _STRETCH_BATCHES * self.batch_size
        for start in range(0, total, stretch):
            items = order_N[start : start + stretch]
            batches = -(-len(items) // self.batch_size)
            items = items[np.argsort(-length_N[items], kind='stable')]
            to_batch, within_batch = random_N[:, start : start + len(items)]
            stratum = np.arange(len(items)) // batches
            items = items[np.lexsort((to_batch, stratum))]
            batch = np.arange(len(items)) % batches
            order_N[start : start + stretch] = items[np.lexsort((within_batch, batch))]
        return order_N


@dataclasses.dataclass(frozen=True, eq=False)
class WithoutCopies(Stratified):
    """Batches in which no two examples share a text.

    An example that shares a text with its batch waits for the next one. The examples that are left
    after the last full batch of an epoch are not in this epoch; in the next one they are others.

    Attributes:
        texts_NK: the texts of each example, as numbers.
    """

    texts_NK: np.ndarray

    @property
    def size(self) -> int:
        """The number of examples in the full batches of an epoch."""
        return len(self.length_N) // self.batch_size * self.batch_size

    def epoch(self, number: int) -> np.ndarray:
        """See `BatchOrder.epoch`. Raises UserError if a batch cannot be filled."""
        waiting = collections.deque(super().epoch(number).tolist())
        order: list[int] = []
        while len(order) < self.size:
            order += self._fill(waiting, len(order) // self.batch_size)
        return np.array(order, np.int64)

    def _fill(self, waiting: collections.deque[int], batch: int) -> list[int]:
        """Take the next batch from the waiting examples."""
        used: set[int] = set()
        chosen: list[int] = []
        postponed: list[int] = []
        while len(chosen) < self.batch_size:
            if not waiting:
                raise UserError(
                    f"problem.batches is 'without_copies', but batch {batch + 1} of an epoch has "
                    f'only {len(chosen)} of {self.batch_size} examples without a common text; set '
                    "a smaller training.batch_size, or problem.batches='shuffled'"
                )
            example = waiting.popleft()
            texts = set(self.texts_NK[example].tolist())
            if used & texts:
                postponed.append(example)
            else:
                chosen.append(example)
                used |= texts
        waiting.extendleft(reversed(postponed))
        return chosen


@dataclasses.dataclass(frozen=True, eq=False)
class PairsOfClasses(BatchOrder):
    """Batches of pairs of examples of the same class.

    A class with an odd number of examples is short of one of them in an epoch, each time another.

    Attributes:
        class_N: the class of each example.
    """

    class_N: np.ndarray

    def __post_init__(self) -> None:
        """Raise UserError for a batch size or classes without a batch of two pairs."""
        if self.batch_size % 2 or self.batch_size < 4:
            raise UserError(
                f'training.batch_size is {self.batch_size}, but batches of pairs of classes need '
                'an even number of at least 4 examples'
            )
        _, counts = np.unique(self.class_N, return_counts=True)
        if (counts >= 2).sum() < 2:
            raise UserError(
                'batches of pairs of classes need two classes with two training examples each; '
                'check data.columns.label'
            )

    @property
    def size(self) -> int:
        """The number of examples in the pairs of an epoch."""
        _, counts = np.unique(self.class_N, return_counts=True)
        return int((counts // 2 * 2).sum())

    def epoch(self, number: int) -> np.ndarray:
        order_N = self.shuffled(number)
        order_N = order_N[np.argsort(self.class_N[order_N], kind='stable')]
        _, counts = np.unique(self.class_N, return_counts=True)
        is_kept_N = np.ones(len(order_N), bool)
        is_kept_N[np.cumsum(counts)[counts % 2 == 1] - 1] = False
        pairs_P2 = order_N[is_kept_N].reshape(-1, 2)
        key = sampling.key(self.seed, number, _STRATIFY)
        order_P = sampling.permute(np.arange(len(pairs_P2)), len(pairs_P2), key)
        order: np.ndarray = pairs_P2[order_P].ravel()
        return order
