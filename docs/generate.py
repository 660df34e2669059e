"""Writes docs/configs.md from the configs and the comments beside their keys.

python docs/generate.py
"""

import ast
import pathlib
import sys
from collections.abc import Iterator, Sequence

ROOT = pathlib.Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from bert_jax import key_meanings  # noqa: E402
from bert_jax.key_meanings import KeyRow  # noqa: E402
from bert_jax.problems import PROBLEMS  # noqa: E402

PAGE = ROOT / 'docs/configs.md'
HEADER = """# Config keys

<!-- Written by `python docs/generate.py` from configs/ and the comments there. Edit them there. -->

Any key can be set on the command line: `--config.training.steps="(9000, 1000)"`. A tuple of one
value needs no parentheses: `--config.data.train=reviews.csv`. An unknown key is an error, and so
is a key that you set but that has no effect with the other values. A default of "unset" means: as
in the architecture or in the weights of `init_from`; None unsets such a key again:
`--config.model.num_heads=None`. With `--print_config` the command only prints all keys, with
their values and meanings; with `--dry_run` it reads the data, compiles every stage and shows the
memory it needs, but trains nothing and writes no run folder. To complete commands, flags and keys
with the tab key in bash or zsh:

    python -m bert_jax.completion > bert_jax_completion.sh && source bert_jax_completion.sh

[Pretraining and common keys](#pretraining-and-common-keys) · [fine-tuning](#fine-tuning)
"""
FINE_TUNING = """# Fine-tuning

`configs/finetune.py:NAME` has the common keys above without {pretraining_only}, and these.
Named benchmarks and samples set some of them: `configs/finetune_tasks.py`.
"""
FINE_TUNED = ('data', 'training', 'schedule', 'evaluation', 'checkpoint')  # sections of its own


def page() -> str:
    """Return the text of docs/configs.md."""
    fine_tuning = ROOT / 'configs/finetune.py'
    sections = key_meanings.read_sections(ROOT / 'configs/base.py')
    single = sections.pop('')
    own = key_meanings.read_sections(fine_tuning)
    own['data'] += key_meanings.read_data_keys()
    return '\n'.join(
        [
            HEADER,
            '# Pretraining and common keys\n',
            table('The run', single),
            *(table(f'`{name}`', rows) for name, rows in sections.items()),
            FINE_TUNING.format(pretraining_only=pretraining_only(fine_tuning)),
            *(table(f'`{name}` of fine-tuning', own[name]) for name in FINE_TUNED),
            *problem_tables(),
        ]
    )


def pretraining_only(path: pathlib.Path) -> str:
    """Name the sections of base.py that configs/finetune.py removes."""
    for node in ast.walk(ast.parse(path.read_text(encoding='utf-8'))):
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == '_PRETRAINING_ONLY':
            return ', '.join(f'`{name}`' for name in ast.literal_eval(node.value))
    raise ValueError(path)


def problem_tables() -> Iterator[str]:
    """Make one table for each set of keys of `problem`, with the kinds that share it."""
    meaning: dict[tuple[str, str], str] = {}
    for key, value, said in key_meanings.read_problem_keys():
        meaning[key, value] = meaning.get((key, value)) or said
    kinds: dict[tuple, list[str]] = {}
    for kind, entry in PROBLEMS.items():
        kinds.setdefault(tuple(sorted(entry.settings.items())), []).append(kind)
    for settings, names in kinds.items():
        rows = [
            KeyRow(f'problem.{key}', f'`{value!r}`', meaning[key, f'`{value!r}`'])
            for key, value in settings
        ]
        yield table('`problem` of ' + ', '.join(names), rows)


def table(title: str, rows: Sequence[KeyRow]) -> str:
    cells = [[cell.replace('|', '\\|') for cell in (f'`{row[0]}`', *row[1:])] for row in rows]
    lines = [f'| {" | ".join(row)} |' for row in cells]
    return '\n'.join([f'## {title}\n', '| key | default | meaning |', '|---|---|---|', *lines, ''])


if __name__ == '__main__':
    PAGE.write_text(page(), encoding='utf-8')
