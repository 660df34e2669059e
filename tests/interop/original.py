"""Checkpoints as google-research/bert writes them."""

import json
import re
import shutil

import numpy as np

from bert_jax.data import tensorflow_import
from tests.interop import published


def _name(name: str) -> str:
    name = re.sub(r'layer\.(\d+)', r'layer_\1', name)
    name = re.sub(r'LayerNorm\.weight$', 'LayerNorm.gamma', name)
    name = re.sub(r'LayerNorm\.bias$', 'LayerNorm.beta', name)
    name = re.sub(r'_embeddings\.weight$', '_embeddings', name)
    name = re.sub(r'seq_relationship\.weight$', 'seq_relationship.output_weights', name)
    name = re.sub(r'(seq_relationship|predictions)\.bias$', r'\1.output_bias', name)
    return re.sub(r'\.weight$', '.kernel', name).replace('.', '/')


def folder(path):
    """Write a folder with the weights and the vocabulary of `published.folder`; return it."""
    theirs = published.folder(path.with_name(f'{path.name}_source'))
    path.mkdir()
    shutil.copy(theirs / 'vocab.txt', path)
    config = json.loads((theirs / 'config.json').read_text())
    sizes = {name: config[name] for name in published.SIZES}
    (path / 'bert_config.json').write_text(json.dumps(sizes | {'hidden_act': 'gelu'}))
    tensorflow = tensorflow_import.tensorflow()
    with tensorflow.Graph().as_default():
        variables = {'global_step': np.int64(3)}
        for name, value in published.model().named_parameters():
            value = value.detach().numpy()
            short = _name(name)
            variables[short] = value.T if short.endswith('/kernel') else value
            variables[f'{short}/adam_m'] = variables[short]
        made = {
            name: tensorflow.compat.v1.get_variable(name, initializer=value)
            for name, value in variables.items()
        }
        saver = tensorflow.compat.v1.train.Saver(made)
        with tensorflow.compat.v1.Session() as session:
            session.run(tensorflow.compat.v1.global_variables_initializer())
            saver.save(session, str(path / 'bert_model.ckpt'), write_meta_graph=False)
    return path
