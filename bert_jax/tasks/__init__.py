"""Tasks tie together data, objectives, models and evaluation for the one training loop."""

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from ml_collections import ConfigDict

from bert_jax.errors import UserError, unknown

if TYPE_CHECKING:
    from bert_jax.tasks.pretraining import BuildEvaluator
    from bert_jax.training.task import Task


def make_task(
    config: ConfigDict,
    user_keys: Collection[str] = (),
    evaluators: 'Sequence[BuildEvaluator]' = (),
) -> 'Task':
    """Create the task that `config.task` names, importing only the modules it needs.

    Args:
        config: see configs/base.py.
        user_keys: keys that the user set; for labeled data, the `data` keys among them must be
            used.
        evaluators: for pretraining, build evaluators beside those that the config enables.

    Raises:
        UserError: the task is unknown, or the config belongs to another task or cannot be run.
    """
    if config.task == 'pretraining':
        if 'objectives' not in config:
            raise _other_task(config, 'base.py')
        from bert_jax.tasks.pretraining import builder as pretraining_builder
        from bert_jax.tasks.pretraining import sources

        if sources.is_missing(config.data):
            from bert_jax.tasks.pretraining import rehearsal

            rehearsal.check(config)
        return pretraining_builder.build(config, own_evaluators=evaluators)
    from bert_jax.problems import PROBLEMS
    from bert_jax.tasks.finetuning import builder as finetuning_builder

    if config.task not in PROBLEMS:
        raise unknown('task', config.task, ['pretraining', *PROBLEMS])
    if set(config.get('problem', {})) != set(PROBLEMS[config.task].settings):
        raise _other_task(config, f'finetune.py:{config.task}')
    return finetuning_builder.build(config, user_keys)


def is_sweep(config: ConfigDict) -> bool:
    """Whether `config.sweep` asks for several runs."""
    sweep = config.sweep
    values = sweep['keys'] or sweep.seeds or sweep.learning_rates or sweep.ranks
    return bool(values) and not config.debug.batch  # a batch is shown for the config itself


def _other_task(config: ConfigDict, file: str) -> UserError:
    return UserError(
        f'task is {config.task!r}, but the config file is for another task; leave task out and use '
        f'--config=configs/{file}'
    )
