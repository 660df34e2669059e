"""The eight tasks of the study: where the data is, the settings that both sides are given."""

from typing import NamedTuple

from ml_collections import ConfigDict

from configs import finetune

MAX_LENGTH = 128  # of a sequence, and what 'padded' pads to


class Study(NamedTuple):
    """kind: of task; metric: which counts; rate, steps: tuned for neither side; data: what differs
    from the config's `data`, {data} being the folder of the sets."""

    kind: str
    metric: str
    rate: float
    steps: int
    data: dict
    batch_size: int = 16


TASKS = {
    'sentence_polarity': Study(
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
    'banking77': Study(
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
    'med_nli': Study(
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
    'sts_stackexchange': Study(
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
    'pos_ewt': Study(
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
    'wnut17': Study(
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
    'genia_nested': Study(
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
    'qamr': Study(
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


def keys(study: Study, data: str, weights: str, steps: int = 0) -> dict:
    """The keys of configs/finetune.py that a task changes; steps: other than its own."""
    steps = steps or study.steps
    found = {
        'init_from': str(weights),
        'training.epochs': 0.0,
        'training.steps': steps,
        'training.batch_size': study.batch_size,
        'training.max_length': MAX_LENGTH,
        'schedule.learning_rate': study.rate,
        'schedule.warmup_fraction': 0.1,
        'evaluation.every_steps': steps,
        'logging.every_steps': unmeasured(steps),
    }
    own = {'dev_fraction': 0.2} | study.data
    return found | {f'data.{key}': _placed(value, data) for key, value in own.items()}


def unmeasured(steps: int) -> int:
    """So many steps at the beginning do not count for the time: one side compiles in them."""
    return max(1, min(10, steps // 2))


def config(study: Study, changes: dict) -> ConfigDict:
    """What `python -m bert_jax.main` makes of these keys."""
    made = finetune.get_config(study.kind)
    made.update_from_flattened_dict(changes)
    return made


def _placed(value, data: str):
    if isinstance(value, str):
        return value.replace('{data}', data)
    return tuple(_placed(one, data) for one in value) if isinstance(value, tuple) else value
