"""Scores and their reports, compared with values computed by hand."""

import json
import random
import time
from collections import Counter

import matplotlib.image
import numpy as np
import pytest
import sklearn.metrics
from hypothesis import given, settings
from hypothesis import strategies as st

from bert_jax.errors import UserError
from bert_jax.metrics import intervals, scores
from bert_jax.reports import tables

GOLD, GUESSES = list('yynn?'), list('ynnn?')


def test_main_metrics_come_first_preceded_by_their_mean():
    found = scores.classification(GOLD, GUESSES, 'yn?', ('f1', 'accuracy'), 'y', negative='?')
    assert list(found.metrics)[:3] == ['score', 'f1', 'accuracy']
    assert found.metrics['f1'] == pytest.approx(2 / 3)
    assert found.metrics['f1_micro'] == pytest.approx(3 / 4)
    assert found.metrics['score'] == pytest.approx((2 / 3 + 4 / 5) / 2)
    assert found.tables['Classes'].rows[0] == ('y', 1.0, 0.5, pytest.approx(2 / 3), 2)
    assert list(scores.classification(GOLD, GUESSES, 'yn?').metrics)[0] == 'accuracy'
    numbers = scores.regression([1.0, 2.0, 3.0], [1.0, 2.0, 5.0]).metrics
    assert numbers['spearman'] == pytest.approx(1)
    assert numbers['rmse'] == pytest.approx((4 / 3) ** 0.5)
    assert numbers['score'] == pytest.approx((numbers['pearson'] + 1) / 2)
    with pytest.raises(UserError, match="unknown metric 'f1'; known: accuracy"):
        scores.classification(GOLD, GUESSES, 'yn?', ('f1',))
    with pytest.raises(
        UserError, match="problem.positive is 'maybe'; set it to one of the classes y, n"
    ):
        scores.classification(GOLD, GUESSES, ('y', 'n', '?'), positive='maybe')


def test_scores_are_saved_as_json_markdown_and_a_plot(tmp_path, figures):
    found = scores.classification(GOLD, GUESSES, ('y', 'n', '?'))
    tables.save_scores(found, tmp_path / 'new', 'A | task')
    saved = json.loads((tmp_path / 'new' / 'metrics.json').read_text())
    assert saved['metrics'] == found.metrics
    assert saved['tables']['Confusion']['counts'] == [[1, 1, 0], [0, 2, 0], [0, 0, 1]]
    report = (tmp_path / 'new' / 'report.md').read_text()
    for line in ('# A \\| task', '| accuracy | 0.8000 |', '| y | 1 | 1 | 0 |'):
        assert line in report.splitlines()
    assert '| y | 1.0000 | 0.5000 | 0.6667 | 2 |' in report
    assert matplotlib.image.imread(tmp_path / 'new' / 'confusion.png').ndim == 3


def test_the_report_of_many_classes_stays_readable(tmp_path, figures):
    labels = [f'class_{number}_$' for number in range(60)]
    gold, guesses = [*labels, 'class_7_$'], [*labels, 'class_50_$']
    found = scores.classification(gold, guesses, labels)
    report = tables.report_markdown(found, 'many')
    assert r'| class_7\_$ | class_50\_$ | 1 |' in report
    assert '| class_8_$ |  | ' not in report
    assert max(map(len, report.splitlines())) < 100
    tables.save_scores(found, tmp_path, 'many')
    small = scores.classification(gold[:3], gold[:3], labels[:3])
    tables.save_scores(small, tmp_path / 'small', 'few')
    height, width = matplotlib.image.imread(tmp_path / 'confusion.png').shape[:2]
    assert 1000 < height < 2000
    assert 1000 < width < 2000


@settings(deadline=None)  # a busy machine is not a failure
@given(st.lists(st.tuples(st.sampled_from('abcd'), st.sampled_from('abcd')), min_size=1))
def test_the_confusion_matrix_is_that_of_scikit_learn(pairs):
    gold, guesses = zip(*pairs, strict=True)
    found = scores.classification(gold, guesses, 'abcd').tables['Confusion']
    wanted = sklearn.metrics.confusion_matrix(gold, guesses, labels=list('abcd'))
    np.testing.assert_array_equal(found.counts, wanted)
    assert found.examples == wanted.sum(1).tolist()
    wrong = Counter(pair for pair in pairs if pair[0] != pair[1])
    assert {pair[:2]: pair[2] for pair in found.most_confused} == wrong


def test_thousands_of_classes_are_scored_as_by_scikit_learn_and_reported_in_a_page(tmp_path):
    labels = [f'class {number}' for number in range(3000)]
    draw = random.Random(0)
    gold, guesses = (draw.choices(labels[:2000], k=600) for _ in range(2))
    guesses[:200] = gold[:200]
    gold[500:510], guesses[500:510] = ['class 7'] * 10, ['class 2999'] * 10
    found = scores.classification(gold, guesses, labels)
    wanted = sklearn.metrics.f1_score(gold, guesses, average='macro')
    assert found.metrics['f1_macro'] == pytest.approx(wanted)
    wanted = sklearn.metrics.matthews_corrcoef(gold, guesses)
    assert found.metrics['matthews'] == pytest.approx(wanted)
    confusion = found.tables['Confusion']
    assert (len(confusion.labels), confusion.num_classes) == (100, 3000)
    assert confusion.most_confused[0] == ('class 7', 'class 2999', 10)
    place = confusion.labels.index('class 7'), confusion.labels.index('class 2999')
    assert confusion.counts[place[0]][place[1]] == 10
    tables.save_scores(found, tmp_path, 'many')
    assert len((tmp_path / 'report.md').read_text().splitlines()) < 200
    assert (
        len(json.loads((tmp_path / 'metrics.json').read_text())['tables']['Classes']['rows'])
        == 3000
    )
    assert (tmp_path / 'metrics.json').stat().st_size < 500_000


def test_intervals_of_thousands_of_classes_take_time_proportional_to_the_examples():
    labels = [f'class {number}' for number in range(20_000)]
    draw = random.Random(0)
    gold, guesses = (draw.choices(labels, k=1000) for _ in range(2))
    guesses[:600] = gold[:600]
    score = scores.classification_rows(gold, guesses, labels)
    started = time.process_time()
    low, high = intervals.of_rows(score, len(gold))['accuracy']
    assert time.process_time() - started < 10  # 200 tables of C × C numbers: 200 × 3 GB
    half = 1.96 * (0.6 * 0.4 / 1000) ** 0.5
    assert (low, high) == pytest.approx((0.6 - half, 0.6 + half), abs=0.01)


def test_spans_are_scored_by_label():
    found = scores.spans([[(0, 2, 'A')], [(1, 2, 'B')]], [[(0, 2, 'A')], [(1, 2, 'A')]])
    assert found.metrics == {'f1': 0.5, 'precision': 0.5, 'recall': 0.5, 'f1_macro': 1 / 3}
    assert found.tables['Labels'].rows[1] == ('B', 0.0, 0.0, 0.0, 1, 0)
    table = found.tables['Errors']
    assert table.columns[1:4] == ('correct', 'wrong type', 'wrong boundary')
    assert table.rows == [('A', 1, 0, 0, 0, 0, 0), ('B', 0, 1, 0, 0, 0, 0)]


def test_candidates_are_written_as_the_scorer_of_gap_reads_them(tmp_path):
    ids = ('d-1-A-coref', 'd-1-B-coref', 'd-2-A-coref', 'd-2-B-coref', 'd-3-B-coref')
    classes = ('TRUE', 'FALSE', 'FALSE', 'FALSE', 'TRUE')
    pairs = zip(ids, classes, strict=True)
    records = [{'id': own, 'predicted': predicted} for own, predicted in pairs]
    tables.save_candidates(records, ('A-coref', 'B-coref'), tmp_path)
    text = (tmp_path / 'candidates.tsv').read_text()
    assert text == 'd-1\tTRUE\tFALSE\nd-2\tFALSE\tFALSE\n'
    records = [{'id': f'd-{own}', 'predicted': own[0]} for own in ('coref', 'A-coref')]
    tables.save_candidates(records, ('coref', 'A-coref'), tmp_path)
    assert (tmp_path / 'candidates.tsv').read_text() == 'd\tc\tA\n'


def test_regression_has_a_scatter_plot(tmp_path, figures):
    found = scores.regression([1.0, 2.0, 3.0], [1.0, 2.0, 5.0])
    tables.save_scores(found, tmp_path, 'numbers')
    assert matplotlib.image.imread(tmp_path / 'scatter.png').ndim == 3
    assert (tmp_path / 'scatter.pdf').read_bytes().startswith(b'%PDF')
    assert 'scatter.png' in (tmp_path / 'report.md').read_text()
    assert json.loads((tmp_path / 'metrics.json').read_text())['tables'] == {}
