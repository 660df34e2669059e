"""NeoBERT (Le Breton et al. 2025, arXiv 2502.19587, section 3; chandar-lab/NeoBERT).

    python -m bert_jax.main --config=configs/neobert.py
    python -m bert_jax.main --config=configs/neobert.py:extension

What you get: 28 layers of width 768 with rotary attention, RMSNorm and SwiGLU; 20 % of the tokens
become [MASK]; 1M steps of 2,048 sequences of 1,024 tokens and, from that run, 50,000 steps of 512
sequences of 4,096 tokens.

The text is English Wikipedia instead of RefinedWeb; docs/fidelity.md lists all differences from
the publication.

Not trained at full size here; tests/test_configs.py checks the published hyperparameters and
shapes, and trains a shrunk version for a few steps.
"""

from ml_collections import ConfigDict

from bert_jax.errors import unknown
from configs import base

STAGES = ('pretraining', 'extension')


def get_config(stage: str = 'pretraining') -> ConfigDict:
    if stage not in STAGES:
        raise unknown('stage of NeoBERT', stage, STAGES)
    config = base.get_config()
    config.workdir = 'runs/neobert'
    config.data.segments = 'doc_sentences'
    config.model.architecture = 'neobert'
    config.model.prediction.transform = False
    config.objectives.nsp = 0.0
    config.masking.rate = 0.2
    config.masking.mask = 1.0
    config.masking.random = 0.0
    config.training.steps = (1_000_000,)
    config.training.sequence_length = (1024,)
    config.training.batch_size = (2048,)
    config.training.max_predictions = (205,)
    config.optimizer.name = 'adamw'
    config.optimizer.beta2 = 0.95
    config.optimizer.eps = 1e-8
    config.optimizer.weight_decay = 0.1
    config.optimizer.decay_exclude = ()  # as in the authors' code: all parameters are decayed
    config.schedule.name = 'cosine'
    config.schedule.learning_rate = 6e-4
    config.schedule.end_learning_rate = 6e-5
    config.schedule.warmup_fraction = 2_000 / 1_000_000
    if stage == 'extension':
        config.workdir, config.init_from = 'runs/neobert_extension', config.workdir
        config.model = base.get_config().model
        config.model.architecture = None  # the architecture of init_from
        config.training.steps = (50_000,)
        config.training.sequence_length = (4096,)
        config.training.batch_size = (512,)
        config.training.max_predictions = (820,)
        config.schedule.name = 'constant'
        config.schedule.learning_rate = 6e-5
        config.schedule.warmup_fraction = 0.0
    return config
