"""Signals and closed pipes end every command with one line at most, and with the right status."""

import errno
import importlib
import os
import pathlib
import shlex
import signal
import subprocess
import sys
import time

import pytest

from bert_jax import errors, flag_parser, progress
from bert_jax.training import interruption
from tests.end_to_end import commands, small
from tests.end_to_end.commands import ROOT

MODULES = ('main', 'prepare', 'predict', 'evaluate', 'export', 'page', 'analyze')


@pytest.mark.parametrize('signal_number', interruption.SIGNALS)
@pytest.mark.parametrize('is_installed', [False, True])
def test_training_stopped_before_its_loop_asks_to_be_restarted(
    signal_number, is_installed, tmp_path
):
    program = ['-m', 'bert_jax.main']
    if is_installed:
        script = tmp_path / 'bert-jax'
        script.write_text('from bert_jax.__main__ import main\nmain()')  # as pip writes it
        program = [str(script), 'train']
    process = subprocess.Popen(
        [sys.executable, *program, '--config=configs/tiny.py', '--dry_run'],
        cwd=commands.ROOT,
        env=os.environ | {'PYTHONPATH': str(commands.ROOT)},
        stderr=subprocess.PIPE,
    )
    while not _catches_sigterm(process.pid):
        time.sleep(0.02)
    time.sleep(0.1)  # SIGINT is next
    process.send_signal(signal_number)
    _, text = process.communicate(timeout=60)
    assert process.returncode == interruption.RESTART == 75
    name = signal.Signals(signal_number).name
    assert text.decode().split('\n')[1:] == [
        f'{name}: stopped; rerun the same command to resume',
        '',
    ]


def _catches_sigterm(pid):
    status = pathlib.Path(f'/proc/{pid}/status').read_text()
    return bool(int(status.partition('SigCgt:')[2].split()[0], 16) >> (signal.SIGTERM - 1) & 1)


def test_a_signal_ends_a_process_that_runs_no_handler():
    code = (
        'import hashlib\n'
        'from bert_jax.training import interruption\n'
        'interruption._PATIENCE = 0.1\n'
        'interruption.exit_on_signals()\n'
        "print('ready', flush=True)\n"
        "hashlib.pbkdf2_hmac('sha256', b'', b'', 10**9)\n"  # as long as a compilation
    )
    process = subprocess.Popen(
        [sys.executable, '-c', code], cwd=commands.ROOT, stdout=subprocess.PIPE
    )
    assert process.stdout.readline() == b'ready\n'
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=30) == interruption.RESTART


# All are decorated with `errors.exit_cleanly`, and print their help in one of two ways.
QUICK = ('main', 'predict')


@pytest.mark.parametrize(
    'module',
    [pytest.param(name, marks=[pytest.mark.slow] * (name not in QUICK)) for name in MODULES],
)
def test_help_for_a_reader_that_ends_is_no_traceback(module):
    read, write = os.pipe()
    os.close(read)  # as of `| head`, but certainly before the command writes
    done = subprocess.run(
        [sys.executable, '-m', f'bert_jax.{module}', '--help'],
        cwd=commands.ROOT,
        stdout=write,
        stderr=subprocess.PIPE,
    )
    os.close(write)
    assert done.stderr == b''
    assert done.returncode in (0, 128 + signal.SIGPIPE)


@pytest.mark.parametrize('module', MODULES[1:])
def test_control_c_is_one_line(module, monkeypatch, capsys):
    name = f'bert_jax.{module}' + ('.__main__' if module in ('page', 'analyze') else '')
    command = importlib.import_module(name)

    def interrupt(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(flag_parser, 'parse', interrupt)
    with pytest.raises(SystemExit) as ended:
        command.main(['--task=embed'] if module == 'predict' else ['isotropy'])
    assert ended.value.code == 130
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith('interrupted: rerun the same command')


def test_other_broken_pipes_are_errors():
    @errors.exit_cleanly
    def main():
        raise BrokenPipeError('of a worker')

    with pytest.raises(BrokenPipeError):
        main()


def test_names_of_strangers_do_not_rewrite_a_terminal(capsys):
    @errors.exit_cleanly
    def main():
        raise errors.UserError('no file \x1b[2J\x9b1A\u202etxt.exe\r')

    with pytest.raises(SystemExit):
        main()
    assert capsys.readouterr().err == 'error: no file \\x1b[2J\\x9b1A\\u202etxt.exe\n'


def test_a_closed_output_is_no_traceback(monkeypatch, capsys):
    @errors.exit_cleanly
    def main(error):
        progress.say('not shown')
        if error:
            raise errors.UserError('wrong')

    monkeypatch.setattr(sys, 'stdout', None)  # as Python has it after `>&-`
    main(False)
    with pytest.raises(SystemExit):
        main(True)
    assert capsys.readouterr().err == 'error: wrong\n'


@pytest.mark.parametrize(
    'error',
    [
        MemoryError(),
        RuntimeError('RESOURCE_EXHAUSTED: Out of memory allocating 9 bytes.\n  at x'),
        OSError(errno.ENOMEM, os.strerror(errno.ENOMEM)),
        ImportError('x.so: failed to map segment from shared object'),
    ],
)
def test_a_lack_of_memory_is_one_line(error, capsys):
    @errors.exit_cleanly
    def main():
        raise error

    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith('error: out of memory: ')


def test_another_error_keeps_its_traceback():
    @errors.exit_cleanly
    def main():
        raise RuntimeError('a mistake of ours')

    with pytest.raises(RuntimeError, match='a mistake of ours'):
        main()


def test_few_addresses_are_a_warning():
    """With fewer, libraries end the process without a message."""
    code = 'from bert_jax import errors\nerrors.exit_cleanly(lambda: print("done"))()'
    limited = f'ulimit -v {2 * 2**20}; exec {sys.executable} -c {shlex.quote(code)}'
    done = subprocess.run(['bash', '-c', limited], capture_output=True, text=True, cwd=ROOT)
    assert done.stdout == 'done\n'
    assert 'warning: this process may use only 2,048 MiB of addresses (ulimit -v)' in done.stderr


@pytest.mark.slow
def test_a_model_that_does_not_fit_is_one_line(tmp_path):
    """The error of XLA was a traceback."""
    command = small.arguments(tmp_path, '--config.training.batch_size=(500000,8)')
    program = shlex.join([sys.executable, '-m', 'bert_jax.main', *command])
    limited = f'ulimit -v {6 * 2**20}; exec {program}'
    done = subprocess.run(['bash', '-c', limited], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 2, done.stderr
    assert done.stderr.splitlines()[-1].startswith('error: out of memory: ')
    assert 'Traceback' not in done.stderr
