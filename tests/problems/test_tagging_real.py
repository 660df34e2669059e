"""Every gold tag of real corpora goes to pieces and comes back, once, with windows and without."""

import functools

import pytest

from bert_jax import tokenizers
from bert_jax.labels import tag_schemes
from bert_jax.labels.examples import TaggedExample
from bert_jax.problems.tagging import TAGGING
from bert_jax.tokenizers.special_token_layout import SpecialTokenLayout
from tests.labels.reading import read
from tests.problems.test_tagging import SETTINGS, round_trip
from tests.tasks.small_problems import problem_of

UNUSUAL = ('words tokenized separately', 'words encoded as unknown token')


@pytest.fixture(scope='module', params=['wordpiece', 'bytebpe', 'unigram'])
def tokenizer(request, real_data):
    if request.param == 'unigram':
        lines = (real_data / 'wikitext2_valid' / 'valid.txt').read_text('utf-8')[:400_000]
        return tokenizers.train('unigram:3000', [lines], lowercase=False)
    folder = {'wordpiece': 'vocab_bert_base_uncased', 'bytebpe': 'vocab_gpt2_bpe'}[request.param]
    return tokenizers.load(str(real_data / folder))


def treebank(real_data):
    folder = real_data / 'ud_english_ewt'
    files = {'train': (f'{folder}/*train.conllu.gz',), 'dev': (f'{folder}/*dev.conllu',)}
    splits = read('tagging', {'tag': 'upos'}, **files, format='conllu', scheme='none')
    return splits.train + splits.dev


def tweets(real_data):
    files = {name: (f'{real_data}/wnut17/*{name}.conll',) for name in ('train', 'dev')}
    splits = read('tagging', **files, format='conll')
    return splits.train + splits.dev


def abstracts(real_data):
    """Genia's outermost spans as BIO."""
    columns = {'id': 'sent_id', 'spans': 'entity_mentions', 'span_label': 'entity_type'}
    path = str(real_data / 'genia_nested/dev.jsonlines')
    splits = read('spans', columns, train=(path,), format='jsonl', dev_fraction=0.1)
    return [flat(example) for example in splits.train + splits.dev]


def flat(example):
    starts, ends = zip(*example.words, strict=True)
    found, covered = [], -1
    for span in sorted(example.spans, key=lambda span: (span.start, -span.end)):
        if span.start >= covered:
            found.append((starts.index(span.start), ends.index(span.end) + 1, span.label))
            covered = span.end
    tags = tag_schemes.spans_to_tags(found, len(starts), 'bio')
    return TaggedExample(example.id, example.text, example.words, tags)


@functools.cache
def corpus(name, real_data):
    return {'treebank': treebank, 'tweets': tweets, 'abstracts': abstracts}[name](real_data)


@pytest.mark.parametrize('name', ['treebank', 'tweets', 'abstracts'])
@pytest.mark.parametrize(
    'every', [pytest.param(1, marks=pytest.mark.slow), pytest.param(20, id='some')]
)
def test_every_gold_tag_comes_back(tokenizer, real_data, name, every):
    examples = corpus(name, real_data)[::every]
    labels = sorted(TAGGING.encoding.count_labels(examples))
    num_words = sum(len(example.words) for example in examples)
    for max_length in (512, 32):
        layout = SpecialTokenLayout(tokenizer, max_length, 2)
        problem = problem_of(TAGGING, SETTINGS, layout, labels)
        tags, taught = zip(*(round_trip(problem, example) for example in examples), strict=True)
        assert tags == tuple(example.tags for example in examples)
        assert sum(taught) == num_words
        figures = problem.decoder.score(examples, [{'tags': list(own)} for own in tags]).metrics
        assert next(iter(figures)) == ('accuracy' if name == 'treebank' else 'f1')
        assert next(iter(figures.values())) == figures['accuracy'] == 1.0
        assert sum(problem.setup.counts[name] for name in UNUSUAL) < 0.01 * num_words
        assert (problem.setup.counts['texts split into windows'] > 0.05 * len(examples)) == (
            max_length == 32
        )
