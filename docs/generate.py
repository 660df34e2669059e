"""Writes docs/configs.md from the comments of configs/base.py and the fine-tuning configs.

python docs/generate.py
"""

import ast
import io
import pathlib
import tokenize
from collections.abc import Iterator

ROOT = pathlib.Path(__file__).parents[1]
PAGE = ROOT / 'docs/configs.md'
HEADER = """# Every config key

<!-- Written by docs/generate.py from the comments in configs/. Change them there. -->

Set any key on the command line, for example `--config.stages.steps="(9000, 1000)"`. An unknown key is
an error. "unset" takes the value of the architecture or of the weights in `init_from`.
"""


class Comments:
    """The comments of a file by line: those that follow code, and those on lines of their own."""

    def __init__(self, source: str) -> None:
        self.after: dict[int, str] = {}
        self.alone: dict[int, str] = {}
        for token in tokenize.generate_tokens(io.StringIO(source).readline):
            if token.type == tokenize.COMMENT:
                is_alone = not token.line[: token.start[1]].strip()
                found = self.alone if is_alone else self.after
                found[token.start[0]] = token.string.lstrip('# ')

    def of(self, first: int, last: int) -> str:
        """What is said of the code on lines first … last: above it, then behind it."""
        above = []
        while first - 1 - len(above) in self.alone:
            above.append(self.alone[first - 1 - len(above)])
        behind = [self.after[line] for line in range(first, last + 1) if line in self.after]
        return ' '.join([*reversed(above), *behind])


def rows(tree: ast.AST, comments: Comments, prefix: str = '') -> Iterator[tuple[str, str, str]]:
    """(key, default, meaning) of each keyword of a `dict(…)`, nested ones joined by dots."""
    for keyword in getattr(tree, 'keywords', []):
        if keyword.arg is None:
            continue
        key = f'{prefix}{keyword.arg}'
        if isinstance(keyword.value, ast.Call) and is_dict(keyword.value):
            yield from rows(keyword.value, comments, f'{key}.')
        else:
            last = keyword.value.end_lineno or keyword.lineno
            yield key, default(keyword.value), comments.of(keyword.lineno, last)


def is_dict(call: ast.Call) -> bool:
    return isinstance(call.func, ast.Name) and call.func.id == 'dict'


def default(value: ast.expr) -> str:
    if isinstance(value, ast.Call):  # placeholder(int)
        return f'unset ({ast.unparse(value.args[0])})' if value.args else ast.unparse(value)
    return f'`{ast.unparse(value)}`'


def sections(path: pathlib.Path) -> Iterator[tuple[str, str, list[tuple[str, str, str]]]]:
    """(name, comment, rows) of each assignment `config.NAME = …` of `get_config`."""
    source = path.read_text(encoding='utf-8')
    comments = Comments(source)
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Assign) or not isinstance(node.targets[0], ast.Attribute):
            continue
        name, value = node.targets[0].attr, node.value
        if isinstance(value, ast.Call) and value.args and is_dict(value.args[0]):
            said = comments.of(node.lineno, value.args[0].lineno)
            yield name, said, list(rows(value.args[0], comments, f'{name}.'))
        else:
            last = node.end_lineno or node.lineno
            yield '', '', [(name, default(value), comments.of(node.lineno, last))]


def table(lines: list[tuple[str, str, str]]) -> str:
    cells = [[cell.replace('|', '\\|') for cell in (f'`{line[0]}`', *line[1:])] for line in lines]
    body = [f'| {" | ".join(row)} |' for row in cells]
    return '\n'.join(['| key | default | |', '|---|---|---|', *body]) + '\n'


def page() -> str:
    """The text of docs/configs.md."""
    parts, single = [HEADER], []
    for name, said, lines in sections(ROOT / 'configs/base.py'):
        if name:
            parts.append(
                f'## `{name}`\n\n{said[:1].upper() + said[1:]}\n\n{table(lines)}'.replace(
                    '\n\n\n\n', '\n\n'
                )
            )
        else:
            single += lines
    return '\n'.join([parts[0], f'## The run\n\n{table(single)}', *parts[1:]])


if __name__ == '__main__':
    PAGE.write_text(page(), encoding='utf-8')
