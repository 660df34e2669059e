"""ALBERT-base, version 2 (Lan et al. 2020, arXiv 1909.11942, section 4.1).

    python -m bert_jax.main --config=configs/albert.py

What you get: 12 layers that share their parameters, masked n-grams, sentence order prediction, a
unigram vocabulary of 30,000 and LAMB; 125k steps of 4,096 sequences of 512 tokens.

Not trained at full size here; tests/test_configs.py checks the published hyperparameters and
shapes, and trains a shrunk version for a few steps.
"""

from ml_collections import ConfigDict

from configs import base


def get_config() -> ConfigDict:
    config = base.get_config()
    config.workdir = 'runs/albert'
    config.data.corpus = 'corpora/wiki40b_en_unigram'
    config.data.tokenizer = 'train:unigram:30000'
    config.data.segments = 'ordered_pairs'
    config.model.architecture = 'albert_base'
    config.objectives.nsp = 0.0
    config.objectives.sop = 1.0
    config.masking.scheme = 'ngrams'
    config.masking.word_starts = 'albert'
    config.training.steps = (125_000,)
    config.training.sequence_length = (512,)
    config.training.batch_size = (4096,)
    config.training.max_predictions = (77,)
    config.optimizer.name = 'albert_lamb'
    config.schedule.learning_rate = 0.00176
    config.schedule.warmup_fraction = 3125 / 125_000
    return config
