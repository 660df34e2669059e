"""Executes the notebooks of this folder in a copy of the checkout and stores their outputs.

    python experiments/colab/execute.py

The copy has the files that git tracks, as after a clone. `explore` and `generation` read the run of
`tiny`. The stored outputs of `generation` are those of a shorter run (docs/generation.md).
"""

import hashlib
import pathlib
import shutil
import subprocess
import tempfile

import nbclient
import nbformat

FOLDER = pathlib.Path(__file__).parent
ROOT = FOLDER.parents[1]
NAMES = ('tiny', 'explore', 'generation', 'finetune', 'python')  # in this order


def digest(notebook: nbformat.NotebookNode) -> str:
    """Return the SHA-256 of the code, which tells whether outputs belong to it."""
    sources = [cell.source for cell in notebook.cells if cell.cell_type == 'code']
    return hashlib.sha256('\0'.join(sources).encode()).hexdigest()


def execute(path: pathlib.Path) -> nbformat.NotebookNode:
    """Execute a notebook in its folder, in a new kernel, and return it with its outputs."""
    notebook = nbformat.read(path, as_version=4)
    nbclient.NotebookClient(
        notebook,
        timeout=3600,
        record_timing=False,
        coalesce_streams=True,
        resources={'metadata': {'path': path.parent}},
    ).execute()
    notebook.metadata.executed_code = digest(notebook)
    return notebook


def main() -> None:
    listed = subprocess.run(
        ['git', 'ls-files', '-z'], cwd=ROOT, capture_output=True, text=True, check=True
    )
    with tempfile.TemporaryDirectory() as folder:
        copy = pathlib.Path(folder) / 'bert_jax'
        for name in filter(None, listed.stdout.split('\0')):
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, copy / name)
        for name in NAMES:
            notebook = execute(copy / f'experiments/colab/{name}.ipynb')
            nbformat.write(notebook, FOLDER / f'{name}.ipynb')


if __name__ == '__main__':
    main()
