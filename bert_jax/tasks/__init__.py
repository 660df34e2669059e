"""Tasks tie together data, objectives, models and evaluation for the one training loop."""

from typing import TYPE_CHECKING

from ml_collections import ConfigDict

from bert_jax.errors import UserError, unknown

if TYPE_CHECKING:
    from bert_jax.training.task import Task


def make_task(config: ConfigDict) -> 'Task':
    """Create the task that `config.task` names; imports only what this task needs.

    Raises UserError for an unknown name, a config of another task, and whatever the task raises.
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

    return FineTuning(config)
