"""The stages of a pretraining run, from `config.training`."""

import bisect
import math
from collections.abc import Iterator, Sequence
from fractions import Fraction
from typing import NamedTuple

from bert_jax.errors import UserError
from bert_jax.types import Config


class StageSettings(NamedTuple):
    """The settings of a stage; the first five are keys of `config.training`.

    Attributes:
        steps: Number of steps.
        sequence_length: Tokens of a sequence.
        batch_size: Sequences of a batch.
        accumulation: Micro-batches of a batch.
        max_predictions: Maximum number of chosen tokens of a sequence.
        part: Number of the part of the run, from 0, where `data.language_alphas` divides it.
        continues: Whether the stage reads the examples after those of the stage before.
    """

    steps: int
    sequence_length: int
    batch_size: int
    accumulation: int
    max_predictions: int
    part: int = 0
    continues: bool = False


_KEYS = StageSettings._fields[:5]


def stage_settings(training: Config, num_parts: int = 1) -> list[StageSettings]:
    """Return the settings of each stage; a single value of a key holds for all stages.

    A stage is divided into several where `training.batch_ramp` or `training.length_ramp` changes
    the shape of the batches, and between `num_parts` equal parts of the run.

    Raises:
        UserError: If a value is not an integer above 0, the numbers of values differ, or a ramp
            does not give whole sequences or tokens.
    """
    stages = _configured_stages(training)
    batch = _Ramp('batch_ramp', training.batch_ramp, training.batch_ramp_share)
    length = _Ramp('length_ramp', training.length_ramp, training.length_ramp_share)
    total, first = sum(stage.steps for stage in stages), 0
    parts = [round(total * part / num_parts) for part in range(1, num_parts)]
    edges = {*parts, *batch.edges(total), *length.edges(total)}
    divided: list[StageSettings] = []
    for stage in stages:
        stop = first + stage.steps
        inside = sorted(edge for edge in edges if first < edge < stop)
        for start, end in zip([first, *inside], [*inside, stop], strict=True):
            own = _scaled(stage, batch.factor_at(start, total), length.factor_at(start, total))
            continues = start > first and own.sequence_length == divided[-1].sequence_length
            part = bisect.bisect(parts, start)
            divided.append(own._replace(steps=end - start, part=part, continues=continues))
        first = stop
    return divided


class _Ramp(NamedTuple):
    """Factors that hold in equal parts of the first `share` of a run; 1 holds in the rest."""

    name: str
    factors: Sequence[float]
    share: float

    def edges(self, total: int) -> Iterator[int]:
        """Yield the steps at which the factor changes."""
        for number in range(1, len(self.factors) + 1):
            yield round(total * self.share * number / len(self.factors))

    def factor_at(self, step: int, total: int) -> Fraction:
        """Return the factor on the step after `step` steps."""
        number = bisect.bisect(list(self.edges(total)), step)
        return Fraction((*self.factors, 1.0)[number]).limit_denominator(4096)


def _scaled(stage: StageSettings, batch: Fraction, length: Fraction) -> StageSettings:
    """Scale the batches of a stage; a batch of shorter sequences has more sequences."""
    tokens = length * stage.sequence_length
    rows = batch * stage.batch_size / length
    if tokens.denominator > 1:
        raise UserError(
            f'training.length_ramp has {float(length):g}, which makes {float(tokens):g} tokens of '
            f'{stage.sequence_length}; choose factors that give whole numbers'
        )
    if rows.denominator > 1:
        raise UserError(
            f'training.batch_ramp and length_ramp have {float(batch):g} and {float(length):g}, '
            f'which make {float(rows):g} sequences of {stage.batch_size}; choose factors that '
            'give whole numbers'
        )
    return stage._replace(
        sequence_length=int(tokens),
        batch_size=int(rows),
        max_predictions=math.ceil(length * stage.max_predictions),
    )


def _configured_stages(training: Config) -> list[StageSettings]:
    for key in _KEYS:
        if any(not isinstance(value, int) or value < 1 for value in training[key]):
            raise UserError(
                f'training.{key} is {training[key]}; all values must be integers above 0'
            )
    lengths = {key: len(training[key]) for key in _KEYS}
    num_stages = max(lengths.values())
    if not set(lengths.values()) <= {1, num_stages}:
        raise UserError(
            f'training: the numbers of values differ ({lengths}); give one for each stage, or one '
            'for all stages'
        )
    return [
        StageSettings(*(training[key][stage if lengths[key] > 1 else 0] for key in _KEYS))
        for stage in range(num_stages)
    ]


def num_predictions(stages: Sequence[StageSettings]) -> dict[int, int]:
    """Return sequence length → max_predictions.

    The jitted step looks max_predictions up by the length of a batch, so stages of the same length
    must agree.

    Raises:
        UserError: If they do not agree, or max_predictions exceeds the length.
    """
    by_length: dict[int, int] = {}
    for stage in stages:
        length, number = stage.sequence_length, stage.max_predictions
        if by_length.setdefault(length, number) != number:
            raise UserError(
                f'training.max_predictions is {by_length[length]} and {number} in stages of the '
                f'same sequence_length {length}; give them the same value'
            )
        if number > length:
            raise UserError(
                f'training.max_predictions {number} exceeds the sequence_length {length}; lower it'
            )
    return by_length


def check_masking_rate(stages: Sequence[StageSettings], rate: float) -> None:
    """Check that every stage has room for the tokens that `masking.rate` chooses.

    Rounding down is allowed: published runs of 512 tokens mask at most 76 of 0.15 · 512 = 76.8.

    Raises:
        UserError: max_predictions of a stage would lower the rate.
    """
    for number, stage in enumerate(stages, start=1):
        length, most = stage.sequence_length, stage.max_predictions
        wanted = rate * length
        if most < math.floor(wanted + 1e-9):
            raise UserError(
                f'masking.rate={rate:g} chooses {wanted:.4g} of {length} tokens, but '
                f'training.max_predictions allows {most} in stage {number}, a rate of '
                f'{most / length:.3f}; set training.max_predictions to {math.ceil(wanted - 1e-9)} '
                'or lower masking.rate'
            )
