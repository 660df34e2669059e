"""Train a model: python -m bert_jax.main --config=configs/base.py [--config.KEY=VALUE …]"""

import sys

from bert_jax.training import interruption

# The imports below take seconds.
if __name__ == '__main__':
    interruption.exit_on_signals()

import contextlib
import functools
from collections.abc import Collection, Sequence
from typing import Any

import jax

from bert_jax import config_keys, progress, recipes
from bert_jax.cli import command_line
from bert_jax.errors import UserError, exit_cleanly, without_warnings
from bert_jax.storage import paths
from bert_jax.storage.path import is_on_hub
from bert_jax.tasks import is_sweep, make_task
from bert_jax.tasks.pretraining import BuildEvaluator
from bert_jax.training import loop, multihost, runtime
from bert_jax.training.run import NO_HOOKS, Hooks, Paused
from bert_jax.training.run import check as check_run
from bert_jax.training.workdir import Workdir
from bert_jax.types import Config, JsonRecord


def run(
    config: Config,
    processes: tuple[Any, ...] | None = None,
    dry_run: bool = False,
    user_keys: Collection[str] | None = None,
    overwrite: bool = False,
    hooks: Hooks = NO_HOOKS,
    evaluators: Sequence[BuildEvaluator] = (),
) -> JsonRecord | None:
    """Train one run, or a sweep over settings and seeds.

    Args:
        config: see configs/base.py.
        processes: the arguments of `multihost.joined` if this is one of several processes.
        dry_run: stop before the first step, without writing to the working directory.
        user_keys: keys that the user set, which must have an effect; by default, those with a
            value that no recipe of configs/ has.
        overwrite: delete the run or sweep in the working directory first.
        hooks: functions of a caller in Python.
        evaluators: build evaluators beside those that the config enables.

    Raises:
        UserError: the config cannot be run.

    Returns:
        The results; None for debug.batch and for a dry run, which train nothing.
    """
    if user_keys is None:
        user_keys = recipes.own_keys(config)
    config_keys.check(config)
    config_keys.check_used(config, user_keys)
    if config.init_from:
        from bert_jax.storage import wrong_paths

        config.init_from = wrong_paths.model_name(config.init_from)
    for key in ('workdir', 'init_from'):
        if config[key] and not (key == 'init_from' and is_on_hub(config[key])):
            config[key] = str(paths.path(config[key]))
    with multihost.joined(*processes) if processes else contextlib.nullcontext():
        runtime.configure()
        if config.debug.batch:
            from bert_jax.tasks import show_batch

            for row in show_batch.dump(make_task(config, user_keys), config.debug.batch):
                if jax.process_index() == 0:
                    progress.say(row)
            return None
        if dry_run:
            if is_sweep(config):
                from bert_jax.tasks.sweeps import sweep

                sweep.check(config, user_keys=user_keys)
                configs = list(sweep.runs(config).values())
                progress.say(f'a sweep of {len(configs)} runs; the first of them:')
                config = configs[0]
            check_run(config)
            for text in loop.dry_run(make_task(config, user_keys), config):
                progress.say(text)
            return None
        if overwrite:
            _delete_run(config, user_keys)
        if is_sweep(config):
            from bert_jax.tasks.sweeps import sweep

            train_run = functools.partial(
                _train_to, user_keys=user_keys, hooks=hooks, evaluators=evaluators
            )
            return sweep.run(config, train_run, jax.process_index() == 0, user_keys)
        return train(config, user_keys, hooks, evaluators)


def follow_corpus(config: Config, user_keys: Collection[str]) -> None:
    """For pretraining, make the settings of the text and the folder of the corpus fit each other.

    Args:
        config: the config; its `data` is updated.
        user_keys: keys that the user set, which keep their values.
    """
    if config.task == 'pretraining':
        from bert_jax.tasks.pretraining import sources

        data_keys = [key.removeprefix('data.') for key in user_keys if key.startswith('data.')]
        sources.follow_corpus(config.data, data_keys)


def _delete_run(config: Config, user_keys: Collection[str]) -> None:
    """Delete the run or sweep in the working directory, if a new run can be built without it.

    Raises:
        UserError: the new run cannot be built, or would read files of the old one.
    """
    folder = paths.path(config.workdir).absolute()
    for key, name in (('init_from', config.init_from), ('data.corpus', config.data.get('corpus'))):
        if name and paths.bring(name).absolute().is_relative_to(folder):
            raise UserError(
                f'--overwrite would delete {key}, {name}, which is in the workdir {folder}; choose '
                'another --config.workdir'
            )
    first = config
    if is_sweep(config):
        from bert_jax.tasks.sweeps import sweep

        sweep.check(config, overwrite=True, user_keys=user_keys)
        first = next(iter(sweep.runs(config).values()))
    check_run(first, overwrite=True)
    with without_warnings():  # the run itself gives them
        make_task(first, user_keys)
    multihost.run_on_host0(lambda: Workdir.of(config.workdir).delete_run())


def _train_to(
    config: Config,
    pause_at: int = 0,
    *,
    user_keys: Collection[str],
    hooks: Hooks,
    evaluators: Sequence[BuildEvaluator],
) -> JsonRecord | None:
    """Train a run of a sweep to its end or to a step; return its results, None if it paused."""
    try:
        return train(config, user_keys, hooks._replace(pause_at=pause_at), evaluators)
    except Paused:
        return None


def train(
    config: Config,
    user_keys: Collection[str] = (),
    hooks: Hooks = NO_HOOKS,
    evaluators: Sequence[BuildEvaluator] = (),
) -> JsonRecord:
    """Train the task of a config and report on it; results.json is the last file written."""
    check_run(config)
    task = make_task(config, user_keys, evaluators)
    with contextlib.closing(Workdir.of(config.workdir)) as workdir:
        params, results = loop.train(task, config, workdir, hooks)
        task.report(params, results, workdir)
        if jax.process_index() == 0:
            workdir.write_results(results)
    if jax.process_index() == 0:
        progress.say(f'results in {config.workdir}: README.md is the overview')
        for command in task.next_commands(params):
            progress.say(f'  {command}')
    return results


@exit_cleanly
def main(argv: list[str] | None = None) -> None:
    """Run a command line, sys.argv by default."""
    line = command_line.parse(sys.argv if argv is None else argv, __doc__)
    config = line.config
    follow_corpus(config, line.user_keys)
    if line.flags.print_config:
        progress.say('\n'.join(command_line.describe_keys(config)))
        return
    flags = line.flags
    run(config, flags.processes, flags.dry_run, line.user_keys, flags.overwrite)


if __name__ == '__main__':
    main()
