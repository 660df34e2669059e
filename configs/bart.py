"""BART (Lewis et al. 2020, arXiv 1910.13461): a decoder writes the text from its noised form.

    python -m bert_jax.main --config=configs/bart.py:tiny
    python -m bert_jax.main --config=configs/bart.py:base
    python -m bert_jax.main --config=configs/bart.py:large

What you get: a decoder that restores text with 30 % of the words hidden and sentences in random
order (docs/encoder_decoders.md). `base` has 6 + 6 layers of width 768, `large` 12 + 12 of width
1,024: 500,000 steps of 8,000 rows of 512 tokens. The text is English Wikipedia; the authors' 160 GB
were not published. `tiny` trains 2 + 2 layers of width 128 on the books that ship with the package.

How long it takes: `tiny` 18 minutes on one core of an Intel Xeon without AMX; by steps that took
turns, about 2.2 times the training of configs/tiny.py. docs/encoder_decoders.md shows what it
learns. The others have not been trained: tests/test_configs.py checks hyperparameters and shapes,
and trains shrunk versions for a few steps. docs/fidelity.md lists the differences.
"""

from ml_collections import ConfigDict

from bert_jax.errors import unknown
from configs import base, tiny

RECIPES = ('base', 'large', 'tiny')


def get_config(recipe: str = 'base') -> ConfigDict:
    if recipe not in RECIPES:
        raise unknown('recipe of BART', recipe, RECIPES)
    config = _tiny() if recipe == 'tiny' else _published(recipe)
    config.workdir = f'runs/bart_{recipe}'
    config.objectives.mlm = config.objectives.nsp = 0.0
    config.objectives.denoising = 1.0
    config.training.max_predictions = config.training.sequence_length
    return config


def _published(size: str) -> ConfigDict:
    config = base.get_config()
    config.data.corpus = 'corpora/wiki40b_en_bytebpe'
    config.data.tokenizer = 'train:bytebpe:50257'
    config.data.lowercase = False
    config.data.segments = 'doc_sentences'
    config.model.architecture = f'bart_{size}'
    config.training.steps = (500_000,)
    config.training.sequence_length = (512,)
    config.training.batch_size = (8000,)
    config.optimizer.name = 'adamw'
    config.optimizer.beta2 = 0.98  # of mBART; BART's is not published
    config.optimizer.clip_norm = 0.1
    config.schedule.name = 'linear'
    config.schedule.learning_rate = 4e-4
    config.schedule.warmup_fraction = 10_000 / 500_000
    return config


def _tiny() -> ConfigDict:
    config = tiny.get_config()
    config.data.corpus = 'corpora/tiny_bytebpe'
    config.data.tokenizer = 'train:bytebpe:8000'
    config.data.segments = 'doc_sentences'
    config.model.architecture = 'bart_base'
    config.model.decoder.num_layers = 2
    config.model.max_position_embeddings = 66
    config.training.steps = (3000,)
    config.training.sequence_length = (64,)
    config.training.batch_size = (32,)
    config.optimizer.clip_norm = 1.0
    return config
