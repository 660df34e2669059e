"""Loading: checkpoints of google-research/bert, made by the test, and older ones of bert_jax."""

import json
import re
import shutil

import jax
import numpy as np
import pytest

from bert_jax import tree_paths
from bert_jax.data import tensorflow_import
from bert_jax.errors import UserError
from bert_jax.interop import huggingface, loading
from bert_jax.training import checkpoints
from tests.interop import published


def original_name(name: str) -> str:
    name = re.sub(r'layer\.(\d+)', r'layer_\1', name)
    name = re.sub(r'LayerNorm\.weight$', 'LayerNorm.gamma', name)
    name = re.sub(r'LayerNorm\.bias$', 'LayerNorm.beta', name)
    name = re.sub(r'_embeddings\.weight$', '_embeddings', name)
    name = re.sub(r'seq_relationship\.weight$', 'seq_relationship.output_weights', name)
    name = re.sub(r'(seq_relationship|predictions)\.bias$', r'\1.output_bias', name)
    return re.sub(r'\.weight$', '.kernel', name).replace('.', '/')


@pytest.fixture(scope='module')
def folders(tmp_path_factory):
    """Folders of transformers and of the original code with the same weights."""
    top = tmp_path_factory.mktemp('tf1')
    theirs = published.folder(top / 'theirs')
    original = top / 'original'
    original.mkdir()
    shutil.copy(theirs / 'vocab.txt', original)
    config = json.loads((theirs / 'config.json').read_text())
    sizes = {name: config[name] for name in published.SIZES}
    (original / 'bert_config.json').write_text(json.dumps(sizes | {'hidden_act': 'gelu'}))
    tensorflow = tensorflow_import.tensorflow()
    with tensorflow.Graph().as_default():
        variables = {'global_step': np.int64(3)}
        for name, value in published.model().named_parameters():
            value = value.detach().numpy()
            short = original_name(name)
            variables[short] = value.T if short.endswith('/kernel') else value
            variables[f'{short}/adam_m'] = variables[short]
        made = {
            name: tensorflow.compat.v1.get_variable(name, initializer=value)
            for name, value in variables.items()
        }
        saver = tensorflow.compat.v1.train.Saver(made)
        with tensorflow.compat.v1.Session() as session:
            session.run(tensorflow.compat.v1.global_variables_initializer())
            saver.save(session, str(original / 'bert_model.ckpt'), write_meta_graph=False)
    return theirs, original


def test_an_original_checkpoint_gives_the_parameters_of_transformers(folders):
    theirs, original = folders
    expected, loaded = huggingface.load(theirs), loading.load_any(original)
    assert loaded.architecture == expected.architecture
    theirs_json, original_json = (
        json.loads(model.tokenizer.to_json()) for model in (expected, loaded)
    )
    # The original code splits longer words than transformers.
    assert theirs_json['model'].pop('max_input_chars_per_word') == 100
    assert original_json['model'].pop('max_input_chars_per_word') == 200
    assert original_json == theirs_json
    loaded, expected = (tree_paths.flatten(model.params) for model in (loaded, expected))
    assert loaded.keys() == expected.keys()
    for name in expected:
        np.testing.assert_array_equal(loaded[name], expected[name], err_msg=name)


def test_a_damaged_original_checkpoint_is_reported_in_one_line(folders, tmp_path):
    path = shutil.copytree(folders[1], tmp_path / 'original')
    (path / 'bert_model.ckpt.index').unlink()
    with pytest.raises(UserError, match='bert_model.ckpt cannot be read') as caught:
        loading.load_any(path)
    assert '\n' not in str(caught.value)
    (path / 'bert_config.json').write_text('{')
    with pytest.raises(UserError, match='bert_config.json'):
        loading.load_any(path)


OLDER_HEADS = {
    'sequence': 'sequence_classification',
    'token': 'token_classification',
    'span': 'question_answering',
    'choice': 'multiple_choice',
}


@pytest.mark.parametrize('older', OLDER_HEADS)
def test_heads_are_found_under_their_older_names(older, tmp_path):
    def state(head):
        kernel = np.arange(6, dtype=np.float32).reshape(2, 3)
        params = {
            'encoder': {'embeddings': {'token': kernel + 1}},
            head: {'head': {'bias': kernel}},
        }
        return {'params': params, 'opt_state': ({'mu': {head: {'head': {'bias': 2 * kernel}}}},)}

    with_checkpoints = checkpoints.Checkpoints(tmp_path, keep=1)
    with_checkpoints.save(7, jax.tree.map(jax.numpy.asarray, state(older)), {})
    expected = state(OLDER_HEADS[older])
    place = jax.sharding.SingleDeviceSharding(jax.devices()[0])
    abstract = jax.tree.map(
        lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=place), expected
    )
    resumed = with_checkpoints.restore(abstract)
    with_checkpoints.close()
    assert resumed.step == 7
    jax.tree.map(np.testing.assert_array_equal, resumed.state, expected)
    loaded = checkpoints.load(tmp_path, 'params').state['params']
    jax.tree.map(np.testing.assert_array_equal, loaded, expected['params'])
