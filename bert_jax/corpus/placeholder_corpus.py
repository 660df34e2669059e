"""A small corpus in memory, to check a run before its own corpus is prepared."""

import dataclasses
import pathlib

import numpy as np

from bert_jax import tokenizers
from bert_jax.corpus.corpus import Corpus, Shard, Split, token_dtype

_SENTENCES = (
    'The quick brown fox jumps over the lazy dog.',
    'A small ship sailed past the old harbor before the storm.',
    'Two farmers counted their sheep near the wooden fence.',
)
_DOCUMENTS = 16
_VOCABULARY = 400  # enough for the characters of these sentences, and for all bytes


@dataclasses.dataclass(frozen=True, kw_only=True)
class PlaceholderCorpus(Corpus):
    """English sentences in one shard.

    Attributes:
        text: The content of both splits.
    """

    text: Split

    @classmethod
    def of(cls, tokenizer: tokenizers.Tokenizer, longest: int) -> 'PlaceholderCorpus':
        """Make a corpus whose documents are all longer than `longest` tokens."""
        sentences = [ids for ids in tokenizer.encode_ids(list(_SENTENCES)) if len(ids)]
        repeats = 1 + longest // max(1, sum(map(len, sentences)))
        document = sentences * repeats
        tokens = np.concatenate(document * _DOCUMENTS).astype(token_dtype(tokenizer.vocab_size))
        lengths = np.array([0, *map(len, document * _DOCUMENTS)])
        shard = Shard(
            tokens, lengths.cumsum(), np.arange(_DOCUMENTS + 1) * len(document), 0, language='en'
        )
        text = Split([shard], _DOCUMENTS, len(lengths) - 1, len(tokens))
        return cls(pathlib.Path(), {'files': {}}, tokenizer, text=text)

    def split(self, name: str, language: str | None = None) -> Split:
        """Return the text."""
        return self.text

    def unigram_counts(self, split: str) -> np.ndarray:
        """Return how often each token id occurs, int64 [V]."""
        return np.bincount(self.text.shards[0].tokens, minlength=self.tokenizer.vocab_size)


def make_tokenizer(spec: str, lowercase: bool, strip_accents: bool | None) -> tokenizers.Tokenizer:
    """Load the tokenizer of a corpus, or train one of its kind on the text of the placeholder.

    Raises:
        UserError: the tokenizer cannot be read, or no text can give a tokenizer of this kind and
            size.
    """
    prefix, _, kind_and_size = spec.partition(':')
    if prefix != 'train':
        return tokenizers.load(spec, lowercase, strip_accents)
    tokenizers.check_trainable(kind_and_size, lowercase, strip_accents)
    kind, size, *options = kind_and_size.split(':')
    # The own text may have fewer characters than these sentences.
    enough = ':'.join([kind, str(max(int(size), _VOCABULARY)), *options])
    return tokenizers.train(enough, _SENTENCES, lowercase, strip_accents)
