"""Checkpoints as google-research/bert writes them."""

import json
import re
import shutil

import numpy as np

from bert_jax import tensorflow_import
from tests.interop import published


def _name(name: str) -> str:
    name = re.sub(r'layer\.(\d+)', r'layer_\1', name)
    name = re.sub(r'LayerNorm\.weight$', 'LayerNorm.gamma', name)
    name = re.sub(r'LayerNorm\.bias$', 'LayerNorm.beta', name)
    name = re.sub(r'_embeddings\.weight$', '_embeddings', name)
    name = re.sub(r'seq_relationship\.weight$', 'seq_relationship.output_weights', name)
    name = re.sub(r'(seq_relationship|predictions)\.bias$', r'\1.output_bias', name)
    # Heads of run_classifier.py and run_squad.py.
    name = re.sub(r'^classifier\.(weight|bias)$', r'output_\1', name)
    name = re.sub(r'^qa_outputs\.(weight|bias)$', r'cls.squad.output_\1', name)
    name = re.sub(r'output_weight$', 'output_weights', name)
    return re.sub(r'\.weight$', '.kernel', name).replace('.', '/')


def folder(
    path,
    published_class='BertForPreTraining',
    checkpoint='bert_model.ckpt',
    slots=('adam_m',),
    **changes,
):
    """Write a folder with the weights and the vocabulary of `published.folder`; return it.

    Args:
        checkpoint: its name.
        slots: names of the optimizer's variables for each weight.
        changes: of the config of `published.folder`.
    """
    theirs = published.folder(path.with_name(f'{path.name}_source'), published_class, **changes)
    path.mkdir()
    shutil.copy(theirs / 'vocab.txt', path)
    config = json.loads((theirs / 'config.json').read_text())
    sizes = {name: config[name] for name in published.SIZES}
    (path / 'bert_config.json').write_text(json.dumps(sizes | {'hidden_act': 'gelu'}))
    tensorflow = tensorflow_import.tensorflow()
    with tensorflow.Graph().as_default():
        variables = {'global_step': np.int64(3)}
        for name, value in published.model(published_class, **changes).named_parameters():
            value = value.detach().numpy()
            short = _name(name)
            variables[short] = value.T if short.endswith('/kernel') else value
            variables |= {f'{short}/{slot}': variables[short] for slot in slots}
        made = {
            name: tensorflow.compat.v1.get_variable(name, initializer=value)
            for name, value in variables.items()
        }
        saver = tensorflow.compat.v1.train.Saver(made)
        state = checkpoint != 'bert_model.ckpt'  # run_classifier.py writes the file `checkpoint`
        with tensorflow.compat.v1.Session() as session:
            session.run(tensorflow.compat.v1.global_variables_initializer())
            name = str(path / checkpoint)
            saver.save(session, name, write_meta_graph=False, write_state=state)
    return path
