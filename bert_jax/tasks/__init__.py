"""Tie data, objectives, models and evaluation together for the one training loop."""

from bert_jax.errors import unknown


def make_task(config):
    """The task a config names. Raises UserError if there is none of that name, and what the task
    itself raises. Imports that task alone: a start waits for what it imports.
    """
    if config.task == 'pretraining':
        from bert_jax.tasks.pretraining import Pretraining

        return Pretraining(config)
    from bert_jax.tasks.finetuning import FineTuning
    from bert_jax.tasks.problems import PROBLEMS

    if config.task not in PROBLEMS:
        raise unknown('task', config.task, ['pretraining', *PROBLEMS])
    return FineTuning(config, kind=PROBLEMS[config.task])
