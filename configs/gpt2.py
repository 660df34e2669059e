"""GPT-2 small (Radford et al. 2019, "Language Models are Unsupervised Multitask Learners").

    python -m bert_jax.main --config=configs/gpt2.py:tiny
    python -m bert_jax.main --config=configs/gpt2.py:small

What you get: each token predicted from those before it, in rows of 1,024 tokens that run across
documents, byte-level BPE of 50,257 tokens. The text is English Wikipedia; WebText was not
published. Neither were the number of steps, the optimizer and the learning rate: here they are
those of nanoGPT (karpathy/nanoGPT, config/train_gpt2.py), which reproduces the published loss.
`tiny` trains 2 layers of width 128 on the books that ship with the package.

`small` was not trained at full size here; tests/test_configs.py checks the published
hyperparameters and shapes, and trains a shrunk version for a few steps.
"""

from ml_collections import ConfigDict

from bert_jax.errors import unknown
from configs import base, tiny

RECIPES = ('small', 'tiny')


def get_config(recipe: str = 'small') -> ConfigDict:
    if recipe not in RECIPES:
        raise unknown('recipe of GPT-2', recipe, RECIPES)
    config = _tiny() if recipe == 'tiny' else _small()
    config.data.lowercase = False
    config.data.segments = 'full_sentences'
    config.model.architecture = 'gpt2_small'
    config.objectives.mlm = config.objectives.nsp = 0.0
    config.objectives.clm = 1.0
    return config


def _small() -> ConfigDict:
    config = base.get_config()
    config.workdir = 'runs/gpt2'
    config.data.corpus = 'corpora/wiki40b_en_bytebpe'
    config.data.tokenizer = 'train:bytebpe:50257'
    config.training.steps = (600_000,)
    config.training.sequence_length = (1024,)
    config.training.batch_size = (512,)
    config.training.max_predictions = (1023,)
    config.optimizer.name = 'adamw'
    config.optimizer.beta2 = 0.95
    config.optimizer.eps = 1e-8
    config.optimizer.weight_decay = 0.1
    config.schedule.name = 'cosine'
    config.schedule.learning_rate = 6e-4
    config.schedule.warmup_fraction = 2_000 / 600_000
    return config


def _tiny() -> ConfigDict:
    config = tiny.get_config()
    config.workdir = 'runs/gpt2_tiny'
    config.data.corpus = 'corpora/tiny_bytebpe'
    config.data.tokenizer = 'train:bytebpe:8000'
    config.training.steps = (2000,)
    config.training.sequence_length = (64,)
    config.training.batch_size = (16,)
    config.training.max_predictions = (63,)
    return config
