"""ModernBERT-base (Warner et al. 2024, arXiv 2412.13663, section 2 and appendix A).

    python -m bert_jax.main --config=configs/modernbert.py

What you get: 30 % masking, StableAdamW and a constant learning rate that ends in a 1 − √t decay;
1.7T tokens at length 1,024, then 300B at 8,192, in steps of 4.7M tokens.

Differences from the publication: one learning rate for both lengths (published: 8e-4, then 3e-4),
one rotary base in the global layers (published: 10,000 at the first length), and the text, which
is English Wikipedia.

Not trained at full size here; tests/test_configs.py checks the published hyperparameters and
shapes, and trains a shrunk version for a few steps.
"""

from ml_collections import ConfigDict

from configs import base


def get_config() -> ConfigDict:
    config = base.get_config()
    config.workdir = 'runs/modernbert'
    config.data.corpus = 'corpora/wiki40b_en_bytebpe50368'
    config.data.tokenizer = 'train:bytebpe:50368'
    config.data.lowercase = False
    config.data.segments = 'full_sentences'
    config.model.architecture = 'modernbert_base'
    config.objectives.nsp = 0.0
    config.masking.rate = 0.3
    config.training.steps = (360_000, 64_000)
    config.training.sequence_length = (1024, 8192)
    config.training.batch_size = (4608, 576)
    config.training.max_predictions = (308, 2458)
    config.optimizer.name = 'stable_adamw'
    config.optimizer.beta2 = 0.98
    config.optimizer.weight_decay = 1e-5
    config.optimizer.clip_norm = 0.0
    config.schedule.name = 'sqrt'
    config.schedule.learning_rate = 8e-4
    config.schedule.warmup_steps = 640
    config.schedule.decay_steps = 10_600
    return config
