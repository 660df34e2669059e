"""Every command that README and docs/ print runs as printed, in order, in one clean folder.

To be quick, `shrunk` replaces some values of commands that train by small ones. Not run are
commands that need several machines, devices or a network, and packages that are not installed
(`reason_to_skip`).
"""

import importlib.util
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import tempfile

import pytest

from bert_jax.xla_flags import known_flags
from tests import extending, page_inputs, printed_commands
from tests.inference import small_gpt2

# Instead of other values of these keys in commands of bert_jax.main.
SMALL = (
    '--config.training.steps=(3,2) --config.training.sequence_length=(32,64) '
    '--config.training.batch_size=(4,4) --config.training.max_predictions=(5,10) '
    '--config.evaluation.examples=16'
)
SMALL_TUNING = (
    '--config.training.epochs=0 --config.training.steps=2 --config.training.batch_size=16 '
    '--config.evaluation.every_steps=0'
)
ALL_POSITIONS = ('bart',)  # predict every position
ELSEWHERE = (
    'gs://',
    'ORG/NAME',
    'HOST',
    '--coordinator',
    '--config.mesh.fsdp=8',
    'pytest',
    '--wordnet',
)


def reason_to_skip(text: str) -> str:
    """Why a command is not run here; '' to run it."""
    if any(mark in text for mark in ELSEWHERE):
        return 'needs other machines, data or minutes'
    if ('onnx' in text or 'exported/tiny' in text) and not importlib.util.find_spec('onnx'):
        return 'onnx is not installed'
    return ''


def shrunk(text: str) -> str:
    """Replace values of a command that trains by small ones."""
    if 'bert_jax.main' not in text:
        return text
    for key in re.findall(r'--config\.[\w.]+=', f'{SMALL} {SMALL_TUNING}'):
        if 'max_predictions' in key:
            continue  # printed with the same lengths as here
        text = re.sub(rf' {re.escape(key)}("[^"]*"|\S+)', '', text)
    if 'finetune.py' in text:
        seeds = ' "--config.sweep.seeds=(13,21)"' if 'few_shot' in text else ''
        return f'{text} {SMALL_TUNING}{seeds}'
    flags = SMALL.split()
    if 'max_predictions' in text:
        flags = [flag for flag in flags if 'max_predictions' not in flag]
    more = ' '.join(map(shlex.quote, flags))
    if any(mark in text for mark in ALL_POSITIONS):
        more = more.replace('max_predictions=(5,10)', 'max_predictions=(32,64)')
    if 'causal_share' in text:  # one row of 16 is causal
        more = more.replace('batch_size=(4,4)', 'batch_size=(16,16)')
    if 'fast' in text:  # masks 30 % of the tokens
        more = more.replace('max_predictions=(5,10)', 'max_predictions=(10,20)')
    if 'linguistic' in text:
        more = more.replace('steps=(3,2)', 'steps=(9,6)')  # isotropy has a fixed cost
        more += (
            ' --config.evaluation.linguistic.max_share=1.0'
            ' --config.evaluation.linguistic.sentences=9'
            ' --config.evaluation.linguistic.pairs_per_paradigm=1'
        )
    return f'{text} {more}'


class Folder:
    """The folder of the commands, and a copy of the project with the examples of extending.md."""

    def __init__(self, root: pathlib.Path):
        self.root, self.variables = root / 'work', ''
        self.root.mkdir()
        extending.apply(root / 'copy')
        for recipe in (root / 'copy').glob('with_*.py'):
            shutil.copy(recipe, self.root)
        page_inputs.write(self.root)
        self.inputs = {path.name for path in self.root.iterdir()} | {'runs', 'corpora'}
        python = f'{pathlib.Path(sys.executable).parent}{os.pathsep}{os.environ["PATH"]}'
        self.environment = {
            **os.environ,
            'PATH': python,
            'PYTHONPATH': str(root / 'copy'),
            'PYTHONDONTWRITEBYTECODE': '1',
            # One device, and machine code that is made quickly.
            'XLA_FLAGS': known_flags('--xla_backend_optimization_level=0'),
        }

    def run(self, text: str) -> str:
        """Run a command, `MODEL=…` for all later ones; return its output if it fails, else ''."""
        if text.startswith('MODEL='):
            self.variables = f'{text}\n'
            return ''
        done = subprocess.run(
            ['bash', '-c', self.variables + text],
            cwd=self.root,
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
        )
        output = f'{text}\n{done.stdout[-1000:]}\n{done.stderr[-3000:]}'
        return output if done.returncode else ''

    def make_weights(self) -> None:
        """Make the published models that the pages call FOLDER, WEIGHTS and CAUSAL."""
        failure = self.run('python -m bert_jax.export --model=runs/tiny --output=FOLDER')
        assert not failure, failure
        shutil.copytree(self.root / 'FOLDER', self.root / 'WEIGHTS')
        with tempfile.TemporaryDirectory() as folder:
            gpt2 = small_gpt2.folder(pathlib.Path(folder))
            shutil.copytree(gpt2, self.root / 'CAUSAL')
        self.inputs |= {'FOLDER', 'WEIGHTS', 'CAUSAL'}

    def clean(self) -> None:
        """Remove what a page has written, except runs and corpora, and restore the files."""
        for path in self.root.iterdir():
            if path.name not in self.inputs:
                shutil.rmtree(path) if path.is_dir() else path.unlink()
        page_inputs.write(self.root)


@pytest.mark.slow
def test_every_printed_command_runs_in_order(tmp_path):
    folder, page, failures = Folder(tmp_path), '', []
    for printed in printed_commands.commands():
        if printed.page != page and page:
            folder.clean()
        page = printed.page
        if reason_to_skip(printed.text):
            print(f'not run: {printed.text}', flush=True)
            continue
        print(f'{page}: {printed.text}', flush=True)
        if failure := folder.run(shrunk(printed.text)):
            failures.append(f'{page}: {failure}')
        if not (folder.root / 'FOLDER').exists():
            folder.make_weights()
    assert not failures, '\n'.join(failures)
