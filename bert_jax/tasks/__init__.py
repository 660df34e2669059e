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
    from bert_jax.tasks.problems import PROBLEMS

    if config.task not in ('pretraining', *PROBLEMS):
        raise unknown('task', config.task, ['pretraining', *PROBLEMS])
    settings = PROBLEMS[config.task].settings if config.task in PROBLEMS else {}
    if set(config.get('problem', {})) != set(settings):
        file = f'finetune.py:{config.task}' if settings else 'base.py'
        raise UserError(
            f'task is {config.task!r}, but the config file is one of another task; leave task out '
            f'and use --config=configs/{file}'
        )
    if config.task == 'pretraining':
        from bert_jax.tasks.pretraining import Pretraining

        return Pretraining(config)
    from bert_jax.tasks.finetuning import FineTuning

    return FineTuning(config, stated)
