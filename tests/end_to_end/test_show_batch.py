"""debug.batch prints the batch of a training step."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax import main
from bert_jax.averages import Term
from bert_jax.errors import UserError
from bert_jax.tasks.pretraining import Pretraining
from bert_jax.training import optimizers
from bert_jax.training.state import TrainState
from bert_jax.training.step import make_train_step
from tests.end_to_end import small


@pytest.fixture
def config(tmp_path):
    changed = {'training__steps': (3, 2), 'schedule__warmup_steps': 1, 'evaluation__examples': 16}
    return small.config(tmp_path, evaluation__cloze_examples=0, **changed)


class Spy:
    """A model that records the ids it is given and learns nothing."""

    def apply(self, variables, batch, corrupted, seeds_B):
        self.input_ids = np.asarray(corrupted.input_ids)
        term = Term(variables['params']['x'], jnp.ones(()))
        return {'mlm_loss': term, 'nsp_loss': term}


def rows_of(capsys) -> list[dict]:
    lines = capsys.readouterr().out.splitlines()
    return [json.loads(line) for line in lines if line.startswith('{')]


def test_the_printed_batch_is_the_one_the_step_trains_on(config, capsys):
    config.debug.batch = 4
    assert main.run(config) is None
    rows = rows_of(capsys)
    assert len(rows) == 8
    task, zero = Pretraining(config), jnp.zeros((), jnp.int32)
    task.model, params = Spy(), {'x': jnp.ones(())}
    optimizer = optimizers.build(config.optimizer, lambda step: 0.0)
    step = make_train_step(task, optimizer)
    batch = task.stages[1].source.batch(0)  # step 4 is the first step of the second stage
    state = TrainState(zero + 3, zero, zero, params, optimizer.init(params))
    step(state, batch, jax.random.key(config.seed))
    vocab = task.corpus.tokenizer.vocab
    for row, ids, index in zip(rows, task.model.input_ids, batch['example_index'], strict=True):
        given = row.get('shown', row['tokens'])
        assert row['example_index'] == index
        assert given == [vocab[i] for i in ids[: len(given)]]
        assert [row['tokens'][i] for i in row['masked_positions']] == row['labels']
        assert row['labels']
        changed = {i for i, token in enumerate(given) if token != row['tokens'][i]}
        assert changed <= set(row['masked_positions'])
        assert row['next_sentence_label'] in (0, 1)
    assert any('[MASK]' in row.get('shown', ()) for row in rows)


@pytest.mark.parametrize('step', [6, -1])
def test_a_step_outside_the_run_is_rejected(config, step):
    config.debug.batch = step
    with pytest.raises(UserError, match=f'debug.batch is {step}, but the run has steps 1 to 5'):
        main.run(config)


def test_edited_rows_are_printed_with_their_labels(config, capsys):
    config.objectives.mlm, config.objectives.nsp, config.objectives.deletion = 0.0, 0.0, 1.0
    config.debug.batch = 1
    main.run(config)
    rows = rows_of(capsys)
    assert any(len(row.get('shown', row['tokens'])) < len(row['tokens']) for row in rows)
    for row in rows:
        assert len(row['deletion']) == len(row.get('shown', row['tokens']))
