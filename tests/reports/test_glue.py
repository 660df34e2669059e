"""Scores of GLUE and SuperGLUE, compared with values by hand, and submission files."""

import json

import pytest

from bert_jax.errors import UserError
from bert_jax.labels.benchmarks import BENCHMARKS
from bert_jax.metrics import scores
from bert_jax.reports import glue, tables


def glue_results():
    """All values differ, so that a mean over the wrong ones is another number."""
    figures = ['accuracy', 'f1', 'matthews', 'pearson', 'spearman', 'f1_macro', 'exact_match']
    names = ['cola', 'sst2', 'mrpc', 'stsb', 'qqp', 'mnli', 'mnli_mismatched']
    names += ['qnli', 'rte', 'wnli']
    return {
        name: {figure: 10.0**k * (n + 1) for k, figure in enumerate(figures)}
        for n, name in enumerate(names)
    }


def test_the_average_of_glue_is_the_mean_over_tasks():
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


def test_the_average_of_super_glue_is_the_mean_over_tasks():
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


def test_the_average_table_is_made_from_the_folders_of_runs(tmp_path):
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


def save_run(folder, rate, **accuracies):
    for split, accuracy in accuracies.items():
        tables.save_scores(scores.Scores({'accuracy': accuracy}, {}), folder / split, 'run')
    (folder / 'config.json').write_text(json.dumps({'schedule': {'learning_rate': rate}}))


def test_one_run_of_mnli_has_both_test_sets(tmp_path):
    save_run(tmp_path / 'mnli', 1e-5, dev=0.8, dev_mismatched=0.7, test=0.1)
    found = glue.read_results([tmp_path / 'mnli'])
    assert found == {'mnli': {'accuracy': 0.8}, 'mnli_mismatched': {'accuracy': 0.7}}


def test_a_sweep_counts_with_the_mean_over_the_seeds_of_its_best_learning_rate(tmp_path):
    sweep = tmp_path / 'mnli'
    for seed, accuracy in enumerate((0.5, 0.6, 0.7)):
        save_run(sweep / f'rate_2_seed_{seed}', 2e-5, dev=accuracy, dev_mismatched=accuracy - 0.1)
        save_run(sweep / f'rate_5_seed_{seed}', 5e-5, dev=0.4, dev_mismatched=0.9)
    (sweep / 'results.json').write_text(json.dumps({'best': {'schedule.learning_rate': 2e-5}}))
    found = glue.read_results([sweep])
    assert found['mnli']['accuracy'] == pytest.approx(0.6)
    assert found['mnli_mismatched']['accuracy'] == pytest.approx(0.5)


def test_a_sweep_of_ranks_counts_with_its_best_rank(tmp_path):
    for rank, accuracy in ((4, 0.5), (8, 0.7)):
        folder = tmp_path / f'mnli/rank_{rank}_seed_0'
        save_run(folder, 2e-5, dev=accuracy)
        config = {'schedule': {'learning_rate': 2e-5}, 'transfer': {'rank': rank}}
        (folder / 'config.json').write_text(json.dumps(config))
    (tmp_path / 'mnli/results.json').write_text(
        json.dumps({'best': {'schedule.learning_rate': 2e-5, 'transfer.rank': 8}})
    )
    assert glue.read_results([tmp_path / 'mnli'])['mnli']['accuracy'] == 0.7


def test_the_test_sets_that_have_no_labels_are_submitted():
    assert glue.test_set('cola', 'test') == 'cola'
    assert glue.test_set('mnli', 'test_mismatched') == 'mnli_mismatched'
    assert glue.test_set('mnli', 'ax') == 'ax'
    for dataset, split in (('cola', 'dev'), ('mnli', 'dev_mismatched'), ('', 'test')):
        assert glue.test_set(dataset, split) is None


@pytest.mark.parametrize(
    ('task', 'predictions', 'file', 'lines'),
    [
        ('mnli', ['neutral', 'entailment'], 'MNLI-m.tsv', ['0\tneutral', '1\tentailment']),
        ('mnli_mismatched', ['contradiction'], 'MNLI-mm.tsv', ['0\tcontradiction']),
        ('ax', ['neutral'], 'AX.tsv', ['0\tneutral']),
        ('cola', ['unacceptable', 'acceptable'], 'CoLA.tsv', ['0\t0', '1\t1']),
        ('sst2', ['positive'], 'SST-2.tsv', ['0\t1']),
        ('mrpc', ['equivalent'], 'MRPC.tsv', ['0\t1']),
        ('qqp', ['duplicate'], 'QQP.tsv', ['0\t1']),
        ('wnli', ['entailment'], 'WNLI.tsv', ['0\t1']),
        ('qnli', ['not_entailment'], 'QNLI.tsv', ['0\tnot_entailment']),
        ('rte', ['entailment'], 'RTE.tsv', ['0\tentailment']),
        ('stsb', [3.14159, -0.2, 7], 'STS-B.tsv', ['0\t3.142', '1\t0.000', '2\t5.000']),
    ],
)
def test_submission_files_have_the_format_of_the_site(tmp_path, task, predictions, file, lines):
    by_id = {str(index): prediction for index, prediction in enumerate(predictions)}
    backwards = dict(reversed(by_id.items()))
    path = glue.write_submission(task, backwards, tmp_path / 'out')
    assert path == tmp_path / 'out' / file
    assert path.read_text() == '\n'.join(['index\tprediction', *lines, ''])


def test_submissions_cover_the_tasks_of_glue_that_can_be_read():
    parts = {part for name, task in glue.GLUE.items() for part in task.sets or (name,)}
    assert set(glue.SUBMISSIONS) == parts | {'ax'}
    submitted = {
        glue.test_set(name, split) for name in glue.GLUE for split in BENCHMARKS[name].splits
    }
    assert submitted - {None} == set(glue.SUBMISSIONS)


def test_unknown_tasks_classes_and_ids_are_errors(tmp_path):
    with pytest.raises(UserError, match=r"unknown task of GLUE 'boolq'; known: ax, cola"):
        glue.write_submission('boolq', {}, tmp_path)
    with pytest.raises(UserError, match=r"unknown class 'good'; known: negative, positive"):
        glue.write_submission('sst2', {'0': 'good'}, tmp_path)
    with pytest.raises(UserError, match='RTE.tsv: none of the 2 predictions has id 1'):
        glue.write_submission('rte', {'0': 'entailment', '2': 'entailment'}, tmp_path)
