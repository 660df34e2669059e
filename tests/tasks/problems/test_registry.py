"""The table of fine-tuning problems: what every entry needs, and a new entry from outside."""

import json
import subprocess
import sys

import numpy as np
import pytest

from bert_jax import main, predict
from bert_jax.errors import UserError
from bert_jax.tasks.problems import PROBLEMS, find
from configs import finetune
from tests import extending

pytestmark = pytest.mark.usefixtures('no_figures')

TEXTS = ['a gull', 'the old red tram', 'one', 'a cow in the barn', 'salt and wheat', 'no']


def test_configs_of_all_kinds_are_read_without_jax():
    code = (
        'import sys; from configs import finetune; from bert_jax.tasks.problems import PROBLEMS;'
        '[finetune.get_config(kind) for kind in PROBLEMS]; print("jax" in sys.modules)'
    )
    done = subprocess.run([sys.executable, '-c', code], capture_output=True, text=True, check=True)
    assert done.stdout == 'False\n'


@pytest.mark.parametrize('kind', PROBLEMS)
def test_settings_of_a_kind_are_the_problem_of_its_config(kind):
    assert finetune.get_config(kind).problem.to_dict() == dict(PROBLEMS[kind].settings)
    assert PROBLEMS[kind].load().weights


def test_an_unknown_kind_is_refused():
    with pytest.raises(UserError, match=r"kind of problem 'sorting'; known: .*tagging"):
        find('sorting')


def test_a_problem_is_one_file_and_one_table_line(tmp_path, monkeypatch, capsysbinary):
    kind = extending.load('word_count', tmp_path, monkeypatch).KIND
    monkeypatch.setitem(PROBLEMS, 'word_count', kind)

    rows = [f'{text}\t{len(text.split())}' for text in TEXTS * 2]
    (tmp_path / 'counts.tsv').write_text('\n'.join(['text\tlabel', *rows]))
    config = finetune.get_config('word_count')
    config.workdir = str(tmp_path / 'run')
    config.data.update(dict(train=(str(tmp_path / 'counts.tsv'),), dev_fraction=0.5))
    config.data.tokenizer = 'train:wordpiece:60'
    config.model.update(dict(architecture='bert', hidden_size=16, num_layers=1, num_heads=2))
    config.model.update(dict(intermediate_size=16, max_position_embeddings=16))
    config.training.update(dict(epochs=0.0, steps=2, batch_size=4, sequence_length=16))
    results = main.run(config)
    assert results['steps'] == 2
    assert np.isfinite(results['held_out']['rmse'])
    lines = (tmp_path / 'run/dev/predictions.jsonl').read_text().splitlines()
    assert [json.loads(line).keys() for line in lines] == [{'id', 'gold', 'count'}] * 6

    (tmp_path / 'input.txt').write_text('\n'.join(TEXTS))
    arguments = [f'--model={tmp_path}/run', f'--input={tmp_path}/input.txt', '--output=-']
    capsysbinary.readouterr()
    predict.main(['--task=count', *arguments])
    records = [json.loads(line) for line in capsysbinary.readouterr().out.splitlines()]
    assert [record['id'] for record in records] == [f'line {n}' for n in range(1, 7)]
    assert all(np.isfinite(record['count']) for record in records)
