"""mmBERT-base (Marone et al. 2025, arXiv 2509.06888): ModernBERT on ever more languages.

    python -m bert_jax.main --config=configs/mmbert.py
    python -m bert_jax.main --config=configs/mmbert.py:midtraining
    python -m bert_jax.main --config=configs/mmbert.py:decay

What you get: three phases, each from the run before. Masking falls from 30 to 15 and 5 %, languages
are added in each phase, and their shares become more even: q ∝ p^0.7, p^0.5, p^0.3. 2.3T tokens at
length 1,024, then 600B and 100B at length 8,192; the last phase decays the learning rate. Values
are those of the paper, section 3 and appendix A, and of configs/mmBERT-base*.yaml of
JHU-CLSP/mmBERT.

The text is 16, 28 and 41 Wikipedias of wiki40b instead of 60, 110 and 1,833 languages of the web;
docs/fidelity.md lists all differences from the publication.

Not trained at full size here; tests/test_configs.py checks the published hyperparameters and
shapes, and trains a shrunk version for a few steps.
"""

from typing import NamedTuple

from ml_collections import ConfigDict

from bert_jax.errors import unknown
from configs import modernbert, xlmr


class Phase(NamedTuple):
    languages: list[str]
    alpha: float
    rate: float
    steps: int
    length: int


# fmt: off
LARGEST = [
    'ar', 'cs', 'de', 'en', 'es', 'fr', 'it', 'ja', 'ko', 'nl', 'pl', 'pt', 'ru', 'tr', 'vi',
    'zh-cn',
]
# fmt: on
SMALLEST = ['bg', 'el', 'et', 'hr', 'lt', 'lv', 'ms', 'sk', 'sl', 'sr', 'th', 'tl', 'zh-tw']
PHASES = {
    'pretraining': Phase(LARGEST, 0.7, 0.3, 487_000, 1024),
    'midtraining': Phase(
        [language for language in xlmr.LANGUAGES if language not in SMALLEST],
        *(0.5, 0.15, 127_000, 8192),
    ),
    'decay': Phase(xlmr.LANGUAGES, 0.3, 0.05, 21_200, 8192),
}


def get_config(phase: str = 'pretraining') -> ConfigDict:
    if phase not in PHASES:
        raise unknown('phase of mmBERT', phase, PHASES)
    chosen = PHASES[phase]
    config = modernbert.get_config('pretraining' if phase == 'pretraining' else 'extension')
    config.workdir = f'runs/mmbert_{phase}'
    config.data.sources = tuple(
        f'tfds:wiki40b/{language};language={language}' for language in chosen.languages
    )
    config.data.corpus = f'corpora/mmbert_{phase}'
    config.data.tokenizer = 'train:unigram:256000'
    config.data.tokenizer_language_alpha = 0.3
    config.data.language_alpha = chosen.alpha
    config.masking.rate = chosen.rate
    config.training.steps = (chosen.steps,)
    config.training.max_predictions = (-int(-chosen.rate * chosen.length // 1),)
    config.optimizer.beta2 = 0.95
    config.optimizer.eps = 1e-8
    # 8e-5, divided by the peak rate as in configs/modernbert.py.
    config.optimizer.weight_decay = 8e-5 / 8e-4
    config.schedule.learning_rate = 8e-4
    config.schedule.name = 'constant'
    config.schedule.decay_steps = 0
    if phase == 'pretraining':
        config.schedule.warmup_fraction = 636 / 487_000  # 3B tokens
    else:
        config.model.attention.local_theta = 160_000.0
        before = 'pretraining' if phase == 'midtraining' else 'midtraining'
        config.init_from = f'runs/mmbert_{before}'
        config.data.tokenizer = 'corpora/mmbert_pretraining/tokenizer.json'
    if phase == 'decay':
        config.schedule.name = 'sqrt'
        config.schedule.end_learning_rate = 1.6e-5  # 2 % of the peak
    return config
