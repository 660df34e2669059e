"""Metrics of retrieval, compared with trec_eval (pytrec_eval-terrier 0.5.11) and scikit-learn."""

import math
from typing import NamedTuple

import numpy as np
import pytest
from sklearn.metrics import average_precision_score, ndcg_score

from bert_jax.metrics import retrieval

NAMES = ('ndcg@1', 'ndcg@3', 'ndcg@10', 'recall@3', 'recall@10', 'accuracy@3', 'map')
TREC_EVAL = {  # of `trec_example`, rounded to 6 digits
    'q0': (0.0, 0.0, 0.181542, 0.0, 0.333333, 0.0, 0.066667),
    'q1': (0.0, 0.0, 0.135652, 0.0, 0.333333, 0.0, 0.084615),
    'q2': (0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.079551),
    'q3': (0.0, 0.098694, 0.069848, 0.125, 0.125, 1.0, 0.14185),
}


def trec_example():
    """Judgments from −1 to 3, and rankings in which many scores are equal."""
    relevance = {
        f'q{q}': {f'd{(5 * i + 3 * q) % 40}': (i * i + q) % 5 - 1 for i in range(8)}
        for q in range(5)
    }
    rankings = {
        f'q{q}': {f'd{(7 * i + 2 * q) % 40}': round(math.sin(1.7 * i + q), 1) for i in range(20)}
        for q in range(4)
    }
    return rankings, relevance


def test_each_query_has_the_values_of_trec_eval():
    rankings, relevance = trec_example()
    for query, expected in TREC_EVAL.items():
        found = retrieval.of_query(rankings[query], relevance[query])
        assert [found[name] for name in NAMES] == pytest.approx(expected, abs=6e-7)


def test_gains_are_relevances_and_the_ideal_has_all_judged_documents():
    relevance = {'a': 2, 'b': 1, 'c': 0, 'z': 1}
    found = retrieval.of_query({'x': 3.0, 'b': 2.0, 'a': 1.0}, relevance)
    assert found['ndcg@10'] == pytest.approx(0.520909, abs=1e-6)
    assert found['map'] == pytest.approx(0.388889, abs=1e-6)
    assert found['mrr@10'] == 0.5
    assert found['mrr@1'] == 0.0
    assert (found['recall@10'], found['accuracy@1'], found['accuracy@3']) == (2 / 3, 0.0, 1.0)


def test_equal_scores_are_ordered_by_id_descending():
    assert retrieval.order({'d10': 1.0, 'd9': 1.0, 'e': 0.5, 'a': 1 + 1e-9}) == [
        'd9',
        'd10',
        'a',
        'e',
    ]


def test_a_full_ranking_without_ties_agrees_with_scikit_learn():
    rng = np.random.default_rng(0)
    grades, scores = rng.integers(0, 3, 30), rng.normal(size=30).astype(np.float32)
    names = [f'd{n}' for n in range(30)]
    ranking = dict(zip(names, scores.tolist(), strict=True))
    found = retrieval.of_query(ranking, dict(zip(names, grades.tolist(), strict=True)))
    assert found['ndcg@10'] == pytest.approx(ndcg_score([grades], [scores], k=10))
    assert found['map'] == pytest.approx(average_precision_score(grades > 0, scores))


def test_queries_without_results_or_without_relevant_documents_count_as_0():
    rankings, relevance = trec_example()
    relevance['q9'] = {'d1': 0, 'd2': -1}
    rankings['q9'] = {'d1': 1.0}
    found = retrieval.evaluate(rankings, relevance)
    assert found.unanswerable == 1
    assert found.queries == ('q0', 'q1', 'q2', 'q3', 'q4', 'q9')  # q4 has no results
    expected = np.mean([values[2] for values in TREC_EVAL.values()] + [0, 0])
    assert found.means()['ndcg@10'] == pytest.approx(expected, abs=1e-6)
    low, high = found.intervals()['ndcg@10']
    assert 0 <= low < expected < high
    with pytest.raises(ValueError, match='no query has a relevant document'):
        retrieval.evaluate(rankings, {'q9': relevance['q9']})


def test_means_are_those_of_pytrec_eval_over_all_judged_queries():
    """The values of pytrec_eval-terrier 0.5.11, averaged over the queries as BEIR and MTEB do."""
    relevance = {'q1': {'d1': 1}, 'q2': {'d1': 0, 'd2': 0}, 'q3': {'d2': 1, 'd9': 1}}
    rankings = {'q1': {'d1': 1.0, 'd2': 0.5}, 'q2': {'d1': 1.0}, 'q3': {'d2': 1.0, 'd1': 0.5}}
    means = retrieval.evaluate(rankings, relevance).means()
    found = [means[name] for name in ('ndcg@10', 'recall@10', 'map')]
    assert found == pytest.approx([0.53772, 0.5, 0.5], abs=1e-5)


class DrawnRun(NamedTuple):
    """Results and judgments with ties, zeros, missing judgments and documents that do not exist."""

    rankings: dict[str, dict[str, float]]
    relevance: dict[str, dict[str, int]]


def draw_run(rng):
    documents = [f'd{n}' for n in range(rng.integers(3, 40))]
    scores = [lambda x: x.round(), lambda x: 1 + x * 1e-8, lambda x: x]
    rankings, relevance = {}, {}
    for query in map(str, range(rng.integers(2, 5))):
        judged = rng.choice(documents, rng.integers(1, len(documents)), replace=False)
        grades = rng.integers(-1, rng.integers(1, 4), len(judged))
        relevance[query] = dict(zip(judged.tolist(), grades.tolist(), strict=True))
        relevance[query]['gone'] = int(rng.integers(2))
        found = rng.choice(documents, rng.integers(1, len(documents)), replace=False)
        drawn = scores[rng.integers(3)](rng.normal(size=len(found)))
        rankings[query] = dict(zip(found.tolist(), drawn.tolist(), strict=True))
    return DrawnRun(rankings, relevance)


def trec_rules(ranking, grades):
    """nDCG@5, recall@5 and average precision by trec_eval's rules, written as loops."""
    order = sorted(ranking, key=lambda name: (float(np.float32(ranking[name])), name))[::-1]
    relevant = [name for name, grade in grades.items() if grade > 0]
    gain = sum(
        max(grades.get(name, 0), 0) / math.log2(rank + 1)
        for rank, name in enumerate(order[:5], start=1)
    )
    best = sorted((grades[name] for name in relevant), reverse=True)[:5]
    ideal = sum(grade / math.log2(rank + 1) for rank, grade in enumerate(best, start=1))
    hits, precisions = 0, 0.0
    for rank, name in enumerate(order, start=1):
        if name in relevant:
            hits += 1
            precisions += hits / rank
    if not relevant:
        return 0.0, 0.0, 0.0
    return gain / ideal, len({*order[:5]} & {*relevant}) / len(relevant), precisions / len(relevant)


def test_drawn_runs_have_the_values_of_the_rules_of_trec_eval():
    rng = np.random.default_rng(0)
    for _ in range(200):
        run = draw_run(rng)
        for query, grades in run.relevance.items():
            found = retrieval.of_query(run.rankings[query], grades)
            values = [found[name] for name in ('ndcg@5', 'recall@5', 'map')]
            assert values == pytest.approx(trec_rules(run.rankings[query], grades), abs=1e-9)
