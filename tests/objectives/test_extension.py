"""A new objective or masking scheme needs one class or function and one line in its table."""

import dataclasses

import jax
import numpy as np
import pytest

from bert_jax import objectives
from bert_jax.errors import UserError
from bert_jax.models.flops import training_flops_per_token
from bert_jax.models.heads import MaskedLanguageModelHead
from bert_jax.objectives import OBJECTIVES
from bert_jax.objectives.base import Objective
from bert_jax.objectives.masking import Masked, MaskedText
from bert_jax.objectives.masking_schemes import SCHEMES, ChosenPositions, Scheme
from bert_jax.objectives.mlm import prediction_terms
from bert_jax.tasks.pretraining import Pretraining
from bert_jax.training import optimizers, sharding
from bert_jax.training.state import TrainState
from bert_jax.training.step import make_train_step
from tests.end_to_end import small


@dataclasses.dataclass(frozen=True)
class RecoveryOptions:
    """num_tokens: how many tokens at the start of a row are predicted."""

    num_tokens: int


class Recovery(Objective):
    """Predicts the first tokens of each row, whether they are hidden or not."""

    corruptions = (MaskedText,)
    options_type = RecoveryOptions

    def setup(self):
        self.head = MaskedLanguageModelHead(self.architecture, self.compute)

    def __call__(self, encoded):
        number = self.options.num_tokens
        logits_BPV = self.head(encoded.hidden[:, :number], encoded.embedding_table)
        labels_BP = encoded.batch['input_ids'][:, :number]
        return prediction_terms('recovery', logits_BPV, labels_BP, np.ones(labels_BP.shape))

    @staticmethod
    def vocabulary_products(sequence_length, num_predictions):
        return 3


def choose_first(key, row, masking, num_predictions):
    """Chooses the first tokens that are not special."""
    positions_P = jax.numpy.argsort(~row.can_choose_T, stable=True)[:num_predictions]
    return ChosenPositions(positions_P, row.can_choose_T[positions_P].sum())


@pytest.fixture
def config(tmp_path):
    return small.config(tmp_path, stages__steps=(2, 2), schedule__warmup_steps=1)


def train_two_steps(task):
    """Returns the metrics of two training steps."""
    optimizer = optimizers.build(task.config.optimizer, lambda step: 0.01)
    step = jax.jit(make_train_step(task, optimizer, 1, task.config.seed))
    params = sharding.unbox(jax.jit(task.init)(jax.random.key(0)))
    zero = np.zeros((), np.int32)
    state, metrics = TrainState(zero, zero, zero, params, optimizer.init(params)), []
    for number in range(2):
        state, found = step(state, task.stages[0].source.batch(number))
        metrics.append(found)
    return metrics, jax.tree.map(lambda a, b: np.abs(a - b).max(), params, state.params)


def test_an_objective_with_an_option_and_vocabulary_products_is_one_table_line(config, monkeypatch):
    monkeypatch.setitem(OBJECTIVES, 'recovery', Recovery)
    with config.unlocked():
        config.objectives.recovery = 0.5
        config.recovery = dict(num_tokens=3)
    task = Pretraining(config)
    assert task.weights == {'mlm_loss': 1.0, 'nsp_loss': 1.0, 'recovery_loss': 0.5}
    stage = task.stages[0]
    batch, length = stage.source.batch_size, 16
    per_token = training_flops_per_token(task.architecture, length, 3 + 3)  # mlm and recovery
    assert stage.flops_per_step == batch * length * per_token
    metrics, change = train_two_steps(task)
    assert [float(found['terms']['recovery_loss'].count) for found in metrics] == [3 * batch] * 2
    assert max(jax.tree.leaves(change['recovery'])) > 0


def test_causal_and_bidirectional_objectives_cannot_be_mixed(monkeypatch):
    causal = type('CausalRecovery', (Recovery,), {'is_causal': True})
    monkeypatch.setitem(OBJECTIVES, 'recovery', causal)
    assert objectives.common_corruption(('recovery',), 'tokens') is MaskedText
    with pytest.raises(UserError, match='recovery must not see .* right, but mlm must'):
        objectives.common_corruption(('mlm', 'recovery'), 'tokens')


def test_an_objective_without_its_options_in_the_config_is_rejected(config, monkeypatch):
    monkeypatch.setitem(OBJECTIVES, 'recovery', Recovery)
    with config.unlocked():
        config.objectives.recovery = 0.5
    with pytest.raises(UserError, match="'recovery' has options, but the config has no block"):
        Pretraining(config)


def test_a_masking_scheme_is_one_table_line(config, monkeypatch):
    monkeypatch.setitem(SCHEMES, 'first', Scheme(choose_first))
    config.masking.scheme = 'first'
    task = Pretraining(config)
    batch, masked = task.corrupted_batch(task.stages[0], 0, 0)
    assert isinstance(masked, Masked)
    np.testing.assert_array_equal(masked.positions[0], [1, 2, 3])  # behind [CLS]
    metrics, _ = train_two_steps(task)
    assert all(found['terms']['mlm_loss'].count > 0 for found in metrics)
