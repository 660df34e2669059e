"""Builds the API reference from the docstrings: python docs/api.py FOLDER

Needs `pip install -e ".[docs]"`.
"""

import pathlib
import pkgutil
import sys

import pdoc

import bert_jax


def build(folder: pathlib.Path) -> list[str]:
    """Write one page a module and return the names of the modules."""
    found = pkgutil.walk_packages(bert_jax.__path__, 'bert_jax.')
    names = ['bert_jax', *(module.name for module in found)]
    pdoc.render.configure(docformat='google')
    pdoc.pdoc(*names, output_directory=folder)
    return names


if __name__ == '__main__':
    build(pathlib.Path(sys.argv[1]))
