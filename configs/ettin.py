"""Ettin's encoders (Weller et al. 2025, arXiv 2507.11412; JHU-CLSP/ettin-encoder-vs-decoder).

    python -m bert_jax.main --config=configs/ettin.py:17m
    python -m bert_jax.main --config=configs/ettin.py:17m-extension
    python -m bert_jax.main --config=configs/ettin.py:17m-decay

What you get: ModernBERT's layers in the sizes 17m, 32m, 68m, 150m, 400m and 1b. 30 % masking at
length 1,024 on 1.7T tokens; from that run 250B tokens at length 8,192, in which the learning rate
falls to a half; from that run 50B tokens with 15 % masking, in which it falls to 4 % of this half
(1b: a third of the tokens of the last two).

The text is English Wikipedia; docs/fidelity.md lists all differences from the publication.

Not trained at full size here; tests/test_configs.py checks the published hyperparameters and
shapes, and trains a shrunk version for a few steps.
"""

from typing import NamedTuple

from ml_collections import ConfigDict

from bert_jax.errors import unknown
from configs import modernbert


class Size(NamedTuple):
    """What differs between sizes: rate, weight decay per step at the peak, steps of the phases."""

    learning_rate: float
    weight_decay: float
    warmup: int
    extension: int = 53_000
    decay: int = 10_600


_STEPS = 360_000  # of 4.7M tokens
SIZES = {
    '17m': Size(3e-3, 3e-4, 848),
    '32m': Size(3e-3, 3e-4, 848),
    '68m': Size(3e-3, 3e-4, 636),
    '150m': Size(8e-4, 1e-5, 636),
    '400m': Size(5e-4, 1e-5, 424),
    '1b': Size(5e-4, 5e-5, 424, 17_660, 3_530),
}
PHASES = ('pretraining', 'extension', 'decay')


def get_config(name: str = '150m') -> ConfigDict:
    size_name, _, phase = name.partition('-')
    phase = phase or 'pretraining'
    if size_name not in SIZES:
        raise unknown('size of Ettin', size_name, SIZES)
    if phase not in PHASES:
        raise unknown('phase of Ettin', phase, PHASES)
    size = SIZES[size_name]
    config = modernbert.get_config('pretraining' if phase == 'pretraining' else 'extension')
    config.workdir = f'runs/ettin_{size_name}_{phase}'
    config.schedule.learning_rate = size.learning_rate
    if phase == 'pretraining':
        config.model.architecture = f'ettin_{size_name}'
        config.training.steps = (_STEPS,)
        config.schedule.warmup_fraction = size.warmup / _STEPS
    else:
        before = PHASES[PHASES.index(phase) - 1]
        config.init_from = f'runs/ettin_{size_name}_{before}'
        config.schedule.decay_steps = 0  # in all steps
        config.training.steps = (size.extension,)
        config.schedule.end_learning_rate = size.learning_rate / 2
    if phase == 'decay':
        config.model.attention.local_theta = 160_000.0
        config.masking.rate = 0.15
        config.training.max_predictions = (1229,)
        config.training.steps = (size.decay,)
        config.schedule.learning_rate = size.learning_rate / 2
        config.schedule.end_learning_rate = size.learning_rate / 50
    # The authors' optimizer does not multiply weight decay by the peak rate, this one does.
    config.optimizer.weight_decay = size.weight_decay / config.schedule.learning_rate
    return config
