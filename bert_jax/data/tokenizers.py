"""Text ↔ token ids behind one interface: WordPiece, trained on a corpus or loaded from a file.

A tokenizer is frozen: everything about it is one JSON text, whose hash is its `fingerprint`.
"""

import collections
import dataclasses
import functools
import hashlib
import json
import pathlib
import re
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import tokenizers

from bert_jax import errors

SPECIAL_TOKENS = ('[PAD]', '[UNK]', '[CLS]', '[SEP]', '[MASK]')
CONTINUATION = '##'
MAX_CHARACTERS_PER_WORD = 100  # longer words are [UNK], as in the original tokenization.py
TRAINING_CHARACTERS = 2**26  # training sees at most this much text, taken evenly from all of it
TRAINING_ALPHABET = 1000  # rarer characters become [UNK]
COUNTED_CHUNKS = 2**19  # training splits that many different strings at a time into words
CACHED_IDS = 2**20  # bound on the memory of words already looked up (about 100 MB)

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
      kind: 'wordpiece'.
      vocab: token of each id.
      vocab_size: number of ids.
      pad_id, unk_id, cls_id, sep_id, mask_id: ids of the special tokens; `special_ids` has all.
      is_word_start: bool [V], whether a token starts a word by the vocabulary's own convention;
        False for the special tokens.
      lowercase: whether text is lowercased (None if the file's normaliser does not say).
      fingerprint: sha256 of the canonical JSON.

    Raises UserError if the JSON is no WordPiece tokenizer or lacks a special token.
    """

    def __init__(self, text: str):
        settings = _parse(text)
        self.kind = _kind(settings)
        self._json = json.dumps(settings, sort_keys=True, ensure_ascii=False, separators=(',', ':'))
        self.fingerprint = hashlib.sha256(self._json.encode()).hexdigest()
        try:
            self._plain = tokenizers.Tokenizer.from_str(self._json)
        except Exception as error:  # the library raises nothing narrower
            raise errors.UserError(f'the tokenizers library cannot read it: {error}') from error
        self._plain.encode_special_tokens = True
        self._cache: dict[str, bytes] = {}
        self._cached_ids = 0

        ids = self._plain.get_vocab(with_added_tokens=True)
        missing = [token for token in SPECIAL_TOKENS if token not in ids]
        if missing:
            raise errors.UserError(f'the vocabulary lacks {", ".join(missing)}')
        self.vocab_size = max(ids.values()) + 1
        names = [''] * self.vocab_size
        for token, index in ids.items():
            names[index] = token
        self.vocab = tuple(names)
        self.special_ids = tuple(ids[token] for token in SPECIAL_TOKENS)
        self.pad_id, self.unk_id, self.cls_id, self.sep_id, self.mask_id = self.special_ids
        prefix = settings['model']['continuing_subword_prefix']
        self.is_word_start = np.array([not token.startswith(prefix) for token in names])
        self.is_word_start[list(self.special_ids)] = False

        normalizer = settings['normalizer'] or {}
        self.lowercase: bool | None = normalizer.get('lowercase')
        # BERT's clean-up works on single characters and its splitting cuts at every space: the
        # tokens of a text are those of its space-separated parts.
        self._splits_at_spaces = (
            normalizer.get('type') == 'BertNormalizer'
            and (settings['pre_tokenizer'] or {}).get('type') == 'BertPreTokenizer'
            and all(token['special'] for token in settings['added_tokens'])
        )

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
        return tokenizers.Tokenizer.from_str(self._json)

    def encode_batch(self, texts: Sequence[str], special: bool = False) -> Encodings:
        """Ids and character offsets of each text; adds no special tokens, truncates nothing.

        A literal '[MASK]' or '[SEP]' in a text is ordinary text ('[', 'mask', ']'), so that a
        corpus cannot smuggle special tokens in; with special=True, for prompts typed by a
        person, it is the special token, as transformers reads it.
        """
        backend = self._special if special else self._plain
        encoded = backend.encode_batch([_encodable(t) for t in texts], add_special_tokens=False)
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
        parts = [text.split(' ') if self._splits_at_spaces else [text] for text in texts]
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
                [_encodable(part) for part in batch], add_special_tokens=False
            )
            for part, encoding in zip(batch, encoded, strict=True):
                ids = encoding.ids
                self._cache[part] = np.array(ids, np.int32).tobytes()
                self._cached_ids += len(ids) + 1

    def decode(self, ids: Sequence[int]) -> str:
        """Readable text of token ids; special tokens are shown."""
        return self._plain.decode([int(i) for i in ids], skip_special_tokens=False)


def load(path: str, lowercase: bool = True) -> Tokenizer:
    """Reads a vocab.txt, a tokenizer.json or a folder that holds one of them.

    A tokenizer.json says itself whether it lowercases, and a tokenizer_config.json in the same
    folder has the last word; `lowercase` decides for a bare vocab.txt.

    Raises UserError if there is no such file or it is no tokenizer.
    """
    file = _vocabulary_file(pathlib.Path(path).expanduser())
    try:
        text = file.read_bytes().decode('utf-8')
        config = _tokenizer_config(file.parent if pathlib.Path(path).is_dir() else None)
        if file.suffix == '.json':
            settings = _parse(text)
        else:
            settings = _wordpiece_settings(_read_vocab(text), lowercase)
        if (settings.get('normalizer') or {}).get('type') == 'BertNormalizer':
            settings['normalizer'].update(config)
        return Tokenizer(json.dumps(settings))
    except errors.UserError as error:
        raise errors.UserError(f'tokenizer {str(file)!r}: {error}') from None
    except UnicodeDecodeError as error:
        raise errors.UserError(f'tokenizer {str(file)!r} is no UTF-8 text: {error}') from None
    except OSError as error:
        raise errors.UserError(f'tokenizer {str(file)!r}: {error.strerror}') from None


def train(spec: str, texts: Iterable[str], lowercase: bool = True) -> Tokenizer:
    """Trains a tokenizer, e.g. 'wordpiece:8000', on a stream of texts.

    The same texts in the same order give the same tokenizer. At most `TRAINING_CHARACTERS`
    characters are used and held in memory: beyond that, evenly spaced paragraphs.

    Raises UserError for an unknown kind, a bad size or texts without a word.
    """
    kind, _, size = spec.partition(':')
    if kind not in _TRAINERS:
        raise errors.unknown('tokenizer kind', kind, _TRAINERS)
    if not size.isdecimal() or int(size) <= len(SPECIAL_TOKENS):
        raise errors.UserError(
            f'tokenizer {spec!r}: the vocabulary size must be a whole number above '
            f'{len(SPECIAL_TOKENS)}, as in {kind}:8000'
        )
    return _TRAINERS[kind](int(size), _sample(texts, TRAINING_CHARACTERS), lowercase)


def _sample(texts: Iterable[str], limit: int) -> list[str]:
    """At most about `limit` characters: every stride-th paragraph, evenly over the stream."""
    kept, characters, stride, index = [], 0, 1, 0
    for text in texts:
        for paragraph in text.split('\n\n'):
            if index % stride == 0:
                kept.append(paragraph)
                characters += len(paragraph)
                if characters > limit and len(kept) > 1:
                    kept = kept[::2]
                    characters = sum(map(len, kept))
                    stride *= 2
            index += 1
    return kept


def _train_wordpiece(size: int, texts: list[str], lowercase: bool) -> Tokenizer:
    """The library's trainer (byte-pair merges written as WordPiece), made to repeat itself.

    Left alone it numbers the '##' characters in the order of a randomly seeded hash table, and
    ties between merges follow those numbers. Naming these characters beforehand fixes both.
    """
    counts = _word_counts(texts, lowercase)
    if not counts:
        raise errors.UserError('a tokenizer cannot be trained on a text without a word')
    characters = collections.Counter()
    for word, count in counts.items():
        for character in word:
            characters[character] += count
    by_frequency = sorted(characters, key=lambda c: (-characters[c], c))
    alphabet = set(by_frequency[:TRAINING_ALPHABET])
    words = sorted(word for word in counts if alphabet.issuperset(word))
    inner = sorted({CONTINUATION + character for word in words for character in word[1:]})
    symbols = len(SPECIAL_TOKENS) + len(alphabet) + len(inner)
    if symbols > size:
        raise errors.UserError(
            f'a vocabulary of {size} is too small: the special tokens and single characters '
            f'of this text alone are {symbols}'
        )
    backend = tokenizers.Tokenizer(tokenizers.models.WordPiece(unk_token='[UNK]'))
    backend.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    trainer = tokenizers.trainers.WordPieceTrainer(
        vocab_size=size,
        min_frequency=2,
        special_tokens=[*SPECIAL_TOKENS, *inner],
        initial_alphabet=sorted(alphabet),
        continuing_subword_prefix=CONTINUATION,
        show_progress=False,
    )
    backend.train_from_iterator(_repeated(words, counts), trainer)
    vocab = backend.get_vocab(with_added_tokens=True)
    return Tokenizer(json.dumps(_wordpiece_settings(vocab, lowercase)))


def _word_counts(texts: list[str], lowercase: bool) -> dict[str, int]:
    """How often each word (after normalisation, split at punctuation) occurs."""
    backend = _wordpiece_backend({'[UNK]': 0}, lowercase)
    words = collections.Counter()
    chunks = collections.Counter()
    for index, text in enumerate(texts):
        chunks.update(_encodable(text).split())
        if len(chunks) < COUNTED_CHUNKS and index + 1 < len(texts):
            continue
        for chunk, count in chunks.items():
            normalized = backend.normalizer.normalize_str(chunk)
            for word, _ in backend.pre_tokenizer.pre_tokenize_str(normalized):
                if len(word) <= MAX_CHARACTERS_PER_WORD:
                    words[word] += count
        chunks.clear()
    return words


def _repeated(words: list[str], counts: dict[str, int], most: int = 1000) -> Iterator[str]:
    """Each word as often as it was counted, `most` to a line: all the trainer accepts is text."""
    for word in words:
        full, rest = divmod(counts[word], most)
        line = ' '.join([word] * most) if full else ''
        for _ in range(full):
            yield line
        yield ' '.join([word] * rest)


def _wordpiece_backend(vocab: dict[str, int], lowercase: bool) -> tokenizers.Tokenizer:
    """BERT's text clean-up, splitting and greedy longest-match WordPiece (tokenization.py)."""
    backend = tokenizers.Tokenizer(
        tokenizers.models.WordPiece(
            vocab,
            unk_token='[UNK]',
            continuing_subword_prefix=CONTINUATION,
            max_input_chars_per_word=MAX_CHARACTERS_PER_WORD,
        )
    )
    backend.normalizer = tokenizers.normalizers.BertNormalizer(
        clean_text=True, handle_chinese_chars=True, strip_accents=None, lowercase=lowercase
    )
    backend.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    backend.decoder = tokenizers.decoders.WordPiece(prefix=CONTINUATION)
    return backend


def _wordpiece_settings(vocab: dict[str, int], lowercase: bool) -> dict:
    """The library's JSON, as a dictionary, of a WordPiece tokenizer with this vocabulary."""
    missing = [token for token in SPECIAL_TOKENS if token not in vocab]
    if missing:
        raise errors.UserError(f'the vocabulary lacks {", ".join(missing)}')
    backend = _wordpiece_backend(vocab, lowercase)
    backend.add_special_tokens(list(SPECIAL_TOKENS))
    backend.post_processor = tokenizers.processors.BertProcessing(
        ('[SEP]', vocab['[SEP]']), ('[CLS]', vocab['[CLS]'])
    )
    return json.loads(backend.to_str())


def _read_vocab(text: str) -> dict[str, int]:
    """One token a line, its id the line's number from 0; tokens may hold any other character."""
    tokens = [line.rstrip('\r') for line in text.rstrip('\r\n').split('\n')]
    vocab = {}
    for index, token in enumerate(tokens):
        if token in vocab:
            raise errors.UserError(f'line {index + 1} repeats the token {token!r}')
        vocab[token] = index
    return vocab


def _parse(text: str) -> dict:
    """The settings of a tokenizer.json; truncation and padding, which some carry, are off."""
    try:
        settings = json.loads(text)
    except json.JSONDecodeError as error:
        raise errors.UserError(f'no valid JSON: {error}') from None
    if not isinstance(settings, dict) or not isinstance(settings.get('model'), dict):
        raise errors.UserError("no tokenizer: the JSON has no 'model'")
    defaults = {'normalizer': None, 'pre_tokenizer': None, 'added_tokens': []}
    return defaults | settings | {'truncation': None, 'padding': None}


def _kind(settings: dict) -> str:
    """Our name for the library's model type."""
    name = settings['model'].get('type')
    if name not in _KINDS:
        raise errors.unknown('tokenizer model', str(name), _KINDS)
    return _KINDS[name]


def _vocabulary_file(path: pathlib.Path) -> pathlib.Path:
    """The file to read: the path itself, or tokenizer.json or vocab.txt inside it."""
    if path.is_file():
        return path
    if not path.exists():
        raise errors.UserError(f'tokenizer {str(path)!r}: no such file or folder')
    for name in ('tokenizer.json', 'vocab.txt'):
        if (path / name).is_file():
            return path / name
    raise errors.UserError(f'tokenizer {str(path)!r} holds neither tokenizer.json nor vocab.txt')


def _tokenizer_config(folder: pathlib.Path | None) -> dict:
    """What a folder's tokenizer_config.json decides, in the words of the BertNormalizer."""
    if folder is None or not (folder / 'tokenizer_config.json').is_file():
        return {}
    try:
        config = json.loads((folder / 'tokenizer_config.json').read_text(encoding='utf-8'))
    except json.JSONDecodeError as error:
        raise errors.UserError(f'tokenizer_config.json beside it is no JSON: {error}') from None
    names = {
        'do_lower_case': 'lowercase',
        'strip_accents': 'strip_accents',
        'tokenize_chinese_chars': 'handle_chinese_chars',
    }
    return {ours: config[theirs] for theirs, ours in names.items() if theirs in config}


def _encodable(text: str) -> str:
    """Half surrogate pairs, which broken JSON holds, have no UTF-8: U+FFFD instead."""
    return text if text.isascii() else _SURROGATES.sub('\ufffd', text)


_KINDS = {'WordPiece': 'wordpiece'}
_TRAINERS = {'wordpiece': _train_wordpiece}
