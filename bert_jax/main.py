"""Train a model: python -m bert_jax.main --config=configs/base.py [--config.KEY=VALUE …]"""

import contextlib
import os
import pathlib
import sys
from typing import Any

import jax
from absl import flags
from ml_collections import config_flags

from bert_jax import files, recipes
from bert_jax.errors import UserError, exit_cleanly, writing_to
from bert_jax.tasks import make_task, pretraining_data, show_batch, sweep
from bert_jax.training import loop, multihost, older_versions, runtime
from bert_jax.types import Config

_CONFIG = config_flags.DEFINE_config_file(
    'config',
    help_string='Config file, such as configs/tiny.py; --config.KEY=VALUE changes a value in it, '
    'and configs/base.py documents all keys.',
)
_DISTRIBUTED = flags.DEFINE_bool(
    'distributed', False, 'This is one of several processes, started by a TPU pod, Slurm or MPI.'
)
_COORDINATOR = flags.DEFINE_string(
    'coordinator', None, 'This is one of several processes; HOST:PORT of process 0.'
)
_NUM_PROCESSES = flags.DEFINE_integer(
    'num_processes', None, 'Number of processes; by default what the environment says.'
)
_PROCESS_ID = flags.DEFINE_integer(
    'process_id', None, 'Number of this process, from 0; by default what the environment says.'
)
_FLAGS = (_CONFIG, _DISTRIBUTED, _COORDINATOR, _NUM_PROCESSES, _PROCESS_ID)


def parse(argv: list[str]) -> Config:
    """Return the config that a command line describes.

    Raises:
      UserError: unknown flag or config key, value of a wrong type, or missing config file.
      SystemExit: with status 0, after printing the help that `--help` asks for.
    """
    if {'-h', '--help', '--helpshort', '--helpfull'} & set(argv[1:]):
        print(_help())
        sys.exit(0)
    folder = recipes.register()
    try:
        rest = flags.FLAGS([recipes.locate(argument, folder) for argument in argv])
    except (AttributeError, KeyError) as error:
        raise UserError(f'unknown config key: {_one_line(error)}; {_advice(argv)}') from error
    except (flags.Error, OSError, TypeError, ValueError) as error:
        raise UserError(_one_line(error)) from error
    if rest[1:]:
        raise UserError(f'{rest[1]!r} is not a flag; write --config.KEY=VALUE')
    config = _CONFIG.value
    if config is None:
        raise UserError('no config given; for example: --config=configs/tiny.py')
    try:
        config.lock()  # a config file that could not be loaded raises its error here
    except OSError as error:
        raise UserError(f'config file: {_one_line(error)}') from error
    if config.task == 'pretraining':
        stated = config_flags.get_override_values(flags.FLAGS['config'])
        data_keys = [key.removeprefix('data.') for key in stated if key.startswith('data.')]
        pretraining_data.follow_corpus(config.data, data_keys)
    return config


def run(config: Config, place: tuple[Any, ...] | None = None) -> dict[str, Any] | None:
    """Train what a config asks for: one run, or several seeds and learning rates (a sweep).

    Args:
      config: see configs/base.py.
      place: the arguments of `multihost.joined` if this is one of several processes.

    Returns:
      The results, or None if the config asks only for a batch to be shown.
    """
    for key in ('workdir', 'init_from'):
        config[key] = os.path.expanduser(config[key])
    with multihost.joined(*place) if place else contextlib.nullcontext():
        runtime.configure()
        if config.debug.batch:
            for row in show_batch.dump(make_task(config), config.debug.batch):
                print(row)
            return None
        if sweep.is_wanted(config):
            return sweep.run(config, train, writes=jax.process_index() == 0)
        return train(config)


def train(config: Config) -> dict[str, Any]:
    """Train the task of a config and report on it; results.json is the last file written."""
    task = make_task(config)
    params, results = loop.train(task, config)
    task.report(params, results)
    if jax.process_index() == 0:
        with writing_to(config.workdir):
            files.write_json(pathlib.Path(config.workdir) / 'results.json', results)
        print(f'results in {config.workdir}')
    return results


def _help() -> str:
    """Return the usage and all flags."""
    described = [f'  --{flag.name}: {flags.FLAGS[flag.name].help}' for flag in _FLAGS]
    return '\n'.join([__doc__, '', *described])


def _advice(argv: list[str]) -> str:
    """Return what to do about an unknown config key of a command line."""
    keys = [argument.partition('=')[0].removeprefix('--config.') for argument in argv]
    renamed = [key for key in keys if older_versions.current_key(key) != key]
    now = [f'{key} is now {older_versions.current_key(key)}' for key in renamed]
    return '; '.join(now) or 'docs/configs.md documents all keys'


def _one_line(error: Exception) -> str:
    """Return the message of an exception without line breaks."""
    message = error.args[0] if error.args and isinstance(error.args[0], str) else str(error)
    return ' '.join(message.replace('\\n', ' ').replace("\\'", "'").split())


@exit_cleanly
def main(argv: list[str] | None = None) -> None:
    """Run a command line, sys.argv by default."""
    config = parse(sys.argv if argv is None else argv)
    place = _COORDINATOR.value, _NUM_PROCESSES.value, _PROCESS_ID.value
    several = _DISTRIBUTED.value or place != (None, None, None)
    run(config, place if several else None)


if __name__ == '__main__':
    main()
