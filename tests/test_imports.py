"""What starting a run imports, and what a bare GPU image can do without."""

import pathlib
import subprocess
import sys

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


def loaded(task: str, names: set[str]) -> str:
    """Which of these modules a run of a task imports before it compiles."""
    done = run(
        f'import sys; from bert_jax import main; main.load("{task}"); '
        f'print({names} & sys.modules.keys())'
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_run_compiles_before_it_imports_what_is_slow():
    assert loaded('tagging', SLOW) == 'set()\n'


def test_pretraining_from_scratch_waits_for_no_other_task_nor_format():
    others = {
        'bert_jax.tasks.finetuning',
        'bert_jax.tasks.problems',
        'bert_jax.data.labeled',
        'bert_jax.interop.huggingface',
    }
    assert loaded('pretraining', SLOW | others) == 'set()\n'


COMMAND = """
import gc
from bert_jax import main

def run(config, place):
    gc.callbacks.remove(count)
    print(len(collections), gc.isenabled(), gc.get_freeze_count() > 100_000)

collections, main.run, parse = [], run, main.parse
count = lambda phase, info: collections.append(info)
main.parse = lambda argv: (parse(argv), gc.callbacks.append(count))[0]
main.main(['main', '--config=configs/tiny.py'])
"""


def test_a_command_looks_for_no_garbage_in_what_it_imports():
    done = run(COMMAND)
    assert done.stdout == '0 True True\n', done.stderr


READING = """
import gc, sys
from bert_jax.data import tensorflow_import as lazy

collections = []
gc.callbacks.append(lambda phase, info: collections.append(phase))
lazy.tensorflow()
gc.callbacks.clear()
lazy.tensorflow_datasets()
print(collections.count('start') < 3, 'keras' in sys.modules, gc.isenabled())
"""


def test_tensorflow_comes_without_keras_and_without_looking_for_garbage():
    done = run(READING)
    assert done.stdout == 'True False True\n', done.stderr


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
