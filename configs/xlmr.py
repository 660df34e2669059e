"""XLM-R-base (Conneau et al. 2020, arXiv 1911.02116, section 3): RoBERTa on many languages.

    python -m bert_jax.main --config=configs/xlmr.py

What you get: one model of 41 languages, sampled with q ∝ p^0.3 so that small languages count more;
a unigram vocabulary of 250,002; 1.5M steps of 8,192 sequences of 512 tokens.

Differences from the publication: the text is the Wikipedias of wiki40b instead of CommonCrawl in
100 languages, and the learning rate, which the paper does not give for base, is RoBERTa's.

Not trained at full size here; tests/test_configs.py checks the published hyperparameters and
shapes, and trains a shrunk version for a few steps.
"""

from ml_collections import ConfigDict

from configs import roberta

# fmt: off
LANGUAGES = [
    'ar', 'bg', 'ca', 'cs', 'da', 'de', 'el', 'en', 'es', 'et', 'fa', 'fi', 'fr', 'he',
    'hi', 'hr', 'hu', 'id', 'it', 'ja', 'ko', 'lt', 'lv', 'ms', 'nl', 'no', 'pl', 'pt',
    'ro', 'ru', 'sk', 'sl', 'sr', 'sv', 'th', 'tl', 'tr', 'uk', 'vi', 'zh-cn', 'zh-tw',
]
# fmt: on


def get_config() -> ConfigDict:
    config = roberta.get_config()
    config.workdir = 'runs/xlmr'
    config.data.sources = tuple(f'tfds:wiki40b/{code};language={code}' for code in LANGUAGES)
    config.data.corpus = 'corpora/wiki40b'
    config.data.tokenizer = 'train:unigram:250002'
    config.data.language_alpha = 0.3
    config.data.tokenizer_language_alpha = 0.3
    config.model.architecture = 'xlmr_base'
    config.training.steps = (1_500_000,)
    config.schedule.warmup_fraction = 24_000 / 1_500_000
    return config
