"""The worked examples of docs/extending.md as modules, and applied to a copy of the project."""

import ast
import importlib
import pathlib
import re
import shutil
import sys
import types

ROOT = pathlib.Path(__file__).parents[1]
PAGE = ROOT / 'docs/extending.md'
_COPIED = ('findings', 'bert_jax', 'configs', 'docs', 'experiments', 'tests')


def blocks() -> dict[str, str]:
    """Return the blocks of the page by their first line, without '# '."""
    found = re.findall(r'```python\n# ([^\n]*)\n(.*?)```', PAGE.read_text(), re.DOTALL)
    return dict(found)


def load(name: str, folder: pathlib.Path, monkeypatch) -> types.ModuleType:
    """Write the block of the file NAME.py to a folder and import it from there."""
    (path,) = (path for path in blocks() if pathlib.PurePath(path).name == f'{name}.py')
    (folder / f'{name}.py').write_text(blocks()[path])
    monkeypatch.syspath_prepend(folder)
    monkeypatch.delitem(sys.modules, name, raising=False)
    return importlib.import_module(name)


def apply(root: pathlib.Path) -> None:
    """Copy the project to a folder and do there what the page says.

    A block '# FILE' becomes this file; a block '# in FILE, TABLE' has imports, which follow the
    last import of bert_jax in the file, and a line for the table.
    """
    for name in _COPIED:
        ignored = shutil.ignore_patterns('__pycache__')
        shutil.copytree(ROOT / name, root / name, ignore=ignored)
    for path in [*ROOT.glob('*.md'), ROOT / 'pyproject.toml']:
        shutil.copy(path, root)
    for place, text in blocks().items():
        if not place.startswith('in '):
            (root / place).write_text(text)
            continue
        file, _, table = place.removeprefix('in ').partition(', ')
        (root / file).write_text(_add((root / file).read_text(), table, text))


def _add(source: str, table: str, block: str) -> str:
    """Add the imports and the entry of a block to the source of a module."""
    imports, _, entry = block.rpartition('\n\n')
    tree, lines = ast.parse(source), source.splitlines()
    targets = {ast.unparse(_target(node)): node for node in tree.body if _target(node)}
    entries = next(node for node in ast.walk(targets[table]) if isinstance(node, ast.Dict))
    lines.insert((entries.end_lineno or 0) - 1, entry.rstrip())
    last = [
        node.end_lineno or 0
        for node in tree.body
        if isinstance(node, ast.ImportFrom) and str(node.module).startswith('bert_jax')
    ]
    lines.insert(max(last), imports)
    return '\n'.join(lines) + '\n'


def _target(node: ast.stmt) -> ast.expr | None:
    """The name that an assignment binds."""
    if isinstance(node, ast.AnnAssign):
        return node.target
    return node.targets[0] if isinstance(node, ast.Assign) else None
