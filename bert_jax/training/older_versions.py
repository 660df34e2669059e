"""What runs of earlier versions stored under other names, and how it is called today."""

import re

from flax import traverse_util

TASKS = {'choice': 'multiple_choice'}  # older name of a task → name
# Heads whose parameters older checkpoints name differently: older name → name.
HEADS = {
    'sequence': 'sequence_classification',
    'token': 'token_classification',
    'span': 'question_answering',
    'choice': 'multiple_choice',
}
# Prefix of older config keys → prefix. Of several, the first that matches.
KEYS = {'training.max_length': 'training.sequence_length', 'stages.': 'training.'}
# Keys that were removed → the value that is now the only behavior, so that those runs resume.
REMOVED_KEYS = {'masking.last_span': 'cut'}
# Keys that were added → what runs without them do, whatever the default is.
ADDED_KEYS = {
    'masking.unknown': False,
    'masking.word_starts': 'marks',
    'masking.unspaced': 'refuse',
    'masking.per_sequence': False,
    'compute.float32_residual': False,
    'model.global_theta': None,
}
# Values that meant something else before a key was added: (key, value) → that key.
CHANGED_VALUES = {('masking.scheme', 'ngrams'): 'masking.word_starts'}


def current_array(stored: str) -> str:
    """Return the name under which an array of this stored name is saved today."""
    for older, name in HEADS.items():
        stored = re.sub(rf'(^|/){older}/head/', rf'\1{name}/head/', stored)
    return stored


def current_key(key: str) -> str:
    """Return the name that a config key, such as 'stages.steps', has today."""
    for older, name in KEYS.items():
        if key.startswith(older):
            return name + key.removeprefix(older)
    return key


def current_config(stored: dict) -> dict:
    """Return the config of a run with the names of today."""
    config: dict = {key: value for key, value in ADDED_KEYS.items() if key.split('.')[0] in stored}
    flat = traverse_util.flatten_dict(stored, keep_empty_nodes=True, sep='.')
    for (key, value), added in CHANGED_VALUES.items():
        if flat.get(key) == value and added not in flat:
            flat[key] = f'{value} of an earlier version'
    for key, value in flat.items():
        if key not in REMOVED_KEYS or value != REMOVED_KEYS[key]:
            config[current_key(key)] = TASKS.get(value, value) if key == 'task' else value
    if config.get('init_from'):
        config['model.architecture'] = None  # it was that of the recipe, which had no effect
    return traverse_util.unflatten_dict(config, sep='.')


def current_metadata(stored: dict) -> dict:
    """Return the metadata of a checkpoint with the names of today."""
    changes: dict = {}
    if 'task' in stored:
        changes['task'] = TASKS.get(stored['task'], stored['task'])
    if 'config' in stored:
        changes['config'] = current_config(stored['config'])
    return stored | changes
