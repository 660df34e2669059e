"""RoBERTa-base (Liu et al. 2019, arXiv 1907.11692, section 3 and table 9).

    python -m bert_jax.main --config=configs/roberta.py

What you get: masked language modeling alone on full sentences across documents, byte-level BPE of
50,265 tokens, 500k steps of 8,192 sequences of 512 tokens. The text is English Wikipedia; the
published 160 GB are not included.

Not trained at full size here; tests/test_configs.py checks the published hyperparameters and
shapes, and trains a shrunk version for a few steps.
"""

from ml_collections import ConfigDict

from configs import base


def get_config() -> ConfigDict:
    config = base.get_config()
    config.workdir = 'runs/roberta'
    config.data.corpus = 'corpora/wiki40b_en_bytebpe'
    config.data.tokenizer = 'train:bytebpe:50265'
    config.data.lowercase = False
    config.data.segments = 'full_sentences'
    config.model.architecture = 'roberta_base'
    config.objectives.nsp = 0.0
    config.training.steps = (500_000,)
    config.training.sequence_length = (512,)
    config.training.batch_size = (8192,)
    config.training.max_predictions = (77,)
    config.optimizer.name = 'adamw'
    config.optimizer.beta2 = 0.98
    config.optimizer.clip_norm = 0.0
    config.schedule.name = 'linear'
    config.schedule.learning_rate = 6e-4
    config.schedule.warmup_fraction = 24_000 / 500_000
    return config
