"""Span labeling: encoding and decoding, windows, thresholds, spans that cannot be predicted."""

import json
import os
import pathlib
import random

import numpy as np
import pytest
import torch

from bert_jax import tokenizers
from bert_jax.averages import mean
from bert_jax.errors import UserError
from bert_jax.labels import word_spans
from bert_jax.labels.examples import Span, SpansExample
from bert_jax.problems.base import Calibration
from bert_jax.problems.evaluation import decode
from bert_jax.problems.finetuning_model import Predicted
from bert_jax.problems.spans import HALF, SPANS, best_threshold
from bert_jax.tokenizers.special_token_layout import SpecialTokenLayout
from tests.tasks import small_problems

LINE = 'the old cat sat on a green mat near the unbelievably big dog of Smith and sons'
KINDS = {'wordpiece': 60, 'bytebpe': 290, 'unigram': 50}
SETTINGS = dict(
    class_weights='none',
    max_span_words=4,
    width=16,
    summary='mean',
    boundary='ffn',
    nested=True,
    decoding='argmax',
    threshold=None,
    overlap=0.5,
)
LABELS = ('PER', 'THING')
DATA = pathlib.Path(os.environ.get('BERT_JAX_TEST_DATA', 'missing')) / 'genia_nested'


def make(kind='wordpiece', max_length=64, train=(), **settings):
    tokenizer = tokenizers.train(f'{kind}:{KINDS[kind]}', [LINE] * 20, True)
    layout = SpecialTokenLayout(tokenizer, max_length, 2)
    return small_problems.problem_of(SPANS, SETTINGS | settings, layout, LABELS, train)


def example(name, words, spans):
    """An example from words and spans of words (first, last, label), both inclusive."""
    places, end = [], 0
    for word in words:
        places.append((end, end + len(word)))
        end += len(word) + 1
    found = tuple(Span(places[a][0], places[b][1], label) for a, b, label in spans)
    return SpansExample(name, ' '.join(words), tuple(places), found)


def sentences(number, most=3, line=LINE):
    """Sentences with random spans of up to `most` words, many of them nested."""
    rng = random.Random(0)
    for name in range(number):
        chosen = rng.choices(line.split(), k=rng.randint(1, 14))
        spans = {}
        for _ in range(6):
            first = rng.randrange(len(chosen))
            last = min(first + rng.randrange(most), len(chosen) - 1)
            spans[first, last] = (first, last, rng.choice(LABELS))
        yield example(str(name), chosen, spans.values())


def perfect(problem, example):
    """Host outputs of an oracle: probability 0.9 for gold labels, 0.1 for unlabeled spans."""
    parts = []
    for (sequence,) in problem.encoding.encode(example):
        label, size = sequence.tokens['span_labels'], sequence.tokens['span_sizes']
        probability = np.where(label > 1, 0.9, np.where(size > 0, 0.1, 0)).astype(np.float32)
        no_label = np.where(size > 0, 1 - probability, 0)
        best = {'label': np.maximum(label - 2, 0), 'probability': probability}
        parts.append([best | {'no_label': no_label}])
    return parts


def triples(spans):
    return {(span['start'], span['end'], span['label']) for span in spans}


@pytest.mark.parametrize('max_length', [256, 16])
@pytest.mark.parametrize('kind', KINDS)
def test_gold_spans_survive_encoding_and_decoding_once_each(kind, max_length):
    problem = make(kind, max_length, max_span_words=3)
    cut = missing = 0
    for one in sentences(40):
        parts = perfect(problem, one)
        cut += len(parts) > 1
        predicted = problem.decoder.decode(one, parts, Calibration())
        gold = {tuple(span) for span in one.spans}
        assert triples(predicted) <= gold
        missing += len(gold - triples(predicted))
        assert all(span['text'] == one.text[span['start'] : span['end']] for span in predicted)
        cells = sum((part['probability'] > 0).sum() for (part,) in parts)
        spans = sum(min(3, len(one.words) - first) for first in range(len(one.words)))
        assert cells == spans if max_length == 256 else cells <= spans
    assert missing == problem.setup.counts['gold spans in no window']
    assert (cut > 0) == (max_length == 16)
    assert missing == 0 or max_length == 16
    assert problem.setup.counts['texts split into windows'] == cut


def test_a_span_belongs_to_the_window_with_the_most_context():
    """One token per word: a window of 8 words starts every 4 words."""
    problem = make(max_length=10, max_span_words=2)
    one = example('long', ['a'] * 16, [(7, 7, 'PER'), (6, 7, 'PER'), (2, 3, 'THING')])
    windows = [item[0].tokens['span_labels'] for item in problem.encoding.encode(one)]
    assert [window.shape for window in windows] == [(10, 2)] * 3
    where = [{(t - 1 + 4 * k, n) for t, n in np.argwhere(w > 1)} for k, w in enumerate(windows)]
    assert where == [{(2, 1)}, {(6, 1), (7, 0)}, set()]


def test_long_spans_and_second_labels_are_counted_and_score_as_misses():
    problem = make(max_span_words=2)
    spans = [(0, 2, 'PER'), (0, 0, 'PER'), (0, 0, 'THING'), (1, 2, 'THING')]
    one = example('x', ['the', 'old', 'cat'], spans)
    predicted = problem.decoder.decode(one, perfect(problem, one), Calibration())
    assert problem.setup.counts['gold spans longer than problem.max_span_words'] == 1
    assert problem.setup.counts['gold spans with two labels'] == 1
    assert len(predicted) == 2
    metrics = problem.decoder.score([one], [predicted]).metrics
    assert (metrics['precision'], metrics['recall']) == (1.0, 0.5)
    assert problem.decoder.to_record(one, predicted)['gold'][0] == {
        'start': 0,
        'end': 11,
        'label': 'PER',
    }


@pytest.mark.parametrize('nested', [True, False])
def test_without_nesting_the_most_probable_of_overlapping_spans_is_kept(nested):
    one = example('x', ['the', 'old', 'cat', 'sat'], [(0, 1, 'PER')])
    problem = make(nested=nested, max_span_words=3)
    ((own,),) = perfect(problem, one)
    first = np.flatnonzero(own['probability'].any(1))
    own['probability'] *= 0
    own['no_label'] *= 0
    for word, number, probability in [(0, 1, 0.8), (1, 1, 0.9), (3, 0, 0.7), (0, 0, 0.6)]:
        own['probability'][first[word], number] = probability
    found = [span['text'] for span in problem.decoder.decode(one, [[own]], Calibration())]
    flat = ['the', 'old cat', 'sat']
    assert found == (['the', 'the old', 'old cat', 'sat'] if nested else flat)


@pytest.mark.parametrize('kind', ['wordpiece', 'bytebpe', 'unigram'])
@pytest.mark.parametrize(
    ('text', 'span'),
    [
        ('เขาไปกรุงเทพเมื่อวาน', 'กรุงเทพ'),
        ('그는 서울에서 왔다', '서울'),
        ('とうきょうに行く', 'とうきょう'),
    ],
)
def test_spans_inside_text_without_spaces_align_to_subwords(kind, text, span):
    tokenizer = tokenizers.train(f'{kind}:320', [text] + [span] * 20, True)
    layout = SpecialTokenLayout(tokenizer, 64, 2)
    start = text.index(span)
    gold = Span(start, start + len(span), 'PER')
    one = SpansExample('', text, word_spans.split_characters(text), (gold,))
    settings = SETTINGS | {'max_span_words': 30}
    problem = small_problems.problem_of(SPANS, settings, layout, LABELS, [one])
    (found,) = problem.decoder.decode(one, perfect(problem, one), Calibration())
    moved = problem.setup.counts['gold spans that start or end inside a subword']
    assert (found['text'] == span) == (moved == 0)
    assert span in found['text']
    assert len(found['text']) <= len(span) + 4
    assert problem.setup.counts['words tokenized separately'] == 0
    assert problem.decoder.score([one], [[found]]).metrics['f1'] == (1.0 if not moved else 0.0)
    assert problem.encoding.parse_input('', {'text': text}).words == one.words


def test_the_best_threshold_has_the_best_f1_of_all():
    rng = np.random.default_rng(0)
    for number in range(50):
        right = rng.random(12) < 0.4
        probability = rng.choice(np.linspace(0.1, 0.9, 7), 12)
        gold = right.sum() + number % 3

        def f1(threshold, right=right, probability=probability, gold=gold):
            chosen = probability > threshold
            return 2 * (right & chosen).sum() / max(chosen.sum() + gold, 1)

        best = max(f1(threshold) for threshold in (0.0, *probability))
        assert f1(best_threshold(right, probability, gold)) == pytest.approx(best)
    assert best_threshold(np.zeros(3, bool), np.ones(3), 2) == HALF


def test_by_default_a_span_is_predicted_if_no_label_is_less_probable_than_its_label():
    """A probability below one half is enough, and one above a tuned threshold is not."""
    problem, (one,) = make(max_span_words=1, nested=False), sentences(1)
    assert problem.setup.settings.decoding == 'argmax'
    ((own,),) = perfect(problem, one)
    spans = np.argwhere(own['probability'])
    for number, (best, none) in enumerate([(0.3, 0.2), (0.4, 0.5), (0.9, 0.1)]):
        own['probability'][tuple(spans[number])] = best
        own['no_label'][tuple(spans[number])] = none
    predicted = problem.decoder.decode(one, [[own]], Calibration({'threshold': 0.35}))
    places = [one.words[number][0] for number in (0, 2)]
    assert [span['start'] for span in predicted if span['start'] < one.words[3][0]] == places
    assert problem.decoder.tune_thresholds([one], [[[own]]]) == {}
    assert problem.decoder.dev_keys == ()


def test_a_span_without_a_label_does_not_hide_a_labeled_one():
    problem = make(max_span_words=2, nested=False)
    one = example('x', ['the', 'old'], [])
    ((own,),) = perfect(problem, one)
    first = np.flatnonzero(own['probability'].any(1))
    for place, best, none in (((0, 1), 0.45, 0.5), ((0, 0), 0.4, 0.3), ((1, 0), 0.1, 0.9)):
        own['probability'][first[place[0]], place[1]] = best
        own['no_label'][first[place[0]], place[1]] = none
    found = problem.decoder.decode(one, [[own]], Calibration())
    assert [span['text'] for span in found] == ['the']


def test_a_threshold_is_tuned_on_dev_or_set():
    problem = make(max_span_words=3, decoding='threshold')
    assert problem.decoder.dev_keys == ('decoding',)
    examples = list(sentences(5))
    parts = [perfect(problem, one) for one in examples]
    for own in parts:
        own[0][0]['probability'] /= 3
    with pytest.raises(UserError, match='no threshold was tuned.*; set problem.threshold'):
        problem.decoder.decode(examples[0], parts[0], Calibration())
    thresholds = problem.decoder.tune_thresholds(examples, parts)
    assert 0.1 / 3 < thresholds['threshold'] < 0.3
    found = decode(problem, examples, Predicted(parts, [], {}), thresholds, None)
    assert problem.decoder.score(examples, found).metrics['f1'] == 1.0

    fixed = make(max_span_words=3, decoding='threshold', threshold=0.31)
    assert fixed.decoder.tune_thresholds(examples, parts) == {}
    assert fixed.decoder.dev_keys == ()
    assert not any(decode(fixed, examples, Predicted(parts, [], {}), thresholds, None))


def test_raw_text_and_words_are_accepted_as_input():
    problem = make()
    one = problem.encoding.parse_input('line 1', {'text': 'the old cat.'})
    assert (len(one.words), one.spans) == (4, None)
    assert problem.encoding.parse_input('', {'words': ['the', 'old cat']}).words == (
        (0, 3),
        (4, 11),
    )
    ((sequence,),) = problem.encoding.encode(one)
    assert sequence.tokens['span_sizes'].any()
    assert not sequence.tokens['span_labels'].any()
    assert 'gold' not in problem.decoder.to_record(one, [])
    empty = problem.encoding.parse_input('', {'text': ' '})
    assert problem.decoder.decode(empty, perfect(problem, empty), Calibration()) == []


def test_mistakes_are_reported():
    problem = make()
    one = problem.encoding.parse_input('line 1', {'text': 'the old cat.'})
    with pytest.raises(UserError, match="key 'text' is missing"):
        problem.encoding.parse_input('line 1', {})
    with pytest.raises(UserError, match='0:5 .PER. does not begin and end with words'):
        problem.encoding.encode(one._replace(spans=(Span(0, 5, 'PER'),)))
    with pytest.raises(UserError, match="'X' is not among the trained labels"):
        problem.encoding.encode(one._replace(spans=(Span(0, 3, 'X'),)))


def test_balanced_weights_are_inverse_to_the_frequency_of_labels():
    """Compared with the cross-entropy of torch, with frequencies counted in the batch."""
    examples = list(sentences(20))
    problem = make(class_weights='balanced', train=examples)
    sequences = [sequence for one in examples for ((sequence,),) in [problem.encoding.encode(one)]]
    labels = np.concatenate([s.tokens['span_labels'].reshape(-1) for s in sequences])
    gold = torch.tensor(labels[labels > 0] - 1, dtype=torch.long)
    counts = torch.bincount(gold, minlength=3)
    logits = np.random.default_rng(0).normal(size=(1, 1, len(labels), 3)).astype(np.float32)
    batch = {'span_labels': labels[None, None]}
    found = mean(problem.loss.terms({'logits': logits}, batch)['spans'])
    known = torch.tensor(logits[0, 0][labels > 0])
    expected = torch.nn.functional.cross_entropy(known, gold, weight=len(gold) / (3 * counts))
    assert float(found) == pytest.approx(float(expected), rel=1e-5)
    assert counts.max() > 5 * counts.min() > 0


def test_a_model_learns_a_few_sentences_in_packed_rows():
    """The whole path without the training loop; texts have many nested spans."""
    settings = SETTINGS | dict(max_span_words=3, width=32)
    problem, model = small_problems.make(SPANS, LABELS, **settings)
    examples = list(sentences(8, line=small_problems.TEXT))
    parts, losses = small_problems.fit(model, examples, 250)
    found = decode(problem, examples, Predicted(parts, [], {}), {}, None)
    assert losses[-1] < 0.1 < losses[0]
    assert problem.decoder.score(examples, found).metrics['f1'] == 1.0


@pytest.mark.skipif(not DATA.exists(), reason='needs BERT_JAX_TEST_DATA')
@pytest.mark.parametrize('kind', KINDS)
def test_nested_entities_of_genia_survive_windows(kind):
    """In windows of 32 tokens, with small vocabularies, so that words have many tokens."""
    lines = (DATA / 'dev.jsonlines').read_text(encoding='utf-8').splitlines()[:150]
    examples = []
    for line in map(json.loads, lines):
        spans = [(s['start'], s['end'] - 1, s['entity_type']) for s in line['entity_mentions']]
        examples.append(example(line['sent_id'], line['tokens'], spans))
    texts = [one.text for one in examples]
    tokenizer = tokenizers.train(f'{kind}:800', texts, True)
    settings = SETTINGS | dict(max_span_words=8, overlap=0.8)
    labels = sorted(SPANS.encoding.count_labels(examples))
    problem = small_problems.problem_of(
        SPANS, settings, SpecialTokenLayout(tokenizer, 32, 2), labels
    )
    found = [problem.decoder.decode(one, perfect(problem, one), Calibration()) for one in examples]
    metrics = problem.decoder.score(examples, found).metrics
    lost = sum(n for name, n in problem.setup.counts.items() if name.startswith('gold spans'))
    gold = sum(len(set(one.spans)) for one in examples)
    assert metrics['precision'] == 1.0
    assert metrics['recall'] == pytest.approx(1 - lost / gold)
    assert lost < 0.1 * gold
    assert problem.setup.counts['texts split into windows'] > 50
