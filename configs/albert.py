"""ALBERT-base, version 2 (Lan et al. 2020, arXiv 1909.11942, section 4.1): one layer's parameters
for all layers, n-grams masked, the order of two segments predicted, LAMB.

python -m bert_jax.main --config=configs/albert.py
"""

from configs import base


def get_config():
    config = base.get_config()
    config.workdir = 'runs/albert'
    config.data.corpus = 'corpora/wiki40b_en_unigram'
    config.data.tokenizer = 'train:unigram:30000'
    config.data.segments = 'ordered_pairs'
    config.model.architecture = 'albert_base'
    config.objectives.nsp = 0.0
    config.objectives.sop = 1.0
    config.masking.scheme = 'ngrams'
    config.stages.steps = (125_000,)
    config.stages.sequence_length = (512,)
    config.stages.batch_size = (4096,)
    config.stages.accumulation = (1,)
    config.stages.max_predictions = (77,)
    config.optimizer.name = 'lamb'
    config.schedule.name = 'linear'
    config.schedule.learning_rate = 0.00176
    config.schedule.warmup_steps = 3125
    return config
