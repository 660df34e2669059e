"""The text of a pretraining run: its corpus, and the examples cut from it."""

import os
import pathlib

from bert_jax.data import languages
from bert_jax.data.corpus import Corpus
from bert_jax.data.example_source import Examples
from bert_jax.data.full_sentences import FullSentences
from bert_jax.data.packing import PackedRows
from bert_jax.data.sentence_pairs import SentencePairs, SingleSegments
from bert_jax.errors import unknown
from bert_jax.prepare import prepare
from bert_jax.training import multihost

SEGMENTS = {  # what examples are cut by, and options of it
    'pairs': (SentencePairs, {}),
    'ordered_pairs': (SentencePairs, {'swapped': True}),
    'single': (SingleSegments, {}),
    'full_sentences': (FullSentences, {}),
    'doc_sentences': (FullSentences, {'within_documents': True}),
}


def open_corpus(data) -> Corpus:
    """The corpus the config names; prepared first, by one process, if it is not there."""
    made_from = {
        'sources': tuple(data.sources),
        'tokenizer': data.tokenizer,
        'lowercase': data.lowercase,
        'held_out_fraction': data.held_out_fraction,
        'language_alpha': data.tokenizer_language_alpha,
    }

    def prepared():
        if not os.path.exists(data.corpus):
            prepare(**made_from, output=data.corpus, workers=data.prepare_workers)

    multihost.run_on_host0(prepared)
    corpus = Corpus.open(pathlib.Path(data.corpus))
    corpus.check_settings(**made_from)
    multihost.check_same('corpus', corpus.fingerprint)
    return corpus


def train_source(corpus: Corpus, data, shape: tuple[int, int], seed: int, **marks) -> Examples:
    """Examples of the train split, shape (batch_size, sequence_length); those of several languages
    in shares q_i ∝ p_i^language_alpha (data/languages.py)."""
    batch_size, _ = shape
    return languages.mixed(
        lambda language, seed: source(corpus, 'train', language, data, shape, seed, **marks),
        corpus.split('train').languages,
        data.language_alpha,
        batch_size,
        seed,
    )


def source(
    corpus: Corpus,
    split: str,
    language: str | None,
    data,
    shape: tuple[int, int],
    seed: int,
    **marks,
) -> Examples:
    """Examples of a split, all languages as they come or one of them.

    marks: further options of the source's class. Raises UserError for an unknown data.segments.
    """
    if data.segments not in SEGMENTS:
        raise unknown('data.segments', data.segments, SEGMENTS)
    batch_size, sequence_length = shape
    cut, options = SEGMENTS[data.segments]
    if cut is SentencePairs:
        options = options | {
            'short_sequence_probability': data.short_sequence_probability,
            'faithful_negatives': data.faithful_negatives,
            'fixed_lengths': data.pack,
        }
    text = (corpus.split(split, language), corpus.tokenizer)
    examples = cut(*text, sequence_length, batch_size, seed, **options, **marks)
    return PackedRows(examples, seed) if data.pack else examples


def describe(examples: Examples, number: int) -> list[str]:
    """What can be said of the first `number` examples of a source: counts and languages."""
    facts = ', '.join(
        f'{value:,} {name.replace("_", " ")}'
        for name, value in examples.statistics().items()
        if value and name != 'documents'
    )
    lines = [f'{number / examples.num_examples:.2g} epochs ({facts})']
    if isinstance(examples, languages.Mixture):
        seen = examples.observed(number)
        shares = ', '.join(
            f'{name} {seen[name] / number:.2%} ({share:.2%})'
            for name, share in examples.shares.items()
        )
        lines.append(f'languages, share of the examples (aim): {shares}')
    return lines
