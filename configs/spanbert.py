"""SpanBERT-base as published (Joshi et al. 2020, arXiv 1907.10529, section 4.2;
facebookresearch/SpanBERT): spans masked and predicted from their borders, single segments, no next
sentence prediction.

python -m bert_jax.main --config=configs/spanbert.py
"""

from configs import base


def get_config():
    config = base.get_config()
    config.workdir = 'runs/spanbert'
    config.data.corpus = 'corpora/wiki40b_en_cased'
    config.data.tokenizer = 'train:wordpiece:28996'
    config.data.lowercase = False
    config.data.segments = 'single'
    config.model.architecture = 'spanbert_base'
    config.objectives.nsp = 0.0
    config.objectives.sbo = 1.0
    config.masking.scheme = 'spans'
    config.masking.replacement = 'unigram'
    config.sbo.max_targets = 15
    config.stages.steps = (2_400_000,)
    config.stages.sequence_length = (512,)
    config.stages.batch_size = (256,)
    config.stages.accumulation = (1,)
    config.stages.max_predictions = (77,)
    config.optimizer.name = 'adamw'
    config.optimizer.eps = 1e-8
    config.schedule.name = 'linear'
    return config
