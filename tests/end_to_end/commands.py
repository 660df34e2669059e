"""The command lines of the project, in this process or in one of their own.

`here` suffices unless a test needs signals, exits of a process, its stdin, other devices or a
recipe that changes the tables of the package. The processes are forked from one that has imported
JAX and TensorFlow but not used them yet: the imports are most of the time of a short command.
"""

import atexit
import contextlib
import importlib
import io
import multiprocessing
import os
import pathlib
import runpy
import signal
import subprocess
import sys
import tempfile
import time
import traceback

import pytest

from bert_jax.figures import VARIABLE
from tests import hidden_tensorflow

ROOT = pathlib.Path(__file__).parents[2]


class Command:
    """`python -m MODULE ARGUMENTS…`, with the part of subprocess.Popen that tests need.

    Args:
        text: the content of stdin.
        xla_flags: XLA flags beside those of the tests.
        die_at: the step of a training run after which it ends by SIGKILL.
        figures: whether a training run draws its figures.
        has_tensorflow: whether TensorFlow and TensorFlow Datasets seem to be installed.
    """

    def __init__(
        self,
        module: str,
        arguments,
        *,
        text='',
        xla_flags='',
        die_at: int | None = None,
        figures: bool = False,
        has_tensorflow: bool = True,
    ):
        context = multiprocessing.get_context('forkserver')
        context.set_forkserver_preload(['tests.end_to_end.preloaded'])
        self._folder = tempfile.TemporaryDirectory()
        folder = pathlib.Path(self._folder.name)
        self._files = [folder / name for name in ('stdin', 'stdout', 'stderr')]
        self._files[0].write_text(text)
        for path in self._files[1:]:  # it may be killed before it opens them
            path.touch()
        flags = f'{os.environ["XLA_FLAGS"]} --xla_force_host_platform_device_count=1 {xla_flags}'
        environment = os.environ | {'XLA_FLAGS': flags, VARIABLE: str(int(figures))}
        command = [module, *map(str, arguments)]
        self._process = context.Process(
            target=_run,
            args=(command, environment, self._files, die_at, has_tensorflow),
        )
        self._process.start()

    @property
    def returncode(self) -> int | None:
        return self._process.exitcode

    poll = returncode.fget

    def send_signal(self, number: int):
        os.kill(self._process.pid, number)

    def communicate(self, timeout: float = 300) -> tuple[str, str]:
        """Wait until it ends and return (stdout, stderr)."""
        self._process.join(timeout)
        if self._process.is_alive():
            self._process.kill()
            raise subprocess.TimeoutExpired(str(self._process.name), timeout)
        return tuple(path.read_text() for path in self._files[1:])


def here(module: str, *arguments: str) -> subprocess.CompletedProcess:
    """Run a command line in this process to its end; its result is that of `run`."""
    arguments = list(map(str, arguments))
    stdout, stderr = (io.TextIOWrapper(io.BytesIO(), write_through=True) for _ in range(2))
    main = importlib.import_module(module).main
    folder, environment, argv = os.getcwd(), dict(os.environ), sys.argv
    sys.argv = [module, *arguments]
    os.chdir(ROOT)
    try:
        with contextlib.redirect_stdout(stdout), contextlib.redirect_stderr(stderr):
            status = _status_of(main)
    finally:
        os.chdir(folder)
        os.environ.clear()
        os.environ.update(environment)
        sys.argv = argv
    written = (file.buffer.getvalue().decode() for file in (stdout, stderr))
    return subprocess.CompletedProcess(arguments, status, *written)


def _status_of(main) -> int:
    """Run the function of a command; return the exit status that its process would have."""
    try:
        main()
    except SystemExit as ended:
        if ended.code is None or isinstance(ended.code, int):
            return ended.code or 0
        print(ended.code, file=sys.stderr)
        return 1
    except Exception:
        traceback.print_exc()
        return 1
    return 0


def run(module: str, *arguments: str, **options) -> subprocess.CompletedProcess:
    """Run a command line in a process of its own to its end."""
    command = Command(module, arguments, **options)
    stdout, stderr = command.communicate()
    return subprocess.CompletedProcess(arguments, command.returncode, stdout, stderr)


def _run(command, environment, files, die_at, has_tensorflow):
    """Do what `python -m` does, in the forked process."""
    os.environ.clear()
    os.environ.update(environment)
    for number, path in enumerate(files):
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND if number else os.O_RDONLY
        os.dup2(os.open(path, flags), number)
    sys.stdin = os.fdopen(0, closefd=False)
    os.chdir(ROOT)
    sys.argv = command
    if die_at:
        _die_at(die_at)
    if not has_tensorflow:
        hidden_tensorflow.hide(pytest.MonkeyPatch())
    try:
        runpy.run_module(command[0], run_name='__main__', alter_sys=True)
    finally:
        atexit._run_exitfuncs()


def _die_at(step: int):
    """End training by SIGKILL after this step, once the last checkpoint is complete."""
    from bert_jax.training import loop

    train = loop.train

    def train_and_die(task, config, workdir, hooks):
        checkpoints = pathlib.Path(config.workdir) / 'checkpoints'

        def die(completed: int):
            if completed == step:
                while any(checkpoints.glob('*.unfinished')):
                    time.sleep(0.01)
                os.kill(os.getpid(), signal.SIGKILL)

        return train(task, config, workdir, hooks._replace(after_step=die))

    loop.train = train_and_die
