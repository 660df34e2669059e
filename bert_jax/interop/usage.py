"""How a trained model is to be used, kept in a file of exported folders that transformers ignores.

config.json has no place for how text was split into words, the length of training sequences or
tuned thresholds, without which an exported model would predict otherwise than the run.
"""

import json
import pathlib
from typing import Any

from bert_jax import files
from bert_jax.interop.pretrained import Pretrained

FILE = 'bert_jax.json'
# Of the metadata of checkpoints. 'task' is not among them: an exported model answers what its
# heads can answer.
_KEYS = ('words', 'texts', 'calibrated', 'kept')
_PATHS = ('train', 'dev', 'test', 'data_dir')


def write(model: Pretrained, folder: pathlib.Path) -> None:
    """Write the file, unless the model has no metadata."""
    if not model.metadata:
        return
    config = model.metadata.get('config', {})
    kept = {'objectives': config.get('objectives', {})}
    if 'problem' in config:
        # A part of the model that is dropped must not be used: the setting 'crf' without a CRF.
        problem = {k: value for k, value in config['problem'].items() if k not in model.other_parts}
        problem['labels'] = list(model.labels)  # config.json names those of classifiers only
        data = {k: value for k, value in config.get('data', {}).items() if k not in _PATHS}
        kept |= {'problem': problem, 'data': data, 'training': config.get('training', {})}
    usage = {key: model.metadata[key] for key in _KEYS if key in model.metadata}
    if model.architecture.tuning is not None:  # elsewhere config.json names the classes
        usage['labels'] = model.labels
    text = json.dumps(usage | {'config': kept}, indent=2, ensure_ascii=False)
    (folder / FILE).write_text(text + '\n', encoding='utf-8')


def read(folder: pathlib.Path) -> dict[str, Any]:
    """Return the metadata in the file of a folder; {} without a file.

    Raises:
        UserError: the file is not a JSON object.
    """
    return files.read_json(folder / FILE, default={})
