"""BERT-large as published (Devlin et al. 2019): 24 layers of 1024, otherwise as base.py.

python -m bert_jax.main --config=configs/large.py
"""

from configs import base


def get_config():
    config = base.get_config()
    config.workdir = 'runs/large'
    config.model.architecture = 'bert_large'
    return config
