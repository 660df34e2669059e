"""Published benchmarks, read through TensorFlow Datasets; each is an entry of BENCHMARKS."""

import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from ml_collections import ConfigDict

from bert_jax import tensorflow_import
from bert_jax.errors import UserError, unknown
from bert_jax.labels import examples, tag_schemes, word_spans
from bert_jax.labels.questions import checked_answer
from bert_jax.labels.records import InvalidRecord, ReadingReport
from bert_jax.labels.splitting import GroupedExample
from bert_jax.types import JsonObject

Fields = JsonObject  # of a record; classes by name, None for TFDS's label −1
# (fields of a record, id, data.language) → example.
BuildExample = Callable[[Fields, str, str], examples.Example]


class Benchmark(NamedTuple):
    """A published data set. Its metrics are in reports/glue.py.

    Attributes:
        kind: the kind of problem.
        splits: train, dev, test → TFDS name and split; '{language}' is replaced by data.language.
            Further splits are only evaluated, or predicted, after training.
        build: builds the example of a record.
    """

    kind: str
    splits: dict[str, tuple[str, str]]
    build: BuildExample

    def example(self, fields: Fields, default_id: str, language: str) -> examples.Example:
        """Build the example of a record; its id is the field 'idx' if the record has it.

        Raises:
            InvalidRecord: a field is missing or has another type.
        """
        index = fields.get('idx', '')
        example_id = default_id if index == '' else str(index)
        try:
            example = self.build(fields, example_id, language)
            is_text = all(isinstance(text, str) for text in examples.texts_of(example))
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise InvalidRecord(f'other fields than in the published data: {error!r}') from None
        if not is_text:
            raise InvalidRecord('a text is not a string')
        return example


def _with_class(*columns: str) -> BuildExample:
    """One or two texts with a class."""

    def build(fields: Fields, example_id: str, language: str) -> examples.Example:
        texts = tuple(fields[name] for name in columns)
        return examples.TextExample(example_id, texts, _class(fields['label']))

    return build


def _class(label: str | int | None) -> str | None:
    """The name of a class, which can be a number; None for −1, an unknown class."""
    return None if label in (None, -1) else str(label)


def _stsb(fields: Fields, example_id: str, language: str) -> examples.Example:
    """Two texts with a score; −1 stands for an unknown score."""
    score = float(fields['label'])
    if not math.isfinite(score):
        raise InvalidRecord(f'the score is {score}')
    texts = fields['sentence1'], fields['sentence2']
    return examples.TextExample(example_id, texts, score if score >= 0 else None)


def _tagged(column: str, scheme: str) -> BuildExample:
    """Words with tags; they are joined by spaces unless they make up the field 'text'."""

    def build(fields: Fields, example_id: str, language: str) -> examples.Example:
        words = fields['tokens']
        if not words:
            raise InvalidRecord('no words')
        text = fields.get('text', '')
        offsets = word_spans.locate_words(words, text)
        if offsets is None:
            text, offsets = word_spans.join_words(words)
        tags, _ = tag_schemes.convert_tags(fields[column], scheme, 'bio')
        return examples.TaggedExample(example_id, text, offsets, tags)

    return build


def _superglue_rte(fields: Fields, example_id: str, language: str) -> examples.Example:
    """Premise and hypothesis, which the diagnostic set AX-b calls sentence1 and sentence2."""
    columns = _PAIR if 'sentence1' in fields else _NLI
    return _with_class(*columns)(fields, example_id, language)


def _xnli(fields: Fields, example_id: str, language: str) -> examples.Example:
    """Two texts in one of XNLI's languages; the train split is MNLI, which is English only."""
    premise, hypothesis = fields['premise'], fields['hypothesis']
    if isinstance(premise, dict):
        languages = list(hypothesis['language'])
        if language not in premise or language not in languages:
            raise InvalidRecord(
                f'no text for data.language={language!r}; the languages are '
                f'{", ".join(sorted(premise))}'
            )
        premise = premise[language]
        hypothesis = hypothesis['translation'][languages.index(language)]
    return examples.TextExample(example_id, (premise, hypothesis), _class(fields['label']))


def _copa(fields: Fields, example_id: str, language: str) -> examples.Example:
    """Two choices after a premise and a question about its cause or effect."""
    questions = {'cause': 'What was the cause?', 'effect': 'What happened as a result?'}
    premise = f'{fields["premise"]} {questions[fields["question"]]}'
    choices = fields['choice1'], fields['choice2']
    label = None if fields['label'] is None else ('choice1', 'choice2').index(fields['label'])
    return examples.MultipleChoiceExample(example_id, premise, choices, label)


def _multirc(fields: Fields, example_id: str, language: str) -> examples.Example:
    """Whether one answer is correct; the id is paragraph-question-answer."""
    index = fields['idx']
    example_id = f'{index["paragraph"]}-{index["question"]}-{index["answer"]}'
    texts = fields['paragraph'], f'{fields["question"]} {fields["answer"]}'
    return examples.TextExample(example_id, texts, _class(fields['label']))


def _record(fields: Fields, example_id: str, language: str) -> examples.Example:
    """ReCoRD: the entities that may fill the blank of the query; every answer is correct."""
    index = fields['idx']
    passage = fields['passage'].replace('\n@highlight\n', ' ')
    entities, answers = fields['entities'], set(fields['answers'])
    correct = [number for number, entity in enumerate(entities) if entity in answers]
    if answers and not correct:
        raise InvalidRecord(f'none of the answers {sorted(answers)} is an entity of the passage')
    return examples.MultipleChoiceExample(
        f'{index["passage"]}-{index["query"]}',
        passage,
        tuple(fields['query'].replace('@placeholder', entity) for entity in entities),
        correct[0] if correct else None,
        tuple(correct[1:]),
        tuple(entities),
    )


def _wic(fields: Fields, example_id: str, language: str) -> examples.Example:
    """A word in two contexts, marked by character offsets."""
    texts = fields['sentence1'], fields['sentence2']
    marks = []
    for number, text in enumerate(texts):
        start, end = fields[f'start{number + 1}'], fields[f'end{number + 1}']
        word_spans.check_span(text, start, end)
        marks.append(examples.Mark(number, start, end))
    return examples.MarkedExample(example_id, texts, tuple(marks), _class(fields['label']))


def _wsc(fields: Fields, example_id: str, language: str) -> examples.Example:
    """A name and a pronoun, marked by their text and the index of their first word."""
    text = fields['text']
    words = word_spans.split_at_whitespace(text)
    marks = []
    for span in ('span1', 'span2'):
        marked, first = fields[f'{span}_text'], fields[f'{span}_index']
        last = min(first + len(marked.split()), len(words))
        start, end = word_spans.words_to_characters(words, first, last)
        marks.append(examples.Mark(0, *word_spans.narrow_to(text, start, end, marked)))
    return examples.MarkedExample(example_id, (text,), tuple(marks), _class(fields['label']))


def _squad(fields: Fields, example_id: str, language: str) -> examples.Example:
    """A question; the lists of answers are empty if there is no answer."""
    context, answers = fields['context'], fields['answers']
    pairs = zip(answers['text'], answers['answer_start'], strict=True)
    checked = tuple(checked_answer(*pair, context) for pair in pairs)
    return examples.QuestionExample(fields['id'], fields['question'], context, checked)


def _splits(name: str, dev: str = 'validation', test: str = 'test') -> dict[str, tuple[str, str]]:
    splits = {'train': (name, 'train'), 'dev': (name, dev), 'test': (name, test)}
    return {split: source for split, source in splits.items() if source[1]}


def _classification(name: str, *columns: str) -> Benchmark:
    return Benchmark('classification', _splits(name), _with_class(*columns))


_PAIR = ('sentence1', 'sentence2')
_NLI = ('premise', 'hypothesis')
# The mismatched splits have other genres than train; ax is the diagnostic set, without labels.
_MNLI_SPLITS = _splits('glue/mnli', 'validation_matched', 'test_matched') | {
    'dev_mismatched': ('glue/mnli', 'validation_mismatched'),
    'test_mismatched': ('glue/mnli', 'test_mismatched'),
    'ax': ('glue/ax', 'test'),
}
# Diagnostic sets with the classes of RTE: broad coverage (AX-b) and Winogender (AX-g).
_RTE_SPLITS = _splits('super_glue/rte') | {
    'axb': ('super_glue/axb', 'test'),
    'axg': ('super_glue/axg', 'test'),
}
_XNLI_SPLITS = _splits('xnli') | {'train': ('glue/mnli', 'train')}
_UD_SPLITS = _splits('universal_dependencies/{language}', 'dev')

BENCHMARKS: dict[str, Benchmark] = {
    # GLUE (Wang et al. 2019a)
    'cola': _classification('glue/cola', 'sentence'),
    'sst2': _classification('glue/sst2', 'sentence'),
    'mrpc': _classification('glue/mrpc', *_PAIR),
    'stsb': Benchmark('regression', _splits('glue/stsb'), _stsb),
    'qqp': _classification('glue/qqp', 'question1', 'question2'),
    'mnli': Benchmark('classification', _MNLI_SPLITS, _with_class(*_NLI)),
    'qnli': _classification('glue/qnli', 'question', 'sentence'),
    'rte': _classification('glue/rte', *_PAIR),
    'wnli': _classification('glue/wnli', *_PAIR),
    # SuperGLUE (Wang et al. 2019b)
    'boolq': _classification('super_glue/boolq', 'question', 'passage'),
    'cb': _classification('super_glue/cb', *_NLI),
    'copa': Benchmark('multiple_choice', _splits('super_glue/copa'), _copa),
    'multirc': Benchmark('classification', _splits('super_glue/multirc'), _multirc),
    'record': Benchmark('multiple_choice', _splits('super_glue/record'), _record),
    'superglue_rte': Benchmark('classification', _RTE_SPLITS, _superglue_rte),
    'wic': Benchmark('word_in_context', _splits('super_glue/wic'), _wic),
    'wsc': Benchmark('coreference', _splits('super_glue/wsc.fixed'), _wsc),
    # SQuAD (Rajpurkar et al. 2016, 2018), whose test sets are not public
    'squad1': Benchmark('question_answering', _splits('squad/v1.1', test=''), _squad),
    'squad2': Benchmark('question_answering', _splits('squad/v2.0', test=''), _squad),
    # Tagging: Tjong Kim Sang and De Meulder 2003, Universal Dependencies
    'conll2003': Benchmark('tagging', _splits('conll2003/conll2003', 'dev'), _tagged('ner', 'bio')),
    'ud_pos': Benchmark('tagging', _UD_SPLITS, _tagged('upos', 'none')),
    # Trained in English, evaluated in data.language (Conneau et al. 2018)
    'xnli': Benchmark('classification', _XNLI_SPLITS, _xnli),
}

_ADVICE = (
    'set data.data_dir to the folder that contains it, or data.download=True to download it; to '
    'read your own copy from files, use configs/finetune.py:file'
)


def read(data: ConfigDict, kind: str, report: ReadingReport) -> dict[str, list[GroupedExample]]:
    """Read the splits of the benchmark `data.dataset`.

    Args:
        data: the config's `data`.
        kind: the kind of problem of the run.
        report: the counts of unusable records are added to it.

    Raises:
        UserError: the benchmark is of another kind or not on disk, or has more unusable
            records than allowed.
    """
    if data.train or data.dev or data.test:
        raise UserError(
            f'data.dataset is {data.dataset!r}, but data.train, dev or test name files; set one of '
            'the two'
        )
    benchmark = BENCHMARKS[data.dataset]
    if kind != benchmark.kind:
        raise UserError(
            f'data.dataset={data.dataset!r} is a {benchmark.kind} problem, not {kind}; use '
            f'configs/finetune.py:{data.dataset}'
        )
    splits: dict[str, list[GroupedExample]] = {'train': [], 'dev': [], 'test': []}
    for split, (name, part) in benchmark.splits.items():
        try:
            builder = tensorflow_import.open_tfds_builder(
                name.format(language=data.language),
                data.data_dir,
                data.download,
                origin=f'data.dataset={data.dataset!r}',
                advice=_ADVICE,
            )
        except UserError:
            if split in splits:
                raise
            report.add('splits_that_are_not_on_disk', f'{split}: {name}')
            continue
        if part not in builder.info.splits:
            raise unknown(f'split of {builder.info.full_name}', part, builder.info.splits)
        records = _records(builder, part)
        splits[split] = _read_split(records, split, benchmark, data, report)
    return splits


def _read_split(
    records: Iterator[Fields],
    split: str,
    benchmark: Benchmark,
    data: ConfigDict,
    report: ReadingReport,
) -> list[GroupedExample]:
    counts, split_examples, num_records = ReadingReport(), [], 0
    for num_records, fields in enumerate(records, start=1):
        default_id = f'{split}-{num_records}'
        try:
            example = benchmark.example(fields, default_id, data.language)
            if split.startswith(('train', 'dev')) and not examples.is_labeled(example):
                raise InvalidRecord('no label')
        except InvalidRecord as error:
            counts.add_invalid(error, f'{data.dataset} {default_id}')
            continue
        if data.group and data.group not in fields:
            raise unknown('data.group', data.group, fields)
        group = str(fields[data.group]) if data.group else ''
        split_examples.append(GroupedExample(example, group))
    counts.check_shares(num_records, data)
    report.merge(counts)
    return split_examples


def _records(builder: Any, part: str) -> Iterator[Fields]:
    """The records of a split in the order of its files."""
    tfds = tensorflow_import.tensorflow_datasets()
    dataset = builder.as_dataset(
        split=part,
        shuffle_files=False,
        read_config=tfds.ReadConfig(interleave_cycle_length=1),
    )
    for record in tfds.as_numpy(dataset):
        yield _to_python(record, builder.info.features)


def _to_python(value: Any, feature: Any) -> Any:
    """Convert a value of TFDS to str, int, float, list or dict; classes to names or None."""
    inner = getattr(feature, 'feature', feature)
    if isinstance(value, dict):
        return {key: _to_python(item, inner[key]) for key, item in value.items()}
    if isinstance(value, bytes):
        return value.decode('utf-8', 'replace')
    if getattr(value, 'ndim', 0):
        return [_to_python(item, inner) for item in value.tolist()]
    names = getattr(feature, 'names', None)
    if names is None:
        return value.item() if hasattr(value, 'item') else value
    return names[int(value)] if int(value) >= 0 else None
