"""WordPiece, as in BERT: words cut greedily into the longest known pieces, inner ones after ##."""

import collections
import json
from collections.abc import Iterator

import tokenizers

from bert_jax import errors
from bert_jax.data.tokenizers import special_tokens

CONTINUATION = '##'
MAX_CHARACTERS_PER_WORD = 100  # longer words are [UNK], as in the original tokenization.py
TRAINING_ALPHABET = 1000  # rarer characters become [UNK]
COUNTED_CHUNKS = 2**19  # training splits that many different strings at a time into words


def train(size: int, texts: list[str], lowercase: bool) -> dict:
    """The settings of a trained tokenizer.

    The library's trainer (byte-pair merges written as WordPiece) is made to repeat itself. Left
    alone it numbers the '##' characters in the order of a randomly seeded hash table, and ties
    between merges follow those numbers. Naming these characters beforehand fixes both.
    """
    counts = word_counts(texts, lowercase)
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
    symbols = len(special_tokens.BERT) + len(alphabet) + len(inner)
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
        special_tokens=[*special_tokens.BERT, *inner],
        initial_alphabet=sorted(alphabet),
        continuing_subword_prefix=CONTINUATION,
        show_progress=False,
    )
    backend.train_from_iterator(_repeated(words, counts), trainer)
    return settings(backend.get_vocab(with_added_tokens=True), lowercase)


def word_counts(texts: list[str], lowercase: bool) -> dict[str, int]:
    """How often each word (after normalization, split at punctuation) occurs."""
    backend = _backend({'[UNK]': 0}, lowercase)
    words = collections.Counter()
    chunks = collections.Counter()
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


def _repeated(words: list[str], counts: dict[str, int], most: int = 1000) -> Iterator[str]:
    """Each word as often as it was counted, `most` to a line: all the trainer accepts is text."""
    for word in words:
        full, rest = divmod(counts[word], most)
        line = ' '.join([word] * most) if full else ''
        for _ in range(full):
            yield line
        yield ' '.join([word] * rest)


def settings(vocab: dict[str, int], lowercase: bool) -> dict:
    """The library's JSON, as a dictionary, of a WordPiece tokenizer with this vocabulary."""
    special_tokens.find({name: vocab[name] for name in special_tokens.BERT if name in vocab})
    backend = _backend(vocab, lowercase)
    backend.add_special_tokens(list(special_tokens.BERT))
    backend.post_processor = tokenizers.processors.BertProcessing(
        ('[SEP]', vocab['[SEP]']), ('[CLS]', vocab['[CLS]'])
    )
    return json.loads(backend.to_str())


def _backend(vocab: dict[str, int], lowercase: bool) -> tokenizers.Tokenizer:
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


def read_vocab(text: str) -> dict[str, int]:
    """One token a line, its id the line's number from 0; tokens may hold any other character."""
    tokens = [line.rstrip('\r') for line in text.rstrip('\r\n').split('\n')]
    vocab = {}
    for index, token in enumerate(tokens):
        if token in vocab:
            raise errors.UserError(f'line {index + 1} repeats the token {token!r}')
        vocab[token] = index
    return vocab


def pieces(token: str, ids: dict[str, int]) -> list[int]:
    """Ids of a token (perhaps after ##) by greedy longest match; none if a character is unknown."""
    prefix = CONTINUATION if token.startswith(CONTINUATION) else ''
    rest, found = token.removeprefix(CONTINUATION), []
    while rest:
        lengths = (n for n in range(len(rest), 0, -1) if prefix + rest[:n] in ids)
        length = next(lengths, 0)
        if not length:
            return []
        found.append(ids[prefix + rest[:length]])
        rest, prefix = rest[length:], CONTINUATION
    return found
