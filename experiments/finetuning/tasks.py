"""The eight tasks: the files of their data, and the settings that both libraries use."""

from typing import NamedTuple

from ml_collections import ConfigDict

from configs import finetune

MAX_LENGTH = 128  # tokens of a sequence; 'torch_padded' pads to this length


class TaskSettings(NamedTuple):
    """The settings of a task, tuned for neither library.

    Attributes:
        kind: the kind of problem.
        metric: the metric to report.
        learning_rate: peak learning rate.
        steps: training steps.
        data: the keys of the config's `data` that differ from the defaults; '{data}' stands for the
            folder of the data sets.
        batch_size: examples per step.
    """

    kind: str
    metric: str
    learning_rate: float
    steps: int
    data: dict
    batch_size: int = 16


TASKS = {
    'sentence_polarity': TaskSettings(
        'classification',
        'accuracy',
        1e-4,
        200,
        {
            'train': ('{data}/sentence_polarity/rt-polarity.*',),
            'format': 'lines',
            'encoding': 'latin-1',
        },
    ),
    'banking77': TaskSettings(
        'classification',
        'accuracy',
        2e-4,
        400,
        {
            'train': ('{data}/banking77/train.csv',),
            'format': 'csv',
            'columns.label': 'category',
        },
    ),
    'med_nli': TaskSettings(
        'classification',
        'accuracy',
        1e-4,
        250,
        {
            'train': ('{data}/med_nli/MED.tsv',),
            'columns.text': 'sentence1',
            'columns.text2': 'sentence2',
            'columns.label': 'gold_label',
        },
    ),
    'sts_stackexchange': TaskSettings(
        'regression',
        'pearson',
        1e-4,
        120,
        {
            'train': ('{data}/sts_stackexchange/*.test.tsv',),
            'header': False,
            'columns.text': '1',
            'columns.text2': '2',
            'columns.label': '0',
            'skip_labels': ('',),
        },
    ),
    'pos_ewt': TaskSettings(
        'tagging',
        'accuracy',
        2e-4,
        200,
        {
            'train': ('{data}/ud_english_ewt/*train.conllu.gz',),
            'dev': ('{data}/ud_english_ewt/*dev.conllu',),
            'format': 'conllu',
            'columns.tag': 'upos',
            'scheme': 'none',
        },
    ),
    'wnut17': TaskSettings(
        'tagging',
        'f1',
        2e-4,
        300,
        {
            'train': ('{data}/wnut17/*train.conll',),
            'dev': ('{data}/wnut17/*dev.conll',),
            'format': 'conll',
        },
    ),
    'genia_nested': TaskSettings(
        'spans',
        'f1',
        3e-4,
        300,
        {
            'train': ('{data}/genia_nested/dev.jsonlines',),
            'format': 'jsonl',
            'columns.id': 'sent_id',
            'columns.spans': 'entity_mentions',
            'columns.span_label': 'entity_type',
        },
    ),
    'qamr': TaskSettings(
        'question_answering',
        'f1',
        1e-4,
        200,
        {
            'train': ('{data}/qamr/dev.tsv',),
            'contexts': '{data}/qamr/wiki-sentences.tsv',
            'header': False,
            'columns.context': '0',
            'columns.question': '5',
            'columns.answers': ('6', '7', '8'),
            'units': 'words',
            'group': '0',
        },
    ),
}


def config_keys(task: TaskSettings, data: str, weights: str, steps: int = 0) -> dict:
    """Return the keys of configs/finetune.py for a task; `steps` overrides its number of steps."""
    steps = steps or task.steps
    keys = {
        'init_from': str(weights),
        'training.epochs': 0.0,
        'training.steps': steps,
        'training.batch_size': task.batch_size,
        'training.sequence_length': MAX_LENGTH,
        'schedule.learning_rate': task.learning_rate,
        'schedule.warmup_fraction': 0.1,
        'evaluation.every_steps': steps,
        'logging.every_steps': untimed_steps(steps),
    }
    if task.kind == 'spans':  # as torch_problems.py decodes them
        keys |= {'problem.decoding': 'threshold'}
    data_keys = task.data if 'dev' in task.data else {'dev_fraction': 0.2} | task.data
    return keys | {f'data.{key}': _fill_in(value, data) for key, value in data_keys.items()}


def untimed_steps(steps: int) -> int:
    """Number of first steps that are not timed, because bert_jax compiles in them."""
    return max(1, min(10, steps // 2))


def make_config(task: TaskSettings, keys: dict) -> ConfigDict:
    """Return the config of `python -m bert_jax.main` with these keys."""
    config = finetune.get_config(task.kind)
    config.update_from_flattened_dict(keys)
    return config


def _fill_in(value, data: str):
    """Replace '{data}' in a string or a tuple of strings."""
    if isinstance(value, str):
        return value.replace('{data}', data)
    return tuple(_fill_in(part, data) for part in value) if isinstance(value, tuple) else value
