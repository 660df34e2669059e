"""SentencePiece (Unigram and BPE): trains and reads .model files. ▁ is the space."""

import dataclasses
import functools
import io
import math
import re
import struct
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import sentencepiece
import tokenizers

from bert_jax import errors, limits
from bert_jax.tokenizers import charsmap, decoder_tokens, special_tokens, training_progress
from bert_jax.tokenizers.backend import PIECE_SPACE
from bert_jax.types import JsonObject

CHARACTER_COVERAGE = 0.9995  # rarer characters become <unk>; SentencePiece's default
TRAINING_THREADS = 4  # fixed, because it affects the order of floating-point sums
_UNTRAINABLE = re.compile('[\0\t▁▅]')
_UNIGRAM, _BPE = 1, 2  # sentencepiece_model.proto: TrainerSpec.ModelType
_UNKNOWN, _CONTROL, _USER_DEFINED = 2, 3, 4  # SentencePiece.Type
# Ids of fairseq: model → the first pieces, the number of pieces of the file they replace, the last.
_FAIRSEQ_FIRST = {
    'xlm-roberta': (('<s>', '<pad>', '</s>', '<unk>'), 3, ('<mask>',)),
    'camembert': (('<s>NOTUSED', '<pad>', '</s>NOTUSED', '<unk>', '<unk>NOTUSED'), 1, ('<mask>',)),
    'mbart': (
        ('<s>', '<pad>', '</s>', '<unk>'),
        3,
        (*decoder_tokens.MBART_LANGUAGES, '<mask>'),
    ),
}
IDS = ('file', *_FAIRSEQ_FIRST)

# Ids of special tokens in training, as in the published vocabularies.
_XLMR_SPECIAL: dict[str, Any] = dict(
    bos_id=0, pad_id=1, eos_id=2, unk_id=3, control_symbols=['<mask>']
)
_XLNET_SPECIAL: dict[str, Any] = dict(
    unk_id=0,
    bos_id=1,
    eos_id=2,
    control_symbols=['<cls>', '<sep>', '<pad>', '<mask>', '<eod>'],
    user_defined_symbols=['<eop>'],
)

Piece: TypeAlias = tuple[str, float, int]  # piece, score, type


@dataclasses.dataclass
class SentencePieceModel:
    """The contents of a .model file.

    Attributes:
        pieces: (piece, score, type) of each id.
        model_type: Unigram or BPE.
        byte_fallback: Whether unknown characters are encoded as bytes.
        whitespace_as_suffix: Whether ▁ ends words instead of starting them.
        charsmap: Compiled normalization rules.
        add_dummy_prefix: Whether a space is inserted before each text.
        remove_extra_whitespaces: Whether repeated spaces are removed.
    """

    pieces: list[Piece]
    model_type: int = _UNIGRAM
    byte_fallback: bool = False
    whitespace_as_suffix: bool = False
    charsmap: bytes = b''
    add_dummy_prefix: bool = True
    remove_extra_whitespaces: bool = True


def _train(
    model_type: str, size: int, texts: list[str], lowercase: bool, cls_last: bool = False
) -> JsonObject:
    """Train a 'unigram' or 'bpe' tokenizer and return its settings.

    The tokenizer has SentencePiece's normalization nmt_nfkc and XLM-R's special tokens or, with
    `cls_last`, those of XLNet.
    """
    special = _XLNET_SPECIAL if cls_last else _XLMR_SPECIAL
    lower = tokenizers.normalizers.Lowercase() if lowercase else None
    model, parse = io.BytesIO(), training_progress.sentencepiece_parser(size)
    try:
        with training_progress.shown(f'{model_type} of {size:,} tokens', parse):
            sentencepiece.SentencePieceTrainer.train(
                sentence_iterator=_training_lines(texts, lower),
                model_writer=model,
                model_type=model_type,
                vocab_size=size,
                hard_vocab_limit=False,
                character_coverage=CHARACTER_COVERAGE,
                max_sentence_length=2**30,  # bytes; longer lines would be skipped
                num_threads=TRAINING_THREADS,
                minloglevel=0,
                **special,
            )
    except RuntimeError as error:
        if 'required_chars' in str(error):
            raise errors.UserError(
                f'a vocabulary of {size} is too small for the characters of this text'
            ) from None
        if 'empty()' in str(error):
            raise errors.UserError('the training text of the tokenizer has no words') from None
        raise errors.UserError(f'sentencepiece cannot train {model_type}: {error}') from error
    return settings(read(model.getvalue()), lowercase=lowercase, cls_last=cls_last)


train_unigram = functools.partial(_train, 'unigram')
train_bpe = functools.partial(_train, 'bpe')
train_xlnet = functools.partial(_train, 'unigram', cls_last=True)


def _training_lines(
    texts: list[str], lower: tokenizers.normalizers.Normalizer | None
) -> Iterator[str]:
    """Yield lines without the characters that would make the library skip a whole line."""
    for text in texts:
        for line in text.splitlines():
            line = special_tokens.separate_literals(_UNTRAINABLE.sub(' ', line))
            if line.strip():
                yield lower.normalize_str(line) if lower else line


def read(data: bytes) -> SentencePieceModel:
    """Parse a .model file; raise UserError if it is not a supported SentencePiece model."""
    model = SentencePieceModel([])
    try:
        for number, value in _fields(data):
            if number == 1:
                piece = dict(_fields(value))
                (score,) = struct.unpack('<f', piece.get(2, bytes(4)))
                text = piece[1].decode('utf-8')
                if len(text) > limits.PIECE_CHARACTERS:
                    raise errors.UserError(
                        f'a piece has {len(text):,} characters; the limit is '
                        f'{limits.PIECE_CHARACTERS:,}'
                    )
                if not math.isfinite(score):
                    raise ValueError('a score is not finite')
                model.pieces.append((text, score, piece.get(3, 1)))
            elif number == 2:
                trainer = dict(_fields(value))
                model.model_type = trainer.get(3, _UNIGRAM)
                model.whitespace_as_suffix = bool(trainer.get(24, 0))
                model.byte_fallback = bool(trainer.get(35, 0))
            elif number == 3:
                normalizer = dict(_fields(value))
                model.charsmap = normalizer.get(2, b'')
                model.add_dummy_prefix = bool(normalizer.get(3, 1))
                model.remove_extra_whitespaces = bool(normalizer.get(4, 1))
    except (IndexError, KeyError, ValueError, AttributeError, TypeError, struct.error):
        raise errors.UserError('not a SentencePiece model') from None
    if not model.pieces:
        raise errors.UserError('not a SentencePiece model')
    total = sum(len(piece) for piece, _, _ in model.pieces)
    if total > limits.PIECES_CHARACTERS:
        raise errors.UserError(
            f'the pieces have {total:,} characters; the limit is {limits.PIECES_CHARACTERS:,}'
        )
    if model.model_type not in (_UNIGRAM, _BPE) or model.whitespace_as_suffix:
        raise errors.UserError(
            'the SentencePiece model must be Unigram or BPE and have ▁ before words'
        )
    return model


def _fields(data: bytes) -> Iterator[tuple[int, Any]]:
    """Yield (number, value) of each field of a protobuf message, value an int or bytes."""
    place = 0

    def varint() -> int:
        nonlocal place
        value = shift = 0
        while True:
            byte = data[place]
            value |= (byte & 127) << shift
            place, shift = place + 1, shift + 7
            if byte < 128:
                return value
            if shift > 63:
                raise ValueError('a number has more than 64 bits')

    while place < len(data):
        number, wire = divmod(varint(), 8)
        if wire == 0:
            yield number, varint()
            continue
        size = varint() if wire == 2 else {1: 8, 5: 4}[wire]
        if place + size > len(data):
            raise ValueError('truncated')
        yield number, data[place : place + size]
        place += size


def settings(
    model: SentencePieceModel,
    *,
    ids: str = 'file',
    lowercase: bool = False,
    strip_accents: bool = False,
    join_quotes: bool = False,
    split_punctuation: bool = False,
    add_prefix_space: bool = True,
    names: Mapping[str, str] | None = None,
    cls_last: bool = False,
    last: Sequence[str] = (),
    suffix: Sequence[str] | None = None,
) -> JsonObject:
    """Return the settings of a tokenizer, the contents of a tokenizer.json.

    Args:
        model: The SentencePiece model.
        ids: 'file': the ids of the file; 'xlm-roberta': <s> <pad> </s> <unk>, the pieces of the
            file without its first three, <mask>; 'camembert', 'mbart': similar. Missing special
            tokens get ids after the last.
        lowercase: Whether text is lowercased before the model's own normalization, as in ALBERT.
        strip_accents: Whether accents are stripped before lowercasing, as in ALBERT.
        join_quotes: Whether two single quotes first become a double quote, as in ALBERT.
        split_punctuation: Whether text is split at punctuation, an option of DeBERTa.
        add_prefix_space: Whether a space is inserted before each text, if the model does so.
        names: Role → name of its special token, for tokens without a published name.
        cls_last: Whether [CLS] follows the texts, as in XLNet, with its special tokens.
        last: Special tokens to append.
        suffix: If given, texts begin without a special token, the vocabulary may lack those of cls
            and mask, and these tokens follow the one that ends a text.
    """
    pieces = list(model.pieces) if ids == 'file' else _fairseq(model.pieces, ids)
    pieces += [(name, 0.0, _CONTROL) for name in last]
    known = {piece: 0 for piece, _, _ in pieces}
    names = (special_tokens.XLNET if cls_last else {}) | dict(names or {})
    names = special_tokens.names(known, names)
    if suffix is not None:
        optional = ('cls', 'mask')
        names = {r: name for r, name in names.items() if r not in optional or name in known}
    pieces += [
        (name, 0.0, _CONTROL) for name in names.values() if name not in {p for p, _, _ in pieces}
    ]
    index_of = {piece: index for index, (piece, _, _) in enumerate(pieces)}
    if len(index_of) < len(pieces):
        raise errors.UserError('the SentencePiece model contains a piece twice')
    unknown = next((index for index, (_, _, kind) in enumerate(pieces) if kind == _UNKNOWN), None)
    if unknown is None:
        raise errors.UserError('the SentencePiece model has no piece for unknown characters')

    core: tokenizers.models.Model
    if model.model_type == _UNIGRAM:
        scores = [(piece, score) for piece, score, _ in pieces]
        core = tokenizers.models.Unigram(scores, unknown, byte_fallback=model.byte_fallback)
    else:
        core = tokenizers.models.BPE(
            index_of,
            _merges(pieces),
            unk_token=pieces[unknown][0],
            fuse_unk=True,
            byte_fallback=model.byte_fallback,
        )
    backend = tokenizers.Tokenizer(core)
    normal = tokenizers.normalizers
    steps: list[tokenizers.normalizers.Normalizer] = []
    if join_quotes:
        steps += [normal.Replace('``', '"'), normal.Replace("''", '"')]
    if strip_accents:
        steps += [normal.NFKD(), normal.StripAccents()]
    if lowercase:
        steps.append(normal.Lowercase())
    _add_steps(backend, model, steps, split_punctuation, add_prefix_space)
    roles = {*names.values()}
    added = [  # in the order of ids, which must not change
        special_tokens.added(piece)
        if kind == _CONTROL or piece in roles
        else tokenizers.AddedToken(piece, special=False, normalized=False)
        for piece, _, kind in pieces
        if kind in (_CONTROL, _USER_DEFINED) or piece in roles
    ]
    backend.add_tokens(added)
    if suffix is None:
        backend.post_processor = special_tokens.template(names, index_of, cls_last=cls_last)
    else:
        backend.post_processor = decoder_tokens.end_template(names['sep'], suffix, index_of)
    return special_tokens.contents(backend)


def _fairseq(pieces: list[Piece], ids: str) -> list[Piece]:
    if [piece for piece, _, _ in pieces[:3]] != ['<unk>', '<s>', '</s>']:
        raise errors.UserError(f'the ids of {ids} need a model that starts with <unk> <s> </s>')
    names, replaced, last = _FAIRSEQ_FIRST[ids]
    first = [(name, 0.0, _UNKNOWN if name == '<unk>' else _CONTROL) for name in names]
    return [*first, *pieces[replaced:], *((name, 0.0, _CONTROL) for name in last)]


def _merges(pieces: list[Piece]) -> list[tuple[str, str]]:
    """Every split of each piece into two, best pieces first.

    SentencePiece merges whichever two neighbors form the best piece.
    """
    scores = {piece: score for piece, score, kind in pieces if kind not in (_UNKNOWN, _CONTROL)}
    merges: list[tuple[str, str]] = []
    for piece in sorted(scores, key=scores.__getitem__, reverse=True):
        splits = ((piece[:n], piece[n:]) for n in range(1, len(piece)))
        merges += [(a, b) for a, b in splits if a in scores and b in scores]
    return merges


def _add_steps(
    backend: tokenizers.Tokenizer,
    model: SentencePieceModel,
    steps: list[tokenizers.normalizers.Normalizer],
    split_punctuation: bool,
    add_prefix_space: bool,
) -> None:
    """Set normalization, which starts with `steps`, splitting and decoding."""
    normal, split, decode = tokenizers.normalizers, tokenizers.pre_tokenizers, tokenizers.decoders
    if model.charsmap:
        steps.append(normal.Precompiled(model.charsmap))
    if model.add_dummy_prefix and model.remove_extra_whitespaces:  # as in all published encoders
        scheme = 'always' if add_prefix_space else 'never'
        marks = [split.Punctuation('isolated')] if split_punctuation else []
        # Other whitespace separates words only if the model's rules replace it by spaces.
        whitespace = '\t\u00a0'
        rules = charsmap.Rules(model.charsmap) if model.charsmap else None
        is_space = rules is not None and not rules.normalize_str(whitespace).strip(' ')
        words = split.WhitespaceSplit() if is_space else split.CharDelimiterSplit(' ')
        splits = [words, *marks, split.Metaspace(PIECE_SPACE, scheme)]
        backend.pre_tokenizer = split.Sequence(splits)
    else:
        if model.remove_extra_whitespaces:
            steps += [normal.Replace(tokenizers.Regex(' {2,}'), ' '), normal.Strip()]
        if model.add_dummy_prefix:
            steps.append(normal.Prepend(PIECE_SPACE))
        steps.append(normal.Replace(' ', PIECE_SPACE))
    backend.normalizer = normal.Sequence(steps)
    bytes_too = [decode.ByteFallback(), decode.Fuse()] if model.byte_fallback else []
    scheme = 'always' if model.add_dummy_prefix else 'never'
    backend.decoder = decode.Sequence([*bytes_too, decode.Metaspace(PIECE_SPACE, scheme)])
