"""Training that begins with the weights of another model, through the real command line."""

import json
import re

import numpy as np
import pytest

from bert_jax import tree_paths
from bert_jax.errors import UserError
from bert_jax.interop import loading
from bert_jax.tasks import initialization
from tests.end_to_end import small

STILL = '--config.schedule.learning_rate=1e-30'
FEW = ('--config.stages.steps=(2,1)', '--config.schedule.warmup_steps=1')


@pytest.fixture(scope='module')
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp('first')
    status, stderr = small.run(folder, *FEW)
    assert status == 0, stderr
    return folder


def goes_on(folder, name, *arguments, status=0):
    """stderr of a run that begins with the first one's weights, its folder being `name`."""
    arguments = (
        STILL,
        *FEW,
        f'--config.init_from={folder}/run',
        f'--config.workdir={folder}/{name}',
        *arguments,
    )
    found, stderr = small.run(folder, *arguments)
    assert found == status, stderr
    return stderr


def parameters(run):
    return tree_paths.flatten(loading.load_any(run).params)


def test_all_parameters_are_taken(folder):
    stderr = goes_on(folder, 'same')
    assert f'weights of {folder}/run' in stderr
    assert 'new, as initialized: nothing' in stderr
    before, after = parameters(folder / 'run'), parameters(folder / 'same')
    assert before.keys() == after.keys()
    for name in before:
        np.testing.assert_allclose(after[name], before[name], rtol=0, atol=1e-20)
    card = (folder / 'same/README.md').read_text()
    assert f'| initialized from | {folder}/run |' in card


def test_stacked_layers_another_vocabulary_more_positions_and_fewer_heads(folder):
    stderr = goes_on(
        folder,
        'other',
        '--config.compute.scan_layers=True',
        f'--config.data.corpus={folder}/other_corpus',
        '--config.data.tokenizer=train:wordpiece:60',
        '--config.model.max_position_embeddings=40',
        '--config.model.hidden_dropout=0.2',
        '--config.objectives.nsp=0.0',
    )
    assert 'positions: 32 → 40 (tile)' in stderr
    assert 'tokens keep their embedding' in stderr
    assert 'nsp/head/dense/kernel is dropped' in stderr
    before, after = parameters(folder / 'run'), parameters(folder / 'other')
    name = 'encoder/layers_0/attention/query/kernel'
    np.testing.assert_allclose(after[name], before[name], rtol=0, atol=1e-20)
    positions = after['encoder/embeddings/position']
    old_positions = before['encoder/embeddings/position']
    np.testing.assert_allclose(positions[32:], old_positions[:8], rtol=0, atol=1e-20)
    assert json.loads((folder / 'other/config.json').read_text())['init_from'] == f'{folder}/run'


def test_the_last_layer_and_the_pooler_begin_afresh(folder):
    tokenizer = loading.load_any(folder / 'run').tokenizer

    def begin(**changes):
        config = small.config(folder, **{'init_from': f'{folder}/run'} | changes)
        return initialization.begin(
            config, initialization.weights(config), tokenizer, ('mlm', 'nsp')
        )

    whole, begun = begin(), begin(transfer__reinit_layers=1)
    names = {name for name in whole.params if re.match('encoder/(layers_0|pooler)/', name)}
    assert len(names) > 10
    assert begun.params.keys() == whole.params.keys() - names
    assert [line for line in begun.lines if line not in whole.lines] == [
        'begun afresh: layers_0, pooler'
    ]
    for changes, message in (
        (dict(transfer__reinit_layers=2), 'reinit_layers is 2, but there are 1 layers'),
        (dict(transfer__reinit_layers=-1), 'reinit_layers is -1'),
        (dict(transfer__reinit_layers=1, compute__scan_layers=True), 'there are 0 layers'),
        (dict(transfer__reinit_layers=1, init_from=''), 'reinit_layers needs init_from'),
    ):
        with pytest.raises(UserError, match=message):
            begin(**changes)


@pytest.mark.parametrize(
    ('arguments', 'words'),
    [
        (('--config.model.hidden_size=48',), 'hidden_size is 32 there and 48 here'),
        (('--config.model.architecture=roberta_base',), 'is a bert model'),
        (('--config.init_from=/nowhere',), '/nowhere is not a folder of a model'),
        (('--config.init_positions=repeat',), 'tile'),
    ],
)
def test_what_does_not_fit_is_one_line(folder, arguments, words):
    stderr = goes_on(folder, 'refused', *arguments, status=2)
    assert words in stderr.splitlines()[-1]
    assert 'Traceback' not in stderr
    assert not (folder / 'refused/checkpoints').exists()
