"""The files that the site of GLUE takes."""

import pytest

from bert_jax.data.labeled.benchmarks import BENCHMARKS
from bert_jax.errors import UserError
from bert_jax.evaluation import glue


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
def test_submission(tmp_path, task, predictions, file, lines):
    by_id = {str(index): prediction for index, prediction in enumerate(predictions)}
    backwards = dict(reversed(by_id.items()))
    path = glue.write_submission(task, backwards, tmp_path / 'out')
    assert path == tmp_path / 'out' / file
    assert path.read_text() == '\n'.join(['index\tprediction', *lines, ''])


def test_tasks_agree_with_those_that_are_read_and_scored():
    parts = {part for name, task in glue.GLUE.items() for part in task.sets or (name,)}
    parts = {'mnli' if part == 'mnli_matched' else part for part in parts}
    assert set(glue.SUBMISSIONS) == parts | {'ax'}
    assert parts <= set(BENCHMARKS)


def test_mistakes(tmp_path):
    with pytest.raises(UserError, match=r"unknown task of GLUE 'boolq'; known: ax, cola"):
        glue.write_submission('boolq', {}, tmp_path)
    with pytest.raises(UserError, match=r"unknown class 'good'; known: negative, positive"):
        glue.write_submission('sst2', {'0': 'good'}, tmp_path)
    with pytest.raises(UserError, match='RTE.tsv: none of the 2 predictions has id 1'):
        glue.write_submission('rte', {'0': 'entailment', '2': 'entailment'}, tmp_path)
