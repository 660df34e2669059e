"""DeBERTaV3-base (He et al. 2021, arXiv 2111.09543, sections 3 and 4.1).

    python -m bert_jax.main --config=configs/deberta.py

What you get: replaced token detection with disentangled attention; generator and discriminator
share embeddings, but each loss has its own gradient; absolute positions enter only the generator's
mask decoder. 500k steps of 8,192 sequences of 512 tokens.

Not trained at full size here; tests/test_configs.py checks the published hyperparameters and
shapes, and trains a shrunk version for a few steps.
"""

from ml_collections import ConfigDict

from configs import base


def get_config() -> ConfigDict:
    config = base.get_config()
    config.workdir = 'runs/deberta'
    config.data.corpus = 'corpora/wiki40b_en_unigram128k'
    config.data.tokenizer = 'train:unigram:128000'
    config.data.lowercase = False
    config.data.segments = 'single'
    config.model.architecture = 'deberta_v3_base'
    config.model.positions = 'mask_decoder'
    config.objectives.nsp = 0.0
    config.objectives.rtd = 50.0
    config.masking.mask = 1.0
    config.masking.random = 0.0
    config.masking.unknown = False
    config.rtd.generator_width = 1.0
    config.rtd.generator_depth = 0.5
    config.rtd.sharing = 'gdes'
    config.training.steps = (500_000,)
    config.training.sequence_length = (512,)
    config.training.batch_size = (8192,)
    config.training.max_predictions = (77,)
    config.optimizer.name = 'adamw'
    config.optimizer.beta2 = 0.98
    config.schedule.name = 'linear'
    config.schedule.learning_rate = 5e-4
    config.schedule.warmup_fraction = 10_000 / 500_000
    return config
