"""Scripts under experiments/ use names of the package that exist.

The scripts are not imported: some need other libraries.
"""

import ast
import importlib
import inspect
import pathlib
import types

import pytest

ROOT = pathlib.Path(__file__).parents[2]
SCRIPTS = sorted(ROOT.glob('experiments/**/*.py'))
PACKAGES = ('bert_jax', 'configs')


def lookup(module, name):
    """The value of a name in a module, which may be a submodule. Raises ImportError without it."""
    parent = importlib.import_module(module)
    if hasattr(parent, name):
        return getattr(parent, name)
    return importlib.import_module(f'{module}.{name}')


def missing_names(source):
    """What a script takes from modules of the package that do not have it."""
    tree, found, missing = ast.parse(source), {}, []
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    for node in imports:
        if (node.module or '').split('.')[0] not in PACKAGES:
            continue
        for alias in node.names:
            try:
                found[alias.asname or alias.name] = lookup(node.module, alias.name)
            except ImportError:
                missing.append(f'{node.module}.{alias.name}')
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            value = found.get(node.value.id)
            if isinstance(value, types.ModuleType) and not hasattr(value, node.attr):
                missing.append(f'{value.__name__}.{node.attr}')
    return missing


@pytest.mark.parametrize('script', SCRIPTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_names_of_the_package_in_a_script_exist(script):
    assert not missing_names(script.read_text())


def test_removed_names_are_found():
    source = """
        from bert_jax.tasks import removed, show_batch
        show_batch.removed()
        """
    missing = ['bert_jax.tasks.removed', 'bert_jax.tasks.show_batch.removed']
    assert missing_names(inspect.cleandoc(source)) == missing
