"""Text ↔ token ids behind one interface, whatever the kind of vocabulary.

A tokenizer is frozen: everything about it is one JSON text, whose hash is its `fingerprint`.
"""

import copy
import dataclasses
import functools
import hashlib
import json
import pathlib
import re
from collections.abc import Sequence

import numpy as np
import tokenizers

from bert_jax import errors
from bert_jax.data.tokenizers import byte_bpe, cutting, sentence_piece, special_tokens, wordpiece

CACHED_IDS = 2**20  # bound on the memory of words already looked up (about 100 MB)
MODELS = ('WordPiece', 'BPE', 'Unigram')

_SURROGATES = re.compile('[\ud800-\udfff]')


@dataclasses.dataclass(frozen=True)
class Encodings:
    """Token ids (int32 [N]) and character spans in the original text (int32 [N, 2], end
    exclusive) of each text."""

    ids: list[np.ndarray]
    offsets: list[np.ndarray]


class Tokenizer:
    """A frozen tokenizer, made from the JSON of the `tokenizers` library.

    Attributes:
      kind: 'wordpiece', 'bytebpe', 'unigram', 'sentencepiece-bpe', or 'bpe' for another BPE.
      vocab: token of each id.
      vocab_size: number of ids.
      pad_id, unk_id, cls_id, sep_id, mask_id: ids of the special tokens, whatever their names;
        `special_ids` has all.
      is_word_start: bool [V], whether a token starts a word by the vocabulary's own convention:
        without ## (WordPiece), with Ġ (byte-level BPE), with ▁ (SentencePiece); False for the
        special tokens. None where no token shows the convention: who needs words must refuse it.
      lowercase: whether text is lowercased.
      sentence_prefix: what to put before a sentence from running text so that it is encoded as
        it is there: a space for byte-level BPE that would not take the first word for a word's
        start otherwise, else nothing.
      fingerprint: sha256 of the canonical JSON.

    Raises UserError if the JSON is no tokenizer of these kinds or lacks a special token.
    """

    def __init__(self, text: str):
        settings = parse(text)
        self._json = json.dumps(settings, sort_keys=True, ensure_ascii=False, separators=(',', ':'))
        self.fingerprint = hashlib.sha256(self._json.encode()).hexdigest()
        backend = _backend(settings)
        ids = backend.get_vocab(with_added_tokens=True)
        roles = special_tokens.find(ids)
        self.pad_id, self.unk_id, self.cls_id, self.sep_id, self.mask_id = roles.values()
        self.special_ids = tuple(roles.values())
        self.vocab_size = max(ids.values()) + 1
        names = [''] * self.vocab_size
        for token, index in ids.items():
            names[index] = token
        self.vocab = tuple(names)

        special = {token['content'] for token in settings['added_tokens'] if token['special']}
        special.update(names[index] for index in self.special_ids)
        self._plain = _backend(_without_special_pieces(settings, special))
        self._plain.encode_special_tokens = True
        self._cache: dict[str, bytes] = {}
        self._cached_ids = 0

        self.kind = _kind(settings)
        self.is_word_start = _word_starts(self.kind, settings, names)
        if self.is_word_start is not None:
            self.is_word_start[list(self.special_ids)] = False
        normalizer = backend.normalizer
        self.lowercase = normalizer is not None and normalizer.normalize_str('A') == 'a'
        self._cut = cutting.cutter(settings)
        prefixed = (settings['pre_tokenizer'] or {}).get('add_prefix_space')
        self.sentence_prefix = ' ' if self.kind == 'bytebpe' and not prefixed else ''

    def __reduce__(self):
        return Tokenizer, (self._json,)

    @classmethod
    def from_json(cls, text: str) -> 'Tokenizer':
        """The tokenizer written by `to_json`."""
        return cls(text)

    def to_json(self) -> str:
        """All of the tokenizer as canonical JSON."""
        return self._json

    def save(self, directory: str | pathlib.Path):
        """Writes tokenizer.json into a folder."""
        (pathlib.Path(directory) / 'tokenizer.json').write_text(self._json, encoding='utf-8')

    @functools.cached_property
    def _special(self) -> tokenizers.Tokenizer:
        """Like `_plain`, but a literal '[MASK]' in a text is the special token."""
        return _backend(json.loads(self._json))

    def encode_batch(self, texts: Sequence[str], special: bool = False) -> Encodings:
        """Ids and character offsets of each text; adds no special tokens, truncates nothing.

        A literal '[MASK]' or '[SEP]' in a text is ordinary text ('[', 'mask', ']'), so that a
        corpus cannot smuggle special tokens in; with special=True, for prompts typed by a
        person, it is the special token, as transformers reads it.
        """
        backend = self._special if special else self._plain
        encoded = backend.encode_batch([encodable(t) for t in texts], add_special_tokens=False)
        return Encodings(
            ids=[np.array(e.ids, np.int32) for e in encoded],
            offsets=[np.array(e.offsets, np.int32).reshape(-1, 2) for e in encoded],
        )

    def encode_ids(self, texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        """The ids `encode_batch` gives, without offsets and several times faster.

        Returns:
          ids of all texts one after another, int32 [N], and how many each text has, int64
          [len(texts)].
        """
        parts = [self._cut(text) for text in texts]
        self._remember({part for text_parts in parts for part in text_parts})
        lookup = self._cache.__getitem__
        encoded = [b''.join(map(lookup, text_parts)) for text_parts in parts]
        lengths = np.fromiter(map(len, encoded), np.int64, len(encoded)) // 4
        return np.frombuffer(b''.join(encoded), np.int32), lengths

    def _remember(self, parts: set[str]):
        """Puts the ids of all parts, as int32 bytes, into the cache."""
        if self._cached_ids > CACHED_IDS:
            self._cache.clear()
            self._cached_ids = 0
        unseen = list(parts.difference(self._cache))
        for start in range(0, len(unseen), 10_000):
            batch = unseen[start : start + 10_000]
            encoded = self._plain.encode_batch_fast(
                [encodable(part) for part in batch], add_special_tokens=False
            )
            for part, encoding in zip(batch, encoded, strict=True):
                ids = encoding.ids
                self._cache[part] = np.array(ids, np.int32).tobytes()
                self._cached_ids += len(ids) + 1

    def decode(self, ids: Sequence[int]) -> str:
        """Readable text of token ids; special tokens are shown."""
        return self._special.decode([int(i) for i in ids], skip_special_tokens=False)

    def pieces(self, token: str) -> list[int]:
        """Ids that spell a token of another vocabulary of the same kind: its own id, or those
        this tokenizer cuts it into; none if some character of it is unknown."""
        if token in self._ids:
            return [self._ids[token]]
        if self.kind == 'wordpiece':
            return wordpiece.pieces(token, self._ids)
        found = [piece.id for piece in self._plain.model.tokenize(token)]
        return found if ''.join(self.vocab[index] for index in found) == token else []

    def with_token_types(self) -> 'Tokenizer':
        """This tokenizer, telling two texts apart by types 0 and 1 and one separator between them,
        as `data.segments` puts them: for models that have token types, unlike RoBERTa."""
        if self.vocab[self.cls_id] != '<s>':
            return self
        backend = _backend(json.loads(self._json))
        backend.post_processor = special_tokens.frame(self._ids, types=True)
        return Tokenizer(backend.to_str())

    @functools.cached_property
    def _ids(self) -> dict[str, int]:
        return {token: index for index, token in enumerate(self.vocab)}


def encodable(text: str) -> str:
    """Half surrogate pairs, which broken JSON holds, have no UTF-8: U+FFFD instead."""
    return text if text.isascii() else _SURROGATES.sub('\ufffd', text)


def parse(text: str) -> dict:
    """The settings of a tokenizer.json; truncation and padding, which some carry, are off."""
    try:
        settings = json.loads(text)
    except json.JSONDecodeError as error:
        raise errors.UserError(f'no valid JSON: {error}') from None
    if not isinstance(settings, dict) or not isinstance(settings.get('model'), dict):
        raise errors.UserError("no tokenizer: the JSON has no 'model'")
    if settings['model'].get('type') not in MODELS:
        raise errors.unknown('tokenizer model', str(settings['model'].get('type')), MODELS)
    defaults = {'normalizer': None, 'pre_tokenizer': None, 'added_tokens': []}
    return defaults | settings | {'truncation': None, 'padding': None}


def _backend(settings: dict) -> tokenizers.Tokenizer:
    try:
        return tokenizers.Tokenizer.from_str(json.dumps(settings))
    except Exception as error:  # the library raises nothing narrower
        raise errors.UserError(f'the tokenizers library cannot read it: {error}') from error


def _without_special_pieces(settings: dict, names: set[str]) -> dict:
    """Settings whose model makes no special token out of ordinary text that looks like one."""
    settings = copy.copy(settings)
    model = settings['model'] = copy.copy(settings['model'])
    if model['type'] == 'Unigram':
        # A piece with a space inside matches nothing, for spaces have become ▁.
        model['vocab'] = [
            [f' {piece} ' if piece in names else piece, score] for piece, score in model['vocab']
        ]
        settings['added_tokens'] = [
            token for token in settings['added_tokens'] if token['content'] not in names
        ]
    elif model['type'] == 'BPE':
        pairs = (m.split(' ') if isinstance(m, str) else m for m in model['merges'])
        model['merges'] = [[a, b] for a, b in pairs if a + b not in names]
    return settings


def _kind(settings: dict) -> str:
    splitting = json.dumps([settings['normalizer'], settings['pre_tokenizer']], ensure_ascii=False)
    if settings['model']['type'] == 'BPE':
        if '"ByteLevel"' in splitting:
            return 'bytebpe'
        return 'sentencepiece-bpe' if sentence_piece.SPACE in splitting else 'bpe'
    return settings['model']['type'].lower()


def _word_starts(kind: str, settings: dict, names: list[str]) -> np.ndarray | None:
    mark = {
        'wordpiece': settings['model'].get('continuing_subword_prefix'),
        'bytebpe': byte_bpe.SPACE,
        'unigram': sentence_piece.SPACE,
        'sentencepiece-bpe': sentence_piece.SPACE,
        'bpe': None,
    }[kind]
    marked = np.array([bool(mark) and token.startswith(mark) for token in names])
    if not marked.any():
        return None
    return ~marked if kind == 'wordpiece' else marked
