"""Tie data, objectives, models and evaluation together for the one training loop."""

from collections.abc import Callable

from bert_jax.errors import unknown


def make_task(config):
    """The task a config names. Raises UserError if there is none of that name, and what the task
    itself raises.
    """
    return find(config.task)(config)


def find(name: str) -> Callable:
    """What makes the task of that name from a config. Raises UserError if there is none. Imports
    that task alone: a start waits for what it imports.
    """
    if name == 'pretraining':
        from bert_jax.tasks.pretraining import Pretraining

        return Pretraining
    from bert_jax.tasks.finetuning import FineTuning
    from bert_jax.tasks.problems import PROBLEMS

    if name not in PROBLEMS:
        raise unknown('task', name, ['pretraining', *PROBLEMS])
    PROBLEMS[name].load()
    return FineTuning
