"""ELECTRA small and base (Clark et al. 2020, arXiv 2003.10555, table 6; google-research/electra).

    python -m bert_jax.main --config=configs/electra.py:small

What you get: an encoder that detects which tokens a small generator has replaced. small: 1M steps
of 128 sequences of 128 tokens; base: 766k steps of 256 sequences of 512 tokens.

Not trained at full size here; tests/test_configs.py checks the published hyperparameters and
shapes, and trains a shrunk version for a few steps.
"""

from ml_collections import ConfigDict

from bert_jax.errors import unknown
from configs import base

SIZES = {
    'small': dict(
        generator_width=1 / 4,
        steps=1_000_000,
        sequence_length=128,
        batch_size=128,
        max_predictions=20,
        learning_rate=5e-4,
    ),
    'base': dict(
        generator_width=1 / 3,
        steps=766_000,
        sequence_length=512,
        batch_size=256,
        max_predictions=77,
        learning_rate=2e-4,
    ),
}
PARAMETERS = tuple(SIZES)


def get_config(size: str = 'small') -> ConfigDict:
    if size not in SIZES:
        raise unknown('size of ELECTRA', size, SIZES)
    config, sizes = base.get_config(), SIZES[size]
    config.workdir = f'runs/electra_{size}'
    config.data.segments = 'two_segments'
    config.model.architecture = f'electra_{size}'
    config.objectives.nsp = 0.0
    config.objectives.rtd = 50.0
    config.masking.mask = 0.85
    config.masking.random = 0.0
    config.rtd.generator_width = sizes['generator_width']
    for key in ('steps', 'sequence_length', 'batch_size', 'max_predictions'):
        config.training[key] = (sizes[key],)
    config.schedule.learning_rate = sizes['learning_rate']
    config.schedule.warmup_fraction = 10_000 / sizes['steps']
    return config
