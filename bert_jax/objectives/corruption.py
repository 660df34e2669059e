"""The interface of a corruption: a change to the text that the encoder must undo or detect."""

import abc
import dataclasses
from collections.abc import Mapping, Sequence
from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from bert_jax.models.rows import Rows
from bert_jax.objectives.masking_schemes import find_scheme
from bert_jax.types import Array, Config, Key

REPLACEMENTS = ('uniform', 'unigram')


class TargetLayout(NamedTuple):
    """Special tokens around a text in the rows of an encoder–decoder, and before its target.

    A text is X </s> after `cls_ids`, and with a language X </s> [en].

    Attributes:
        cls_ids: The token before a text, or none.
        sep_id: The token after it.
        start_id: The token before a target; None: that of the language, which also ends texts.
    """

    cls_ids: tuple[int, ...]
    sep_id: int
    start_id: int | None

    @property
    def has_language(self) -> bool:
        """Whether rows end with the token of their language."""
        return self.start_id is None

    @property
    def num_special(self) -> int:
        """How many tokens are around a text."""
        return len(self.cls_ids) + 1 + self.has_language

    @property
    def of_target(self) -> 'TargetLayout':
        """The layout of targets: X </s> if the token before a target is that before a text."""
        return self._replace(cls_ids=()) if self.start_id in self.cls_ids else self


@dataclasses.dataclass(frozen=True, eq=False)
class Vocabulary:
    """What corruptions know of the vocabulary.

    Attributes:
        mask_id: Id of [MASK]; −1 if the corruption does not hide tokens.
        pad_id: Id of the padding token.
        special_ids: Ids of tokens that corruptions do not change.
        unigram_counts_V: int64, frequencies in the corpus.
        is_word_start_V: bool, whether a token starts a word; None if the vocabulary does not mark
            word starts, or the masking scheme does not need words.
        sentinel_ids: Ids of the sentinels <extra_id_0>, <extra_id_1>, …, which stand for spans.
        layout: Special tokens of an encoder–decoder; None for encoders.
    """

    mask_id: int
    pad_id: int
    special_ids: Sequence[int]
    unigram_counts_V: np.ndarray
    is_word_start_V: np.ndarray | None = None
    sentinel_ids: Sequence[int] = ()
    layout: TargetLayout | None = None

    def is_special(self, ids: Array) -> jax.Array:
        """Whether ids are special tokens, which corruptions do not change."""
        return jnp.isin(ids, jnp.array(self.special_ids))

    def random_ids(self, key: Key, shape: tuple[int, ...], replacement: str) -> jax.Array:
        """Draw token ids from one of the distributions REPLACEMENTS."""
        if replacement == 'uniform':
            return jax.random.randint(key, shape, 0, len(self.unigram_counts_V))
        cumulative_V = np.cumsum(self.unigram_counts_V) / self.unigram_counts_V.sum()
        draw = jax.random.uniform(key, shape)
        ids = jnp.searchsorted(jnp.asarray(cumulative_V, jnp.float32), draw, side='right')
        return ids.astype(jnp.int32)


@dataclasses.dataclass(frozen=True, eq=False)
class Corruption(abc.ABC):
    """Turns clean rows into corrupted rows, inside the jitted training step.

    Attributes:
        vocabulary: Special tokens and frequencies.
        masking_keys: Keys of `config.masking` that the corruption reads.
        hides_tokens: Whether the vocabulary must have a [MASK].
        allows_packing: Whether a row may hold several examples (`data.pack`).
    """

    vocabulary: Vocabulary

    masking_keys: ClassVar[tuple[str, ...]] = ('unknown',)
    hides_tokens: ClassVar[bool] = True
    allows_packing: ClassVar[bool] = True

    @property
    def has_causal_rows(self) -> bool:
        """Whether some of the rows have causal attention (`Rows.causal_B`)."""
        return False

    @property
    def has_prefix(self) -> bool:
        """Whether some tokens are seen by earlier positions of a causal model too."""
        return False

    @classmethod
    def build(
        cls, config: Config, vocabulary: Vocabulary, num_predictions: Mapping[int, int]
    ) -> 'Corruption':
        """Return the corruption of a run.

        Args:
            config: See configs/base.py.
            vocabulary: See `Vocabulary`.
            num_predictions: Sequence length → maximum number of masked tokens per row.

        Raises:
            UserError: For invalid values in the config.
        """
        return cls(vocabulary)

    @classmethod
    def reads_words(cls, config: Config) -> bool:
        """Whether the corruption of a run must know which tokens start a word."""
        return find_scheme(config.masking.scheme).needs_words

    def source_length(self, length: int) -> int:
        """Return the length of the encoder's rows for clean rows of this length."""
        return length

    def target_length(self, length: int) -> int:
        """Return the length of the decoder's rows for clean rows of this length; 0 without one."""
        return 0

    def at(self, progress: ArrayLike) -> 'Corruption':
        """Return the corruption after a share of the run, in [0, 1]; by default it does not change.

        Evaluation uses the corruption at the end of the run.
        """
        return self

    @abc.abstractmethod
    def __call__(self, keys_B: Key, rows: Rows) -> Rows:
        """Corrupt rows.

        Args:
            keys_B: One PRNG key per row. The result for a row must depend only on its key and its
                arrays, so that it is the same on any mesh.
            rows: The clean rows.

        Returns:
            The rows that the encoder reads, with `targets` or labels of what it must predict. Their
            shapes depend on the shapes of `rows` alone.
        """

    def describe(self, rows: Rows, row: int, vocab: Sequence[str]) -> dict[str, list[object]]:
        """Return the prediction targets of a corrupted row in readable form, for `debug.batch`."""
        assert rows.targets is not None
        positions_P, ids_P, weights_P = (array_BP[row] for array_BP in rows.targets)
        slots = np.flatnonzero(weights_P)
        slots = slots[np.argsort(positions_P[slots])]  # from left to right
        return {
            'masked_positions': positions_P[slots].tolist(),
            'labels': [vocab[index] for index in ids_P[slots]],
        }
