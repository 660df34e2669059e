"""Pretraining objectives: what an encoder learns from unlabeled text.

OBJECTIVES is the only place that knows objectives by name. An objective is a subclass of
`Objective` and a line in this table. Its weight in the loss is
`config.objectives.<name>`. All objectives of a run share one corruption of the text, because the
encoder reads each batch once.
"""

import abc
import dataclasses
from collections.abc import Collection, Mapping, Sequence
from typing import ClassVar, Self

import jax
import jax.numpy as jnp

from bert_jax.averages import Terms, weighted_sum
from bert_jax.errors import UserError, unknown
from bert_jax.lazy_table import LazyTable
from bert_jax.models.architecture import Architecture, Compute
from bert_jax.models.model import HeadOptions, Model, ModelOutput
from bert_jax.models.rows import Rows
from bert_jax.objectives.corruption import Corruption
from bert_jax.types import Config


@dataclasses.dataclass(frozen=True)
class Objective(abc.ABC):
    """A pretraining objective: its heads, its loss terms and what it requires of a run.

    To add an objective, write a subclass and enter it in OBJECTIVES. The
    fields of a subclass are its options, the keys of `config.<name>`.

    Attributes:
        corruptions: Names in CORRUPTIONS, in order of preference; it can be trained on each.
        is_causal: Whether positions must not attend to positions on their right.
        reads_decoder: Whether its heads read the states of a decoder, which the model must have.
        is_generative: Whether the model learns to write text.
        predicts_tokens: Whether `<name>_loss` is the mean cross-entropy in nats of the tokens at
            the chosen positions (`Rows.chosen`). Reports then have its perplexity, the baseline of
            token frequencies and, if it is not below that, a warning.
        has_z_loss: Whether its head is an array of these logits, so that `training.z_loss` applies.
        batch_keys: Arrays that the batches must have besides ids, attention mask and token types.
        loss_terms: Terms that the objective's weight applies to; by default `<name>_loss`.
        companions: Objectives that must be enabled as well.
        masking_schemes: Supported values of `masking.scheme`; None for all.
    """

    corruptions: ClassVar[tuple[str, ...]]
    is_causal: ClassVar[bool] = False
    reads_decoder: ClassVar[bool] = False
    is_generative: ClassVar[bool] = False
    predicts_tokens: ClassVar[bool] = False
    has_z_loss: ClassVar[bool] = True
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


OBJECTIVES: LazyTable[type[Objective]] = LazyTable(
    {
        'mlm': 'bert_jax.objectives.mlm:MaskedLanguageModel',
        'nsp': 'bert_jax.objectives.nsp:NextSentencePrediction',
        'sop': 'bert_jax.objectives.nsp:SentenceOrderPrediction',
        'sbo': 'bert_jax.objectives.sbo:SpanBoundaryObjective',
        'rtd': 'bert_jax.objectives.rtd:ReplacedTokenDetection',
        'clm': 'bert_jax.objectives.clm:CausalLanguageModel',
        'mntp': 'bert_jax.objectives.mntp:MaskedNextToken',
        'ntp': 'bert_jax.objectives.mntp:NextToken',
        'bilm': 'bert_jax.objectives.bilm:BidirectionalLanguageModel',
        'plm': 'bert_jax.objectives.plm:PermutationLanguageModel',
        'diffusion': 'bert_jax.objectives.diffusion:MaskedDiffusion',
        'denoising': 'bert_jax.objectives.denoising:Denoising',
        'permutation': 'bert_jax.objectives.edit_detection:PermutationDetection',
        'deletion': 'bert_jax.objectives.edit_detection:DeletionDetection',
        'insertion': 'bert_jax.objectives.edit_detection:InsertionDetection',
        'substitution': 'bert_jax.objectives.edit_detection:SubstitutionDetection',
    }
)

# Name → a change to the text that the encoder must undo or detect.
CORRUPTIONS: LazyTable[type[Corruption]] = LazyTable(
    {
        'masked': 'bert_jax.objectives.masking:MaskedText',
        'replaced': 'bert_jax.objectives.generator:ReplacedText',
        'diffused': 'bert_jax.objectives.diffusion:DiffusedText',
        'causal': 'bert_jax.objectives.clm:CausalText',
        'hybrid': 'bert_jax.objectives.mntp:HybridText',
        'clean': 'bert_jax.objectives.bilm:CleanText',
        'permuted': 'bert_jax.objectives.plm:PermutedText',
        'noised': 'bert_jax.objectives.denoising:NoisedText',
        'edited': 'bert_jax.objectives.edits:EditedText',
    }
)


def enabled(weights: Mapping[str, float]) -> tuple[str, ...]:
    """Return the objectives with a weight above 0, in the order of OBJECTIVES.

    Raises:
        UserError: For an unknown objective, or if no weight is above 0.
    """
    for name in weights:
        if name not in OBJECTIVES:
            raise unknown('objective', name, OBJECTIVES)
    names = tuple(name for name in OBJECTIVES if weights.get(name, 0) > 0)
    if not names:
        raise UserError('objectives: none has a weight above 0; enable at least one')
    return names


def loss_weights(weights: Mapping[str, float], z_loss: float = 0.0) -> dict[str, float]:
    """Map each loss term of the enabled objectives to its weight in the training loss.

    Args:
        weights: `config.objectives`.
        z_loss: `config.training.z_loss`.
    """
    names = enabled(weights)
    terms = {
        term: weights[name]
        for name in names
        for term in OBJECTIVES[name].loss_terms or (f'{name}_loss',)
    }
    predicting = [name for name in predicting_tokens(names) if OBJECTIVES[name].has_z_loss]
    predicting *= bool(z_loss)
    return terms | {f'{name}_z': z_loss * weights[name] for name in predicting}


def predicting_tokens(names: Collection[str]) -> list[str]:
    """Return those of the objectives whose loss is of predicted tokens."""
    return [name for name in names if OBJECTIVES[name].predicts_tokens]


def shows_cloze(names: Collection[str]) -> bool:
    """Whether masked language modeling trains the encoder, not a generator: for cloze examples."""
    return 'mlm' in names and 'rtd' not in names


def shows_samples(names: Collection[str]) -> bool:
    """Whether the model card shows text that the model wrote by unmasking."""
    return 'diffusion' in names


def build_model(
    architecture: Architecture, compute: Compute, chosen: Collection[Objective]
) -> Model:
    """Build the model that some objectives train."""
    heads: dict[str, HeadOptions] = {}
    for objective in chosen:
        heads |= objective.heads()
    # Replaced-token detection trains two encoders; its model gets the heads of all objectives, too.
    for objective in chosen:
        if model := objective.make_model(architecture, compute, heads):
            return model
    causal = any(objective.is_causal for objective in chosen)
    return Model(architecture, compute, heads, causal)


def compute_terms(chosen: Collection[Objective], output: ModelOutput, clean: Rows) -> Terms:
    """Compute the terms of objectives; the arguments are those of `Objective.terms`."""
    terms: Terms = {}
    for objective in chosen:
        terms |= objective.terms(output, clean)
    return terms


def z_terms(chosen: Mapping[str, Objective], output: ModelOutput) -> Terms:
    """Return `<name>_z` of the objectives that predict tokens: the mean of log² Σ exp(logits).

    Added to the loss with a small weight, it keeps the logits near 0, where bfloat16 is exact
    (Chowdhery et al. 2022, PaLM, arXiv 2204.02311, section 5).
    """
    _, _, weights_BP = output.head_rows.chosen
    return {
        f'{name}_z': weighted_sum(
            jnp.square(jax.nn.logsumexp(output.heads[head], axis=-1)), weights_BP
        )
        for name, objective in chosen.items()
        if objective.predicts_tokens and objective.has_z_loss
        for head in objective.heads()
    }


def is_causal(weights: Mapping[str, float]) -> bool:
    """Whether a model trained with these weights never saw tokens to the right of a position."""
    return any(objective.is_causal for objective in _known(weights))


def _known(weights: Mapping[str, float]) -> list[type[Objective]]:
    """Return the enabled objectives that are in OBJECTIVES."""
    names = [name for name, weight in weights.items() if weight > 0]
    return [OBJECTIVES[name] for name in names if name in OBJECTIVES]


def common_corruption(names: Sequence[str], masking_scheme: str) -> str:
    """Return the name of the corruption that all these objectives can be trained on.

    Raises:
        UserError: If there is none, or if an objective's companion or masking scheme is missing.
    """
    enabled_objectives = {name: OBJECTIVES[name] for name in names}
    for name, objective in enabled_objectives.items():
        for companion in objective.companions:
            if companion not in names:
                raise UserError(
                    f'objective {name!r} needs {companion!r} too; set objectives.{companion} '
                    'above 0'
                )
        schemes = objective.masking_schemes
        if schemes is not None and masking_scheme not in schemes:
            raise UserError(
                f'objective {name!r} needs masking.scheme {" or ".join(map(repr, schemes))}, '
                f'not {masking_scheme!r}'
            )
    # All losses come from one forward pass, so they share a corruption; of several, the one that
    # the first objective lists first.
    first, *others = enabled_objectives.values()
    for corruption in first.corruptions:
        if all(corruption in objective.corruptions for objective in others):
            _check_causality(names)
            return corruption
    needs = '; '.join(
        f'{name}: {" or ".join(objective.corruptions)}'
        for name, objective in enabled_objectives.items()
    )
    raise UserError(
        f'objectives: these need different input corruptions ({needs}); enable only objectives '
        'that share one'
    )


def _check_causality(names: Sequence[str]) -> None:
    causal = [name for name in names if OBJECTIVES[name].is_causal]
    bidirectional = [name for name in names if name not in causal]
    if causal and bidirectional:
        raise UserError(
            f'objectives: {", ".join(causal)} must not see tokens to the right, but '
            f'{", ".join(bidirectional)} must; enable only one kind'
        )
