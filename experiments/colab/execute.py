"""Executes the notebooks of this folder in a copy of the checkout and stores their outputs.

    python experiments/colab/execute.py
    python experiments/colab/execute.py --only-headings

The copy has the files that git tracks, as after a clone. `explore` and `generation` read the run of
`tiny`. The stored outputs of `generation` are those of a shorter run (docs/generation.md).
The first code cell of every notebook is `first_cell.py`. `repository` there is the only place for
the address of this project; the badges are made from it. Cell and badges are written first, and
nothing else with `--only-headings`.
"""

import argparse
import hashlib
import pathlib
import re
import shutil
import subprocess
import tempfile

import nbclient
import nbformat

FOLDER = pathlib.Path(__file__).parent
ROOT = FOLDER.parents[1]
NAMES = ('tiny', 'explore', 'generation', 'finetune', 'python')  # in this order


FIRST_CELL = (FOLDER / 'first_cell.py').read_text().rstrip()
COLAB = 'https://colab.research.google.com'


def badge(name: str, repository: str) -> str:
    """Return the link that opens a notebook in Colab; without an address, Colab itself."""
    github = 'https://github.com/'
    if repository.startswith(github):
        page = repository.removeprefix(github).removesuffix('.git')
        link, note = f'{COLAB}/github/{page}/blob/main/experiments/colab/{name}.ipynb', ''
    else:
        link, note = (
            f'{COLAB}/',
            '\n(there, upload this file and set `repository` in the first cell)',
        )
    return f'[![Open in Colab]({COLAB}/assets/colab-badge.svg)]({link}){note}'


def write_headings(name: str, notebook: nbformat.NotebookNode) -> None:
    """Set the first code cell and the badge."""
    setup = next(cell for cell in notebook.cells if cell.cell_type == 'code')
    setup.source, setup.metadata['tags'] = FIRST_CELL, ['setup']
    repository = re.search("^repository = '(.*?)'", FIRST_CELL, re.MULTILINE)[1]
    title, _, text = notebook.cells[0].source.split('\n\n', 2)
    notebook.cells[0].source = '\n\n'.join([title, badge(name, repository), text])


def digest(notebook: nbformat.NotebookNode) -> str:
    """Return the SHA-256 of the code after the first cell, which made the stored outputs."""
    _, *sources = [cell.source for cell in notebook.cells if cell.cell_type == 'code']
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
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--only-headings', action='store_true', help='execute nothing')
    only_headings = parser.parse_args().only_headings
    for name in NAMES:
        notebook = nbformat.read(FOLDER / f'{name}.ipynb', as_version=4)
        write_headings(name, notebook)
        nbformat.write(notebook, FOLDER / f'{name}.ipynb')
    if only_headings:
        return
    with tempfile.TemporaryDirectory() as folder:
        copy = copy_checkout(pathlib.Path(folder) / 'bert_jax')
        for name in NAMES:
            notebook = execute(copy / f'experiments/colab/{name}.ipynb')
            nbformat.write(notebook, FOLDER / f'{name}.ipynb')


def copy_checkout(target: pathlib.Path) -> pathlib.Path:
    """Copy the files that git tracks, as they are now."""
    listed = subprocess.run(
        ['git', 'ls-files', '-z'], cwd=ROOT, capture_output=True, text=True, check=True
    )
    for name in filter(None, listed.stdout.split('\0')):
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, target / name)
    return target


if __name__ == '__main__':
    main()
