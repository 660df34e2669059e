"""Languages have the requested shares, exactly in every block, each with its own epochs."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings, strategies

from bert_jax import sampling
from bert_jax.corpus import preparation
from bert_jax.errors import UserError
from bert_jax.examples import language_mixture, sentence_pairs, single_segments
from bert_jax.examples.example_source import ExampleSource
from bert_jax.examples.text_example_source import RowSettings
from bert_jax.text import languages

BLOCK = language_mixture.BLOCK
AMOUNTS = {'gu': 7000, 'cy': 220, 'gv': 3, 'et': 2001}


class Numbers(ExampleSource):
    """A source whose examples are their number, the language and the seed."""

    def __init__(self, language: int, seed: int, num_examples: int):
        self.language, self.seed, self.num_examples = language, seed, num_examples

    def examples(self, number_B):
        rows = np.stack([np.full_like(number_B, self.language), number_B], axis=1)
        return {'input_ids': rows, 'example_index': number_B.astype(np.int32)}

    def statistics(self):
        return {'documents': 2, 'examples_per_epoch': self.num_examples}


def mixture(alpha=0.3, seed=5, batch_size=64, amounts=AMOUNTS):
    names = list(amounts)
    return language_mixture.mix_languages(
        lambda name, seed: Numbers(names.index(name), seed, amounts[name]),
        names,
        alpha,
        batch_size,
        seed,
    )


def drawn(source, start, stop):
    """The languages of the examples start … stop − 1, and their numbers in these languages."""
    return source.examples(np.arange(start, stop))['input_ids'].T


def test_shares():
    amounts = [100, 10, 1]
    np.testing.assert_allclose(languages.shares(amounts, 1), np.array(amounts) / 111)
    np.testing.assert_allclose(languages.shares(amounts, 0), [1 / 3] * 3)
    powers = np.array([100 / 111, 10 / 111, 1 / 111]) ** 0.3
    np.testing.assert_allclose(languages.shares(amounts, 0.3), powers / powers.sum())


@pytest.mark.parametrize('alpha', [-0.1, 1.01, float('nan')])
def test_an_invalid_alpha_is_an_error(alpha):
    with pytest.raises(UserError, match='language_alpha is .* between 0 .* and 1'):
        mixture(alpha)


def test_a_language_without_text_is_an_error():
    with pytest.raises(UserError, match='has no text'):
        languages.shares([3, 0], 0.3)


@settings(max_examples=50, deadline=None)
@given(strategies.lists(strategies.floats(1e-7, 1), min_size=1, max_size=9))
def test_shares_are_rounded_in_blocks_and_by_largest_remainder_in_a_period(amounts):
    share_L = languages.shares(amounts, 1)
    count_L = languages.largest_remainder(share_L, BLOCK * language_mixture.BLOCKS)
    assert count_L.sum() == BLOCK * language_mixture.BLOCKS
    assert (np.abs(count_L - share_L * BLOCK * language_mixture.BLOCKS) < 1).all()
    block_NL = language_mixture.counts_per_block(count_L)
    assert (block_NL.sum(1) == BLOCK).all()
    np.testing.assert_array_equal(block_NL.sum(0), count_L)
    exact_L = count_L / language_mixture.BLOCKS
    assert ((np.floor(exact_L) <= block_NL) & (block_NL <= np.ceil(exact_L))).all()


@pytest.mark.parametrize('alpha', [0.3, 1.0])
def test_blocks_have_the_shares_and_no_example_of_a_language_is_skipped(alpha):
    source = mixture(alpha)
    expected_L = np.array(list(source.shares.values())) * BLOCK
    np.testing.assert_allclose(expected_L, languages.shares([*AMOUNTS.values()], alpha) * BLOCK)
    language_N, nth_N = drawn(source, 0, 20 * BLOCK)
    for block in language_N.reshape(20, BLOCK):
        counts = np.bincount(block, minlength=len(AMOUNTS))
        assert (np.abs(counts - expected_L) < 1).all()
    for language in range(len(AMOUNTS)):
        numbers = nth_N[language_N == language]
        np.testing.assert_array_equal(numbers, np.arange(len(numbers)))
    assert source.observed(20 * BLOCK) == dict(
        zip(AMOUNTS, np.bincount(language_N, minlength=len(AMOUNTS)), strict=True)
    )
    assert source.num_examples == sum(AMOUNTS.values())
    assert source.statistics() == {'documents': 8, 'examples_per_epoch': source.num_examples}


def test_examples_continue_when_the_pattern_repeats():
    source = mixture()
    period = BLOCK * language_mixture.BLOCKS
    for start in (period - 500, 2**33 // period * period - 500):
        language_N, nth_N = drawn(source, start, start + 1000)
        before = source.observed(start)
        for language, name in enumerate(AMOUNTS):
            numbers = nth_N[language_N == language]
            np.testing.assert_array_equal(numbers, before[name] + np.arange(len(numbers)))


def test_the_order_within_blocks_depends_on_the_seed():
    first, other = (drawn(mixture(seed=seed), 0, 2 * BLOCK)[0] for seed in (1, 2))
    assert (first != other).mean() > 0.2
    assert (first[:BLOCK] != first[BLOCK:]).mean() > 0.2
    gaps = np.diff(np.flatnonzero(first == 1))
    assert gaps.min() == 1
    assert gaps.max() > 3 * gaps.mean()


def test_batches_do_not_depend_on_the_number_of_hosts_or_the_order():
    source = mixture()
    whole = source.batch(np.arange(40))
    index = whole['example_index']
    np.testing.assert_array_equal(index, np.arange(40 * 64, dtype=np.int32).reshape(40, 64))
    for hosts in (1, 2, 4):
        again = mixture()
        for step, host in itertools.product((39, 0, 17), range(hosts)):
            rows = slice(host * 64 // hosts, (host + 1) * 64 // hosts)
            for name, array in again.batch(step, rows).items():
                np.testing.assert_array_equal(array, whole[name][step, rows])


def test_a_language_that_would_never_occur_is_an_error():
    with pytest.raises(UserError, match="'b' would be less than one in 1,000,000"):
        mixture(alpha=1, amounts={'a': 10**8, 'b': 1})
    mixture(alpha=0.3, amounts={'a': 10**8, 'b': 1})


@pytest.fixture(scope='module')
def corpus(tmp_path_factory):
    """Three languages of different amounts, identified by their words."""
    folder = tmp_path_factory.mktemp('languages')
    specs = []
    for name, documents in (('xa', 60), ('xb', 12), ('xc', 4)):
        texts = [
            ' '.join(f'{name}{letter} {name} {letter}{name}.' for letter in 'abcdefgh'[: 4 + d % 4])
            for d in range(documents)
        ]
        (folder / f'{name}.txt').write_text('\n\n'.join(f'{t}\n{t}' for t in texts))
        specs.append(f'text:{folder}/{name}.txt;documents=blank_line;language={name}')
    return preparation.prepare(
        specs, 'train:unigram:60', folder / 'corpus', workers=0, held_out_fraction=0.2
    )


@pytest.mark.parametrize('kind', [sentence_pairs.SentencePairs, single_segments.SingleSegments])
def test_mixing_sources_of_a_corpus(corpus, kind):
    train = corpus.split('train')
    assert list(train.languages) == ['xa', 'xb', 'xc']

    def make(language, seed):
        return kind(RowSettings(corpus.split('train', language), corpus.tokenizer, 24, 50, seed))

    source = language_mixture.mix_languages(make, train.languages, 0.0, 50, 3)
    batch = source.batch(np.arange(40))
    texts = [corpus.tokenizer.decode(row) for row in batch['input_ids'].reshape(-1, 24)]
    found = [[letter for letter in 'abc' if f'x{letter}' in text] for text in texts]
    # Both sentences of a pair are in the same language, also random ones.
    language = np.array(['abc'.index(letter) for (letter,) in found]).reshape(40, 50)
    counts = np.bincount(language.ravel(), minlength=3)
    assert (np.abs(counts - 2000 / 3) < 2).all()
    alone = make('xb', int(sampling.key(3, 1)[0]))
    mine = batch['input_ids'][language == 1][:100]
    np.testing.assert_array_equal(mine, alone.examples(np.arange(100))['input_ids'])
    if kind is sentence_pairs.SentencePairs:
        assert abs(batch['next_sentence_label'].mean() - 0.5) < 0.01


def test_an_error_in_the_source_of_a_language_names_the_language(corpus):
    def make(language, seed):
        if language == 'xc':
            raise UserError('too little')
        return Numbers(0, seed, 5)

    with pytest.raises(UserError, match="language 'xc': too little"):
        language_mixture.mix_languages(make, corpus.split('train').languages, 0.3, 4, 0)


def test_splits_by_language_add_up_to_the_split(corpus):
    for name in ('train', 'held_out'):
        whole = corpus.split(name)
        parts = {language: corpus.split(name, language) for language in whole.languages}
        assert list(parts) == ['xa', 'xb', 'xc']
        for language, part in parts.items():
            assert part.languages == {language: whole.languages[language]}
            assert part.num_tokens == sum(len(shard.tokens) for shard in part.shards)
            assert whole.languages[language] == {
                'documents': part.num_documents,
                'sentences': part.num_sentences,
                'tokens': part.num_tokens,
            }
        assert corpus.unigram_counts(name).sum() == whole.num_tokens
        assert sum(part.num_documents for part in parts.values()) == whole.num_documents
    with pytest.raises(UserError, match="unknown language of the train split 'en'; known: xa, xb"):
        corpus.split('train', 'en')
