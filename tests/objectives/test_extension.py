"""The objective, scheme and example source of docs/extending.md: one file, one table line each."""

import dataclasses
import itertools

import jax
import numpy as np
import pytest

from bert_jax import objectives
from bert_jax.errors import UserError
from bert_jax.models.flops import training_flops_per_token
from bert_jax.models.heads import HEADS
from bert_jax.objectives import OBJECTIVES
from bert_jax.objectives.masking_schemes import SCHEMES
from bert_jax.tasks.pretraining import builder
from bert_jax.tasks.pretraining.sources import SEGMENTS, Segments
from bert_jax.training import optimizers, sharding
from bert_jax.training.state import TrainState
from bert_jax.training.step import make_train_step
from tests import extending
from tests.end_to_end import small


@pytest.fixture
def recovery(tmp_path, monkeypatch):
    head = extending.load('row_start', tmp_path, monkeypatch).RowStartHead
    monkeypatch.setitem(HEADS, 'recovery', head)
    return extending.load('recovery', tmp_path, monkeypatch).Recovery


@pytest.fixture
def config(tmp_path):
    return small.config(tmp_path, training__steps=(2, 2), schedule__warmup_steps=1)


def train_two_steps(task):
    """Return the metrics of two training steps."""
    optimizer = optimizers.build(task.config.optimizer, lambda step: 0.01)
    step = jax.jit(make_train_step(task, optimizer))
    params = sharding.unbox(jax.jit(task.init)(jax.random.key(0)))
    zero = np.zeros((), np.int32)
    state, metrics = TrainState(zero, zero, zero, params, optimizer.init(params)), []
    for number in range(2):
        state, found = step(state, task.stages[0].source.batch(number), jax.random.key(0))
        metrics.append(found)
    return metrics, jax.tree.map(lambda a, b: np.abs(a - b).max(), params, state.params)


def test_an_objective_with_an_option_and_vocabulary_products_is_one_table_line(
    config, recovery, monkeypatch
):
    monkeypatch.setitem(OBJECTIVES, 'recovery', recovery)
    with config.unlocked():
        config.objectives.recovery = 0.5
        config.recovery = dict(num_tokens=3)
    task = builder.build(config)
    assert task.weights == {'mlm_loss': 1.0, 'nsp_loss': 1.0, 'recovery_loss': 0.5}
    stage = task.stages[0]
    batch, length = stage.source.batch_size, 16
    size = task.start.architecture.hidden_size
    nsp = 2 * size * (size + 2)  # the pooler and two classes
    per_token = training_flops_per_token(
        task.start.architecture, length, 3 + 3, nsp
    )  # mlm, recovery
    assert stage.flops_per_step == batch * length * per_token
    metrics, change = train_two_steps(task)
    assert [float(found['terms']['recovery_loss'].count) for found in metrics] == [3 * batch] * 2
    assert max(jax.tree.leaves(change['recovery'])) > 0


def test_an_unknown_option_of_an_objective_is_one_line(config, recovery, monkeypatch):
    monkeypatch.setitem(OBJECTIVES, 'recovery', recovery)
    with config.unlocked():
        config.objectives.recovery = 0.5
        config.recovery = dict(num_tokens=3, num_token=2)
    with pytest.raises(UserError, match=r'recovery\.num_token is not .*its options are num_tokens'):
        builder.build(config)


def test_causal_and_bidirectional_objectives_cannot_be_mixed(recovery, monkeypatch):
    causal = type('CausalRecovery', (recovery,), {'is_causal': True})
    monkeypatch.setitem(OBJECTIVES, 'recovery', causal)
    assert objectives.common_corruption(('recovery',), 'tokens') == 'masked'
    with pytest.raises(UserError, match='recovery must not see .* right, but mlm must'):
        objectives.common_corruption(('mlm', 'recovery'), 'tokens')


def test_an_objective_without_its_options_in_the_config_is_rejected(config, recovery, monkeypatch):
    monkeypatch.setitem(OBJECTIVES, 'recovery', recovery)
    with config.unlocked():
        config.objectives.recovery = 0.5
    with pytest.raises(UserError, match="'recovery' has options, but the config has no block"):
        builder.build(config)


def test_a_masking_scheme_is_one_table_line(config, tmp_path, monkeypatch):
    kind = extending.load('first_tokens', tmp_path, monkeypatch).FirstTokens
    monkeypatch.setitem(SCHEMES, 'first', kind)
    config.masking.scheme = 'first'
    task = builder.build(config)
    _, masked = task.corrupted_batch(task.stages[0], 0, 0)
    np.testing.assert_array_equal(masked.targets.positions_BP[0], [1, 2, 3])  # behind [CLS]
    metrics, _ = train_two_steps(task)
    assert all(found['terms']['mlm_loss'].count > 0 for found in metrics)


def test_a_field_of_a_masking_scheme_is_a_config_key(config, tmp_path, monkeypatch):
    kind = extending.load('first_tokens', tmp_path, monkeypatch).FirstTokens
    later = dataclasses.make_dataclass('Later', [('skip', int)], bases=(kind,), frozen=True)
    later.choose = lambda self, key, row, number: kind.choose(
        self, key, row._replace(can_choose_T=row.can_choose_T.at[: self.skip].set(False)), number
    )
    monkeypatch.setitem(SCHEMES, 'later', later)
    config.masking.scheme = 'later'
    with pytest.raises(UserError, match=r"'later' has the option 'skip'.* no key masking\.skip"):
        builder.build(config)
    with config.unlocked():
        config.masking.skip = 4
    task = builder.build(config)
    _, masked = task.corrupted_batch(task.stages[0], 0, 0)
    np.testing.assert_array_equal(masked.targets.positions_BP[0], [4, 5, 6])


def test_rows_of_an_example_source_are_one_table_line(config, tmp_path, monkeypatch):
    kind = extending.load('beginnings', tmp_path, monkeypatch).Beginnings
    monkeypatch.setitem(SEGMENTS, 'beginnings', Segments(lambda settings, data: kind(settings)))
    config.data.segments, config.objectives.nsp = 'beginnings', 0.0
    task = builder.build(config)
    source = task.stages[0].source
    text, tokenizer = source.text, source.tokenizer
    number = text.num_documents
    rows = source.examples(np.arange(2 * number))
    length = source.sequence_length
    expected = set()
    for first, end in itertools.pairwise(text.first_token.tolist()):
        ids = np.zeros(min(end - first, length - 2), np.int32)
        text.copy(ids, np.array([0]), np.array([first]), np.array([len(ids)]))
        row = [tokenizer.cls_id, *ids.tolist(), tokenizer.sep_id]
        expected.add((*row, *[tokenizer.pad_id] * (length - len(row))))
    made = list(map(tuple, rows['input_ids'].tolist()))
    assert set(made[:number]) == set(made[number:]) == expected
    assert made[:number] != made[number:]
    np.testing.assert_array_equal(rows['attention_mask'], rows['input_ids'] != tokenizer.pad_id)
    metrics, _ = train_two_steps(task)
    assert all(found['terms']['mlm_loss'].count > 0 for found in metrics)
    config.data.pack = True
    with pytest.raises(UserError, match="rows of data.segments='beginnings' cannot be packed"):
        builder.build(config)
