"""The interface of a pretraining objective."""

import abc
import dataclasses
from collections.abc import Mapping
from typing import ClassVar, Self

from bert_jax.averages import Terms
from bert_jax.errors import UserError
from bert_jax.models.architecture import Architecture, Compute
from bert_jax.models.model import HeadOptions, Model, ModelOutput
from bert_jax.models.rows import Rows
from bert_jax.objectives.corruption import Corruption
from bert_jax.types import Config


@dataclasses.dataclass(frozen=True)
class Objective(abc.ABC):
    """A pretraining objective: its heads, its loss terms and what it requires of a run.

    To add an objective, write a subclass and enter it in OBJECTIVES (objectives/__init__.py). The
    fields of a subclass are its options, the keys of `config.<name>`.

    Attributes:
        corruptions: Corruptions that the objective can be trained on, in order of preference.
        is_causal: Whether positions must not attend to positions on their right.
        is_generative: Whether the model learns to write text.
        batch_keys: Arrays that the batches must have besides ids, attention mask and token types.
        loss_terms: Terms that the objective's weight applies to; by default `<name>_loss`.
        companions: Objectives that must be enabled as well.
        masking_schemes: Supported values of `masking.scheme`; None for all.
    """

    corruptions: ClassVar[tuple[type[Corruption], ...]]
    is_causal: ClassVar[bool] = False
    is_generative: ClassVar[bool] = False
    batch_keys: ClassVar[tuple[str, ...]] = ()
    loss_terms: ClassVar[tuple[str, ...]] = ()
    companions: ClassVar[tuple[str, ...]] = ()
    masking_schemes: ClassVar[tuple[str, ...] | None] = None

    @classmethod
    def build(cls, name: str, config: Config) -> Self:
        """Build the objective with the options in the config of a run.

        Raises:
            UserError: If `config.<name>` is missing or holds an invalid value.
        """
        known = sorted(field.name for field in dataclasses.fields(cls))
        if not known:
            return cls()
        if name not in config:
            raise UserError(f'objective {name!r} has options, but the config has no block {name!r}')
        if unknown_keys := sorted({*config[name]} - {*known}):
            raise UserError(
                f'{name}.{unknown_keys[0]} is not an option of the objective {name!r}; its options '
                f'are {", ".join(known)}'
            )
        return cls(**config[name].to_dict())

    @abc.abstractmethod
    def heads(self) -> Mapping[str, HeadOptions]:
        """Return the heads of the objective: name in HEADS of models/heads → options."""

    def make_model(
        self, architecture: Architecture, compute: Compute, heads: Mapping[str, HeadOptions]
    ) -> Model | None:
        """Return the model with the heads of all objectives; None: a `Model` serves."""
        return None

    @abc.abstractmethod
    def terms(self, output: ModelOutput, clean: Rows) -> Terms:
        """Compute the objective's loss and metrics for one batch.

        A row whose attention mask is 0 everywhere must count for nothing: the last batch of an
        evaluation is filled up with such rows.

        Args:
            output: What the model computed for the corrupted rows.
            clean: The rows before the corruption.
        """
