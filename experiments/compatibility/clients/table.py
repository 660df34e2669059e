"""Runs every client on every kind of exported model, and writes the table of docs/export.md.

    python -m experiments.compatibility.clients.table --environments=FOLDER --output=FOLDER

FOLDER/NAME of --environments is the environment of a client: a virtual environment with the
packages of CLIENTS, or for transformers.js the folder with node_modules. Clients without an
environment are left out, with a line. --clients and --kinds choose some, separated by commas.
results.json has the largest difference from bert_jax of each cell, or the last line of the client's
error.
"""

import argparse
import json
import pathlib
import shutil
import subprocess
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from bert_jax.errors import UserError
from experiments.compatibility.clients import kinds

_RUNNERS = pathlib.Path(__file__).parent / 'runners'


class Client(NamedTuple):
    """A program that opens exported folders.

    Attributes:
        format_name: of the folders that it opens.
        packages: what its environment has.
        opens: the kinds of models that it computes; it refuses others.
    """

    format_name: str
    packages: tuple[str, ...]
    opens: tuple[str, ...]


# Exported to one pass of a network.
_TASKS = (
    *('BERT', 'RoBERTa', 'embedding', 'classifier', 'multi-label', 'reranker', 'tagger'),
    *('answers', 'sparse', 'GPT-2'),
)
_ALL = (*_TASKS, 'relations')
_TORCH = 'torch==2.13.0'
_ONNXRUNTIME = ('onnxruntime==1.32.0', 'onnx==1.23.2', 'sympy==1.14.0', _TORCH)
_OPTIMUM = ('optimum-onnx==0.1.0', 'transformers==4.57.6', 'onnxruntime==1.32.0', _TORCH)
_IREE = ('iree-base-compiler==3.13.0', 'iree-base-runtime==3.13.0', 'safetensors==0.8.0')
_TRANSFORMERS = ('transformers==5.23.0', _TORCH)
CLIENTS = {
    'transformers_js': Client('onnx', ('@huggingface/transformers@4.3.1',), _TASKS),
    'fastembed': Client(
        'onnx', ('fastembed==0.9.1',), ('RoBERTa', 'embedding', 'reranker', 'GPT-2')
    ),
    'optimum': Client('onnx', _OPTIMUM, _TASKS),
    'onnxruntime_tools': Client('onnx', _ONNXRUNTIME, _ALL),
    'openvino': Client('onnx', ('openvino==2026.4.1',), _ALL),
    'iree': Client('stablehlo', _IREE, _ALL),
    'ctranslate2': Client(
        'huggingface',
        ('ctranslate2==4.8.5', *_TRANSFORMERS),
        ('BERT', 'RoBERTa', 'GPT-2', 'BART', 'T5'),
    ),
    'keras_hub': Client(
        'huggingface', ('keras-hub==0.32.0', 'jax==0.10.2', *_TRANSFORMERS), ('BERT', 'BART')
    ),
}


class Cell(NamedTuple):
    """What a client made of a folder.

    Attributes:
        difference: the largest difference from bert_jax of any output, or from transformers for
            folders of transformers; None: the client computed none.
        largest: the largest value of this output.
        error: the last line of the client's error; '' without one.
    """

    difference: float | None
    largest: float
    error: str


def run(name: str, folder: pathlib.Path, environment: pathlib.Path) -> Cell:
    """Run a client on an exported folder.

    Args:
        name: key of CLIENTS.
        folder: as the export wrote it.
        environment: of the client.
    """
    if name == 'transformers_js':
        command = ['node', str(_RUNNERS / f'with_{name}.mjs'), str(folder), str(environment)]
    else:
        command = [str(environment / 'bin/python'), str(_RUNNERS / f'with_{name}.py'), str(folder)]
    done = subprocess.run(command, capture_output=True, encoding='utf-8', timeout=600)
    lines = (done.stderr + done.stdout).strip().splitlines()
    if done.returncode:
        errors = [line for line in lines if 'Error' in line] or lines
        return Cell(None, 0, errors[-1] if errors else f'exit status {done.returncode}')
    answer = json.loads(done.stdout.splitlines()[-1])
    if 'difference' in answer:  # the client is compared with transformers, which opens the folder
        return Cell(answer['difference'], answer['largest'], '')
    return compare(answer, folder)


def compare(outputs: Mapping[str, list[object]], folder: pathlib.Path) -> Cell:
    """Compare the rows of outputs with those of bert_jax, where these are known."""
    samples = np.load(folder / 'samples.npz')
    worst = Cell(None, 0, 'no output of the folder')
    for name, rows in outputs.items():
        for row, expected in zip(rows, samples[f'expected_{name}'], strict=True):
            array = np.atleast_1d(expected)
            known = array[np.isfinite(array).all(tuple(range(1, array.ndim)))]
            found = np.atleast_1d(row)[: len(known)]
            difference = float(np.abs(found.reshape(known.shape) - known).max())
            if worst.difference is None or not difference <= worst.difference:
                worst = Cell(difference, float(np.abs(known).max()), '')
    return worst


def exported(kind: str, format_name: str, output: pathlib.Path) -> Cell | pathlib.Path:
    """The folder of a kind in a format, made once; a cell with our own refusal, if there is one."""
    folder = output / format_name / kind.replace(' ', '_')
    if not (folder / 'signature.json').exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        try:
            kinds.export(kind, format_name, folder)
        except UserError as error:
            return Cell(None, 0, f'bert_jax: {error}')
    return folder


def markdown(results: Mapping[str, Mapping[str, Cell]]) -> str:
    """The table: a row for each kind, a column for each client."""
    names = list(results)
    lines = [f'| | {" | ".join(names)} |', '|---' * (len(names) + 1) + '|']
    errors: list[str] = []
    for kind in {kind: None for cells in results.values() for kind in cells}:
        cells = []
        for name in names:
            cell = results[name].get(kind)
            if cell is None:
                cells.append('')
            elif cell.difference is None:
                if cell.error not in errors:
                    errors.append(cell.error)
                cells.append(f'({errors.index(cell.error) + 1})')
            else:
                cells.append(f'{cell.difference:.0e}')
        lines.append(f'| {kind} | {" | ".join(cells)} |')
    notes = [f'{number}. {error}' for number, error in enumerate(errors, 1)]
    return '\n'.join([*lines, '', *notes]) + '\n'


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ('environments', 'output'):
        parser.add_argument(f'--{name}', required=True, type=pathlib.Path)
    parser.add_argument('--clients', default=','.join(CLIENTS))
    parser.add_argument('--kinds', default=','.join(kinds.KINDS))
    flags = parser.parse_args()
    results: dict[str, dict[str, Cell]] = {}
    for name in flags.clients.split(','):
        environment = flags.environments / name
        if not environment.exists():
            print(
                f'{name}: no environment {environment}; it needs {" ".join(CLIENTS[name].packages)}'
            )
            continue
        results[name] = {}
        for kind in flags.kinds.split(','):
            folder = exported(kind, CLIENTS[name].format_name, flags.output.resolve())
            is_made = isinstance(folder, pathlib.Path)
            cell = run(name, folder, environment) if is_made else folder
            results[name][kind] = cell
            print(name, kind, cell, flush=True)
    shutil.rmtree(flags.output / 'scratch', ignore_errors=True)
    plain = {n: {k: c._asdict() for k, c in cells.items()} for n, cells in results.items()}
    (flags.output / 'results.json').write_text(json.dumps(plain, indent=2) + '\n')
    (flags.output / 'table.md').write_text(markdown(results))


if __name__ == '__main__':
    main()
