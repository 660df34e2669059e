"""Writes docs/configs.md from the declarations of the config keys.

python docs/generate.py
"""

import pathlib
import sys
from collections.abc import Iterable, Iterator

ROOT = pathlib.Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from bert_jax.config_keys import Entry, entries, section  # noqa: E402
from bert_jax.problems import PROBLEMS  # noqa: E402
from configs import base, finetune  # noqa: E402

PAGE = ROOT / 'docs/configs.md'
HEADER = """# Config keys

<!-- Written by `python docs/generate.py` from the declarations of the keys. Edit them there. -->

Any key can be set on the command line: `--config.training.steps="(9000, 1000)"`. A tuple of one
value needs no parentheses: `--config.data.train=reviews.csv`. An unknown key is an error, and so
is a key that you set but that has no effect with the other values. A default of "unset" means: as
in the architecture or in the weights of `init_from`; None unsets such a key again:
`--config.model.num_heads=None`. With `--print_config` the command only prints all keys, with
their values and meanings; with `--dry_run` it reads the data, compiles every stage and shows the
memory it needs, but trains nothing and writes no run folder. To complete commands, flags and keys
with the tab key in bash or zsh:

    python -m bert_jax.completion > bert_jax_completion.sh && source bert_jax_completion.sh

Four keys have a flag with the name that the other commands use: `--model` (`init_from`), `--output`
(`workdir`), and `--input` (`data.train`, of pretraining `data.corpus`).

[Pretraining and common keys](#pretraining-and-common-keys) · [fine-tuning](#fine-tuning)
"""
FINE_TUNING = """# Fine-tuning

`configs/finetune.py:NAME` has the common keys above without {pretraining_only}, and these.
Named benchmarks and samples set some of them: `configs/finetune_tasks.py`.
"""
Cells = tuple[str, str, str]


def page() -> str:
    """Return the text of docs/configs.md."""
    common = [*entries(base.get_config())]
    known = set(map(cells, common))
    own = [one for one in entries(finetune.get_config()) if cells(one) not in known]
    names = ', '.join(f'`{name}`' for name in finetune.pretraining_only(base.get_config()))
    return '\n'.join(
        [
            HEADER,
            '# Pretraining and common keys\n',
            *(table(f'`{name}`' if name else 'The run', rows) for name, rows in by_section(common)),
            FINE_TUNING.format(pretraining_only=names),
            *(
                table(f'`{name}` of fine-tuning' if name else 'The run of fine-tuning', rows)
                for name, rows in by_section(own)
                if name != 'problem'
            ),
            *problem_tables(),
        ]
    )


def by_section(keys: Iterable[Entry]) -> list[tuple[str, list[Cells]]]:
    """Return the rows of each section; the keys without a section come first."""
    sections: dict[str, list[Entry]] = {'': []}
    for one in keys:
        sections.setdefault(one.name.partition('.')[0] if '.' in one.name else '', []).append(one)
    return [(name, describe(found)) for name, found in sections.items()]


def describe(keys: Iterable[Entry]) -> list[Cells]:
    """Return the cells of each key, and of each section before its first key."""
    rows, seen = [], set()
    for one in keys:
        place = one.name.rpartition('.')[0]
        if one.declaration.section and place not in seen:
            rows.append((place, '', one.declaration.section))
        seen.add(place)
        rows.append(cells(one))
    return rows


def cells(one: Entry) -> Cells:
    unset = f'unset ({one.declaration.kind.__name__})'
    shown = unset if one.value is None else f'`{one.value!r}`'
    return one.name, shown, one.declaration.describe()


def problem_tables() -> Iterator[str]:
    """Make one table for each set of keys of `problem`, with the kinds that share it."""
    kinds: dict[tuple[Cells, ...], list[str]] = {}
    for kind, entry in PROBLEMS.items():
        rows = describe(entries(section(problem=section(**entry.keys))))
        kinds.setdefault(tuple(rows), []).append(kind)
    for rows, names in kinds.items():
        yield table('`problem` of ' + ', '.join(names), rows)


def table(title: str, rows: Iterable[Cells]) -> str:
    escaped = [[cell.replace('|', '\\|') for cell in (f'`{row[0]}`', *row[1:])] for row in rows]
    lines = [f'| {" | ".join(row)} |' for row in escaped]
    return '\n'.join([f'## {title}\n', '| key | default | meaning |', '|---|---|---|', *lines, ''])


if __name__ == '__main__':
    PAGE.write_text(page(), encoding='utf-8')
