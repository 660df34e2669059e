"""The tokenizer interface for all kinds of vocabularies.

A tokenizer is immutable and fully described by a JSON text; its `fingerprint` is a hash of the
text.
"""

import copy
import functools
import hashlib
import json
import pathlib
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import tokenizers

from bert_jax import errors, limits
from bert_jax.files import parse_json
from bert_jax.tokenizers import backend, costs, special_tokens
from bert_jax.tokenizers.backend import BYTE_SPACE, PIECE_SPACE, Backend, encodable
from bert_jax.types import JsonObject

if TYPE_CHECKING:
    from bert_jax.tokenizers.cached_encoding import CachedEncoder

MODELS = ('WordPiece', 'BPE', 'Unigram', 'WordLevel')


class Encodings(NamedTuple):
    """Encoded texts.

    Attributes:
        ids: For each text, int32 [N].
        offsets: For each text, int32 [N, 2], range of characters of each token.
    """

    ids: list[np.ndarray]
    offsets: list[np.ndarray]


class Tokenizer:
    """An immutable tokenizer, created from the JSON of the `tokenizers` library.

    Attributes:
        kind: 'wordpiece', 'bytebpe', 'unigram', 'sentencepiece-bpe', 'wordlevel', or 'bpe' for
            other BPEs.
        vocab: The token of each id.
        vocab_size: V, the number of ids.
        role_ids: Role of a special token → its id: pad, unk, cls, sep and mask; tokenizers of
            left-to-right models may lack unk and mask, those of encoder–decoders cls and mask.
        pad_id, unk_id, cls_id, sep_id, mask_id: These ids; UserError if the tokenizer lacks one.
        special_ids: The ids of these special tokens, of sentinels and of languages.
        starts_texts: Whether a text has the tokens of the roles cls and sep around it.
        adds_nothing: Whether the tokenizers library puts no token around a text (GPT-2).
        is_cls_last: Whether these tokens follow a text, as in XLNet: A [SEP] [CLS].
        text_start: Index of the first token of a text in its row.
        suffix_ids: The ids behind the token that ends a text: the language of mBART.
        hidden_ids: Those of them that a written text does not show: all but sentinels.
        sentinel_ids: The ids of <extra_id_0>, <extra_id_1>, …, which stand for spans (T5).
        language_ids: Code of a language, such as 'cy' or 'en_XX' → the id of its token.
        added_ids: The ids of the tokens that are recognized in a text before it is split into
            words: special tokens except [UNK], and all tokens that were added to the vocabulary.
        is_word_start: bool [V], whether a token starts a word: it has no ## (WordPiece), a Ġ
            (byte-level BPE) or a ▁ (SentencePiece), or was added to the vocabulary; False for
            `special_ids` except [UNK]. None if the vocabulary does not mark word starts.
        lowercase: Whether text is lowercased.
        strip_accents: Whether text loses its accents and vowel signs.
        has_rules: Whether text is normalized by the rules of a SentencePiece model. The tokenizers
            library, and with it transformers, drops characters of decomposed text (see `charsmap`).
        sentence_prefix: String to insert before a sentence so that it is encoded as in running
            text: a space for a byte-level BPE that does not insert a space itself, else ''.
        fingerprint: SHA-256 of the canonical JSON.
    """

    @backend.library_errors()
    def __init__(self, text: str):
        """Read the JSON; raise UserError if the kind is unknown or a special token is missing."""
        settings = parse(text)
        self._json = json.dumps(settings, sort_keys=True, ensure_ascii=False, separators=(',', ':'))
        self.fingerprint = hashlib.sha256(self._json.encode()).hexdigest()
        self._special = Backend(settings)
        ids = self._special.library.get_vocab(with_added_tokens=True)
        self.role_ids = special_tokens.find_in_settings(settings, ids)
        self.starts_texts = 'cls' in self.role_ids
        self.is_cls_last = special_tokens.is_cls_last(settings.get('post_processor'))
        self.adds_nothing = 'sep' not in self.role_ids
        if self.adds_nothing or self.role_ids['sep'] == ids.get(special_tokens.END):
            end = dict.fromkeys(special_tokens.END_ROLES, ids[special_tokens.END])
            self.role_ids = end | self.role_ids
        self.text_start = int('cls' in self.role_ids and not self.is_cls_last)
        self.vocab_size = max(ids.values()) + 1
        if self.vocab_size > limits.VOCABULARY:
            raise errors.UserError(
                f'the id {self.vocab_size - 1:,} is above the limit of {limits.VOCABULARY:,} ids'
            )
        token_of = {index: token for token, index in ids.items()}
        self.vocab = tuple(token_of.get(index, '') for index in range(self.vocab_size))
        self.suffix_ids = tuple(
            ids[name] for name in special_tokens.suffix(settings.get('post_processor'))
        )
        self.sentinel_ids: tuple[int, ...] = ()
        self.language_ids: dict[str, int] = {}
        special = [token['content'] for token in settings['added_tokens'] if token['special']]
        if {ids[name] for name in special} - {*self.role_ids.values()}:
            from bert_jax.tokenizers import decoder_tokens  # encoders do without it

            self.sentinel_ids = decoder_tokens.find_sentinels(self.vocab)
            languages = decoder_tokens.find_languages(special)
            self.language_ids = {code: ids[name] for code, name in languages.items()}
        others = (*self.suffix_ids, *self.sentinel_ids, *self.language_ids.values())
        self.special_ids = tuple(dict.fromkeys((*self.role_ids.values(), *others)))
        self.hidden_ids = frozenset(self.special_ids) - {*self.sentinel_ids}

        added = {token['id'] for token in settings['added_tokens']}
        unknown = {self.role_ids[role] for role in ('unk',) if role in self.role_ids}
        self.added_ids = frozenset(added - unknown)
        roles = {self.vocab[index] for index in self.special_ids}
        self._plain = Backend(_without_special_subwords(settings, roles), literal=True)
        self.has_rules = self._plain.has_rules

        self.kind = _kind(settings)
        self.is_word_start = _word_starts(self.kind, settings, self.vocab)
        if self.is_word_start is not None:
            self.is_word_start[list(_added_words(settings) - {*self.special_ids})] = True
            markers = {*self.special_ids} - unknown  # [UNK] stands for a word
            self.is_word_start[list(markers)] = False
        self.lowercase = self._normalize('A') == 'a'
        self.strip_accents = self._normalize('é') == 'e'
        prefixed = (settings['pre_tokenizer'] or {}).get('add_prefix_space')
        self.sentence_prefix = ' ' if self.kind == 'bytebpe' and not prefixed else ''
        self._inserts_space = self.kind == 'bytebpe' and bool(prefixed)

    @property
    def pad_id(self) -> int:
        return self._id('pad')

    @property
    def unk_id(self) -> int:
        return self._id('unk')

    @property
    def cls_id(self) -> int:
        return self._id('cls')

    @property
    def sep_id(self) -> int:
        return self._id('sep')

    @property
    def first_id(self) -> int:
        """The token that begins a row of text: cls or, if texts start without a token, sep."""
        return self.role_ids.get('cls', self.sep_id)

    @property
    def mask_id(self) -> int:
        return self._id('mask')

    def _id(self, role: str) -> int:
        if role not in self.role_ids:
            raise special_tokens.lacking(role)
        return self.role_ids[role]

    def __reduce__(self) -> tuple[type['Tokenizer'], tuple[str]]:
        return Tokenizer, (self._json,)

    def to_json(self) -> str:
        """Return the tokenizer as canonical JSON, the argument of the constructor."""
        return self._json

    def save(self, directory: str | pathlib.Path) -> None:
        """Write tokenizer.json into a folder."""
        (pathlib.Path(directory) / 'tokenizer.json').write_text(self._json, encoding='utf-8')

    def _normalize(self, text: str) -> str:
        normalizer = self._special.library.normalizer
        return text if normalizer is None else normalizer.normalize_str(text)

    @functools.cached_property
    def _encoders(self) -> 'dict[bool, CachedEncoder]':
        """The encoders with and without special tokens in the text."""
        from bert_jax.tokenizers.cached_encoding import CachedEncoder, splitter

        settings = json.loads(self._json)
        added = settings['added_tokens']
        roles = {self.vocab[index] for index in self.special_ids}
        others = [token for token in added if token['content'] not in roles]
        return {
            True: CachedEncoder(self._special, splitter(settings, added, self._normalize)),
            False: CachedEncoder(self._plain, splitter(settings, others, self._normalize)),
        }

    @backend.library_errors('encode this text')
    def encode_batch(self, texts: Sequence[str], special: bool = False) -> Encodings:
        """Encode texts with character offsets, without adding special tokens or truncating.

        Added tokens, such as a special token '[E1]' of the folder, are recognized in any text.

        Args:
            special: Whether the names of `special_ids` in a text, such as '[MASK]' and '[SEP]', are
                these tokens, as in `transformers`; for labeled texts and texts to predict. By
                default, '[MASK]' is ordinary text ('[', 'mask', ']'), as in google-research/bert,
                so that a corpus cannot contain special tokens.
        """
        chosen = self._special if special else self._plain
        encoded = chosen.encode_with_offsets([encodable(text) for text in texts])
        return Encodings([ids for ids, _ in encoded], [offsets for _, offsets in encoded])

    @backend.library_errors('encode this text')
    def encode_ids(
        self, texts: Sequence[str], special: bool = False
    ) -> tuple[np.ndarray, np.ndarray]:
        """Encode texts without offsets, several times faster than `encode_batch`.

        Args:
            special: As for `encode_batch`.

        Returns:
            The ids of all texts, concatenated: int32 [N].
            The number of ids of each text: int64 [len(texts)].
        """
        return self._encoders[special].encode(texts)

    @backend.library_errors('decode these ids')
    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of token ids, with special tokens."""
        return self._special.library.decode([int(i) for i in ids], skip_special_tokens=False)

    def decode_text(self, ids: Iterable[int]) -> str:
        """Return the text of the token ids of a whole text, without `hidden_ids`.

        A space that the tokenizer itself puts before a word at the start is left out.
        """
        text = self.decode([index for index in ids if index not in self.hidden_ids])
        is_inserted = self._inserts_space and text[:1] == ' ' and not text[1:2].isspace()
        return text[1:] if is_inserted else text

    def is_unknown(self, ids: np.ndarray) -> np.ndarray:
        """Return which ids are the unknown token, bool; none are if the vocabulary has none."""
        return np.asarray(ids == self.role_ids.get('unk', self.vocab_size))

    @property
    def case(self) -> str:
        """What happens to capital letters and accents, in words."""
        case = 'lowercased' if self.lowercase else 'cased'
        return f'{case}, accents and vowel signs stripped' if self.strip_accents else case

    def with_token_types(self) -> 'Tokenizer':
        """Return this tokenizer with token types 0 and 1 and one separator between two texts.

        Sentence pairs of pretraining have this layout, for models with token types that use
        RoBERTa's special tokens.
        """
        if not self.starts_texts or self.vocab[self.cls_id] != '<s>':
            return self
        library = backend.read(json.loads(self._json))
        names = {role: self.vocab[getattr(self, f'{role}_id')] for role in special_tokens.NAMES}
        library.post_processor = special_tokens.template(names, self._ids, has_types=True)
        return Tokenizer(library.to_str())

    def with_ends(self) -> 'Tokenizer':
        """Return this tokenizer with <|endoftext|> around texts if it puts no token there."""
        if not self.adds_nothing:
            return self
        library = backend.read(json.loads(self._json))
        names = dict.fromkeys(('cls', 'sep'), special_tokens.END)
        library.post_processor = special_tokens.template(names, self._ids)
        return Tokenizer(library.to_str())

    def with_lowercase(self) -> 'Tokenizer':
        """Return this tokenizer with lowercased texts."""
        if self.lowercase:
            return self
        library = backend.read(json.loads(self._json))
        steps = [tokenizers.normalizers.Lowercase(), library.normalizer]
        library.normalizer = tokenizers.normalizers.Sequence([step for step in steps if step])
        return Tokenizer(library.to_str())

    def with_markers(self, prompts: Iterable[str]) -> 'Tokenizer':
        """Return this tokenizer with the beginnings of prompts as one token each.

        A prompt such as '[Q] ', or its first word, such as '[unused0]', becomes a special token if
        the vocabulary has it, but the tokenizer would split it (sentence-transformers 6.2 does the
        same for folders of ColBERT).
        """
        settings = json.loads(self._json)
        for prompt in prompts:
            names = [name for name in (prompt, *prompt.split(None, 1)[:1]) if name in self._ids]
            if (
                not prompt.strip()
                or not names
                or self.encode_batch(names[:1], special=True).ids[0].tolist()
                == [self._ids[names[0]]]
            ):
                continue
            others = [one for one in settings['added_tokens'] if one['content'] != names[0]]
            flags = dict.fromkeys(('single_word', 'lstrip', 'rstrip', 'normalized'), False)
            marker = {'id': self._ids[names[0]], 'content': names[0], **flags, 'special': True}
            added = [*others, marker]
            settings['added_tokens'] = sorted(added, key=lambda one: int(one['id']))
        return Tokenizer(json.dumps(settings))

    @functools.cached_property
    def _ids(self) -> dict[str, int]:
        return {token: index for index, token in enumerate(self.vocab)}


def parse(text: str) -> JsonObject:
    """Read the settings of a tokenizer.json, without truncation.

    Padding is left out, too, unless it names a padding token that its name does not show.
    """
    try:
        settings = parse_json(text)
    except ValueError as error:
        raise errors.UserError(f'not valid JSON: {error}') from None
    if not isinstance(settings, dict) or not isinstance(settings.get('model'), dict):
        raise errors.UserError("not a tokenizer: the JSON has no 'model'")
    costs.check(settings)
    if 'type' not in settings['model']:  # in files of early versions
        settings = json.loads(backend.read(settings).to_str())
    model_type = str(settings['model'].get('type'))
    if model_type not in MODELS:
        raise errors.unknown('tokenizer model', model_type, MODELS)
    defaults: JsonObject = {'normalizer': None, 'pre_tokenizer': None, 'added_tokens': []}
    padding = special_tokens.named_padding(settings)
    return {**defaults, **settings, 'truncation': None, 'padding': padding}


def _without_special_subwords(settings: JsonObject, names: set[str]) -> JsonObject:
    """Settings whose model never produces these special tokens from text that looks like one.

    No other added token is special, so that `encode_special_tokens` leaves them as they are.
    """
    settings = copy.copy(settings)
    model = settings['model'] = copy.copy(settings['model'])
    added = [token | {'special': token['content'] in names} for token in settings['added_tokens']]
    if model['type'] == 'Unigram':
        # A piece with a space never matches, because ▁ replaces all spaces.
        hidden = {piece: f' {piece} ' for piece, _ in model['vocab'] if piece in names}
        model['vocab'] = [[hidden.get(piece, piece), score] for piece, score in model['vocab']]
        # Both names change, because an added token has the id of the piece with its name.
        added = [
            token | {'content': hidden.get(token['content'], token['content'])} for token in added
        ]
    elif model['type'] == 'WordLevel':
        # A word with a space never matches, if texts are split at spaces.
        hidden = {word: f' {word} ' for word in model['vocab'] if word in names}
        model['vocab'] = {hidden.get(word, word): i for word, i in model['vocab'].items()}
        model['unk_token'] = hidden.get(model['unk_token'], model['unk_token'])
        added = [
            token | {'content': hidden.get(token['content'], token['content'])} for token in added
        ]
    elif model['type'] == 'BPE':
        pairs = (m.split(' ') if isinstance(m, str) else m for m in model['merges'])
        model['merges'] = [[a, b] for a, b in pairs if a + b not in names]
    return settings | {'added_tokens': added}


def _kind(settings: JsonObject) -> str:
    if settings['model']['type'] != 'BPE':
        return str(settings['model']['type']).lower()
    steps = json.dumps([settings['normalizer'], settings['pre_tokenizer']], ensure_ascii=False)
    if '"ByteLevel"' in steps:
        return 'bytebpe'
    return 'sentencepiece-bpe' if PIECE_SPACE in steps else 'bpe'


def _word_starts(kind: str, settings: JsonObject, vocab: Sequence[str]) -> np.ndarray | None:
    """Whether each token starts a word: bool [V], or None if no token has the mark of its kind."""
    mark = {
        'wordpiece': settings['model'].get('continuing_subword_prefix'),
        'bytebpe': BYTE_SPACE,
        'unigram': PIECE_SPACE,
        'sentencepiece-bpe': PIECE_SPACE,
        'wordlevel': None,
        'bpe': None,
    }[kind]
    marked = np.array([bool(mark) and token.startswith(mark) for token in vocab])
    if not marked.any():
        return None
    return ~marked if kind == 'wordpiece' else marked


def _added_words(settings: JsonObject) -> set[int]:
    """The ids of the added tokens that are not only spaces."""
    return {token['id'] for token in settings['added_tokens'] if token['content'].strip()}
