"""Commands that are killed twenty times at any moment write what an undisturbed command writes."""

import json
import pathlib
import random
import shutil
import signal
import time

import numpy as np
import pytest

from bert_jax import tree_paths
from bert_jax.loaded import checkpoint_arrays
from tests.end_to_end import commands, preparation, small

pytestmark = pytest.mark.slow

KILLS = 20


def kill(module, arguments, output, seconds):
    """Start a command and kill it at any moment of its `seconds`, until it was killed KILLS times.

    If it was faster, its output is removed.
    """
    rng, kills, seconds = random.Random(0), 0, min(seconds, 12)  # the first run may have waited
    while kills < KILLS:
        process = commands.Command(module, arguments)
        time.sleep(rng.uniform(0, seconds))
        if process.poll() is None:
            process.send_signal(signal.SIGKILL)
        _, stderr = process.communicate(timeout=120)
        if process.returncode == -signal.SIGKILL:
            kills += 1
            if module == 'bert_jax.export' and output.exists():  # complete: it was about to exit
                shutil.rmtree(output)
        else:
            assert process.returncode == 0, stderr
            shutil.rmtree(output)
            seconds *= 0.8


def finish(module, arguments) -> float:
    """Run a command to its end; return its seconds."""
    start = time.monotonic()
    done = commands.run(module, *arguments)
    assert done.returncode == 0, done.stderr
    return time.monotonic() - start


def contents(folder: pathlib.Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob('*'))
        if path.is_file()
    }


def test_an_export_killed_twenty_times(tmp_path):
    status, stderr = small.run(tmp_path)
    assert status == 0, stderr
    expected, output = tmp_path / 'expected/model', tmp_path / 'killed/model'
    arguments = [f'--model={tmp_path / "run"}', '--output']
    seconds = finish('bert_jax.export', [*arguments, expected])
    kill('bert_jax.export', [*arguments, output], output, 0.8 * seconds)
    finish('bert_jax.export', [*arguments, output])
    assert contents(output) == contents(expected)
    assert [path.name for path in output.parent.iterdir()] == ['model']


def test_a_preparation_killed_twenty_times(tmp_path):
    source = small.write_text(tmp_path, documents=2000)
    arguments = [f'--input={source}', '--tokenizer=train:wordpiece:200', '--workers=1']
    seconds = finish('bert_jax.prepare', [*arguments, f'--output={tmp_path / "expected"}'])
    arguments.append(f'--output={tmp_path / "killed"}')
    kill('bert_jax.prepare', arguments, tmp_path / 'killed', 0.8 * seconds)
    finish('bert_jax.prepare', arguments)
    assert preparation.contents(tmp_path / 'killed') == preparation.contents(tmp_path / 'expected')
    assert not list(tmp_path.glob('*.partial'))


def sweep(folder, seconds=None):
    """Run a sweep of two runs, after kills if `seconds` is given; return its seconds."""
    folder.mkdir()
    settings = ('sweep.seeds=(0,1)', 'training.steps=(20,10)', 'checkpoint.every_steps=2')
    command = small.arguments(folder, *(f'--config.{setting}' for setting in settings))
    if seconds:
        kill('bert_jax.main', command, folder / 'run', seconds)
    return finish('bert_jax.main', command)


def test_a_sweep_killed_twenty_times(tmp_path):
    expected, killed = tmp_path / 'expected', tmp_path / 'killed'
    sweep(killed, 0.6 * sweep(expected))
    found = [json.loads((folder / 'run/results.json').read_text()) for folder in (killed, expected)]
    assert found[0] == found[1]
    for run in ('run/seed_0', 'run/seed_1'):
        ours, theirs = (
            tree_paths.flatten(checkpoint_arrays.load(folder / run).state)
            for folder in (killed, expected)
        )
        assert ours.keys() == theirs.keys()
        for key in theirs:
            np.testing.assert_array_equal(ours[key], theirs[key], err_msg=key)
