"""The command line: python -m bert_jax.main --config=configs/base.py [--config.KEY=VALUE …]"""

import contextlib
import gc
import pathlib
import sys

from absl import flags
from ml_collections import config_flags

from bert_jax import recipes
from bert_jax.errors import UserError, exit_cleanly
from bert_jax.garbage import uncollected

flags.DEFINE_bool(
    'distributed', False, 'One of several processes started by a TPU pod, Slurm or Open MPI.'
)
flags.DEFINE_string('coordinator', None, 'One of several processes: HOST:PORT of process 0.')
flags.DEFINE_integer('num_processes', None, 'How many there are, where nothing else tells.')
flags.DEFINE_integer('process_id', None, 'Which one this is, from 0, where nothing else tells.')
_CONFIG = config_flags.DEFINE_config_file('config', help_string='The config, e.g. configs/base.py.')


def parse(argv: list[str]):
    """The config of a command line. Raises UserError for an unknown key, a wrong type or a missing
    file.
    """
    folder = recipes.register()
    try:
        rest = flags.FLAGS([recipes.locate(argument, folder) for argument in argv])
    except (AttributeError, KeyError) as error:
        raise UserError(
            f'no such config key: {_one_line(error)}; configs/base.py lists all'
        ) from error
    except (flags.Error, OSError, TypeError, ValueError) as error:
        raise UserError(_one_line(error)) from error
    if rest[1:]:
        raise UserError(f'{rest[1]!r} is no flag; write --config.KEY=VALUE')
    config = _CONFIG.value
    if config is None:
        raise UserError('no config given: python -m bert_jax.main --config=configs/tiny.py')
    try:
        config.lock()  # a file that could not be loaded complains at its first use
    except OSError as error:
        raise UserError(f'config file: {_one_line(error)}') from error
    return config


def load(task: str):
    """Imports what a run of a task needs. Raises UserError if there is none of that name.

    For a process of its own: modules stay as long as it does, so Python is not to look for garbage
    meanwhile, a sixth of the time, nor among them later, as tracing a step would make it do.
    """
    with uncollected():
        from bert_jax import tasks
        from bert_jax.tasks import (  # noqa: F401
            show_batch,
            sweep,
        )
        from bert_jax.training import (  # noqa: F401
            loop,
            multihost,
            runtime,
            workdir,
        )

        tasks.find(task)
        gc.freeze()


def run(config, place: tuple | None = None) -> dict | None:
    """Trains what a config asks for, once or for several seeds and rates; returns the results, or
    None where it only shows a batch.

    place: arguments of training/multihost.py:joined, if this is one of several processes.
    """
    from bert_jax.training import runtime

    runtime.configure()
    import jax

    from bert_jax.tasks import sweep
    from bert_jax.training import multihost

    with multihost.joined(*place) if place else contextlib.nullcontext():
        if sweep.is_wanted(config):
            return sweep.run(config, train, writes=jax.process_index() == 0)
        return train(config)


def train(config) -> dict | None:
    """Trains the task of a config and reports on it; results.json is the last file it writes."""
    import jax

    from bert_jax.tasks import make_task, show_batch
    from bert_jax.training import loop, workdir

    task = make_task(config)
    if config.debug.batch:
        for row in show_batch.dump(task, config.debug.batch):
            print(row)
        return None
    params, results = loop.train(task, config)
    task.report(params, results)
    if jax.process_index() == 0:
        workdir.write_json(pathlib.Path(config.workdir) / 'results.json', results)
        print(f'results in {config.workdir}')
    return results


def _one_line(error: Exception) -> str:
    """An exception's message without its line breaks."""
    message = error.args[0] if error.args and isinstance(error.args[0], str) else str(error)
    return ' '.join(message.replace('\\n', ' ').replace("\\'", "'").split())


@exit_cleanly
def main(argv: list[str]):
    config = parse(argv)
    load(config.task)
    given = flags.FLAGS
    place = given.coordinator, given.num_processes, given.process_id
    several = given.distributed or place != (None, None, None)
    run(config, place if several else None)


if __name__ == '__main__':
    main(sys.argv)
