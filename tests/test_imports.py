"""What a run imports when it starts, and what the benchmarks do without."""

import os
import pathlib
import subprocess
import sys

import pytest

from bert_jax.corpus import preparation
from tests.inference import small_runs

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


# Modules of ours that one pretraining command may import: how much a newcomer must load.
RUN_MODULES = 122
LOAD_MODULES = 70  # to read a run: nothing of other libraries, no task, no kind of problem

SLOW = {'tensorflow', 'tensorflow_datasets', 'torch', 'matplotlib', 'pandas'}


def loaded(modules: str, names: set[str]) -> str:
    """Return which of the names are imported along with these modules."""
    done = run(f'import sys, {modules}; print({names} & sys.modules.keys())')
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_task_is_imported_without_slow_modules():
    assert loaded('bert_jax.main, bert_jax.tasks.finetuning.builder', SLOW) == 'set()\n'


def test_pretraining_is_imported_without_fine_tuning_and_file_formats():
    others = {
        'bert_jax.tasks.finetuning.task',
        'bert_jax.problems',
        'bert_jax.labels',
        'bert_jax.interop.huggingface',
    }
    assert loaded('bert_jax.main, bert_jax.tasks.pretraining.builder', SLOW | others) == 'set()\n'


def count_modules(code: str) -> int:
    """Return how many modules of bert_jax a process has imported after this code."""
    done = run(
        f'import sys\n{code}\nprint(sum(name.split(".")[0] == "bert_jax" for name in sys.modules))'
    )
    assert done.returncode == 0, done.stderr
    return int(done.stdout.splitlines()[-1])


def test_the_package_imports_few_modules():
    assert count_modules('import bert_jax') <= 10


def test_a_bert_is_built_without_the_other_families():
    """Names of other families are found, too; an unknown name imports all of them."""
    done = run(
        'import sys\nfrom bert_jax.models import architectures\n'
        'families = lambda: {name for name in sys.modules if ".architectures." in name}\n'
        'architectures.build("bert_tiny")\nprint(len(families()))\n'
        'print(architectures.build("t5_small").num_layers, "t6" in architectures.BUILDERS)'
    )
    assert done.stdout.splitlines() == ['2', '8 False'], done.stderr


@pytest.fixture(scope='module')
def command(tmp_path_factory):
    """The arguments of a pretraining command on a corpus that exists."""
    folder = tmp_path_factory.mktemp('imports')
    text = '\n\n'.join(f'The dog number {n} went home.\nIt ran {n} miles.' for n in range(60))
    (folder / 'text.txt').write_text(text)
    source = f'text:{folder}/text.txt;documents=blank_line'
    preparation.prepare(
        [source], 'train:wordpiece:80', folder / 'corpus', held_out_fraction=0.1, workers=0
    )
    overrides = {
        'data.corpus': folder / 'corpus',
        'data.sources': source,
        'data.tokenizer': 'train:wordpiece:80',
        'data.held_out_fraction': 0.1,
        'workdir': folder / 'run',
        'model.num_layers': 1,
        'model.hidden_size': 16,
        'model.num_heads': 2,
        'model.intermediate_size': 16,
        'training.steps': '1,',
        'training.sequence_length': '16,',
        'training.batch_size': '2,',
        'training.max_predictions': '3,',
        'evaluation.examples': 2,
    }
    flags = [f'--config.{key}={value}' for key, value in overrides.items()]
    return ['main', '--config=configs/tiny.py', *flags]


def test_showing_a_batch_and_an_encoder_import_few_modules(command):
    """They import what a run does, and one module that shows the batch."""
    show = [*command, '--config.debug.batch=1']
    encoder = 'import bert_jax.models.encoders.transformer'
    number = count_modules(f'from bert_jax import main\n{encoder}\nmain.main({show})')
    assert number <= RUN_MODULES + 1


@pytest.mark.slow
def test_a_pretraining_command_imports_few_modules(command):
    """A run of one step, with evaluation, checkpoint and model card."""
    assert count_modules(f'from bert_jax import main\nmain.main({command})') <= RUN_MODULES


def test_loading_a_run_imports_few_modules_and_no_reader_of_other_formats(tmp_path):
    small_runs.save_run(tmp_path / 'run', 'classification')
    load = f'from bert_jax.interop import loading; loading.load_any({str(tmp_path / "run")!r})'
    assert count_modules(load) <= LOAD_MODULES
    done = run(f'import sys; {load}; print(*sys.modules)')
    others = ('training', 'problems', 'labels', 'objectives', 'tasks', 'inference', 'reports')
    names = done.stdout.split()
    assert not [
        name for name in names if name.startswith(tuple(f'bert_jax.{one}' for one in others))
    ]
    interop = {name for name in names if name.startswith('bert_jax.interop.')}
    assert interop == {'bert_jax.interop.loading', 'bert_jax.interop.readers'}
    assert not {'torch', 'tensorflow', 'safetensors'} & {*names}


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
