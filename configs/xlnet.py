"""XLNet (Yang et al. 2019, arXiv 1906.08237): tokens predicted in random order, by two streams.

    python -m bert_jax.main --config=configs/xlnet.py:tiny
    python -m bert_jax.main --config=configs/xlnet.py:base
    python -m bert_jax.main --config=configs/xlnet.py:large

What you get: a sixth of the tokens, in n-grams of one to five words, is predicted from the others
and from the targets before them in a random order; rows are A <sep> B <sep> <cls>. `base` and
`large` have the published sizes and the training of XLNet-Large (appendix A.4.1; zihangdai/xlnet
train.py), without its memory; the text is English Wikipedia. `tiny` is for a laptop CPU, on the 18
books of the package.

Not trained at full size here; tests/test_configs.py checks hyperparameters and shapes, and trains
shrunk versions for a few steps. docs/fidelity.md lists the differences.
"""

from ml_collections import ConfigDict

from bert_jax.errors import unknown
from configs import base, tiny

RECIPES = ('base', 'large', 'tiny')


def get_config(recipe: str = 'base') -> ConfigDict:
    if recipe not in RECIPES:
        raise unknown('recipe of XLNet', recipe, RECIPES)
    config = _tiny() if recipe == 'tiny' else _published(recipe)
    config.workdir = f'runs/xlnet_{recipe}'
    config.data.lowercase = False
    config.objectives.mlm = config.objectives.nsp = 0.0
    config.objectives.plm = 1.0
    config.masking.scheme = 'spaced_ngrams'
    config.masking.rate = 1 / 6
    config.masking.longest_ngram = 5
    return config


def _published(recipe: str) -> ConfigDict:
    config = base.get_config()
    config.data.corpus = 'corpora/wiki40b_en_xlnet'
    config.data.tokenizer = 'train:xlnet:32000'
    config.data.short_sequence_probability = 0.0
    config.model.architecture = f'xlnet_{recipe}'
    config.plm.block_size = 256
    config.training.steps = (500_000,)
    config.training.sequence_length = (512,)
    config.training.batch_size = (8192,)
    config.training.max_predictions = (85,)
    config.schedule.name = 'linear'
    config.schedule.learning_rate = 4e-4
    config.schedule.end_learning_rate = 4e-7
    config.schedule.warmup_fraction = 40_000 / 500_000
    return config


def _tiny() -> ConfigDict:
    config = tiny.get_config()
    config.data.corpus = 'corpora/tiny_xlnet'
    config.data.tokenizer = 'train:xlnet:8000'
    config.model.architecture = 'xlnet'
    config.plm.block_size = 32
    config.training.max_predictions = (5, 11)
    return config
