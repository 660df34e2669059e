"""The interface of a pretraining objective."""

import dataclasses
from typing import Any, ClassVar, NamedTuple

import jax

from bert_jax.averages import Terms
from bert_jax.errors import UserError
from bert_jax.models.architecture import Architecture
from bert_jax.models.module import Module
from bert_jax.models.rows import Rows
from bert_jax.objectives.corruption import Corruption
from bert_jax.objectives.generator import Generator
from bert_jax.types import Config


class EncodedBatch(NamedTuple):
    """Rows and the encoder's states for them, which every objective reads.

    Attributes:
        clean: The rows before the corruption.
        rows: The corrupted rows that were encoded, with what must be predicted.
        hidden: States of the last layer, [B, T, D] in the compute dtype.
        decoded: States to predict tokens from, [B, T, D] in the compute dtype. Equal to `hidden`
            unless the architecture has a mask decoder.
        pooled: Pooled states, [B, D], or [B, S, D] for packed rows; None without a pooler.
        embedding_table: Token embeddings that a decoder may be tied to, float32 [V, E].
    """

    clean: Rows
    rows: Rows
    hidden: jax.Array
    decoded: jax.Array
    pooled: jax.Array | None
    embedding_table: jax.Array


class Objective(Module):
    """A pretraining objective: its heads, its loss terms and what it requires of a run.

    To add an objective, write a subclass and enter it in OBJECTIVES (objectives/__init__.py). The
    rest of the library knows only the class attributes below. Heads are created in `setup`; their
    parameters are stored under the objective's name in the table.

    Attributes:
        architecture: The encoder's architecture.
        compute: Precision and kernels.
        options: Options as returned by `read_options`.
        corruptions: Corruptions that the objective can be trained on, in order of preference.
        options_type: Dataclass of the objective's options, built from `config.<name>`; None if it
            has no options.
        is_causal: Whether positions must not attend to positions on their right.
        batch_keys: Arrays that the batches must have besides ids, attention mask and token types.
        loss_terms: Terms that the objective's weight applies to; by default `<name>_loss`.
        companions: Objectives that must be enabled as well.
        masking_schemes: Supported values of `masking.scheme`; None for all.
        fills_masks: Whether `logits(encoded)` gives predictions for masked tokens.
        reads_decoded: Whether it reads `EncodedBatch.decoded`, the output of a mask decoder.
        generator: Class of the model that completes the corruption, if there is one. The
            objectives in its `trained_by` train the generator and have no head on the encoder.
    """

    options: Any = None

    corruptions: ClassVar[tuple[type[Corruption], ...]] = ()
    options_type: ClassVar[type | None] = None
    is_causal: ClassVar[bool] = False
    batch_keys: ClassVar[tuple[str, ...]] = ()
    loss_terms: ClassVar[tuple[str, ...]] = ()
    companions: ClassVar[tuple[str, ...]] = ()
    masking_schemes: ClassVar[tuple[str, ...] | None] = None
    fills_masks: ClassVar[bool] = False
    reads_decoded: ClassVar[bool] = False
    generator: ClassVar[type[Generator] | None] = None

    def __call__(self, encoded: EncodedBatch) -> Terms:
        """Compute the objective's loss and metrics for one batch.

        A row whose attention mask is 0 everywhere must count for nothing: the last batch of an
        evaluation is filled up with such rows.
        """
        raise NotImplementedError

    @classmethod
    def read_options(cls, name: str, config: Config) -> Any:
        """Build the options from the config of a run.

        Raises:
            UserError: If `config.<name>` is missing or holds an invalid value.
        """
        if cls.options_type is None:
            return None
        if name not in config:
            raise UserError(f'objective {name!r} has options, but the config has no block {name!r}')
        known = sorted(field.name for field in dataclasses.fields(cls.options_type))
        if unknown_keys := sorted({*config[name]} - {*known}):
            raise UserError(
                f'{name}.{unknown_keys[0]} is not an option of the objective {name!r}; its options '
                f'are {", ".join(known)}'
            )
        return cls.options_type(**config[name].to_dict())

    @staticmethod
    def vocabulary_products(options: Any, sequence_length: int, num_predictions: int) -> int:
        """Return how many states per sequence are projected onto the vocabulary.

        Args:
            options: Options as returned by `read_options`.
            sequence_length: Tokens per sequence.
            num_predictions: Maximum number of masked tokens per sequence.
        """
        return 0

    @staticmethod
    def head_flops(
        architecture: Architecture, options: Any, sequence_length: int, num_predictions: int
    ) -> int:
        """Return the forward operations per sequence of the head's other matrix products."""
        return 0
