"""The worked examples of docs/extending.md as modules."""

import importlib
import pathlib
import re
import sys
import types

PAGE = pathlib.Path(__file__).parents[1] / 'docs/extending.md'


def load(name: str, folder: pathlib.Path, monkeypatch) -> types.ModuleType:
    """Write the block that starts with `# NAME.py` to a folder and import it from there."""
    blocks = re.findall(rf'```python\n# {name}\.py\n(.*?)```', PAGE.read_text(), re.DOTALL)
    (folder / f'{name}.py').write_text(blocks[0])
    monkeypatch.syspath_prepend(folder)
    monkeypatch.delitem(sys.modules, name, raising=False)
    return importlib.import_module(name)
