"""Texts whose words have labels, in overlapping windows if they are long."""

from collections.abc import Sequence
from typing import TypeVar

from bert_jax.labels import word_spans
from bert_jax.labels.examples import SpansExample, TaggedExample
from bert_jax.problems import base
from bert_jax.tokenizers.alignment import Alignment, align
from bert_jax.tokenizers.sliding_windows import Window
from bert_jax.types import RecordView

WordsT = TypeVar('WordsT', TaggedExample, SpansExample)


class WordEncoding(base.Encoding[WordsT]):
    """A text and its words; subclasses encode the labels."""

    def keep(self, train: Sequence[WordsT]) -> RecordView:
        """Choose how plain text is split into words."""
        return {'splitter': word_spans.closest_splitter(train)}

    @property
    def room(self) -> int:
        """Number of tokens of a window."""
        return self.layout.max_text_tokens(1)

    def windows(self, example: WordsT) -> tuple[Alignment, list[Window]]:
        """Tokenize a text, and choose its windows."""
        aligned = align(self.tokenizer, example.text, example.words)
        overlap = min(int(self.settings.overlap * self.room), self.room - 1)
        return aligned, aligned.windows(self.room, overlap)

    def count_unusual(self, aligned: Alignment, windows: Sequence[Window]) -> None:
        """Count texts and words that are encoded in another way than most."""
        counts = self.setup.counts
        counts['texts split into windows'] += len(windows) > 1
        counts['words tokenized separately'] += aligned.num_splits
        counts['words encoded as unknown token'] += aligned.num_dropped
