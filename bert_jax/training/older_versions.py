"""Translates the names, config keys and values stored by earlier versions."""

import re

from flax import traverse_util

TASKS = {'choice': 'multiple_choice'}  # older name of a task → current name
# Older name of a head in the parameters → current name.
HEADS = {
    'sequence': 'sequence_classification',
    'token': 'token_classification',
    'span': 'question_answering',
    'choice': 'multiple_choice',
}
# Prefix of older config keys → current prefix; the first match counts.
KEYS = {'training.max_length': 'training.sequence_length', 'stages.': 'training.'}
# Removed config key → the value that is now the only behavior: runs with this value can resume.
REMOVED_KEYS = {'masking.last_span': 'cut'}
# Added config key → the behavior of runs from before it existed, whatever the default is.
ADDED_KEYS = {
    'masking.unknown': False,
    'masking.word_starts': 'marks',
    'masking.unspaced': 'refuse',
    'masking.per_sequence': False,
    'compute.float32_residual': False,
    'model.global_theta': None,
    'transfer.train_pooler': False,
}
# (key, value) whose meaning changed when another key was added → the added key.
CHANGED_VALUES = {('masking.scheme', 'ngrams'): 'masking.word_starts'}


def current_array(stored: str) -> str:
    """Return the current name of an array in a checkpoint."""
    for older, name in HEADS.items():
        stored = re.sub(rf'(^|/){older}/head/', rf'\1{name}/head/', stored)
    return stored


def current_key(key: str) -> str:
    """Return the current name of a config key, such as 'stages.steps'."""
    for older, name in KEYS.items():
        if key.startswith(older):
            return name + key.removeprefix(older)
    return key


def current_config(stored: dict) -> dict:
    """Return the config of a run with current keys and values."""
    config: dict = {key: value for key, value in ADDED_KEYS.items() if key.split('.')[0] in stored}
    flat = traverse_util.flatten_dict(stored, keep_empty_nodes=True, sep='.')
    for (key, value), added in CHANGED_VALUES.items():
        if flat.get(key) == value and added not in flat:
            flat[key] = f'{value} of an earlier version'
    for key, value in flat.items():
        if key not in REMOVED_KEYS or value != REMOVED_KEYS[key]:
            config[current_key(key)] = TASKS.get(value, value) if key == 'task' else value
    if config.get('init_from'):
        config['model.architecture'] = None  # the recipe's architecture was stored but not used
    return traverse_util.unflatten_dict(config, sep='.')


def current_metadata(stored: dict) -> dict:
    """Return the metadata of a checkpoint with current keys and values."""
    changes: dict = {}
    if 'task' in stored:
        changes['task'] = TASKS.get(stored['task'], stored['task'])
    if 'config' in stored:
        changes['config'] = current_config(stored['config'])
    return stored | changes
