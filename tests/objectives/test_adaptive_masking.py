"""Adaptive masking: its weights, its choice, and runs that are resumed or divided."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax import main, tree_paths
from bert_jax.averages import Term
from bert_jax.errors import UserError
from bert_jax.loaded import checkpoint_arrays
from bert_jax.models.rows import Rows
from bert_jax.objectives.adaptive_masking import AdaptiveTokens, MaskingMemory
from bert_jax.objectives.corruption import Vocabulary
from bert_jax.objectives.masking import MaskedText
from bert_jax.objectives.masking_schemes import Tokens
from bert_jax.tasks.pretraining import builder
from bert_jax.training.run import Hooks, Paused
from tests.end_to_end import small

VOCABULARY = Vocabulary(4, 0, (0, 1, 2, 3, 4), np.ones(20, int))
ADAPTIVE = small.ONE_STAGE | {
    'masking__scheme': 'adaptive',
    'masking__adapt_every': 2,
    'masking__end_rate': 0.1,
    'training__steps': (5,),
    'evaluation__every_steps': 100,
    'evaluation__cloze_examples': 0,
    'logging__every_steps': 1,
    'schedule__learning_rate': 0.02,
}


def masked_text(scheme, end_rate=None):
    return MaskedText(VOCABULARY, scheme, {8: 4}, end_rate=end_rate)


def test_weights_equal_a_loop_over_the_vocabulary():
    scheme = AdaptiveTokens(0.4, per_sequence=True, adapt_every=2)
    memory = MaskingMemory.of(masked_text(scheme, end_rate=0.1), lambda *_: None)
    rng = np.random.default_rng(0)
    state, weights = memory.init(), [0.4] * 20
    correct, hidden = [0] * 20, [0] * 20
    for step in range(1, 8):
        hidden_V = rng.integers(0, 40, 20) * (np.arange(20) != 7)  # token 7 is never hidden
        correct_V = rng.integers(0, hidden_V + 1)
        correct_V[3] = hidden_V[3]
        term = Term(jnp.float32(correct_V), jnp.float32(hidden_V))
        terms = {'mlm_loss': Term(1.0, 2.0), 'mlm_accuracy_by_token': term}
        progress = (step - 1) / 10
        state, rest = memory.update(state, terms, progress, step)
        assert rest == {'mlm_loss': Term(1.0, 2.0)}
        for token in range(20):
            correct[token] += correct_V[token]
            hidden[token] += hidden_V[token]
        if step % 2 == 0:
            rate = 0.4 - 0.3 * progress
            for token in range(20):
                accuracy = (correct[token] + 0.5) / (hidden[token] + 1)
                new = 0.2 * weights[token] + 0.8 * (rate - accuracy * rate)
                weights[token] = max(new, 0.005)
            total = sum(weights)
            weights = [rate * 20 * weight / total for weight in weights]
            correct, hidden = [0] * 20, [0] * 20
        np.testing.assert_allclose(state.weights_V, weights, rtol=1e-5)
        np.testing.assert_array_equal(state.correct_V, correct)
        np.testing.assert_array_equal(state.hidden_V, hidden)
    assert weights[3] < min(weights[token] for token in range(20) if token != 3)


def test_a_learned_token_is_masked_in_proportion_to_its_weight_and_the_rate_stays():
    ids = np.tile(np.int32([2, 6, 6, 7, 8, 9, 3, 0]), (10_000, 1))
    rows, keys = Rows(ids, (ids > 0).astype(np.int32)), jax.random.split(jax.random.key(0), 10_000)
    weights_V = jnp.full(20, 0.3).at[6].set(0.005).at[7].set(0.6)

    def chosen(weights_V, rate):
        scheme = AdaptiveTokens(rate, per_sequence=True, adapt_every=2, weights_V=weights_V)
        targets = jax.jit(masked_text(scheme))(keys, rows).chosen
        is_chosen = np.asarray(targets.weights_BP) > 0
        assert is_chosen.sum() == len(ids) * max(1, round(rate * 7))
        return np.bincount(np.asarray(targets.positions_BP)[is_chosen], minlength=8) / len(ids)

    expected = np.array([0, 0.005, 0.005, 0.6, 0.3, 0.3, 0, 0]) / 1.21
    np.testing.assert_allclose(chosen(weights_V, 0.15), expected, atol=0.02)
    assert chosen(weights_V, 0.4)[1] < 0.05  # 3 of 5 tokens; 0.6 without weights


@pytest.mark.parametrize('weights_V', [None, jnp.full(20, 0.15)])
def test_equal_weights_choose_the_same_tokens_as_the_scheme_tokens(weights_V):
    ids = np.random.default_rng(0).integers(5, 20, (500, 8)).astype(np.int32)
    rows, keys = Rows(ids, np.ones_like(ids)), jax.random.split(jax.random.key(0), 500)
    adaptive = AdaptiveTokens(0.4, per_sequence=True, adapt_every=2, weights_V=weights_V)
    found, expected = (
        masked_text(scheme)(keys, rows) for scheme in (adaptive, Tokens(0.4, per_sequence=True))
    )
    np.testing.assert_array_equal(found.input_ids_BT, expected.input_ids_BT)


@pytest.fixture(scope='module')
def whole(tmp_path_factory):
    folder = tmp_path_factory.mktemp('whole')
    main.run(small.config(folder, **ADAPTIVE))
    return folder


def final_arrays(folder):
    return tree_paths.flatten(checkpoint_arrays.load(folder / 'run').state)


def test_a_run_learns_weights_and_resumes_bit_for_bit(whole, tmp_path):
    arrays = final_arrays(whole)
    assert np.ptp(arrays['memory/weights_V']) > 0.01
    records = [json.loads(line) for line in (whole / 'run/metrics.jsonl').open()]
    (last,) = [one for one in records if one['kind'] == 'train' and one['step'] == 5]
    assert 0 < arrays['memory/hidden_V'].sum() <= 16 * 3  # of one step after the second update
    assert arrays['memory/correct_V'].sum() / arrays['memory/hidden_V'].sum() == pytest.approx(
        last['mlm_accuracy'], abs=1e-3
    )
    config = small.config(tmp_path, **ADAPTIVE)
    with pytest.raises(Paused):
        main.run(config, hooks=Hooks(pause_at=3))
    main.run(config)
    found = final_arrays(tmp_path)
    assert found.keys() == arrays.keys()
    for name in arrays:
        np.testing.assert_array_equal(found[name], arrays[name], err_msg=name)


@pytest.mark.slow  # so does multidevice/test_adaptive_masking.py
def test_micro_batches_count_and_mask_the_same(whole, tmp_path):
    main.run(small.config(tmp_path, **ADAPTIVE | {'training__accumulation': (4,)}))
    expected, found = final_arrays(whole), final_arrays(tmp_path)
    for name in ('hidden_V', 'correct_V', 'weights_V'):
        name = f'memory/{name}'
        np.testing.assert_allclose(found[name], expected[name], atol=1e-6, err_msg=name)


def test_only_training_masks_by_weight_and_other_runs_remember_nothing(tmp_path):
    tokens = ADAPTIVE | {'masking__scheme': 'tokens'}
    tokens.pop('masking__adapt_every')
    adaptive, plain = (
        builder.build(small.config(tmp_path, **changes)) for changes in (ADAPTIVE, tokens)
    )
    assert plain.memory is None
    assert adaptive.memory is not None
    clean = Rows.of(adaptive.stages[0].source.batch(0))
    keys = jax.random.split(jax.random.key(0), 16)
    uniform = adaptive.corruption(keys, clean)
    np.testing.assert_array_equal(uniform.input_ids_BT, plain.corruption(keys, clean).input_ids_BT)
    often = np.bincount(uniform.targets.ids_BP[uniform.targets.weights_BP > 0]).argmax()
    state = adaptive.memory.init()
    learned = state._replace(weights_V=state.weights_V.at[often].set(0.005))
    found = adaptive.memory.recall(learned).corruption(keys, clean).targets
    number = (uniform.targets.ids_BP == often).sum()
    assert (found.ids_BP[found.weights_BP > 0] == often).sum() < number / 2


@pytest.mark.parametrize(
    ('changes', 'message'),
    [
        ({'objectives__mlm': 0.0}, "'adaptive' needs the objective 'mlm', but the run has nsp"),
        ({'debug__batch': 3}, r'debug.batch is 3, but .* up to masking.adapt_every, 2'),
    ],
)
def test_runs_that_cannot_adapt_are_refused(tmp_path, changes, message):
    with pytest.raises(UserError, match=message):
        builder.build(small.config(tmp_path, **ADAPTIVE | changes))
