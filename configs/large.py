"""BERT-large as published (Devlin et al. 2019): 24 layers of width 1024, otherwise as base.py.

    python -m bert_jax.main --config=configs/large.py

What you get: the published recipe on English Wikipedia, 1M steps of 256 sequences.

Not trained at full size here; tests/test_configs.py checks its shapes at full size.
"""

from ml_collections import ConfigDict

from configs import base


def get_config() -> ConfigDict:
    config = base.get_config()
    config.workdir = 'runs/large'
    config.model.architecture = 'bert_large'
    return config
