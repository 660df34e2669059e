"""Training that starts from the weights of another model (init_from)."""

import json
import re

import numpy as np
import pytest

from bert_jax import main, tree_paths
from bert_jax.errors import UserError
from bert_jax.interop import loading
from bert_jax.models.tuning_method import ADDED
from bert_jax.tasks import initialization
from bert_jax.tasks.pretraining import builder
from tests.end_to_end import small


@pytest.fixture(scope='module')
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp('first')
    main.run(small.config(folder, **small.ONE_STAGE))
    return folder


def continue_in(folder, name, **changes):
    """Train a run with a learning rate of almost zero from the weights of the first."""
    start = {
        'init_from': f'{folder}/run',
        'workdir': f'{folder}/{name}',
        'schedule__learning_rate': 1e-30,
    }
    main.run(small.config(folder, **small.ONE_STAGE | start | changes))


def parameters(run):
    return tree_paths.flatten(loading.load_any(run).params)


def test_a_run_with_stacked_layers_starts_from_all_parameters(folder, capfd):
    continue_in(folder, 'same', compute__scan_layers=True)
    stderr = capfd.readouterr().err
    assert f'weights of {folder}/run' in stderr
    before, after = parameters(folder / 'run'), parameters(folder / 'same')
    assert before.keys() == after.keys()
    for name in before:
        np.testing.assert_allclose(after[name], before[name], rtol=0, atol=1e-20)
    card = (folder / 'same/README.md').read_text()
    assert f'| initialized from | {folder}/run |' in card


@pytest.mark.slow  # interop/test_surgery.py fits weights; the other tests here start runs
def test_stacked_layers_another_vocabulary_more_positions_and_fewer_heads(folder, capfd):
    continue_in(
        folder,
        'other',
        compute__scan_layers=True,
        data__corpus=f'{folder}/other_corpus',
        data__tokenizer='train:wordpiece:60',
        model__max_position_embeddings=40,
        model__hidden_dropout=0.2,
        objectives__nsp=0.0,
    )
    stderr = capfd.readouterr().err
    assert 'attention kernel xla' in stderr
    assert 'positions: 32 → 40 (tile)' in stderr
    assert 'tokens keep their embedding' in stderr
    assert stderr.count('dropped heads: nsp (') == 1
    before, after = parameters(folder / 'run'), parameters(folder / 'other')
    name = 'encoder/layers_0/attention/query/kernel'
    np.testing.assert_allclose(after[name], before[name], rtol=0, atol=1e-20)
    positions = after['encoder/embeddings/position']
    old_positions = before['encoder/embeddings/position']
    np.testing.assert_allclose(positions[32:], old_positions[:8], rtol=0, atol=1e-20)
    assert json.loads((folder / 'other/config.json').read_text())['init_from'] == f'{folder}/run'


def test_masked_diffusion_starts_from_the_head_of_masked_language_modeling(folder):
    changes = {
        'init_from': f'{folder}/run',
        'data__segments': 'single',
        'objectives__mlm': 0.0,
        'objectives__nsp': 0.0,
        'objectives__diffusion': 1.0,
        'training__max_predictions': (16,),
    }
    start = builder.build(small.config(folder, **small.ONE_STAGE | changes)).start
    before = parameters(folder / 'run')
    head = [name for name in before if name.startswith('mlm/')]
    assert len(head) == 5
    for name in head:
        np.testing.assert_array_equal(start.params[name], before[name], err_msg=name)
    (dropped,) = [line for line in start.lines if 'dropped' in line]
    assert dropped.startswith('dropped heads: nsp (')


def test_a_head_of_pairs_that_reads_other_states_is_newly_initialized(folder):
    changes = {'init_from': f'{folder}/run', 'model__pair_pooling': 'first'}
    config = small.config(folder, **changes)
    model = initialization.load_weights(config)
    start = initialization.initialize(config, model, model.tokenizer, ('mlm', 'nsp'))
    assert start.architecture.pair_pooling == 'first'
    assert 'mlm/head/bias' in start.params
    assert not any(name.startswith('nsp/') for name in start.params)
    assert 'dropped heads: nsp (it was trained on other states)' in start.lines


def test_reinit_layers_drops_the_last_layer_and_the_pooler(folder):
    tokenizer = loading.load_any(folder / 'run').tokenizer

    def initialize(**changes):
        config = small.config(folder, **{'init_from': f'{folder}/run'} | changes)
        model = initialization.load_weights(config)
        return initialization.initialize(config, model, tokenizer, ('mlm', 'nsp'))

    whole, partial = initialize(), initialize(transfer__reinit_layers=1)
    names = {name for name in whole.params if re.match('encoder/(layers_0|pooler)/', name)}
    assert len(names) > 10
    assert partial.params.keys() == whole.params.keys() - names
    assert [line for line in partial.lines if line not in whole.lines] == [
        'newly initialized: layers_0, pooler'
    ]
    for changes, message in (
        (dict(transfer__reinit_layers=2), 'reinit_layers is 2, but there are 1 layers'),
        (dict(transfer__reinit_layers=-1), 'reinit_layers is -1'),
        (dict(transfer__reinit_layers=1, compute__scan_layers=True), 'there are 0 layers'),
        (
            dict(transfer__reinit_layers=1, init_from=''),
            'reinit_layers is 1, but without init_from',
        ),
    ):
        with pytest.raises(UserError, match=message):
            initialize(**changes)


@pytest.mark.slow  # test_tuning.py trains added parameters; multidevice, in pretraining
def test_pretraining_continues_with_adapters(folder):
    """In stacked layers; the frozen parameters stay bitwise as they are."""
    changes = {'transfer__method': 'pfeiffer', 'schedule__learning_rate': 0.01}
    continue_in(folder, 'adapters', compute__scan_layers=True, **changes)
    before, after = parameters(folder / 'run'), parameters(folder / 'adapters')
    frozen = [name for name in before if name.startswith('encoder/embeddings')]
    assert frozen
    for name in frozen:
        np.testing.assert_array_equal(after[name], before[name], err_msg=name)
    added = [name for name in after if ADDED in name.split('/')]
    assert added
    assert all(np.any(after[name] != 0) for name in added)


@pytest.mark.parametrize(
    ('changes', 'message'),
    [
        ({'model__hidden_size': 48}, 'hidden_size is 32 there and 48 here'),
        ({'model__architecture': 'roberta_base'}, 'is a bert model'),
        ({'init_from': '/nowhere'}, "no folder '/nowhere'"),
        ({'init_positions': 'repeat'}, "unknown init_positions 'repeat'; known: interpolate, tile"),
    ],
)
def test_weights_that_do_not_fit_are_refused(folder, changes, message):
    with pytest.raises(UserError, match=message):
        continue_in(folder, 'refused', **changes)
    assert not (folder / 'refused/checkpoints').exists()
