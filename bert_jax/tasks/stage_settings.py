"""The stages of a pretraining run, from `config.training`."""

import math
from collections.abc import Mapping, Sequence

from bert_jax.errors import UserError
from bert_jax.types import Config

KEYS = ('steps', 'sequence_length', 'batch_size', 'accumulation', 'max_predictions')


def stage_settings(training: Config) -> list[dict[str, int]]:
    """Return KEYS → value for each stage; a single value of a key holds for all stages.

    Raises:
        UserError: If a value is not an integer above 0, or the numbers of values differ.
    """
    for key in KEYS:
        if any(not isinstance(value, int) or value < 1 for value in training[key]):
            raise UserError(
                f'training.{key} is {training[key]}; all values must be integers above 0'
            )
    lengths = {key: len(training[key]) for key in KEYS}
    num_stages = max(lengths.values())
    if not set(lengths.values()) <= {1, num_stages}:
        raise UserError(
            f'training: the numbers of values differ ({lengths}); give one for each stage, or one '
            'for all stages'
        )
    return [
        {key: training[key][stage if lengths[key] > 1 else 0] for key in KEYS}
        for stage in range(num_stages)
    ]


def num_predictions(stages: Sequence[Mapping[str, int]]) -> dict[int, int]:
    """Return sequence length → max_predictions.

    The jitted step looks max_predictions up by the length of a batch, so stages of the same length
    must agree.

    Raises:
        UserError: If they do not agree, or max_predictions exceeds the length.
    """
    by_length: dict[int, int] = {}
    for stage in stages:
        length, number = stage['sequence_length'], stage['max_predictions']
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


def check_masking_rate(stages: Sequence[Mapping[str, int]], rate: float) -> None:
    """Check that every stage has room for the tokens that `masking.rate` chooses.

    Rounding down is allowed: published runs of 512 tokens mask at most 76 of 0.15 · 512 = 76.8.

    Raises:
        UserError: max_predictions of a stage would lower the rate.
    """
    for number, stage in enumerate(stages, start=1):
        length, most = stage['sequence_length'], stage['max_predictions']
        wanted = rate * length
        if most < math.floor(wanted + 1e-9):
            raise UserError(
                f'masking.rate={rate:g} chooses {wanted:.4g} of {length} tokens, but '
                f'training.max_predictions allows {most} in stage {number}, a rate of '
                f'{most / length:.3f}; set training.max_predictions to {math.ceil(wanted - 1e-9)} '
                'or lower masking.rate'
            )
