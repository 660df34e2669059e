"""MosaicBERT-base (Portes et al. 2023, arXiv 2312.17482; mosaicml/examples, benchmarks/bert).

    python -m bert_jax.main --config=configs/mosaicbert.py

What you get: BERT-base with ALiBi instead of learned positions and gated feed-forward layers, 30 %
masking without sentence pairs, 70,000 steps of 4,096 sequences of 128 tokens; half a day on eight
A100 by its authors.

The text is English Wikipedia instead of C4; docs/fidelity.md lists all differences from the
publication.

Not trained at full size here; tests/test_configs.py checks the published hyperparameters and
shapes, and trains a shrunk version for a few steps.
"""

from ml_collections import ConfigDict

from configs import base


def get_config() -> ConfigDict:
    config = base.get_config()
    config.workdir = 'runs/mosaicbert'
    config.data.segments = 'doc_sentences'
    config.model.architecture = 'mosaicbert_base'
    config.model.pooler = False
    config.objectives.nsp = 0.0
    config.masking.rate = 0.3
    config.training.steps = (70_000,)
    config.training.sequence_length = (128,)
    config.training.batch_size = (4096,)
    config.training.max_predictions = (39,)
    config.optimizer.name = 'adamw'
    config.optimizer.beta2 = 0.98
    config.optimizer.eps = 1e-6
    # The authors' optimizer does not multiply weight decay, 1e-5, by the peak rate, this one does.
    config.optimizer.weight_decay = 1e-5 / 5e-4
    config.optimizer.decay_exclude = ()  # as in the authors' code: all parameters are decayed
    config.optimizer.clip_norm = 0.0
    config.schedule.name = 'linear'
    config.schedule.learning_rate = 5e-4
    config.schedule.end_learning_rate = 1e-5  # 2 % of the peak
    config.schedule.warmup_fraction = 0.06
    return config
