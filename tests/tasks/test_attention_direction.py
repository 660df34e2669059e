"""Models are fine-tuned as they were pretrained: causal models stay causal."""

import dataclasses
import json

import jax.numpy as jnp
import numpy as np
import pytest

import bert_jax
from bert_jax import main, tokenizers
from bert_jax.errors import UserError
from bert_jax.interop import huggingface_export
from bert_jax.models.rows import segment_starts
from bert_jax.problems import PROBLEMS
from bert_jax.tasks import make_task
from configs import finetune
from configs.finetune_tasks import TASKS
from tests.inference import small_gpt2
from tests.random_parameters import random_parameters

TEXT = 'The small ship and the old harbour near the sea. Anna said a red tram is on the bridge!'
# A sample of each problem that a causal model can learn.
SAMPLES = {
    TASKS[name]['kind']: name
    for name in TASKS
    if name.startswith('sample_') and name not in ('sample_pairs', 'sample_pos')
} | {'reranking': 'reranking', 'late_interaction': 'late_interaction'}
READ_MASKS = {'prompt', 'prompt_regression', 'sparse_embedding'}  # they need the head mlm
KEPT, CHANGED = 1e-5, 1e-3  # differences of states


@pytest.fixture(scope='module')
def causal(tmp_path_factory):
    """A folder of a small GPT-2 with random weights, and a tokenizer with [CLS] and [SEP]."""
    folder = tmp_path_factory.mktemp('causal')
    tokenizer = tokenizers.train('wordpiece:200', iter([TEXT] * 3), True)
    huggingface_export.save(small_gpt2.make('gpt2', tokenizer), folder / 'model')
    return folder / 'model'


@pytest.fixture(scope='module')
def bidirectional(tmp_path_factory):
    """The same architecture, trained for a step without init_from."""
    folder = tmp_path_factory.mktemp('bidirectional')
    changes = {
        'data.tokenizer': 'train:wordpiece:200',
        'model.architecture': 'gpt2',
        'model.hidden_size': 16,
        'model.num_layers': 1,
        'model.num_heads': 2,
        'model.max_position_embeddings': 64,
    }
    main.run(config_of('classification', folder, '', **changes))
    return folder / 'run'


def config_of(kind: str, folder, weights, **changes):
    config = finetune.get_config(SAMPLES[kind]).unlock()
    config.update(init_from=str(weights), workdir=str(folder / 'run'))
    config.update_from_flattened_dict({'training.epochs': 0.0, 'training.steps': 1} | changes)
    if kind in ('reranking', 'late_interaction'):
        (folder / 'train.tsv').write_text(
            'query\tyes\tno\n'
            + 'the old ship of Anna\tthe ship near the sea\ta red tram is on it\n' * 4
        )
        columns = {'texts': ('query', 'yes', 'no'), 'label': ''}
        train = (str(folder / 'train.tsv'),)
        config.data.update(train=train, dev=train, format='tsv', dev_fraction=0.0, columns=columns)
    return config.lock()


def changes_of_states(task):
    """The largest change of the states of early and of late tokens, when late tokens change."""
    batch = {name: jnp.asarray(array[:2]) for name, array in task.source.batch(0).items()}
    encoder = task.model.model.with_heads()
    model = dataclasses.replace(task.model, model=encoder)
    params = random_parameters(encoder, model.rows(batch), deviation=0.5)
    starts_BT = np.asarray(segment_starts(batch['segment_ids']))
    is_late_BT = np.arange(starts_BT.shape[1]) - starts_BT >= 4
    other_ids = jnp.where(is_late_BT, (batch['input_ids'] + 7) % 150, batch['input_ids'])
    before_BTD, after_BTD = (
        encoder.apply({'params': params}, model.rows({**batch, 'input_ids': ids})).states.hidden_BTD
        for ids in (batch['input_ids'], other_ids)
    )
    change_BT = np.abs(np.asarray(after_BTD - before_BTD)).max(-1)
    is_token_BT = np.asarray(batch['attention_mask']) > 0
    return change_BT[is_token_BT & ~is_late_BT].max(), change_BT[is_token_BT & is_late_BT].min()


def test_every_problem_that_a_causal_model_can_learn_has_a_sample():
    assert PROBLEMS.keys() == SAMPLES.keys() | READ_MASKS


@pytest.mark.parametrize('kind', SAMPLES)
def test_states_of_a_causal_model_do_not_change_with_later_tokens(kind, causal, tmp_path):
    task = make_task(config_of(kind, tmp_path, causal))
    assert task.record.is_causal
    assert 'attention: from left to right, as pretrained' in task.describe()
    early, late = changes_of_states(task)
    assert early < KEPT
    assert late > CHANGED


def test_a_causal_model_attends_in_both_directions_on_request(causal, tmp_path):
    task = make_task(config_of('tagging', tmp_path, causal, init_attention='both'))
    assert not task.record.is_causal
    assert "attention: in both directions (init_attention='both')" in task.describe()
    assert any('were trained left to right; here' in line for line in task.start.lines)
    assert changes_of_states(task)[0] > CHANGED


def test_the_last_token_of_each_packed_text_is_read(causal, tmp_path):
    task = make_task(config_of('classification', tmp_path, causal))
    assert task.architecture.pooling == 'last'
    batch = {name: jnp.asarray(array[:2]) for name, array in task.source.batch(0).items()}
    first_BS = np.asarray(batch['first_positions'])
    assert (first_BS >= 0).sum(1).min() > 1  # rows hold several texts
    model = task.model
    params = random_parameters(model.model, model.rows(batch), deviation=0.5)
    packed_BSC = model.outputs(params, batch)['logits']
    ids_BT, segment_BT = np.asarray(batch['input_ids']), np.asarray(batch['segment_ids'])
    places = np.argwhere(first_BS >= 0)
    for row, slot in (places[0], places[1], places[-1]):  # each length is compiled
        own_T = ids_BT[row][segment_BT[row] == segment_BT[row, first_BS[row, slot]]]
        own_T = own_T[: np.flatnonzero(own_T == task.problem.encoding.tokenizer.sep_id)[-1] + 1]
        alone = {'input_ids': own_T[None], 'attention_mask': np.ones_like(own_T)[None]}
        alone |= {
            'segment_ids': np.ones_like(own_T)[None],
            'first_positions': np.zeros((1, 1), int),
        }
        states_TD = model.model.apply({'params': params}, model.rows(alone)).states.hidden_BTD[0]
        kernel_DC = params['sequence_classification']['head']['output']['kernel']
        expected_C = np.asarray(states_TD[-1] @ kernel_DC)
        np.testing.assert_allclose(packed_BSC[row, slot], expected_C, atol=1e-4)


def test_log_card_and_results_say_the_direction(causal, tmp_path):
    main.run(config_of('classification', tmp_path, causal))
    results = json.loads((tmp_path / 'run/results.json').read_text())
    assert results['attention'] == 'from left to right'
    assert '| attention | from left to right |' in (tmp_path / 'run/README.md').read_text()
    record = bert_jax.load(str(tmp_path / 'run')).classify(['The small ship.'])[0]
    assert record['predicted'] in ('positive', 'negative')


@pytest.mark.parametrize(
    ('kind', 'changes', 'message'),
    [
        ('classification', {'problem.pooling': 'first'}, 'first token, which has seen no other'),
        ('embedding', {'problem.text_pooling': 'cls'}, 'first token, which has seen no other'),
        ('classification', {'init_attention': 'causal', 'problem.pooling': 'mean'}, ''),
    ],
)
def test_poolings_of_a_causal_model(kind, changes, message, causal, tmp_path):
    config = config_of(kind, tmp_path, causal, **changes)
    if not message:
        assert make_task(config).architecture.pooling == 'mean'
        return
    with pytest.raises(UserError, match=message):
        make_task(config)


def test_vectors_of_a_causal_model_are_states_of_the_last_token(causal, tmp_path):
    task = make_task(config_of('embedding', tmp_path, causal))
    assert task.problem.loss.heads() == {'embedding': {'pooling': 'lasttoken'}}
    model = bert_jax.load(str(causal))
    (tokens_TD,) = model.embed(['The small ship.'], 'tokens')
    (vector_D,) = model.embed(['The small ship.'], 'lasttoken')
    np.testing.assert_allclose(vector_D, tokens_TD[-1], atol=1e-6)
    with pytest.raises(UserError, match="pooling is 'cls', but .* is causal"):
        model.embed(['The small ship.'], 'cls')


def test_a_direction_that_a_model_does_not_have_is_refused(bidirectional, tmp_path):
    for chosen, message in (('both', 'both directions already'), ('causal', 'has not learned')):
        config = config_of('classification', tmp_path, bidirectional, init_attention=chosen)
        with pytest.raises(UserError, match=message):
            make_task(config)


@pytest.mark.parametrize('method', ['lora', 'prefix', 'prompt'])
def test_tuned_causal_models_stay_causal(method, causal, tmp_path):
    task = make_task(config_of('classification', tmp_path, causal, **{'transfer.method': method}))
    early, late = changes_of_states(task)
    assert early < KEPT
    assert late > CHANGED
