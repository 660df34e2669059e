"""Tasks tie together data, objectives, models and evaluation for the one training loop."""

from collections.abc import Collection
from typing import TYPE_CHECKING

from ml_collections import ConfigDict

from bert_jax.errors import UserError, unknown

if TYPE_CHECKING:
    from bert_jax.training.task import Task


def make_task(config: ConfigDict, stated: Collection[str] = ()) -> 'Task':
    """Create the task that `config.task` names; imports only what this task needs.

    Args:
      config: see configs/base.py.
      stated: its keys that the user set; labeled data must use those of `data`.

    Raises:
      UserError: the task is unknown, or the config is not one of this task or cannot be run.
    """
    if config.task == 'pretraining':
        if 'objectives' not in config:
            raise _other_task(config, 'base.py')
        from bert_jax.tasks.pretraining import Pretraining

        return Pretraining(config)
    from bert_jax.tasks.finetuning import FineTuning
    from bert_jax.tasks.problems import PROBLEMS

    if config.task not in PROBLEMS:
        raise unknown('task', config.task, ['pretraining', *PROBLEMS])
    if set(config.get('problem', {})) != set(PROBLEMS[config.task].settings):
        raise _other_task(config, f'finetune.py:{config.task}')
    return FineTuning(config, stated)


def _other_task(config: ConfigDict, file: str) -> UserError:
    return UserError(
        f'task is {config.task!r}, but the config file is one of another task; leave task out and '
        f'use --config=configs/{file}'
    )
