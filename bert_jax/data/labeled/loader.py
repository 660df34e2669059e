"""Reads labeled examples: `read` returns the train, dev and test splits.

FORMATS maps a file format to the function that splits a file into records. How a record becomes
examples depends on the kind of problem: see `readers` in tasks/problems/__init__.py.
"""

import contextlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from ml_collections import ConfigDict

from bert_jax.data import text_files
from bert_jax.data.labeled import benchmarks, conll, questions, records, tabular
from bert_jax.data.labeled.builder import ExampleBuilder
from bert_jax.data.labeled.examples import Example
from bert_jax.data.labeled.splitting import GroupedExample, split_off
from bert_jax.errors import UserError, unknown

# From the content of a record, its id and the builder to its examples.
Reader = Callable[[Any, str, ExampleBuilder], Sequence[Example]]

FORMATS: dict[str, Callable[[str, ConfigDict], Iterator[records.Record]]] = {
    'csv': tabular.read_table,
    'tsv': tabular.read_table,
    'jsonl': tabular.read_json_lines,
    'json': tabular.read_json_list,
    'lines': tabular.read_text_lines,
    'files': tabular.read_whole_text,
    'conll': conll.read_sentences,
    'conllu': conll.read_sentences,
    'squad': questions.read_squad,
}

# The keys of the config's `data` for labeled examples, with their defaults.
DEFAULTS: dict[str, Any] = dict(
    # A published benchmark (BENCHMARKS in benchmarks.py); '' to read the files below.
    dataset='',
    data_dir='',  # folder of TFDS data sets; '' = $TFDS_DATA_DIR or ~/tensorflow_datasets
    download=False,  # download the benchmark if it is not there
    language='en',  # xnli: language of dev and test; ud_pos: treebank, such as 'en_ewt'
    # Globs of plain or .gz files; 'sample:NAME' is a file of bert_jax/data/samples/.
    train=(),
    dev=(),
    test=(),
    dev_fraction=0.1,  # split off train if there are no dev files; 0 = no dev split
    test_fraction=0.0,  # split off train if there are no test files
    split_seed=0,
    # Rows with the same value stay in one split: a column, or 'context', 'title' (squad),
    # 'document' (conll, conllu).
    group='',
    train_examples=0,  # random subset of train of at most this size; 0 = all
    # 'csv', 'tsv', 'jsonl', 'json' (a list of objects), 'conll', 'conllu', 'squad'; 'lines' and
    # 'files': each line or file is a text, labeled by the name of the file
    format='tsv',
    encoding='utf-8',
    header=True,  # csv, tsv: the first row has the column names; False: columns are '0', '1', …
    separator='',  # of columns; '' = the default of the format
    quotes='auto',  # whether quotes enclose fields: 'yes', 'no', 'auto' = only in csv
    comment='',  # conll: prefix of lines to skip
    label_from='suffix',  # lines, files: 'suffix' (x.pos), 'stem' (pos.txt), 'folder' (pos/1.txt)
    documents=False,  # conll, conllu: one example for each document (-DOCSTART-, '# newdoc')
    # Maps fields to columns, by name or index; '' or () = not in the file.
    columns=dict(
        id='',  # '' = file:line
        text='text',
        text2='',
        label='label',
        choices=(),  # one column for each choice, or one column with a list
        marks=(),  # two ranges, 'START:END' or 'START+TEXT'; with text2 one in each text
        candidate_labels=(),  # pairs the first mark with each other mark; one label column each
        tokens='tokens',  # a list of words
        tags='tags',  # a list of tags
        spans='spans',  # a list of [start, end, label], or of objects with these keys:
        span_start='start',
        span_end='end',
        span_label='label',
        word='0',  # conll
        tag='-1',  # conll; conllu: 'upos', 'xpos', 'feats.Number', …
        question='question',
        context='context',
        answers=('answers',),  # each column a text or a list of texts; empty = no answer
        answer_starts=(),  # offsets in characters; () = the first occurrence of the answer
    ),
    contexts='',  # file of lines ID<tab>TEXT, if columns.context has ids
    scheme='bio',  # of the tags in the file: 'bio', 'iob1', 'bioes', 'none' (parts of speech)
    tags_as='bio',  # tags are converted to: 'bio', 'bioes'
    units='',  # of offsets: 'characters', 'words'; '' = words if the text is a list of words
    ends='exclusive',  # of offsets: 'exclusive', 'inclusive'
    inline_marks=(),  # tags around marked ranges, such as ('<e1>', '</e1>', '<e2>', '</e2>')
    first_choice=0,  # the label of the first choice
    skip_labels=(),  # rows with these labels are left out and counted: ('',), ('-',)
    rename_labels=(),  # ('0=negative', '1=positive')
    malformed_fraction=0.01,  # largest share of unreadable records, which are counted
    misplaced_fraction=0.0,  # largest share of records whose offsets do not fit their text
)


class Splits(NamedTuple):
    """The examples of a data set; `report` counts the records read, skipped and malformed."""

    train: list[Example]
    dev: list[Example]
    test: list[Example]
    report: records.ReadingReport


def read(data: ConfigDict, kind: str, readers: Mapping[str, Reader]) -> Splits:
    """Read the examples that the config's `data` describes; see DEFAULTS for its keys.

    Without dev files `data.dev_fraction` of the train examples becomes the dev split, and likewise
    for test.

    Args:
        data: the config's `data`.
        kind: the kind of problem; a benchmark has to be of this kind.
        readers: format → function that builds the examples of a record for this kind of problem.

    Raises:
        UserError: an unknown format or column, an unreadable file, an empty train or dev split, or
            more unusable records than allowed.
    """
    report = records.ReadingReport()
    if data.dataset:
        splits = benchmarks.read(data, kind, report)
    else:
        if not data.train:
            raise UserError(
                'data.train and data.dataset are empty; set data.train to files or data.dataset to '
                'a benchmark'
            )
        splits = {
            name: read_files(data[name], data, kind, readers, report, labeled=name != 'test')
            for name in ('train', 'dev', 'test')
        }
    for name in ('test', 'dev'):
        fraction = data[f'{name}_fraction']
        if not splits[name] and fraction:
            splits['train'], splits[name] = split_off(splits['train'], fraction, data.split_seed)
            report[f'{name}_examples_split_off_train'] = len(splits[name])
    if data.train_examples:
        share = min(1.0, data.train_examples / max(1, len(splits['train'])))
        _, splits['train'] = split_off(splits['train'], share, data.split_seed)
    for name in ('train', 'dev'):
        if not splits[name]:
            raise UserError(
                f'the {name} split is empty ({"; ".join(report.lines())}); set data.{name}'
                + (' or data.dev_fraction' if name == 'dev' else '')
            )
    train, dev, test = ([one.example for one in splits[name]] for name in ('train', 'dev', 'test'))
    return Splits(train, dev, test, report)


def read_files(
    patterns: tuple[str, ...],
    data: ConfigDict,
    kind: str,
    readers: Mapping[str, Reader],
    report: records.ReadingReport,
    labeled: bool = True,
) -> list[GroupedExample]:
    """Read the examples of files.

    Args:
        patterns: globs.
        data: the config's `data`.
        kind: the kind of problem, for messages.
        readers: format → function that builds the examples of a record.
        report: gets the counts.
        labeled: False if labels may be missing, as in a test file or in text to predict on.

    Raises:
        UserError: see `read`.
    """
    if data.format not in FORMATS:
        raise unknown('data.format', data.format, FORMATS)
    if data.format not in readers:
        raise UserError(
            f'data.format {data.format!r} cannot hold {kind} examples; set it to one of '
            f'{", ".join(readers)}'
        )
    text_files.check_encoding(data.encoding, 'data.encoding')
    own = records.ReadingReport()
    builder = ExampleBuilder(data, own, labeled, _contexts(data, own) if data.contexts else {})
    examples: list[GroupedExample] = []
    count = 0
    for path in tabular.expand_globs(tuple(patterns)):
        before = len(examples)
        for record in FORMATS[data.format](path, data):
            count += 1
            with _count_unusable(own, record, data, path, first=len(examples) == before):
                if isinstance(record.content, records.InvalidRecord):
                    raise record.content
                example_id = record.default_id
                if data.columns.id and isinstance(record.content, records.Row):
                    example_id = record.content.text(data.columns.id)
                built = readers[data.format](record.content, example_id, builder)
                group = _group(record, data.group) or (record.place if len(built) > 1 else '')
                examples += [GroupedExample(example, group) for example in built]
    own.check_shares(count, data)
    report.merge(own)
    return examples


@contextlib.contextmanager
def _count_unusable(
    report: records.ReadingReport, record: records.Record, data: ConfigDict, path: str, first: bool
) -> Iterator[None]:
    """Count a record that is unusable; a mistake in the config raises UserError instead."""
    try:
        yield
    except records.SkippedRecord:
        report.add('skipped_by_label', record.place)
    except records.MissingColumn as error:
        if first:
            key = _config_key(error.name, data)
            raise UserError(
                f'{key} names column {error.name!r}, but {path} has columns {error.known}'
            ) from None
        report.add_invalid(error, record.place)
    except records.InvalidRecord as error:
        report.add_invalid(error, record.place)
    except UserError as error:
        raise UserError(f'{record.place}: {error}') from None


def _config_key(column: str, data: ConfigDict) -> str:
    """The config keys whose value is this column or contains it, as 'START:END' and 'a.b' do."""
    values = {f'data.columns.{key}': value for key, value in data.columns.items()}
    found = []
    for key, value in {**values, 'data.group': data.group}.items():
        names = {value} if isinstance(value, str) else set(value)
        if column in names or any(column in re.split('[:+.]', name) for name in names):
            found.append(key)
    return ' or '.join(found)


def _group(record: records.Record, name: str) -> str:
    if not name:
        return ''
    if isinstance(record.content, records.Row):
        return record.content.text(name)
    if name not in record.groups:
        raise unknown('data.group', name, record.groups)
    return record.groups[name]


def _contexts(data: ConfigDict, report: records.ReadingReport) -> dict[str, str]:
    """id → text of the file `data.contexts`."""
    contexts = {}
    for path in tabular.expand_globs((data.contexts,)):
        for number, line in tabular.numbered_lines(path, data):
            context_id, tab, text = line.partition('\t')
            if tab:
                contexts[context_id] = text
            else:
                report.add('malformed', f'{path}:{number}: the line is not ID<tab>TEXT')
    return contexts
