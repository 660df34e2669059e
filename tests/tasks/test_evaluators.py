"""An evaluator of a recipe adds its metrics to every evaluation and its section to the card."""

import json

import numpy as np
import pytest

from bert_jax import main
from bert_jax.errors import UserError
from bert_jax.tasks.pretraining import EVALUATORS, EvaluatorKind, Section, builder
from tests.end_to_end import small


class Norm:
    """The norm of the word embeddings, from a number of rows that the settings ask for."""

    def __init__(self, inputs):
        self.lines = [f'norm, {inputs.num_evaluations} evaluations of {inputs.settings.rows} rows']
        self.rows = inputs.settings.rows

    @classmethod
    def check(cls, settings, model):
        if settings.rows > 1000:
            raise UserError(f'rows is {settings.rows}')

    @classmethod
    def build(cls, inputs):
        return cls(inputs)

    def __call__(self, params):
        table = params['encoder']['embeddings']['token']
        return {'norm': float(np.linalg.norm(np.asarray(table)[: self.rows]))}

    def report(self, held_out, workdir):
        (workdir / 'norm.txt').write_text('norm')
        return Section(f'## Norm\n\nIt is {held_out["norm"]:.6g}.\n', frozenset({'norm'}))


@pytest.fixture
def config(tmp_path, monkeypatch):
    monkeypatch.setitem(EVALUATORS, 'norm', EvaluatorKind(f'{__name__}:Norm', ('rows',)))
    made = small.config(tmp_path, **small.ONE_STAGE, evaluation__every_steps=1)
    with made.unlocked():
        made.evaluation.norm = dict(rows=3)
    return made


def test_its_metrics_are_recorded_and_its_section_is_in_the_card(config, tmp_path, capsys):
    results = main.run(config)
    lines = (tmp_path / 'run/metrics.jsonl').read_text().splitlines()
    values = [r['norm'] for r in map(json.loads, lines) if r['kind'] == 'held_out']
    assert len(values) == 2
    assert values[0] != values[1] == results['held_out']['norm'] > 0
    assert 'norm, 2 evaluations of 3 rows' in capsys.readouterr().err
    card = (tmp_path / 'run/README.md').read_text()
    assert f'## Norm\n\nIt is {values[1]:.6g}.' in card
    assert '| norm |' not in card
    assert '| mlm_loss |' in card
    assert (tmp_path / 'run/norm.txt').exists()


def test_it_is_built_only_if_a_setting_enables_it(config):
    config.evaluation.norm.rows = 0
    assert not builder.build(config).evaluators


def test_its_settings_are_checked_before_the_text_is_read(config, tmp_path):
    config.evaluation.norm.rows = 1001
    with pytest.raises(UserError, match='rows is 1001'):
        main.run(config)
    assert not (tmp_path / 'corpus').exists()
