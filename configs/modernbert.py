"""ModernBERT-base (Warner et al. 2024, arXiv 2412.13663, section 2; AnswerDotAI/ModernBERT).

    python -m bert_jax.main --config=configs/modernbert.py
    python -m bert_jax.main --config=configs/modernbert.py:extension

What you get: 30 % masking, StableAdamW, 1.7T tokens at length 1,024 and a rotary base of 10,000 in
all layers; then, from the first run, 300B tokens at length 8,192 with a base of 160,000 in the
global layers and a learning rate that ends in a 1 − √t decay. Steps have 4.7M tokens.

The text is English Wikipedia; docs/fidelity.md lists all differences from the publication.

Not trained at full size here; tests/test_configs.py checks the published hyperparameters and
shapes, and trains a shrunk version for a few steps.
"""

from ml_collections import ConfigDict

from bert_jax.errors import unknown
from configs import base

STAGES = ('pretraining', 'extension')


def get_config(stage: str = 'pretraining') -> ConfigDict:
    if stage not in STAGES:
        raise unknown('stage of ModernBERT', stage, STAGES)
    config = base.get_config()
    config.workdir = 'runs/modernbert'
    config.data.corpus = 'corpora/wiki40b_en_bytebpe50368'
    config.data.tokenizer = 'train:bytebpe:50368'
    config.data.lowercase = False
    config.data.segments = 'full_sentences'
    config.model.architecture = 'modernbert_base'
    config.objectives.nsp = 0.0
    config.masking.rate = 0.3
    config.model.attention.theta = 10_000.0
    config.compute.float32_residual = True
    config.training.steps = (360_000,)
    config.training.sequence_length = (1024,)
    config.training.batch_size = (4608,)
    config.training.max_predictions = (308,)
    config.optimizer.name = 'stable_adamw'
    config.optimizer.beta2 = 0.98
    # The authors' optimizer does not multiply weight decay, 1e-5, by the peak rate, this one does.
    config.optimizer.weight_decay = 1e-5 / 8e-4
    config.optimizer.clip_norm = 0.0
    config.schedule.name = 'constant'
    config.schedule.learning_rate = 8e-4
    config.schedule.warmup_fraction = 640 / 360_000
    if stage == 'extension':
        config.workdir, config.init_from = 'runs/modernbert_extension', config.workdir
        config.model.architecture = None  # the architecture of init_from
        config.model.attention.theta = 160_000.0
        config.training.steps = (64_000,)
        config.training.sequence_length = (8192,)
        config.training.batch_size = (576,)
        config.training.max_predictions = (2458,)
        config.schedule.name = 'sqrt'
        config.schedule.learning_rate = 3e-4
        config.optimizer.weight_decay = 1e-5 / 3e-4
        config.schedule.warmup_fraction = 0.0
        config.schedule.decay_steps = 10_600
    return config
