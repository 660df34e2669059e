"""mBART (Liu et al. 2020, arXiv 2001.08210): denoising in many languages.

    python -m bert_jax.main --config=configs/mbart.py

What you get: 12 + 12 layers of width 1,024 with norms before the layers; 35 % of the words hidden
and sentences in random order, in the 20 of mBART's 25 languages that wiki40b has. A text ends with
the token of its language, with which the decoder starts. Languages are sampled with q ∝ p^0.7.

Differences from the publication: docs/fidelity.md. Not trained here; tests/test_configs.py checks
hyperparameters and shapes, and trains a shrunk version for a few steps.
"""

from ml_collections import ConfigDict

from configs import bart

LANGUAGES = [
    'ar', 'cs', 'de', 'en', 'es', 'et', 'fi', 'fr', 'hi', 'it',
    'ja', 'ko', 'lt', 'lv', 'nl', 'ro', 'ru', 'tr', 'vi', 'zh-cn',
]  # fmt: skip


def get_config() -> ConfigDict:
    config = bart.get_config('large')
    config.workdir = 'runs/mbart'
    config.data.sources = tuple(f'tfds:wiki40b/{code};language={code}' for code in LANGUAGES)
    config.data.corpus = 'corpora/wiki40b_mbart'
    config.data.tokenizer = f'train:unigram:250000:languages={",".join(LANGUAGES)}:cls=no'
    config.data.language_alpha = 0.7
    config.data.tokenizer_language_alpha = 0.7
    config.masking.unspaced = 'subwords'
    config.model.architecture = 'mbart'
    config.noise.mask = 0.35
    config.noise.poisson_lambda = 3.5
    config.optimizer.clip_norm = 0.0
    return config
