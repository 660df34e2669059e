"""SpanBERT-base (Joshi et al. 2020, arXiv 1907.10529, section 4.2; facebookresearch/SpanBERT).

    python -m bert_jax.main --config=configs/spanbert.py

What you get: masked spans, predicted by masked language modeling and from their boundaries, on
single segments; 2.4M steps of 256 sequences of 512 tokens.

Not trained at full size here; tests/test_configs.py checks the published hyperparameters and
shapes, and trains a shrunk version for a few steps.
"""

from ml_collections import ConfigDict

from configs import base


def get_config() -> ConfigDict:
    config = base.get_config()
    config.workdir = 'runs/spanbert'
    config.data.corpus = 'corpora/wiki40b_en_cased'
    config.data.tokenizer = 'train:wordpiece:28996'
    config.data.lowercase = False
    config.data.segments = 'single'
    config.model.architecture = 'spanbert_base'
    config.objectives.nsp = 0.0
    config.objectives.sbo = 1.0
    config.masking.scheme = 'anchored_spans'
    config.masking.replacement = 'unigram'
    config.sbo.max_targets = 15
    config.training.steps = (2_400_000,)
    config.training.sequence_length = (512,)
    config.training.batch_size = (256,)
    config.training.max_predictions = (77,)
    config.optimizer.name = 'adamw'
    config.optimizer.eps = 1e-8
    config.schedule.name = 'linear'
    config.schedule.warmup_fraction = 10_000 / 2_400_000
    return config
