"""Scores by hand, their reports, and the averages of GLUE and SuperGLUE."""

import json

import matplotlib.image
import numpy as np
import pytest

from bert_jax.errors import UserError
from bert_jax.evaluation import glue, scores, tables

GOLD, GUESSES = list('yynn?'), list('ynnn?')


def test_the_main_figures_come_first():
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


def test_report_on_disk(tmp_path):
    found = scores.classification(GOLD, GUESSES, ('y', 'n', '?'))
    tables.save_scores(found, tmp_path / 'new', 'A | task')
    saved = json.loads((tmp_path / 'new' / 'metrics.json').read_text())
    assert saved['metrics'] == found.metrics
    assert saved['tables']['Confusion']['counts'] == [[1, 1, 0], [0, 2, 0], [0, 0, 1]]
    report = (tmp_path / 'new' / 'report.md').read_text()
    for line in ('# A | task', '| accuracy | 0.8000 |', '| y | 1 | 1 | 0 |'):
        assert line in report.splitlines()
    assert '| y | 1.0000 | 0.5000 | 0.6667 | 2 |' in report
    assert matplotlib.image.imread(tmp_path / 'new' / 'confusion.png').ndim == 3


def test_many_classes_stay_readable(tmp_path):
    labels = [f'class_{number}_$' for number in range(60)]
    gold, guesses = [*labels, 'class_7_$'], [*labels, 'class_50_$']
    found = scores.classification(gold, guesses, labels)
    report = tables.report_markdown(found, 'many')
    assert '| class_7_$ | class_50_$ | 1 |' in report
    assert '| class_8_$ |  | ' not in report
    assert max(map(len, report.splitlines())) < 100
    tables.save_scores(found, tmp_path, 'many')
    small = scores.classification(gold[:3], gold[:3], labels[:3])
    tables.save_scores(small, tmp_path / 'small', 'few')
    height, width = matplotlib.image.imread(tmp_path / 'confusion.png').shape[:2]
    assert 1000 < height < 2000
    assert 1000 < width < 2000
    counts_CC = np.array(found.tables['Confusion'].counts)
    assert tables._most_errors(counts_CC, 40)[[7, 39]].tolist() == [7, 50]


def test_spans_by_label():
    found = scores.spans([[(0, 2, 'A')], [(1, 2, 'B')]], [[(0, 2, 'A')], [(1, 2, 'A')]])
    assert found.metrics == {'f1': 0.5, 'precision': 0.5, 'recall': 0.5, 'f1_macro': 1 / 3}
    assert found.tables['Labels'].rows[1] == ('B', 0.0, 0.0, 0.0, 1, 0)


def glue_results():
    """Every figure differs, so that a mean over the wrong ones is another number."""
    figures = ['accuracy', 'f1', 'matthews', 'pearson', 'spearman', 'f1_macro', 'exact_match']
    names = ['cola', 'sst2', 'mrpc', 'stsb', 'qqp', 'mnli', 'mnli_mismatched']
    names += ['qnli', 'rte', 'wnli']
    return {
        name: {figure: 10.0**k * (n + 1) for k, figure in enumerate(figures)}
        for n, name in enumerate(names)
    }


def test_average_of_glue():
    by_hand = [
        100 * 1,  # cola: matthews
        2,  # sst2
        (10 * 3 + 3) / 2,  # mrpc: F1 and accuracy
        (1000 * 4 + 10000 * 4) / 2,  # stsb: Pearson and Spearman
        (10 * 5 + 5) / 2,  # qqp
        (6 + 7) / 2,  # mnli: both test sets
        8,  # qnli
        9,  # rte
    ]
    results = glue_results()
    assert glue.average(glue.GLUE, results) == pytest.approx((sum(by_hand) + 10) / 9)
    assert glue.average(glue.GLUE, results, ('wnli',)) == pytest.approx(sum(by_hand) / 8)
    del results['mnli_mismatched']
    with pytest.raises(UserError, match='no result for mnli_mismatched'):
        glue.average(glue.GLUE, results)
    with pytest.raises(UserError, match='the result for cola lacks matthews'):
        glue.average(glue.GLUE, results | {'cola': {'accuracy': 1}})
    with pytest.raises(UserError, match="unknown task 'sst'"):
        glue.average(glue.GLUE, results | {'sst': {'accuracy': 1}})


def test_average_of_super_glue():
    accuracy = {'accuracy': 0.5}
    results = {name: accuracy for name in ('boolq', 'copa', 'superglue_rte', 'wic', 'wsc')}
    results['cb'] = {'f1_macro': 0.2, 'accuracy': 0.8, 'f1': 9}
    judged = (['yes', 'no', 'no', 'yes'], ['yes', 'no', 'yes', 'yes'], ('no', 'yes'))
    task = glue.SUPER_GLUE['multirc']
    multirc = scores.classification(*judged, task.metrics, positive='yes', groups='aabb')
    results['multirc'] = multirc.metrics
    results['record'] = glue.score_record([('the cat', 'dog'), ('fish',)], ['cat', 'a fish tank'])
    assert list(results['multirc'].items())[:4] == [
        ('score', pytest.approx((0.8 + 0.5) / 2)),
        ('f1', pytest.approx(0.8)),
        ('exact_match', 0.5),
        ('accuracy', 0.75),
    ]
    assert results['record'] == pytest.approx(
        {'score': (5 / 6 + 0.5) / 2, 'f1': 5 / 6, 'exact_match': 0.5}
    )
    wanted = (5 * 0.5 + 0.5 + 0.65 + (5 / 6 + 0.5) / 2) / 8
    assert glue.average(glue.SUPER_GLUE, results) == pytest.approx(wanted)


def test_average_of_runs(tmp_path):
    results = glue_results()
    for name, figures in results.items():
        tables.save_scores(scores.Scores(figures, {}), tmp_path / name / 'dev', name)
    found = glue.read_results([tmp_path / name for name in results])
    assert found == results
    lines = glue.average_table(glue.GLUE, found, ['wnli']).splitlines()
    assert '| mnli | mnli, mnli_mismatched, accuracy | 6.5000 |' in lines
    assert lines[-1] == f'| average |  | {glue.average(glue.GLUE, results, ["wnli"]):.4f} |'
    assert len(lines) == 2 + 8 + 1
    with pytest.raises(UserError, match='metrics.json does not exist'):
        glue.read_results([tmp_path / 'none'])
