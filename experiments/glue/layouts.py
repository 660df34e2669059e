"""Finds the tasks of GLUE in a folder of the user's files, in the layouts that circulate.

- the folders of gluebenchmark.com: `CoLA/train.tsv`, `SST-2/dev.tsv`, `MNLI/dev_matched.tsv`;
- Parquet files as on the Hugging Face Hub: `cola/train-00000-of-00001.parquet`;
- folders that `save_to_disk` of `datasets` wrote: `cola/train/`, `cola/validation/`.

The names of folders may have other capitals, hyphens and underscores.
"""

import pathlib
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from bert_jax.errors import UserError

Values = dict[str, Any]  # of config keys

_NUMBERS = ('0', '1', '2')
_NAMED = ('entailment', 'not_entailment')  # RTE and QNLI have names in all layouts


class Files(NamedTuple):
    """The published columns of a task.

    Attributes:
        kind: the kind of problem.
        columns: names of the text columns in .tsv files.
        label: name of the label column in .tsv files.
        classes: names of the classes 0, 1, …; () for scores.
        hub_columns: names of the text columns in Parquet files; () if they are `columns`.
        has_header: whether the .tsv files of train and dev have one.
    """

    kind: str
    columns: tuple[str, ...]
    label: str
    classes: tuple[str, ...]
    hub_columns: tuple[str, ...] = ()
    has_header: bool = True


_PAIR = ('sentence1', 'sentence2')
TASKS = {
    'cola': Files(
        'classification', ('3',), '1', ('unacceptable', 'acceptable'), ('sentence',), False
    ),
    'sst2': Files('classification', ('sentence',), 'label', ('negative', 'positive')),
    'mrpc': Files(
        'classification',
        ('#1 String', '#2 String'),
        'Quality',
        ('not_equivalent', 'equivalent'),
        _PAIR,
    ),
    'stsb': Files('regression', _PAIR, 'score', ()),
    'qqp': Files(
        'classification',
        ('question1', 'question2'),
        'is_duplicate',
        ('not_duplicate', 'duplicate'),
    ),
    'mnli': Files(
        'classification',
        _PAIR,
        'gold_label',
        ('entailment', 'neutral', 'contradiction'),
        ('premise', 'hypothesis'),
    ),
    'qnli': Files('classification', ('question', 'sentence'), 'label', _NAMED),
    'rte': Files('classification', _PAIR, 'label', _NAMED),
    'wnli': Files('classification', _PAIR, 'label', ('not_entailment', 'entailment')),
}
# Split of a run → names of the file or folder. The run of MNLI is also scored on the mismatched
# genres, as its test split.
_SPLITS = {'train': ('train',), 'dev': ('dev', 'validation')}
_MNLI_SPLITS = {
    'train': ('train',),
    'dev': ('dev_matched', 'validation_matched'),
    'test': ('dev_mismatched', 'validation_mismatched'),
}


class Found(NamedTuple):
    """A task that was found.

    Attributes:
        kind: the kind of problem.
        layout: 'tsv', 'parquet' or 'datasets'.
        keys: the keys of the config that read its files.
    """

    kind: str
    layout: str
    keys: Values


def find(data: pathlib.Path) -> dict[str, Found | str]:
    """Return what was found of each task of GLUE, or why nothing was.

    Raises:
        UserError: the folder does not exist or has none of the tasks.
    """
    if not data.is_dir():
        raise UserError(f'--data={data} is not a folder; name the folder that has CoLA, SST-2, …')
    folders: dict[str, list[pathlib.Path]] = {}
    for path in sorted(data.iterdir()):
        if path.is_dir():
            folders.setdefault(re.sub('[-_ ]', '', path.name).lower(), []).append(path)
    found = {name: _find_task(name, folders.get(name, []), data) for name in TASKS}
    if not any(isinstance(one, Found) for one in found.values()):
        first = next(iter(found.values()))
        raise UserError(f'--data={data} has no task of GLUE ({first}); see experiments/glue')
    return found


def _find_task(name: str, folders: list[pathlib.Path], data: pathlib.Path) -> Found | str:
    """Return a task, or why it cannot be used."""
    if not folders:
        return f'no folder {name} in {data}'
    if len(folders) > 1:
        return f'{" and ".join(folder.name for folder in folders)} are the same task; remove one'
    (folder,) = folders
    files, splits = TASKS[name], _MNLI_SPLITS if name == 'mnli' else _SPLITS
    paths = {split: _find_split(folder, names) for split, names in splits.items()}
    missing = [' or '.join(splits[split]) for split, path in paths.items() if path is None]
    if missing:
        return f'{folder} has no {", no ".join(missing)} (.tsv, .parquet or a saved data set)'
    layouts = {layout for layout, _ in filter(None, paths.values())}
    if len(layouts) > 1:
        return f'{folder} mixes the layouts {" and ".join(sorted(layouts))}'
    (layout,) = layouts
    keys = {f'data.{split}': (path[1],) for split, path in paths.items() if path}
    return Found(files.kind, layout, keys | _format_keys(files, layout))


def _find_split(folder: pathlib.Path, names: tuple[str, ...]) -> tuple[str, str] | None:
    """Return the layout and the glob of a split; None if it is not there."""
    for name in names:
        if (folder / f'{name}.tsv').is_file():
            return 'tsv', str(folder / f'{name}.tsv')
        for pattern in (f'{name}.parquet', f'{name}-*-of-*.parquet'):
            if any(folder.glob(pattern)):
                return 'parquet', str(folder / pattern)
        if (folder / name / 'state.json').is_file():
            return 'datasets', str(folder / name)
    return None


def _format_keys(files: Files, layout: str) -> Values:
    """Return the keys that describe columns and classes."""
    is_tsv = layout == 'tsv'
    columns = files.columns if is_tsv else files.hub_columns or files.columns
    keys: Values = {'data.format': 'tsv' if is_tsv else 'parquet'}
    keys |= dict(zip(('data.columns.text', 'data.columns.text2'), columns, strict=False))
    keys['data.columns.label'] = files.label if is_tsv else 'label'
    if is_tsv:
        keys |= {'data.quotes': 'no', 'data.header': files.has_header}
    if files.classes:
        numbers = zip(_NUMBERS, files.classes, strict=False)
        keys['data.rename_labels'] = tuple(f'{number}={name}' for number, name in numbers)
        keys['problem.labels'] = files.classes
    return keys


def describe_missing(found: Mapping[str, Found | str]) -> list[str]:
    """Return a line for each task that was not found."""
    return [f'{name}: {why}' for name, why in found.items() if isinstance(why, str)]
