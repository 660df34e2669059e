"""T5 version 1.1 (Raffel et al. 2020, arXiv 1910.10683): span corruption.

    python -m bert_jax.main --config=configs/t5.py:tiny
    python -m bert_jax.main --config=configs/t5.py:small
    python -m bert_jax.main --config=configs/t5.py:base

What you get: 15 % of the tokens hidden in spans of three on average; the encoder reads 512 tokens,
the decoder writes 114: a sentinel and its span in turn. Gated feed-forward layers, no dropout,
separate matrices to read and to predict tokens. `small` has 8 + 8 layers of width 512, `base`
12 + 12 of width 768. 1M steps of 2,048 rows; the text is English Wikipedia instead of C4. `tiny`
trains 2 + 2 layers of width 128 on the books that ship with the package.

Differences from the publication, the optimizer among them: docs/fidelity.md. The others were not
trained:
tests/test_configs.py checks hyperparameters and shapes, and trains a shrunk `small` for few steps.
"""

from ml_collections import ConfigDict

from bert_jax.errors import unknown
from configs import base, tiny

RECIPES = ('small', 'base', 'tiny')


def get_config(recipe: str = 'small') -> ConfigDict:
    if recipe not in RECIPES:
        raise unknown('recipe of T5', recipe, RECIPES)
    config = _tiny() if recipe == 'tiny' else _published(recipe)
    config.workdir = f'runs/t5_{recipe}'
    config.data.lowercase = False
    config.data.segments = 'full_sentences'
    config.objectives.mlm = config.objectives.nsp = 0.0
    config.objectives.denoising = 1.0
    config.noise.kind = 't5'
    config.training.max_predictions = config.training.sequence_length
    config.training.z_loss = 1e-4
    return config


def _published(size: str) -> ConfigDict:
    config = base.get_config()
    config.data.corpus = 'corpora/wiki40b_en_t5'
    config.data.tokenizer = 'train:unigram:32000:sentinels=100:cls=no'
    config.model.architecture = f't5_{size}'
    config.training.steps = (1_000_000,)
    config.training.sequence_length = (570,)  # 568 tokens become 511 and </s>
    config.training.batch_size = (2048,)
    config.optimizer.name = 'adamw'
    config.optimizer.weight_decay = 0.0
    config.schedule.name = 'linear'
    config.schedule.learning_rate = 1e-3
    config.schedule.warmup_fraction = 10_000 / 1_000_000
    return config


def _tiny() -> ConfigDict:
    config = tiny.get_config()
    config.data.corpus = 'corpora/tiny_t5'
    config.data.tokenizer = 'train:unigram:8000:sentinels=100:cls=no'
    config.model.architecture = 't5_small'
    config.model.decoder.num_layers = 2
    config.model.initializer_range = None  # T5 scales by the number of inputs
    config.training.steps = (2000,)
    config.training.sequence_length = (64,)
    config.training.batch_size = (32,)
    return config
