"""What a run imports when it starts, and what the benchmarks do without."""

import os
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[1]
BLOCK = """
import sys

class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.split('.')[0] in NAMES:
            raise ImportError(f'{name} is blocked')

sys.meta_path.insert(0, Blocked())
sys.path.insert(0, 'experiments/benchmarks')
"""


def run(code: str) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, '-c', code], cwd=ROOT, capture_output=True, text=True, check=False
    )


SLOW = {'tensorflow', 'tensorflow_datasets', 'tensorboardX', 'torch', 'matplotlib', 'pandas'}


def loaded(modules: str, names: set[str]) -> str:
    """Return which of the names are imported along with these modules."""
    done = run(f'import sys, {modules}; print({names} & sys.modules.keys())')
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_task_is_imported_without_slow_modules():
    assert loaded('bert_jax.main, bert_jax.tasks.finetuning', SLOW) == 'set()\n'


def test_pretraining_is_imported_without_fine_tuning_and_file_formats():
    others = {
        'bert_jax.tasks.finetuning',
        'bert_jax.problems',
        'bert_jax.labels',
        'bert_jax.interop.huggingface',
    }
    assert loaded('bert_jax.main, bert_jax.tasks.pretraining', SLOW | others) == 'set()\n'


def test_tensorflow_is_imported_without_keras():
    done = run(
        'import sys; from bert_jax import tensorflow_import; '
        "tensorflow_import.tensorflow(); print('keras' in sys.modules)"
    )
    assert done.stdout == 'False\n', done.stderr


def test_the_benchmark_steps_without_tensorflow_and_ml_collections():
    names = ('tensorflow', 'tensorflow_datasets', 'ml_collections', 'orbax', 'tokenizers')
    done = run(
        f'NAMES = {names}{BLOCK}'
        'import report, sides, training_step, fill\n'
        'shape = sides.Shape(1, 64, 2, 8, 2, 100)\n'
        'step, peak_bytes = sides.make_step("bert_jax", shape, "float32", {})\n'
        'losses = [step() for _ in range(3)]\n'
        'assert losses[-1] < losses[0] and peak_bytes() > 0, losses\n'
        'print(f"{sides.flops_per_step(shape):.0f}")\n'
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert int(done.stdout) > 0


@pytest.mark.parametrize('options', [[], ['-S']])  # without site, Python has not read `types`
def test_a_file_that_is_run_as_a_script_says_how_to_run_it(options):
    command = [sys.executable, *options, ROOT / 'bert_jax/predict.py']
    environment = os.environ | {'PYTHONPATH': str(ROOT)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert 'run python -m bert_jax.NAME' in line
