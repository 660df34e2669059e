"""The data of a pretraining run: the corpus, and the examples made from it."""

import os
import pathlib
from collections.abc import Callable
from typing import Any

from bert_jax.data import languages
from bert_jax.data.corpus import Corpus
from bert_jax.data.example_source import ExampleSource
from bert_jax.data.full_sentences import FullSentences
from bert_jax.data.packing import PackedRows
from bert_jax.data.sentence_pairs import SentencePairs
from bert_jax.data.single_segments import SingleSegments
from bert_jax.data.text_example_source import RowSettings, TextExampleSource
from bert_jax.errors import unknown
from bert_jax.prepare import prepare
from bert_jax.training import multihost
from bert_jax.types import Config


def _pair_options(data: Config) -> dict[str, Any]:
    return {
        'short_sequence_probability': data.short_sequence_probability,
        'faithful_negatives': data.faithful_negatives,
        'fixed_lengths': data.pack,
    }


# data.segments → the source of examples, and its options from the config's `data`.
SEGMENTS: dict[str, tuple[type[TextExampleSource], Callable[[Config], dict[str, Any]]]] = {
    'pairs': (SentencePairs, _pair_options),
    'ordered_pairs': (SentencePairs, lambda data: _pair_options(data) | {'swapped': True}),
    'single': (SingleSegments, lambda data: {}),
    'full_sentences': (FullSentences, lambda data: {}),
    'doc_sentences': (FullSentences, lambda data: {'within_documents': True}),
}


def open_corpus(data: Config) -> Corpus:
    """Open the corpus of a config; host 0 prepares it first if it does not exist.

    Raises:
        UserError: If the corpus was made from another text or tokenizer than the config names.
    """
    settings = {
        'sources': tuple(data.sources),
        'tokenizer': data.tokenizer,
        'lowercase': data.lowercase,
        'held_out_fraction': data.held_out_fraction,
        'language_alpha': data.tokenizer_language_alpha,
    }

    def prepare_if_missing() -> None:
        if not os.path.exists(data.corpus):
            prepare(**settings, output=data.corpus, workers=data.prepare_workers)

    multihost.run_on_host0(prepare_if_missing)
    corpus = Corpus.open(pathlib.Path(data.corpus))
    corpus.check_settings(**settings)
    multihost.check_same('corpus', corpus.fingerprint)
    return corpus


def train_source(
    corpus: Corpus, data: Config, shape: tuple[int, int], seed: int, **options: bool
) -> ExampleSource:
    """Return training examples, with the languages mixed in shares ∝ p^language_alpha.

    Args:
        corpus: The text.
        data: The config's `data`.
        shape: (batch size, sequence length).
        seed: Seed of the order of the data.
        **options: Further options of the source, such as `mark_sentences`.
    """
    batch_size, _ = shape
    return languages.mix_languages(
        lambda language, seed: source(corpus, 'train', language, data, shape, seed, **options),
        corpus.split('train').languages,
        data.language_alpha,
        batch_size,
        seed,
    )


def source(
    corpus: Corpus,
    split: str,
    language: str | None,
    data: Config,
    shape: tuple[int, int],
    seed: int,
    **options: bool,
) -> ExampleSource:
    """Return the examples of a split, of one language or (None) of all in their natural shares.

    The other arguments are those of `train_source`.

    Raises:
        UserError: If `data.segments` is unknown.
    """
    if data.segments not in SEGMENTS:
        raise unknown('data.segments', data.segments, SEGMENTS)
    batch_size, sequence_length = shape
    kind, own_options = SEGMENTS[data.segments]
    text = corpus.split(split, language)
    settings = RowSettings(text, corpus.tokenizer, sequence_length, batch_size, seed, **options)
    examples = kind(settings, **own_options(data))
    return PackedRows(examples, seed) if data.pack else examples


def describe(examples: ExampleSource, number: int) -> list[str]:
    """Return log lines about the first `number` examples: epochs, counts, shares of languages."""
    counts = ', '.join(
        f'{value:,} {name.replace("_", " ")}'
        for name, value in examples.statistics().items()
        if value and name != 'documents'
    )
    lines = [f'{number / examples.num_examples:.2g} epochs ({counts})']
    if isinstance(examples, languages.Mixture):
        seen = examples.observed(number)
        shares = ', '.join(
            f'{name} {seen[name] / number:.2%} ({share:.2%})'
            for name, share in examples.shares.items()
        )
        lines.append(f'languages, share of the examples (target): {shares}')
    return lines
