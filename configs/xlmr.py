"""XLM-R-base (Conneau et al. 2020, arXiv 1911.02116, section 3): RoBERTa on many languages, the
small ones raised by q_i ∝ p_i^0.3.

python -m bert_jax.main --config=configs/xlmr.py

The published text is CommonCrawl in 100 languages; here the Wikipedias of wiki40b. The paper does
not give the rate of the base model; this is RoBERTa's.
"""

from configs import roberta

# fmt: off
LANGUAGES = [
    'ar', 'bg', 'ca', 'cs', 'da', 'de', 'el', 'en', 'es', 'et', 'fa', 'fi', 'fr', 'he',
    'hi', 'hr', 'hu', 'id', 'it', 'ja', 'ko', 'lt', 'lv', 'ms', 'nl', 'no', 'pl', 'pt',
    'ro', 'ru', 'sk', 'sl', 'sr', 'sv', 'th', 'tl', 'tr', 'uk', 'vi', 'zh-cn', 'zh-tw',
]
# fmt: on


def get_config():
    config = roberta.get_config()
    config.workdir = 'runs/xlmr'
    config.data.sources = tuple(f'tfds:wiki40b/{code};language={code}' for code in LANGUAGES)
    config.data.corpus = 'corpora/wiki40b'
    config.data.tokenizer = 'train:unigram:250002'
    config.data.language_alpha = 0.3
    config.data.tokenizer_language_alpha = 0.3
    config.model.architecture = 'xlmr_base'
    config.stages.steps = (1_500_000,)
    return config
