"""Labeled examples from files: `read(data, kind, readers)` gives the train, dev and test splits.

A format says how a file is split into units (rows, sentences); a new one is a line in FORMATS. How
units become examples depends on the kind of problem: see `readers` in tasks/problems/__init__.py.
"""

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from bert_jax.data import text_files
from bert_jax.data.labeled import benchmarks, conll, plain, squad, tabular
from bert_jax.data.labeled.builder import Maker, Skipped
from bert_jax.data.labeled.examples import Example, Splits
from bert_jax.data.labeled.report import Report
from bert_jax.data.labeled.splitting import Grouped, set_aside
from bert_jax.data.labeled.tabular import BadRow, MissingColumn, Row, Unit
from bert_jax.errors import UserError, unknown

# From the content of a unit, its name and the Maker to the examples in it.
Reader = Callable[[Any, str, Maker], list[Example]]

# From a path and the config's `data` to the units of the file.
FORMATS: dict[str, Callable[[str, Any], Iterator[Unit]]] = {
    'csv': tabular.table,
    'tsv': tabular.table,
    'jsonl': tabular.json_lines,
    'json': tabular.json_list,
    'lines': plain.texts_by_line,
    'files': plain.text_of_file,
    'conll': conll.sentences,
    'conllu': conll.sentences,
    'squad': squad.questions,
}


def read(data, kind: str, readers: Mapping[str, Reader]) -> Splits:
    """The examples of a kind of problem that the config's `data` names; see catalog.DATA.

    Without dev files, data.dev_fraction of the train examples is set aside, and likewise for test.
    Args:
        kind: of the problem, for messages and to check the benchmark in data.dataset.
        readers: how each format holds this kind of problem.
    Raises:
        UserError: unknown format or column, a file that cannot be read, an empty train or dev
            split, more unusable rows than allowed.
    """
    report = Report()
    if data.dataset:
        splits = benchmarks.read(data, kind, report)
    else:
        if not data.train:
            raise UserError('no data: set data.train to files, or data.dataset to a benchmark')
        splits = {
            name: read_files(data[name], data, kind, readers, report, labeled=name != 'test')
            for name in ('train', 'dev', 'test')
        }
    for name in ('test', 'dev'):
        fraction = data[f'{name}_fraction']
        if not splits[name] and fraction:
            splits['train'], splits[name] = set_aside(splits['train'], fraction, data.split_seed)
            report[f'{name}_set_aside_of_train'] = len(splits[name])
    if data.train_examples:
        share = min(1.0, data.train_examples / max(1, len(splits['train'])))
        _, splits['train'] = set_aside(splits['train'], share, data.split_seed)
    for name in ('train', 'dev', 'test'):
        if not splits[name] and name != 'test':
            raise UserError(f'the {name} split is empty ({"; ".join(report.lines())})')
    found = {name: [one.example for one in splits[name]] for name in splits}
    return Splits(found['train'], found['dev'], found['test'], report)


def read_files(
    patterns: tuple[str, ...],
    data,
    kind: str,
    readers: Mapping[str, Reader],
    report: Report,
    labeled: bool = True,
) -> list[Grouped]:
    """The examples in the files that globs name.

    Args:
        labeled: False if the label may be missing, as in a test file or in text to predict on.
    """
    if data.format not in FORMATS:
        raise unknown('data.format', data.format, FORMATS)
    if data.format not in readers:
        fitting = ', '.join(readers)
        raise UserError(f'data.format {data.format!r} holds no {kind}; formats that do: {fitting}')
    text_files.check_encoding(data.encoding, 'data.encoding')
    own = Report()
    maker = Maker(data, own, labeled, _contexts(data, own) if data.contexts else {})
    found, seen = [], 0
    for path in tabular.matching(tuple(patterns)):
        before = len(found)
        for unit in FORMATS[data.format](path, data):
            seen += 1
            with _noting(own, unit, path, first=len(found) == before):
                if isinstance(unit.content, BadRow):
                    raise unit.content
                made = readers[data.format](unit.content, unit.name, maker)
                group = _group(unit, data.group) or (unit.place if len(made) > 1 else '')
                found += [Grouped(example, group) for example in made]
    own.check('malformed', data.malformed_fraction, seen, 'malformed_fraction')
    own.check('misplaced', data.misplaced_fraction, seen, 'misplaced_fraction')
    report.merge(own)
    return found


@contextlib.contextmanager
def _noting(report: Report, unit, path: str, first: bool):
    """Counts a unit that is no example; one that shows a mistake in the config raises UserError."""
    try:
        yield
    except Skipped:
        report.note('skipped_by_label', unit.place)
    except MissingColumn as error:
        if first:
            raise UserError(f'{path}: {error}') from None
        report.note('malformed', f'{unit.place}: {error}')
    except BadRow as error:
        report.note('misplaced' if error.misplaced else 'malformed', f'{unit.place}: {error}')
    except UserError as error:
        raise UserError(f'{unit.place}: {error}') from None


def _group(unit, name: str) -> str:
    if not name:
        return ''
    if isinstance(unit.content, Row):
        return unit.content.text(name)
    if name not in unit.groups:
        raise unknown('data.group', name, unit.groups)
    return unit.groups[name]


def _contexts(data, report: Report) -> dict[str, str]:
    """The texts of data.contexts, an id, a tab and a text a line, by id."""
    contexts = {}
    for path in tabular.matching((data.contexts,)):
        for number, line in enumerate(text_files.read_lines(path, data.encoding), start=1):
            name, tab, text = line.partition('\t')
            if not tab:
                report.note('malformed', f'{path}:{number}: no id, tab and text')
                continue
            contexts[name] = text
    return contexts
