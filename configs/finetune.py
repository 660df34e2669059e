"""Fine-tuning; what follows the colon is the task.

    python -m bert_jax.main --config=configs/finetune.py:mnli --config.init_from=WEIGHTS

The name is that of a benchmark or a sample (configs/finetune_tasks.py) or, for your own files, a
kind of problem (bert_jax/tasks/problems/__init__.py); 'file' is classification. The keys are those
of configs/base.py, with `data`, `stages`, `objectives` and their options replaced as below.
"""

import copy

from ml_collections import ConfigDict
from ml_collections.config_dict import placeholder

from bert_jax.data.labeled import loader
from bert_jax.errors import unknown
from bert_jax.evaluation import glue
from bert_jax.tasks.problems import PROBLEMS
from configs import base
from configs.finetune_tasks import TASKS

_OWN_FILES = dict(data={}, recipe=dict(batch_size=32, learning_rate=2e-5, epochs=3, max_length=128))


def get_config(task: str = 'file') -> ConfigDict:
    named = _named(task)
    kind, recipe = named['kind'], named['recipe']
    config = base.get_config().unlock()
    for key in ('data', 'stages', 'objectives', 'masking', 'sbo', 'rtd', 'editing'):
        del config[key]
    config.task = kind
    config.workdir = f'runs/{task}'
    config.model.architecture = placeholder(str)  # None: that of the weights
    config.data = ConfigDict(
        dict(
            tokenizer='',  # without init_from: a file, or 'train:wordpiece:2000' of the texts
            reading_threads=1,
            **copy.deepcopy(loader.DEFAULTS),
        )
    )
    config.data.update(named['data'])
    config.problem = ConfigDict(copy.deepcopy(dict(PROBLEMS[kind].settings)))
    config.problem.update(named.get('problem', {}))
    known = (glue.GLUE | glue.SUPER_GLUE).get(task)
    if known and kind in ('classification', 'regression'):
        config.problem.metrics = known.metrics
        config.problem.update({'positive': known.positive} if known.positive else {})
    config.training = ConfigDict(
        dict(
            epochs=float(recipe['epochs']),
            steps=0,  # instead of epochs, which then is 0
            batch_size=recipe['batch_size'],  # examples, or windows of long ones
            accumulation=1,  # micro-batches a step
            max_length=recipe['max_length'],  # tokens of a sequence, special ones included
        )
    )
    config.optimizer.name = 'adamw'
    config.schedule.name = 'linear'
    config.schedule.learning_rate = recipe['learning_rate']
    config.schedule.warmup_steps = 0
    config.schedule.warmup_fraction = 0.1
    # On the dev split, once an epoch; `best` and `patience` as in configs/base.py.
    config.evaluation = ConfigDict(dict(every_steps=0, best='', patience=0))
    config.compute.dtype = 'float32'
    config.checkpoint = ConfigDict(dict(every_steps=0, keep=1))
    config.logging.every_steps = 20
    return config.lock()


def _named(task: str) -> dict:
    if task in TASKS:
        return TASKS[task]
    kind = 'classification' if task == 'file' else task
    if kind not in PROBLEMS:
        raise unknown('task', task, [*TASKS, 'file', *PROBLEMS])
    return dict(kind=kind, **_OWN_FILES)
