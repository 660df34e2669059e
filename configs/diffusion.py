"""Masked diffusion: encoders that write text (docs/generation.md).

    python -m bert_jax.main --config=configs/diffusion.py:tiny
    python -m bert_jax.main --config=configs/diffusion.py:bert
    python -m bert_jax.main --config=configs/diffusion.py:modernbert --config.init_from=FOLDER

What you get: `tiny` continues the run of configs/tiny.py, which has to be there, for 8,000 steps.
`bert` is BERT-base with the hyperparameters of MDLM on LM1B (Sahoo et al. 2024, arXiv 2406.07524;
kuleshov-group/mdlm, configs/config.yaml). `modernbert` continues published weights of
ModernBERT with the hyperparameters of the chat models of ZHZisZZ/dllm, on your text; FOLDER is a
Hugging Face folder.

How long it takes: `tiny` took 10 min 50 s on two cores of an Intel Xeon, which ran tests for the
first two minutes. The others have not been trained here; tests/test_configs.py checks
hyperparameters and shapes, and trains a shrunk version of `bert` for a few steps. docs/fidelity.md
lists the differences.
"""

from ml_collections import ConfigDict

from bert_jax.errors import unknown
from configs import base, modernbert, tiny

RECIPES = ('bert', 'modernbert', 'tiny')


def get_config(recipe: str = 'bert') -> ConfigDict:
    if recipe not in RECIPES:
        raise unknown('recipe of masked diffusion', recipe, RECIPES)
    config = {'bert': _bert, 'modernbert': _modernbert, 'tiny': _tiny}[recipe]()
    config.workdir = f'runs/diffusion_{recipe}'
    config.data.segments = 'full_sentences'
    config.objectives.mlm = config.objectives.nsp = 0.0
    config.objectives.diffusion = 1.0
    return config


def _bert() -> ConfigDict:
    config = base.get_config()
    config.model.architecture = 'bert_base'
    config.training.steps = (1_000_000,)
    config.training.sequence_length = (128,)
    config.training.batch_size = (512,)
    config.training.max_predictions = config.training.sequence_length
    config.optimizer.name = 'adamw'
    config.optimizer.eps = 1e-8
    config.optimizer.weight_decay = 0.0
    config.optimizer.ema = 0.9999
    config.schedule.name = 'constant'
    config.schedule.learning_rate = 3e-4
    config.schedule.warmup_fraction = 2500 / 1_000_000
    return config


def _modernbert() -> ConfigDict:
    config = modernbert.get_config()
    config.model = base.get_config().model
    config.model.architecture = None  # the architecture of init_from
    config.training.steps = (50_000,)
    config.training.sequence_length = (1024,)
    config.training.batch_size = (384,)
    config.training.max_predictions = config.training.sequence_length
    config.optimizer.name = 'adamw'
    config.optimizer.eps = 1e-8
    config.optimizer.beta2 = 0.999
    config.optimizer.weight_decay = 0.0
    config.optimizer.clip_norm = 1.0
    config.schedule.name = 'cosine'
    config.schedule.learning_rate = 1e-4
    config.schedule.warmup_fraction = 0.1
    return config


def _tiny() -> ConfigDict:
    config = tiny.get_config()
    config.init_from = config.workdir
    config.model = base.get_config().model
    config.model.architecture = None  # the architecture of init_from
    config.training.steps = (8000,)
    config.training.sequence_length = (64,)
    config.training.batch_size = (32,)
    config.training.max_predictions = (20,)
    config.optimizer.ema = 0.999
    config.schedule.warmup_fraction = 100 / 8000
    return config
