"""bert_jax.json in exported folders: prediction settings that config.json cannot hold.

They include word splitting, the length of training sequences and tuned thresholds, without which an
exported model would predict differently from the run. transformers ignores the file.
"""

import pathlib

from bert_jax import files
from bert_jax.interop.pretrained import Pretrained
from bert_jax.types import JsonObject

FILE = 'bert_jax.json'
_KEYS = ('texts', 'calibrated', 'kept')  # of the metadata of a checkpoint
_PATH_KEYS = ('train', 'dev', 'test', 'data_dir', 'contexts')  # of config.data; not written


def write(model: Pretrained, folder: pathlib.Path) -> None:
    """Write the file, unless the model has no metadata."""
    if not model.metadata:
        return
    config = model.metadata.get('config', {})
    settings = {'objectives': config.get('objectives', {})}
    if 'problem' in config:
        # Parts such as a CRF are not exported, so the settings that ask for them are dropped.
        problem = {k: value for k, value in config['problem'].items() if k not in model.other_parts}
        problem['labels'] = list(model.labels)  # config.json has the labels of classifiers only
        data = {k: value for k, value in config.get('data', {}).items() if k not in _PATH_KEYS}
        settings |= {'problem': problem, 'data': data, 'training': config.get('training', {})}
    usage = {key: model.metadata[key] for key in _KEYS if key in model.metadata}
    if 'problem' in config and model.heads:  # without heads the exported model cannot answer
        usage['task'] = model.metadata['task']
    if model.architecture.tuning is not None:  # a peft folder has no config.json
        usage |= {
            'labels': model.labels,
            'heads': model.heads,
            'problem_type': model.problem_type,
        }
    files.write_json(folder / FILE, usage | {'config': settings})


def read(folder: pathlib.Path) -> JsonObject:
    """Return the metadata in the bert_jax.json of a folder; {} if there is no such file.

    Raises:
        UserError: the file is not a JSON object.
    """
    usage: JsonObject = files.read_json(folder / FILE, default={})
    return usage
