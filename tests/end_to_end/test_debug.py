"""A step's number alone shows the batch it was trained on."""

import json

import jax
import numpy as np
import pytest

from bert_jax import main
from bert_jax.errors import UserError
from bert_jax.objectives.forms import Corruption
from bert_jax.tasks import Pretraining, debug
from tests.end_to_end import small


@pytest.fixture
def config(tmp_path):
    changed = {'stages__steps': (3, 2), 'schedule__warmup_steps': 1, 'evaluation__examples': 16}
    return small.config(tmp_path, evaluation__cloze_examples=0, **changed)


def test_the_batch_shown_is_the_one_trained_on(config, monkeypatch, capsys):
    seen, corrupt = set(), Corruption.masked

    def and_tell(*arguments):
        masked = corrupt(*arguments)
        jax.debug.callback(lambda ids: seen.add(np.asarray(ids).tobytes()), masked.input_ids)
        return masked

    monkeypatch.setattr(Corruption, 'masked', and_tell)
    monkeypatch.setattr('bert_jax.objectives.forms.FORMS', {'masked': and_tell})
    main.run(config)
    jax.effects_barrier()
    told, task = set(seen), Pretraining(config)
    shown = {}
    for step in range(1, 6):
        corrupted = task.corrupted_batch(*debug.find(task.stages, step))[1]
        shown[step] = np.asarray(corrupted.input_ids)
        assert shown[step].tobytes() in told, step
    capsys.readouterr()
    config.debug.batch = 4
    assert main.run(config) is None
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert len(rows) == 8
    vocab = task.corpus.tokenizer.vocab
    for row, ids in zip(rows, shown[4], strict=True):
        given = row.get('shown', row['tokens'])
        assert given == [vocab[i] for i in ids[: len(row['tokens'])]]
        assert [row['tokens'][i] for i in row['masked_positions']] == row['labels']
        assert row['labels']
        changed = {i for i, token in enumerate(given) if token != row['tokens'][i]}
        assert changed <= set(row['masked_positions'])
        assert row['next_sentence_label'] in (0, 1)
    assert any('[MASK]' in row.get('shown', ()) for row in rows)


@pytest.mark.parametrize('step', [6, -1])
def test_a_step_that_the_run_does_not_have_is_refused(config, step):
    config.debug.batch = step
    with pytest.raises(UserError, match=f'debug.batch is {step}, but the run has steps 1 to 5'):
        main.run(config)


def test_edits_are_shown_with_their_marks(config, capsys):
    config.objectives.mlm, config.objectives.nsp, config.objectives.deletion = 0.0, 0.0, 1.0
    config.debug.batch = 1
    main.run(config)
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert any(len(row.get('shown', row['tokens'])) < len(row['tokens']) for row in rows)
    for row in rows:
        assert len(row['deletion']) == len(row.get('shown', row['tokens']))
