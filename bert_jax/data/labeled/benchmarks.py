"""Published benchmarks through TensorFlow Datasets: a line each in BENCHMARKS."""

from collections.abc import Callable
from typing import NamedTuple

from bert_jax.data import tensorflow_import
from bert_jax.data.labeled import records
from bert_jax.data.labeled.examples import is_labeled
from bert_jax.data.labeled.report import Report
from bert_jax.data.labeled.splitting import Grouped
from bert_jax.data.labeled.tabular import BadRow
from bert_jax.errors import UserError, unknown


class Benchmark(NamedTuple):
    """A data set: what kind of task it is, where its splits are, how its records become examples.

    splits: train, dev, test → (TFDS name, split); '{language}' in a name is data.language.
    examples: function of a record (with class labels as names, None where TFDS has −1), its id and
        data.language.

    What it is scored by is in evaluation/glue.py.
    """

    kind: str
    splits: dict[str, tuple[str, str]]
    examples: Callable


def _splits(name: str, dev: str = 'validation', test: str = 'test') -> dict[str, tuple[str, str]]:
    splits = {'train': (name, 'train'), 'dev': (name, dev), 'test': (name, test)}
    return {split: place for split, place in splits.items() if place[1]}


def _texts(name: str, *columns: str) -> Benchmark:
    return Benchmark('classification', _splits(name), records.texts(*columns))


_PAIR = ('sentence1', 'sentence2')
_NLI = ('premise', 'hypothesis')
_MNLI = Benchmark(
    'classification',
    _splits('glue/mnli', 'validation_matched', 'test_matched'),
    records.texts(*_NLI),
)

BENCHMARKS: dict[str, Benchmark] = {
    # GLUE (Wang et al. 2019a)
    'cola': _texts('glue/cola', 'sentence'),
    'sst2': _texts('glue/sst2', 'sentence'),
    'mrpc': _texts('glue/mrpc', *_PAIR),
    'stsb': Benchmark('regression', _splits('glue/stsb'), records.scored(*_PAIR)),
    'qqp': _texts('glue/qqp', 'question1', 'question2'),
    'mnli': _MNLI,
    'mnli_mismatched': _MNLI._replace(
        splits=_splits('glue/mnli', 'validation_mismatched', 'test_mismatched')
    ),
    'qnli': _texts('glue/qnli', 'question', 'sentence'),
    'rte': _texts('glue/rte', *_PAIR),
    'wnli': _texts('glue/wnli', *_PAIR),
    # SuperGLUE (Wang et al. 2019b)
    'boolq': _texts('super_glue/boolq', 'question', 'passage'),
    'cb': _texts('super_glue/cb', *_NLI),
    'copa': Benchmark('multiple_choice', _splits('super_glue/copa'), records.copa),
    'multirc': Benchmark('classification', _splits('super_glue/multirc'), records.multirc),
    'record': Benchmark('multiple_choice', _splits('super_glue/record'), records.cloze),
    'superglue_rte': _texts('super_glue/rte', *_NLI),
    'wic': Benchmark('word_in_context', _splits('super_glue/wic'), records.wic),
    'wsc': Benchmark('coreference', _splits('super_glue/wsc.fixed'), records.wsc),
    # SQuAD (Rajpurkar et al. 2016, 2018); its test sets are not public
    'squad1': Benchmark('question_answering', _splits('squad/v1.1', test=''), records.question),
    'squad2': Benchmark('question_answering', _splits('squad/v2.0', test=''), records.question),
    # Sequence labeling
    'conll2003': Benchmark(
        'tagging', _splits('conll2003/conll2003', 'dev'), records.tagged('ner', 'bio')
    ),
    'ud_pos': Benchmark(
        'tagging',
        _splits('universal_dependencies/{language}', 'dev'),
        records.tagged('upos', 'none'),
    ),
    # Trained in English, read in data.language (Conneau et al. 2018)
    'xnli': Benchmark(
        'classification',
        {
            'train': ('glue/mnli', 'train'),
            'dev': ('xnli', 'validation'),
            'test': ('xnli', 'test'),
        },
        records.translated,
    ),
}

_ADVICE = (
    'set data.data_dir to a folder that holds it, or data.download=True to fetch it (which needs '
    'the network); your own copy as a file: configs/finetune.py:file'
)


def read(data, kind: str, report: Report) -> dict[str, list[Grouped]]:
    """The splits of the benchmark data.dataset.

    Raises:
        UserError: unknown, of another kind, not on disk, or more unusable records than allowed.
    """
    if data.dataset not in BENCHMARKS:
        raise unknown('data.dataset', data.dataset, BENCHMARKS)
    if data.train or data.dev or data.test:
        raise UserError('data.dataset and files in data.train, dev or test: set one of the two')
    benchmark = BENCHMARKS[data.dataset]
    if kind != benchmark.kind:
        raise UserError(f'data.dataset {data.dataset!r} is {benchmark.kind}, not {kind}')
    splits = {'train': [], 'dev': [], 'test': []}
    for split, (name, part) in benchmark.splits.items():
        builder = _open(name.format(language=data.language), data)
        splits[split] = _read_split(builder, part, split, benchmark, data, report)
    return splits


def _open(name: str, data):
    what = f'data.dataset={data.dataset!r}'
    return tensorflow_import.open_tfds_builder(name, data.data_dir, data.download, what, _ADVICE)


def _read_split(builder, part: str, split: str, benchmark: Benchmark, data, report: Report):
    if part not in builder.info.splits:
        raise unknown(f'split of {builder.info.full_name}', part, builder.info.splits)
    own = Report()
    found, seen = [], 0
    for seen, record in enumerate(_records(builder, part), start=1):
        name = f'{split}-{seen}'
        try:
            made = benchmark.examples(record, name, data.language)
            if split != 'test' and not all(map(is_labeled, made)):
                raise BadRow('no label')
        except BadRow as error:
            own.note('misplaced' if error.misplaced else 'malformed', f'{name}: {error}')
            continue
        if data.group and data.group not in record:
            raise unknown('data.group', data.group, record)
        group = str(record[data.group]) if data.group else ''
        found += [Grouped(example, group) for example in made]
    own.check('malformed', data.malformed_fraction, seen, 'malformed_fraction')
    own.check('misplaced', data.misplaced_fraction, seen, 'misplaced_fraction')
    report.merge(own)
    return found


def _records(builder, part: str):
    """The records of a split in the order of its files, texts as str and classes by name."""
    tfds = tensorflow_import.tensorflow_datasets()
    records_read = builder.as_dataset(
        split=part,
        shuffle_files=False,
        read_config=tfds.ReadConfig(interleave_cycle_length=1),
    )
    for record in tfds.as_numpy(records_read):
        yield _plain(record, builder.info.features)


def _plain(value, feature):
    """What a feature of TFDS says as str, int, float, list, dict; an unknown class as None."""
    if isinstance(value, dict):
        inner = getattr(feature, 'feature', feature)
        return {key: _plain(found, inner[key]) for key, found in value.items()}
    if isinstance(value, bytes):
        return value.decode('utf-8', 'replace')
    if getattr(value, 'ndim', 0):
        inner = getattr(feature, 'feature', feature)
        return [_plain(one, inner) for one in value.tolist()]
    names = getattr(feature, 'names', None)
    if names is None:
        return value.item() if hasattr(value, 'item') else value
    return names[int(value)] if int(value) >= 0 else None
