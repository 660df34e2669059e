"""Tasks tie together data, objectives, models and evaluation for the one training loop."""

from typing import TYPE_CHECKING

from ml_collections import ConfigDict

from bert_jax.errors import UserError, unknown

if TYPE_CHECKING:
    from bert_jax.training.task import Task


def make_task(config: ConfigDict) -> 'Task':
    """Create the task that `config.task` names; imports only what this task needs.

    Raises UserError for an unknown name, and whatever the task itself raises.
    """
    if config.data.reading_threads < 1:
        raise UserError(f'data.reading_threads is {config.data.reading_threads}; give at least 1')
    if config.task == 'pretraining':
        from bert_jax.tasks.pretraining import Pretraining

        return Pretraining(config)
    from bert_jax.tasks.finetuning import FineTuning
    from bert_jax.tasks.problems import PROBLEMS

    if config.task not in PROBLEMS:
        raise unknown('task', config.task, ['pretraining', *PROBLEMS])
    return FineTuning(config)
