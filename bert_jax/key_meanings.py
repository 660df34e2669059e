"""The meaning of every config key: the comments beside the keys where they are declared."""

import ast
import io
import pathlib
import re
import tokenize
from collections.abc import Iterator
from typing import NamedTuple, TypeGuard

from bert_jax import recipes
from bert_jax.types import Config

PACKAGE = pathlib.Path(__file__).parent
LABELED_DATA = PACKAGE / 'labels/loader.py'
PROBLEMS = PACKAGE / 'problems/__init__.py'


class KeyRow(NamedTuple):
    """A config key.

    Attributes:
        key: The key, such as 'training.steps'.
        default: Its default as Python code in Markdown; '' for a section.
        meaning: The comments beside it.
    """

    key: str
    default: str
    meaning: str


def of_config(config: Config) -> dict[str, str]:
    """Return key → meaning for the keys of a config, except keys that only a recipe defines."""
    rows = [row for rows in read_sections(recipes.folder() / 'base.py').values() for row in rows]
    if config.task != 'pretraining':
        tuning = read_sections(recipes.folder() / 'finetune.py')
        rows += [row for section in tuning.values() for row in section]
        rows += read_data_keys()
        rows += [row._replace(key=f'problem.{row.key}') for row in read_problem_keys()]
    return {row.key: row.meaning for row in rows if row.meaning}


def read_data_keys() -> list[KeyRow]:
    """Return the keys of `data` of fine-tuning."""
    rows = read_sections(LABELED_DATA)['DEFAULTS']
    return [row._replace(key=f'data.{row.key}') for row in rows]


def read_problem_keys() -> Iterator[KeyRow]:
    """Yield the keys of `problem` of all kinds; a key may occur with several defaults."""
    source = PROBLEMS.read_text(encoding='utf-8')
    comments = _Comments(source)
    for node in ast.walk(ast.parse(source)):
        if _is_dict(node):
            yield from _read_rows(node, comments)


def read_sections(path: pathlib.Path) -> dict[str, list[KeyRow]]:
    """Read `config.NAME = ConfigDict(dict(…))` and `NAME = dict(…)`; '' has the single keys."""
    source = path.read_text(encoding='utf-8')
    comments = _Comments(source)
    sections: dict[str, list[KeyRow]] = {'': []}
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Assign | ast.AnnAssign) or node.value is None:
            continue
        target = node.targets[0] if isinstance(node, ast.Assign) else node.target
        calls = [part for part in ast.walk(node.value) if _is_dict(part)]
        if isinstance(target, ast.Attribute) and calls:
            rows = list(_read_rows(calls[0], comments, f'{target.attr}.'))
            lead = comments.of(node.lineno, calls[0].lineno)
            sections[target.attr] = [KeyRow(target.attr, '', lead)] * bool(lead) + rows
        elif isinstance(target, ast.Attribute):
            last = node.end_lineno or node.lineno
            meaning = comments.of(node.lineno, last)
            sections[''].append(KeyRow(target.attr, _show_default(node.value), meaning))
        elif isinstance(target, ast.Name) and calls and calls[0] is node.value:
            sections[target.id] = list(_read_rows(calls[0], comments))
    return sections


def _read_rows(call: ast.Call, comments: '_Comments', prefix: str = '') -> Iterator[KeyRow]:
    """Read the keywords of a `dict(…)`, with the keys of nested ones joined by dots."""
    for keyword in call.keywords:
        key, value = f'{prefix}{keyword.arg}', keyword.value
        if keyword.arg is not None and _is_dict(value):
            lead = comments.of(keyword.lineno, keyword.lineno)
            if lead:
                yield KeyRow(key, '', lead)
            yield from _read_rows(value, comments, f'{key}.')
        elif keyword.arg is not None:
            last = value.end_lineno or value.lineno
            yield KeyRow(key, _show_default(value), comments.of(keyword.lineno, last))


def _is_dict(node: ast.AST) -> TypeGuard[ast.Call]:
    return isinstance(node, ast.Call) and ast.unparse(node.func) == 'dict'


def _show_default(value: ast.expr) -> str:
    text = re.sub(r'^FieldReference\((.*)\)$', r'\1', ast.unparse(value))
    if text.startswith('placeholder('):
        return f'unset ({text[12:-1]})'
    return 'of the recipe' if 'recipe[' in text else f'`{text}`'


class _Comments:
    """The comments of a file by line: behind code, and on lines of their own."""

    def __init__(self, source: str) -> None:
        self.behind: dict[int, str] = {}
        self.alone: dict[int, str] = {}
        for token in tokenize.generate_tokens(io.StringIO(source).readline):
            if token.type == tokenize.COMMENT:
                is_alone = not token.line[: token.start[1]].strip()
                found = self.alone if is_alone else self.behind
                found[token.start[0]] = token.string.lstrip('# ')

    def of(self, first: int, last: int) -> str:
        """Return the comments above and behind the code on lines first … last."""
        above: list[str] = []
        while first - 1 - len(above) in self.alone:
            above.insert(0, self.alone[first - 1 - len(above)])
        return ' '.join(
            [*above, *(self.behind[n] for n in range(first, last + 1) if n in self.behind)]
        )
