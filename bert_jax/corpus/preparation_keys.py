"""The settings with which a corpus is prepared: keys of `data`, and flags of prepare.py."""

from typing import Any

from ml_collections import ConfigDict

from bert_jax.config_keys import key


def _tokenizer_is_given(config: ConfigDict, name: str) -> str:
    tokenizer = config.data.tokenizer
    trained = tokenizer.startswith('train:')
    return '' if trained else f'the tokenizer {tokenizer!r} is not trained'


KEYS: dict[str, Any] = dict(
    tokenizer=key(
        'train:wordpiece:30522',
        "'train:KIND:SIZE' (wordpiece, bytebpe, unigram, xlnet, sentencepiece-bpe) or the path of "
        'a vocab.txt, tokenizer.json or SentencePiece model.',
        on_resume='logged',
    ),
    lowercase=key(True, 'lowercase the text'),
    strip_accents=key(
        None,
        'Strip accents and vowel signs; default: WordPiece does if it lowercases, as in BERT.',
        kind=bool,
    ),
    held_out_fraction=key(0.005, 'share of the documents used for evaluation only', '(0, 1)'),
    tokenizer_language_alpha=key(
        1.0,
        'language shares ∝ (characters)^alpha in the text that trains the tokenizer; 0: equal',
        '[0, 1]',
        unused=_tokenizer_is_given,
    ),
    tokenizer_characters=key(
        67_108_864,
        'maximum length of that text, drawn as random lines',
        '[1, inf)',
        unused=_tokenizer_is_given,
    ),
    max_bad_share=key(
        0.05,
        'tolerated share of unusable files, and of bad lines in a file',
        '[0, 1]',
        on_resume='free',
    ),
)
