"""Constituency: gold trees survive, the best tree is that of all trees, a model learns trees."""

import itertools

import numpy as np
import pytest

from bert_jax.labels import trees, word_spans
from bert_jax.labels.examples import Span, SpansExample
from bert_jax.problems import PROBLEMS
from bert_jax.problems.base import Calibration
from bert_jax.problems.constituency import CONSTITUENCY, best_tree
from bert_jax.problems.spans import CandidateSpans
from bert_jax.tokenizers.special_token_layout import SpecialTokenLayout
from tests.tasks.small_problems import fit, make, problem_of, tokenizer

SETTINGS = {
    name: value for name, value in PROBLEMS['constituency'].settings.items() if name != 'labels'
}
TREES = [
    '(TOP (S (NP (DT the) (NN cow)) (VP (VBD saw) (NP (DT the) (NN ship))) (. .)))',
    '(TOP (S (NP (NP (DT the) (NN gull)) (PP (IN near) (NP (DT the) (NN sea)))) (VP (VBD saw))))',
    '(TOP (S (NP (NN nobody)) (VP (VBD saw) (SBAR (WHNP (WP what)) (S (VP (VBD did)))))))',
]


def example(text, name):
    tree = trees.parse(text)
    joined, words = word_spans.join_words(tree.words)
    spans = (
        Span(*word_spans.words_to_characters(words, start, end), label)
        for start, end, label in tree.constituents
    )
    return SpansExample(name, joined, words, tuple(spans))


EXAMPLES = [example(text, str(number)) for number, text in enumerate(TREES)]
LABELS = tuple(sorted({span.label for one in EXAMPLES for span in one.spans}))


def constituency(max_length=64, train=EXAMPLES, labels=LABELS, **settings):
    layout = SpecialTokenLayout(tokenizer(), max_length, 2)
    settings = SETTINGS | {'labels': labels, 'max_span_words': 12} | settings
    return problem_of(CONSTITUENCY, settings, layout, labels, train)


def as_if_predicted(sequence):
    """The host outputs of a model that is sure of every learned label."""
    stored = sequence.tokens['span_labels']
    is_span = sequence.tokens['span_sizes'] > 0
    return {
        'label': np.maximum(stored - 2, 0),
        'probability': np.where(is_span, np.where(stored > 1, 0.9, 0.05), 0),
        'no_label': np.where(is_span, np.where(stored > 1, 0.1, 0.95), 0),
    }


def round_trip(problem, one):
    parts = [
        [as_if_predicted(sequence) for sequence in item] for item in problem.encoding.encode(one)
    ]
    prediction = problem.decoder.decode(one, parts, Calibration())
    return problem.decoder.to_record(one, prediction), prediction


def test_gold_trees_survive_encoding_and_decoding():
    problem = constituency()
    for one, text in zip(EXAMPLES, TREES, strict=True):
        record, _ = round_trip(problem, one)
        assert record['predicted'] == record['gold'] == text


def test_constituents_beyond_the_longest_span_are_counted_and_missing():
    problem = constituency(max_span_words=3)
    record, prediction = round_trip(problem, EXAMPLES[1])
    assert problem.setup.counts['gold spans longer than problem.max_span_words'] == 2
    assert record['predicted'].count('(S ') == 0
    metrics = problem.decoder.score([EXAMPLES[1]], [prediction]).metrics
    assert metrics['precision'] == metrics['tag_accuracy'] == 1.0
    assert metrics['recall'] < 1.0


def test_labels_that_no_training_tree_has_are_counted():
    problem = constituency(train=EXAMPLES[:1], labels=('DT', 'NN', 'NP', 'S', 'VBD', 'VP', '.'))
    record, _ = round_trip(problem, EXAMPLES[2])
    assert problem.setup.counts['chains of labels that no training tree has'] == 4
    assert '(X nobody)' not in record['predicted']  # some tag of a word that was trained


def test_words_and_longer_spans_have_only_labels_of_their_kind():
    problem = constituency()
    assert problem.setup.kept['of_words'] == sorted(
        {'DT', 'NN', 'VBD', '.', 'IN', 'VP VBD', 'NP NN', 'WHNP WP', 'S VP VBD'}
    )
    logits = np.zeros((1, 1, 2, 1 + len(LABELS)), np.float32)
    logits[..., 1 + LABELS.index('S')] = 9
    logits[..., 1 + LABELS.index('DT')] = 8
    sizes = np.ones((1, 1, 2), np.int32)
    found = problem.loss.host_outputs({'logits': logits}, {'span_sizes': sizes}).per_token['label']
    assert [LABELS[number] for number in found.ravel()] == ['DT', 'S']


def all_trees(start, end):
    """All binary trees of these words, as sets of spans."""
    if end == start + 1:
        yield {(start, end)}
        return
    for middle in range(start + 1, end):
        for left, right in itertools.product(all_trees(start, middle), all_trees(middle, end)):
            yield {(start, end)} | left | right


@pytest.mark.parametrize('seed', range(20))
def test_the_best_tree_has_the_highest_score_of_all_binary_trees(seed):
    rng, number = np.random.default_rng(seed), 1 + seed % 6
    first, last = np.triu_indices(number)
    p, null = rng.uniform(size=(2, len(first)))
    spans = CandidateSpans(first, last, np.zeros(len(first), int), p, null)
    score = {
        (a, b + 1): max(np.log(x / y), -np.inf if a == b else 0)
        for a, b, x, y in zip(first, last, p, null, strict=True)
    }
    best = max(sum(score[span] for span in tree) for tree in all_trees(0, number))
    found = best_tree(spans, number, ['NP'])
    assert sum(score[start, end] for start, end, _ in found) == pytest.approx(best)
    longer = [(a, b) for a, b, _ in found if b > a + 1]
    assert not any(a < c < b < d for (a, b), (c, d) in itertools.permutations(longer, 2))


def test_a_model_learns_trees():
    problem, model = make(CONSTITUENCY, LABELS, train=EXAMPLES, **SETTINGS | {'max_span_words': 12})
    parts, losses = fit(model, EXAMPLES, 150)
    assert losses[-1] < 0.1 * losses[0]
    predictions = [
        problem.decoder.decode(one, own, Calibration())
        for one, own in zip(EXAMPLES, parts, strict=True)
    ]
    assert problem.decoder.score(EXAMPLES, predictions).metrics['f1'] == 1.0
    baseline = problem.decoder.baseline(EXAMPLES, EXAMPLES)
    assert 0 < baseline['f1'] < 1
