"""XLM-R (Conneau et al. 2020, arXiv 1911.02116, section 3): RoBERTa on many languages.

    python -m bert_jax.main --config=configs/xlmr.py:base
    python -m bert_jax.main --config=configs/xlmr.py:large

What you get: one model of 41 languages, sampled with q ∝ p^0.3 so that small languages count more;
a unigram vocabulary of 250,002; 1.5M steps of 8,192 sequences of 512 tokens. `base` has 12 layers
of width 768, `large` 24 of width 1,024.

Differences from the publication: the text is the Wikipedias of wiki40b instead of CommonCrawl in
100 languages; learning rates and warmups, which the paper does not give, are those of RoBERTa's
models of these sizes (Liu et al. 2019, arXiv 1907.11692, table 9).

Not trained at full size here; tests/test_configs.py checks the published hyperparameters and
shapes, and trains a shrunk version for a few steps.
"""

from ml_collections import ConfigDict

from bert_jax.errors import unknown
from configs import roberta

SIZES = {'base': (6e-4, 24_000), 'large': (4e-4, 30_000)}  # learning rate, steps of the warmup

# fmt: off
LANGUAGES = [
    'ar', 'bg', 'ca', 'cs', 'da', 'de', 'el', 'en', 'es', 'et', 'fa', 'fi', 'fr', 'he',
    'hi', 'hr', 'hu', 'id', 'it', 'ja', 'ko', 'lt', 'lv', 'ms', 'nl', 'no', 'pl', 'pt',
    'ro', 'ru', 'sk', 'sl', 'sr', 'sv', 'th', 'tl', 'tr', 'uk', 'vi', 'zh-cn', 'zh-tw',
]
# fmt: on


def get_config(size: str = 'base') -> ConfigDict:
    if size not in SIZES:
        raise unknown('size of XLM-R', size, SIZES)
    learning_rate, warmup = SIZES[size]
    config = roberta.get_config()
    config.workdir = f'runs/xlmr_{size}'
    config.data.sources = tuple(f'tfds:wiki40b/{code};language={code}' for code in LANGUAGES)
    config.data.corpus = 'corpora/wiki40b'
    config.data.tokenizer = 'train:unigram:250002'
    config.data.language_alpha = 0.3
    config.data.tokenizer_language_alpha = 0.3
    config.model.architecture = f'xlmr_{size}'
    config.training.steps = (1_500_000,)
    config.schedule.learning_rate = learning_rate
    config.schedule.warmup_fraction = warmup / config.training.steps[0]
    return config
