"""WordPiece, as in BERT: words are split greedily into the longest known subwords."""

import collections
import itertools
from collections.abc import Iterator, Mapping

import tokenizers

from bert_jax import errors
from bert_jax.tokenizers import special_tokens, training_progress
from bert_jax.types import JsonObject

CONTINUATION = '##'  # prefix of the subwords inside a word
MAX_CHARACTERS_PER_WORD = 200  # longer words become [UNK], as in google-research/bert
MIN_ALPHABET = 1000  # this many characters are always in the vocabulary
CHARACTER_COVERAGE = 0.9995  # share of the text that the alphabet covers; SentencePiece's default
COUNTED_CHUNKS = 2**19  # distinct strings that training splits into words at a time


def train(
    size: int, texts: list[str], lowercase: bool, strip_accents: bool | None = None
) -> JsonObject:
    """Train a tokenizer and return its settings; by default lowercasing strips accents.

    The alphabet covers CHARACTER_COVERAGE of the text, with at least MIN_ALPHABET characters and at
    most half of the vocabulary. If the words of the text do not fill the vocabulary, as in Chinese,
    where each character is a word, the rarer characters fill it.

    The library's trainer of WordPiece writes the merges of its trainer of BPE as WordPiece, but
    does not report how far it is, so the latter is used. Listing the '##' characters as special
    tokens makes it deterministic (findings/tokenizers_continuing_subword_order.sh).
    """
    counts = word_counts(texts, lowercase, strip_accents)
    if not counts:
        raise errors.UserError('the training text of the tokenizer has no words')
    characters: collections.Counter[str] = collections.Counter()
    for word, count in counts.items():
        for character in word:
            characters[character] += count
    by_frequency = sorted(characters, key=lambda c: (-characters[c], c))
    covered = itertools.accumulate(characters[c] for c in by_frequency)
    needed = 1 + sum(count < CHARACTER_COVERAGE * characters.total() for count in covered)
    alphabet_size = max(MIN_ALPHABET, min(needed, size // 2))
    alphabet = set(by_frequency[:alphabet_size])
    words = sorted(word for word in counts if alphabet.issuperset(word))
    inner = sorted({CONTINUATION + character for word in words for character in word[1:]})
    symbols = len(special_tokens.BERT) + len(alphabet) + len(inner)
    if symbols > size:
        raise errors.UserError(
            f'a vocabulary of {size} is too small: special tokens and the characters of the text '
            f'alone are {symbols}'
        )
    backend = tokenizers.Tokenizer(tokenizers.models.BPE(unk_token='[UNK]'))
    backend.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=size,
        min_frequency=2,
        special_tokens=[*special_tokens.BERT, *inner],
        initial_alphabet=sorted(alphabet),
        continuing_subword_prefix=CONTINUATION,
    )
    trainer.progress_format = 'json'
    with training_progress.shown(f'merging {size:,} tokens', training_progress.parse_merges):
        backend.train_from_iterator(_repeated(words, counts), trainer)
    vocab = backend.get_vocab(with_added_tokens=True)
    continuations = {CONTINUATION + character for word in counts for character in word[1:]}
    for character in by_frequency[alphabet_size:]:
        for token in (character, CONTINUATION + character):
            if len(vocab) < size and (token == character or token in continuations):
                vocab[token] = len(vocab)
    return settings(vocab, lowercase, strip_accents=strip_accents)


def word_counts(
    texts: list[str], lowercase: bool, strip_accents: bool | None = None
) -> dict[str, int]:
    """Count words, after normalization and splitting at punctuation."""
    backend = _backend({'[UNK]': 0}, lowercase, strip_accents=strip_accents)
    words: collections.Counter[str] = collections.Counter()
    chunks: collections.Counter[str] = collections.Counter()
    for index, text in enumerate(texts):
        chunks.update(text.split())
        if len(chunks) < COUNTED_CHUNKS and index + 1 < len(texts):
            continue
        for chunk, count in chunks.items():
            normalized = backend.normalizer.normalize_str(chunk)
            for word, _ in backend.pre_tokenizer.pre_tokenize_str(normalized):
                if len(word) <= MAX_CHARACTERS_PER_WORD:
                    words[word] += count
        chunks.clear()
    return words


def _repeated(words: list[str], counts: dict[str, int], per_line: int = 1000) -> Iterator[str]:
    """Yield each word as often as it was counted, because the trainer only accepts text."""
    for word in words:
        full, rest = divmod(counts[word], per_line)
        line = ' '.join([word] * per_line) if full else ''
        for _ in range(full):
            yield line
        yield ' '.join([word] * rest)


def settings(
    vocab: dict[str, int],
    lowercase: bool,
    names: Mapping[str, str] | None = None,
    strip_accents: bool | None = None,
) -> JsonObject:
    """Return the settings of a tokenizer, the contents of a tokenizer.json.

    Args:
        vocab: Id of each token.
        lowercase: Whether text is lowercased.
        names: Role → name of its special token, if it is not BERT's.
        strip_accents: Whether accents and vowel signs (nonspacing marks) are stripped; None: if
            text is lowercased, as in BERT.
    """
    names = dict(zip(special_tokens.NAMES, special_tokens.BERT, strict=True)) | dict(names or {})
    missing = [name for name in names.values() if name not in vocab]
    if missing:
        raise errors.UserError(f'the vocabulary lacks {", ".join(missing)}')
    backend = _backend(vocab, lowercase, names['unk'], strip_accents)
    backend.add_special_tokens(list(names.values()))
    sep, cls = ((names[role], vocab[names[role]]) for role in ('sep', 'cls'))
    backend.post_processor = tokenizers.processors.BertProcessing(sep, cls)
    return special_tokens.contents(backend)


def _backend(
    vocab: dict[str, int],
    lowercase: bool,
    unknown: str = '[UNK]',
    strip_accents: bool | None = None,
) -> tokenizers.Tokenizer:
    """A tokenizer with BERT's cleaning, splitting and longest match first (tokenization.py)."""
    backend = tokenizers.Tokenizer(
        tokenizers.models.WordPiece(
            vocab,
            unk_token=unknown,
            continuing_subword_prefix=CONTINUATION,
            max_input_chars_per_word=MAX_CHARACTERS_PER_WORD,
        )
    )
    backend.normalizer = tokenizers.normalizers.BertNormalizer(
        clean_text=True, handle_chinese_chars=True, strip_accents=strip_accents, lowercase=lowercase
    )
    backend.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    backend.decoder = tokenizers.decoders.WordPiece(prefix=CONTINUATION)
    return backend


def read_vocab(text: str) -> dict[str, int]:
    """Read a vocab.txt: one token per line, whose id is the line number from 0.

    A repeated token has its last id, as in tokenization.py and transformers. Spaces and tabs at the
    end of a line are not part of the token: no text has such a token.
    """
    lines = text.rstrip('\r\n').split('\n')
    return {line.rstrip(' \t\r'): index for index, line in enumerate(lines)}
