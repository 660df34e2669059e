"""Train a model: python -m bert_jax.main --config=configs/base.py [--config.KEY=VALUE …]"""

import contextlib
import functools
import sys
from collections.abc import Collection
from typing import Any

import jax

from bert_jax import command_line, config_values, files, progress
from bert_jax.errors import exit_cleanly, writing_to
from bert_jax.storage import paths
from bert_jax.tasks import make_task, pretraining_data, show_batch, sweep, unused_keys
from bert_jax.training import loop, multihost, runtime, workdir
from bert_jax.types import Config


def run(
    config: Config,
    place: tuple[Any, ...] | None = None,
    dry_run: bool = False,
    stated: Collection[str] = (),
) -> dict[str, Any] | None:
    """Train what a config asks for: one run, or several seeds and learning rates (a sweep).

    Args:
      config: see configs/base.py.
      place: the arguments of `multihost.joined` if this is one of several processes.
      dry_run: only do what precedes the first step, without writing to the working directory.
      stated: keys that the user set, which must have an effect.

    Raises:
      UserError: the config cannot be run.

    Returns:
      The results, or None if nothing is trained: for a batch to be shown, and for a dry run.
    """
    config_values.check(config)
    unused_keys.check(config, stated)
    for key in ('workdir', 'init_from'):
        config[key] = config[key] and str(paths.path(config[key]))
    with multihost.joined(*place) if place else contextlib.nullcontext():
        runtime.configure()
        if config.debug.batch:
            for row in show_batch.dump(make_task(config, stated), config.debug.batch):
                if jax.process_index() == 0:
                    progress.say(row)
            return None
        if dry_run:
            for text in loop.dry_run(make_task(config, stated), config):
                print(text, flush=True)
            return None
        if sweep.is_wanted(config):
            return sweep.run(
                config, functools.partial(train, stated=stated), writes=jax.process_index() == 0
            )
        return train(config, stated)


def train(config: Config, stated: Collection[str] = ()) -> dict[str, Any]:
    """Train the task of a config and report on it; results.json is the last file written."""
    task = make_task(config, stated)
    params, results = loop.train(task, config)
    task.report(params, results)
    if jax.process_index() == 0:
        with writing_to(config.workdir):
            files.write_json(paths.local(config.workdir) / 'results.json', results)
        workdir.push(config.workdir)
        print(f'results in {config.workdir}')
    return results


@exit_cleanly
def main(argv: list[str] | None = None) -> None:
    """Run a command line, sys.argv by default."""
    line = command_line.parse(sys.argv if argv is None else argv, __doc__)
    config = line.config
    if config.task == 'pretraining':
        data_keys = [key.removeprefix('data.') for key in line.stated if key.startswith('data.')]
        pretraining_data.follow_corpus(config.data, data_keys)
    if line.print_config:
        print(config)
        return
    run(config, line.place, line.dry_run, line.stated)


if __name__ == '__main__':
    main()
