"""The tokenizer classes of transformers: how each class reads the files of a folder.

The options of BERT's and RoBERTa's classes, even default values, take precedence over a
tokenizer.json. To add a tokenizer class, write a function here and a line in CLASSES.

Ids are as in transformers 4 and 5 if these versions agree, else as in version 4. Version 5 keeps
only the vocabulary of a tokenizer.json if its class is known, ignores the normalization rules of
DeBERTa's spm.model, and matches the additional special tokens of a special_tokens_map.json in
normalized text.
"""

import functools
import json
import pathlib
import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import tokenizers
from tokenizers import normalizers, pre_tokenizers

from bert_jax import errors, limits
from bert_jax.files import read_bytes
from bert_jax.tokenizers import byte_bpe, decoder_tokens, sentence_piece, special_tokens, wordpiece
from bert_jax.tokenizers.folders import Configuration
from bert_jax.types import JsonObject

_MAX_CHARACTERS_PER_WORD = 100  # longer words become [UNK]; 200 in google-research/bert
_CASED_SHARE = 0.05  # a vocabulary is cased if more tokens have capital letters
_END_OF_WORD = '</w>'
_T5_SENTINELS = 100
_MBART_SOURCE = 'en_XX'
_ESM_NAMES = {role: f'<{role}>' for role in ('pad', 'unk', 'cls', 'mask')} | {'sep': '<eos>'}
_MPNET_NAMES = ('<s>', '<pad>', '</s>', '<mask>')


class TokenizerClass(NamedTuple):
    """How a tokenizer class reads a folder.

    Attributes:
        pattern: Glob of the file to read if there is no tokenizer.json.
        read: Reads this file: (file, configuration, whether to lowercase by default) → settings.
        override: Changes the settings: (settings, configuration, whether to lowercase by default).
        reads_json: Whether the class reads tokenizer.json at all.
    """

    pattern: str
    read: Callable[[pathlib.Path, Configuration, bool], JsonObject]
    override: Callable[[JsonObject, Configuration, bool], None] = lambda *_: None
    reads_json: bool = True


def read_vocab_txt(file: pathlib.Path, configuration: Configuration, lowercase: bool) -> JsonObject:
    """Read the vocab.txt of a WordPiece tokenizer."""
    vocab = wordpiece.read_vocab(read_bytes(file, limits.LARGE_FILE).decode('utf-8-sig'))
    settings = wordpiece.settings(vocab, lowercase, _roles(configuration))
    if configuration.tokenizer_class:
        settings['model']['max_input_chars_per_word'] = _MAX_CHARACTERS_PER_WORD
    return settings


def _read_mpnet(file: pathlib.Path, configuration: Configuration, lowercase: bool) -> JsonObject:
    """Read the vocab.txt of MPNet: WordPiece with RoBERTa's names of special tokens but [UNK]."""
    names = dict(zip(('cls', 'pad', 'sep', 'mask'), _MPNET_NAMES, strict=True))
    with_names = configuration._replace(names={**names, **configuration.names})
    return read_vocab_txt(file, with_names, lowercase)


def _read_esm(file: pathlib.Path, configuration: Configuration, _: bool) -> JsonObject:
    """Read the vocab.txt of ESM: the tokens are letters of proteins, others become <unk>."""
    lines = read_bytes(file, limits.LARGE_FILE).decode('utf-8-sig').splitlines()
    vocab = {line.strip(): index for index, line in enumerate(lines)}
    names = _ESM_NAMES | _roles(configuration)
    missing = [name for name in names.values() if name not in vocab]
    if missing:
        raise errors.UserError(f'the vocabulary lacks {", ".join(missing)}')
    backend = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocab, unk_token=names['unk']))
    longest_first = sorted(vocab, key=len, reverse=True)
    any_token = tokenizers.Regex('|'.join(map(re.escape, longest_first)))
    backend.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Split(any_token, 'isolated'), pre_tokenizers.WhitespaceSplit()]
    )
    special_tokens.add(backend, names.values())
    backend.post_processor = special_tokens.template(names, vocab, has_types=True)
    return special_tokens.contents(backend)


def read_byte_bpe(file: pathlib.Path, configuration: Configuration, _: bool) -> JsonObject:
    """Read a byte-level BPE from vocab.json and the merges.txt in the same folder."""
    vocab, merges = byte_bpe.read(file, _merges_file(file))
    add_prefix_space = configuration.options.get('add_prefix_space', False)
    names = _roles(configuration)
    return byte_bpe.settings(vocab, merges, add_prefix_space=add_prefix_space, names=names)


def _read_gpt2(file: pathlib.Path, configuration: Configuration, _: bool) -> JsonObject:
    """Read GPT-2's byte-level BPE, which has no tokens around a text, no mask and no padding."""
    vocab, merges = byte_bpe.read(file, _merges_file(file))
    options = dict(add_prefix_space=configuration.options.get('add_prefix_space', False))
    roles = {role: name for role, name in configuration.names.items() if role != 'unk'}
    names = {'eos': special_tokens.END} | roles
    return byte_bpe.settings(vocab, merges, **options, names=names, adds_roles=False)


def read_sentencepiece(
    file: pathlib.Path, configuration: Configuration, _: bool, **options: Any
) -> JsonObject:
    """Read a SentencePiece .model.

    Args:
        file: The .model.
        configuration: The configuration of its folder, which overrides `options`.
        options: Keyword arguments of `sentence_piece.settings`.
    """
    folder_options = configuration.options
    for name, keyword in (
        ('add_prefix_space', 'add_prefix_space'),
        ('do_lower_case', 'lowercase'),
        ('split_by_punct', 'split_punctuation'),
    ):
        if name in folder_options:
            options[keyword] = folder_options[name]
    if 'keep_accents' in folder_options:
        options['strip_accents'] = not folder_options['keep_accents']
    model = sentence_piece.read(read_bytes(file, limits.LARGE_FILE))
    return sentence_piece.settings(model, **options, names=_roles(configuration))


def _read_t5(file: pathlib.Path, configuration: Configuration, _: bool) -> JsonObject:
    """Read T5's .model, which is followed by sentinels; mT5's has them itself."""
    number = configuration.options.get('extra_ids', _T5_SENTINELS)
    if not 0 <= number <= decoder_tokens.MOST_SENTINELS:
        raise errors.UserError(
            f'extra_ids is {number}, but must be from 0 to {decoder_tokens.MOST_SENTINELS:,}'
        )
    sentinels = [decoder_tokens.sentinel(index) for index in reversed(range(number))]
    return read_sentencepiece(file, configuration, False, last=sentinels, suffix=())


def _read_mbart(file: pathlib.Path, configuration: Configuration, _: bool) -> JsonObject:
    """Read mBART's .model, which is followed by languages; texts end with the source language."""
    language = configuration.options.get('src_lang', _MBART_SOURCE)
    if language not in decoder_tokens.MBART_LANGUAGES:
        raise errors.unknown('src_lang', language, decoder_tokens.MBART_LANGUAGES)
    return read_sentencepiece(file, configuration, False, ids='mbart', suffix=(language,))


def _read_herbert(file: pathlib.Path, configuration: Configuration, _: bool) -> JsonObject:
    """Read HerBERT's character-level BPE, which marks the ends of words."""
    vocab, merges = byte_bpe.read(file, _merges_file(file))
    names = special_tokens.names(vocab, _roles(configuration))
    vocab = special_tokens.extend(vocab, names)
    pairs = [(first, second) for first, second in merges]
    model = tokenizers.models.BPE(
        vocab, pairs, unk_token=names['unk'], end_of_word_suffix=_END_OF_WORD
    )
    backend = tokenizers.Tokenizer(model)
    backend.normalizer = normalizers.BertNormalizer(lowercase=False, strip_accents=False)
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    backend.decoder = tokenizers.decoders.BPEDecoder(suffix=_END_OF_WORD)
    special_tokens.add(backend, sorted(set(names.values()), key=vocab.__getitem__))
    backend.post_processor = special_tokens.template(names, vocab)
    return special_tokens.contents(backend)


def _read_japanese(file: pathlib.Path, configuration: Configuration, _: bool) -> JsonObject:
    """Read the vocab.txt of a BertJapaneseTokenizer that needs no dictionary of words.

    Splitting into characters needs no dictionary even after MeCab, which only drops whitespace.
    """
    options = configuration.options
    words = options.get('word_tokenizer_type', 'basic')
    subwords = options.get('subword_tokenizer_type', 'wordpiece')
    if (words, subwords) not in _JAPANESE or not options.get('do_word_tokenize', True):
        raise errors.UserError(
            f'BertJapaneseTokenizer with word_tokenizer_type {words} and subword_tokenizer_type '
            f'{subwords} is not supported: it needs a morphological analyzer and its dictionary'
        )
    lowercase = options.get('do_lower_case', False)
    settings = read_vocab_txt(file, configuration, lowercase)
    backend = tokenizers.Tokenizer.from_str(json.dumps(settings))
    _JAPANESE[words, subwords](backend, lowercase)
    return special_tokens.contents(backend)


def _clean(lowercase: bool) -> list[normalizers.Normalizer]:
    clean = normalizers.BertNormalizer(handle_chinese_chars=False, lowercase=lowercase)
    return [normalizers.NFC(), clean]


def _basic_wordpiece(backend: tokenizers.Tokenizer, lowercase: bool) -> None:
    backend.normalizer = normalizers.Sequence(_clean(lowercase))


def _basic_characters(backend: tokenizers.Tokenizer, lowercase: bool) -> None:
    # NFKC decomposes some characters into a space and another character; this space is kept.
    steps = [*_clean(lowercase), normalizers.Replace(' ', '\0'), normalizers.NFKC()]
    backend.normalizer = normalizers.Sequence(steps)
    backend.pre_tokenizer = _split_characters('\0')


def _mecab_characters(backend: tokenizers.Tokenizer, lowercase: bool) -> None:
    steps = [normalizers.NFKC(), *([normalizers.Lowercase()] if lowercase else [])]
    backend.normalizer = normalizers.Sequence(steps)
    backend.pre_tokenizer = _split_characters('[ \t\n\v]')


def _split_characters(dropped: str) -> pre_tokenizers.PreTokenizer:
    """Split a text into single characters; drop those that match a regular expression."""
    split = pre_tokenizers.Split
    return pre_tokenizers.Sequence(
        [
            split(tokenizers.Regex(dropped), 'removed'),
            split(tokenizers.Regex(r'[\s\S]'), 'isolated'),
        ]
    )


_JAPANESE = {
    ('basic', 'wordpiece'): _basic_wordpiece,
    ('basic', 'character'): _basic_characters,
    ('mecab', 'character'): _mecab_characters,
}


def _override_bert(settings: JsonObject, configuration: Configuration, lowercase: bool) -> None:
    """Set the options of BertTokenizer, including the default values."""
    normalizer, options = settings['normalizer'], configuration.options
    if 'unk' in configuration.names and settings['model']['type'] == 'WordPiece':
        settings['model']['unk_token'] = configuration.names['unk']
    if not normalizer or normalizer['type'] != 'BertNormalizer':
        return
    normalizer |= {
        'lowercase': options.get('do_lower_case', lowercase),
        'strip_accents': options.get('strip_accents'),
        'handle_chinese_chars': options.get('tokenize_chinese_chars', True),
    }
    vocab = settings['model']['vocab']
    cased = sum(token != token.lower() for token in vocab)
    if lowercase and 'do_lower_case' not in options and cased > _CASED_SHARE * len(vocab):
        errors.warn(
            'the vocabulary of the tokenizer has capital letters, but text is lowercased, as in '
            'transformers, because tokenizer_config.json has no do_lower_case; if the model is '
            'cased, set "do_lower_case": false there, or data.lowercase=False for a corpus'
        )


def _override_byte_bpe(settings: JsonObject, configuration: Configuration, _: bool) -> None:
    """Set the option of RobertaTokenizer, even if it has its default value."""
    splitter = settings['pre_tokenizer']
    if splitter and splitter['type'] == 'ByteLevel':
        splitter['add_prefix_space'] = configuration.options.get('add_prefix_space', False)


def _sentencepiece(**options: Any) -> TokenizerClass:
    return TokenizerClass('*.model', functools.partial(read_sentencepiece, **options))


_BERT = TokenizerClass('vocab.txt', read_vocab_txt, _override_bert)
_BYTE_BPE = TokenizerClass('*vocab.json', read_byte_bpe, _override_byte_bpe)
CLASSES: Mapping[str, TokenizerClass] = {
    'AlbertTokenizer': _sentencepiece(lowercase=True, strip_accents=True, join_quotes=True),
    'BartTokenizer': _BYTE_BPE,
    'BertJapaneseTokenizer': TokenizerClass('vocab.txt', _read_japanese, reads_json=False),
    'BertTokenizer': _BERT,
    'CamembertTokenizer': _sentencepiece(ids='camembert'),
    'DPRContextEncoderTokenizer': _BERT,
    'DPRQuestionEncoderTokenizer': _BERT,
    'DebertaTokenizer': _BYTE_BPE,
    'DebertaV2Tokenizer': _sentencepiece(),
    'DistilBertTokenizer': _BERT,
    'ElectraTokenizer': _BERT,
    'EsmTokenizer': TokenizerClass('vocab.txt', _read_esm),
    'GPT2Tokenizer': TokenizerClass('*vocab.json', _read_gpt2, _override_byte_bpe),
    'HerbertTokenizer': TokenizerClass('*vocab.json', _read_herbert),
    'LukeTokenizer': _BYTE_BPE,
    'MBartTokenizer': TokenizerClass('*.model', _read_mbart),
    'MPNetTokenizer': TokenizerClass('vocab.txt', _read_mpnet, _override_bert),
    'RobertaTokenizer': _BYTE_BPE,
    'T5Tokenizer': TokenizerClass('*.model', _read_t5),
    'XLNetTokenizer': _sentencepiece(strip_accents=True, join_quotes=True, cls_last=True),
    'XLMRobertaTokenizer': _sentencepiece(ids='xlm-roberta'),
}


def _merges_file(vocab: pathlib.Path) -> pathlib.Path:
    return vocab.with_name(vocab.name.removesuffix('vocab.json') + 'merges.txt')


def _roles(configuration: Configuration) -> dict[str, str]:
    """The names of special tokens in `configuration`, without 'bos' and 'eos'."""
    return {r: name for r, name in configuration.names.items() if r in special_tokens.NAMES}
