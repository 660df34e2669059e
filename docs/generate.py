"""Writes docs/configs.md from the configs and the comments beside their keys.

python docs/generate.py
"""

import ast
import io
import pathlib
import re
import sys
import tokenize
from collections.abc import Iterable, Iterator

ROOT = pathlib.Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from bert_jax.tasks.problems import PROBLEMS  # noqa: E402

PAGE = ROOT / 'docs/configs.md'
HEADER = """# Config keys

<!-- Written by `python docs/generate.py` from configs/ and the comments there. Edit them there. -->

Any key can be set on the command line: `--config.training.steps="(9000, 1000)"`. An unknown key is
an error, and so is a key that you set but that has no effect with the other values. A default of
"unset" means: as in the architecture or in the weights of `init_from`; None unsets such a key
again: `--config.model.num_heads=None`. With `--print_config` the command only prints all values;
with `--dry_run` it reads the data, compiles every stage and shows the memory it needs, but trains
nothing and writes no run folder.

[Pretraining and common keys](#pretraining-and-common-keys) · [fine-tuning](#fine-tuning)
"""
FINE_TUNING = """# Fine-tuning

`configs/finetune.py:NAME` has the common keys above without {pretraining_only}, and these.
Named benchmarks and samples set some of them: `configs/finetune_tasks.py`.
"""
FINE_TUNED = ('data', 'training', 'schedule', 'evaluation', 'checkpoint')  # sections of its own
Row = tuple[str, str, str]  # key, default, meaning
Rows = list[Row]


def page() -> str:
    """Return the text of docs/configs.md."""
    base, fine_tuning = ROOT / 'configs/base.py', ROOT / 'configs/finetune.py'
    labeled, problems = 'bert_jax/data/labeled/loader.py', 'bert_jax/tasks/problems/__init__.py'
    sections = dict(read_sections(base))
    single = sections.pop('')
    own = dict(read_sections(fine_tuning))
    (data,) = (rows for name, rows in read_sections(ROOT / labeled) if name == 'DEFAULTS')
    own['data'] = own['data'] + [(f'data.{key}', *rest) for key, *rest in data]
    return '\n'.join(
        [
            HEADER,
            '# Pretraining and common keys\n',
            table('The run', single),
            *(table(f'`{name}`', rows) for name, rows in sections.items()),
            FINE_TUNING.format(pretraining_only=pretraining_only(fine_tuning)),
            *(table(f'`{name}` of fine-tuning', own[name]) for name in FINE_TUNED),
            *problem_tables(ROOT / problems),
        ]
    )


def pretraining_only(path: pathlib.Path) -> str:
    """Name the sections of base.py that configs/finetune.py removes."""
    for node in ast.walk(ast.parse(path.read_text(encoding='utf-8'))):
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == '_PRETRAINING_ONLY':
            return ', '.join(f'`{name}`' for name in ast.literal_eval(node.value))
    raise ValueError(path)


def problem_tables(path: pathlib.Path) -> Iterator[str]:
    """Make one table for each set of keys of `problem`, with the kinds that share it."""
    source = path.read_text(encoding='utf-8')
    comments = Comments(source)
    calls = [node for node in ast.walk(ast.parse(source)) if is_dict(node)]
    meaning: dict[tuple[str, str], str] = {}
    for call in calls:
        for key, value, said in read_rows(call, comments):
            meaning[key, value] = meaning.get((key, value)) or said
    kinds: dict[tuple, list[str]] = {}
    for kind, entry in PROBLEMS.items():
        kinds.setdefault(tuple(sorted(entry.settings.items())), []).append(kind)
    for settings, names in kinds.items():
        rows = [
            (f'problem.{key}', f'`{value!r}`', meaning[key, f'`{value!r}`'])
            for key, value in settings
        ]
        yield table('`problem` of ' + ', '.join(names), rows)


class Comments:
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


def read_sections(path: pathlib.Path) -> Iterable[tuple[str, Rows]]:
    """Read `config.NAME = ConfigDict(dict(…))` and `NAME = dict(…)`; '' has the single keys."""
    source = path.read_text(encoding='utf-8')
    comments, sections = Comments(source), {'': []}
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Assign | ast.AnnAssign) or node.value is None:
            continue
        target = node.targets[0] if isinstance(node, ast.Assign) else node.target
        calls = [part for part in ast.walk(node.value) if is_dict(part)]
        if isinstance(target, ast.Attribute) and calls:
            rows = list(read_rows(calls[0], comments, f'{target.attr}.'))
            lead = comments.of(node.lineno, calls[0].lineno)
            sections[target.attr] = [(f'{target.attr}', '', lead)] * bool(lead) + rows
        elif isinstance(target, ast.Attribute):
            last = node.end_lineno or node.lineno
            row = target.attr, show_default(node.value), comments.of(node.lineno, last)
            sections[''].append(row)
        elif isinstance(target, ast.Name) and calls and calls[0] is node.value:
            sections[target.id] = list(read_rows(calls[0], comments))
    return sections.items()


def read_rows(
    call: ast.Call, comments: Comments, prefix: str = ''
) -> Iterator[tuple[str, str, str]]:
    """Read the keywords of a `dict(…)`, with the keys of nested ones joined by dots."""
    for keyword in call.keywords:
        key, value = f'{prefix}{keyword.arg}', keyword.value
        if keyword.arg is not None and is_dict(value):
            lead = comments.of(keyword.lineno, keyword.lineno)
            if lead:
                yield key, '', lead
            yield from read_rows(value, comments, f'{key}.')
        elif keyword.arg is not None:
            last = value.end_lineno or value.lineno
            yield key, show_default(value), comments.of(keyword.lineno, last)


def is_dict(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and ast.unparse(node.func) == 'dict'


def show_default(value: ast.expr) -> str:
    text = re.sub(r'^FieldReference\((.*)\)$', r'\1', ast.unparse(value))
    if text.startswith('placeholder('):
        return f'unset ({text[12:-1]})'
    return 'of the recipe' if 'recipe[' in text else f'`{text}`'


def table(title: str, rows: Rows) -> str:
    cells = [[cell.replace('|', '\\|') for cell in (f'`{row[0]}`', *row[1:])] for row in rows]
    lines = [f'| {" | ".join(row)} |' for row in cells]
    return '\n'.join([f'## {title}\n', '| key | default | meaning |', '|---|---|---|', *lines, ''])


if __name__ == '__main__':
    PAGE.write_text(page(), encoding='utf-8')
