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
sys.path.insert(0, 'experiments/benchmark')
"""


def run(code: str) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, '-c', code], cwd=ROOT, capture_output=True, text=True, check=False
    )


LOAD = """
import gc, sys
from bert_jax import main

collections = []
gc.callbacks.append(lambda phase, info: collections.append(info))
main.load(TASK)
print(len(collections), gc.isenabled(), gc.get_freeze_count() > 100_000, NAMES & sys.modules.keys())
"""
SLOW = {'tensorflow', 'tensorflow_datasets', 'tensorboardX', 'torch', 'matplotlib', 'pandas'}


def test_a_run_compiles_before_it_imports_what_is_slow():
    done = run(f'TASK, NAMES = "tagging", {SLOW}{LOAD}')
    assert done.stdout == '0 True True set()\n', done.stderr


def test_pretraining_from_scratch_waits_for_no_other_task_nor_format():
    others = {
        'bert_jax.tasks.finetuning',
        'bert_jax.tasks.problems',
        'bert_jax.data.labelled',
        'bert_jax.interop.huggingface',
    }
    done = run(f'TASK, NAMES = "pretraining", {SLOW | others}{LOAD}')
    assert done.stdout == '0 True True set()\n', done.stderr


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
