"""Benchmarks: building examples from records, and reading TensorFlow Datasets from disk."""

import shutil

import numpy as np
import pytest

from bert_jax import tensorflow_import
from bert_jax.errors import UserError
from bert_jax.labels.benchmarks import BENCHMARKS
from bert_jax.labels.examples import (
    Answer,
    Mark,
    MarkedExample,
    MultipleChoiceExample,
    QuestionExample,
    TaggedExample,
    TextExample,
)
from bert_jax.labels.records import InvalidRecord
from tests.labels.reading import example_types, read

SPLITS = ('train', 'validation', 'test')
NLI = {'premise': 'P', 'hypothesis': 'H', 'idx': 3}
PAIR = {'sentence1': 'A', 'sentence2': 'B', 'idx': 3}
CLAIM = 'Mark told Pete many lies about himself, which he believed.'
RECORDS = {
    'cola': ({'sentence': 'A', 'label': 'x', 'idx': 3}, TextExample('3', ('A',), 'x')),
    'sst2': ({'sentence': 'A', 'label': None, 'idx': 3}, TextExample('3', ('A',), None)),
    'mrpc': (PAIR | {'label': 'x'}, TextExample('3', ('A', 'B'), 'x')),
    'stsb': (PAIR | {'label': 3.5}, TextExample('3', ('A', 'B'), 3.5)),
    'qqp': (
        {'question1': 'A', 'question2': 'B', 'label': 'x', 'idx': 3},
        TextExample('3', ('A', 'B'), 'x'),
    ),
    'mnli': (NLI | {'label': 'neutral'}, TextExample('3', ('P', 'H'), 'neutral')),
    'qnli': (
        {'question': 'A', 'sentence': 'B', 'label': 'x', 'idx': 3},
        TextExample('3', ('A', 'B'), 'x'),
    ),
    'rte': (PAIR | {'label': 'x'}, TextExample('3', ('A', 'B'), 'x')),
    'wnli': (PAIR | {'label': 'x'}, TextExample('3', ('A', 'B'), 'x')),
    'boolq': (
        {'passage': 'B', 'question': 'A', 'label': 'True', 'idx': 3},
        TextExample('3', ('A', 'B'), 'True'),
    ),
    'cb': (NLI | {'label': 'x'}, TextExample('3', ('P', 'H'), 'x')),
    'superglue_rte': (NLI | {'label': 'x'}, TextExample('3', ('P', 'H'), 'x')),
    'copa': (
        {'premise': 'P.', 'choice1': 'A', 'choice2': 'B', 'question': 'effect', 'idx': 3}
        | {'label': 'choice2'},
        MultipleChoiceExample('3', 'P. What happened as a result?', ('A', 'B'), 1),
    ),
    'multirc': (
        {'paragraph': 'P', 'question': 'Q?', 'answer': 'A', 'label': 'False'}
        | {'idx': {'answer': 7, 'paragraph': 1, 'question': 2}},
        TextExample('1-2-7', ('P', 'Q? A'), 'False'),
    ),
    'record': (
        {'passage': 'P\n@highlight\nQ', 'query': 'To @placeholder.', 'entities': ['A', 'B', 'C']}
        | {'answers': ['C', 'B'], 'idx': {'passage': 1, 'query': 2}},
        MultipleChoiceExample('1-2', 'P Q', ('To A.', 'To B.', 'To C.'), 1, (2,), ('A', 'B', 'C')),
    ),
    'wic': (
        {'word': 'a', 'sentence1': 'a b', 'sentence2': 'c a', 'start1': 0, 'end1': 1}
        | {'start2': 2, 'end2': 3, 'label': 'True', 'idx': 3},
        MarkedExample('3', ('a b', 'c a'), (Mark(0, 0, 1), Mark(1, 2, 3)), 'True'),
    ),
    'wsc': (
        {'text': CLAIM, 'span1_text': 'Pete', 'span1_index': 2, 'span2_text': 'he'}
        | {'span2_index': 8, 'label': 'True', 'idx': 3},
        MarkedExample('3', (CLAIM,), (Mark(0, 10, 14), Mark(0, 46, 48)), 'True'),
    ),
    'squad1': (
        {'id': 'q', 'title': 'T', 'context': 'In York.', 'question': 'Where?'}
        | {'answers': {'text': ['York'], 'answer_start': [3]}},
        QuestionExample('q', 'Where?', 'In York.', (Answer('York', 3),)),
    ),
    'squad2': (
        {'id': 'q', 'title': 'T', 'context': 'In York.', 'question': 'Why?'}
        | {'is_impossible': True, 'answers': {'text': [], 'answer_start': []}},
        QuestionExample('q', 'Why?', 'In York.', ()),
    ),
    'conll2003': (
        {'tokens': ['York', 'is'], 'pos': ['NNP', 'VBZ'], 'ner': ['B-LOC', 'O']},
        TaggedExample('n', 'York is', ((0, 4), (5, 7)), ('B-LOC', 'O')),
    ),
    'ud_pos': (
        {'idx': 's1', 'tokens': ['Go', '!'], 'upos': ['VERB', 'PUNCT'], 'text': 'Go!'},
        TaggedExample('s1', 'Go!', ((0, 2), (2, 3)), ('VERB', 'PUNCT')),
    ),
    'xnli': (
        {'premise': {'de': 'Ja', 'en': 'Yes'}, 'label': 'neutral'}
        | {'hypothesis': {'language': ['en', 'de'], 'translation': ['No', 'Nein']}},
        TextExample('n', ('Ja', 'Nein'), 'neutral'),
    ),
}


@pytest.mark.parametrize('name', sorted(BENCHMARKS))
def test_a_record_becomes_an_example(name):
    record, example = RECORDS[name]
    assert BENCHMARKS[name].example(record, 'n', 'de') == example
    assert isinstance(example, example_types(BENCHMARKS[name].kind))


@pytest.mark.parametrize(
    ('name', 'change', 'message'),
    [
        ('stsb', {'label': float('nan')}, 'the score is nan'),
        ('record', {'answers': ['D']}, r"none of the answers \['D'\] is an entity"),
        ('wic', {'end2': 9}, 'span 2:9 is not inside the text of 3 characters'),
        ('wsc', {'span1_index': 40}, 'words 40 to 10 are not in a sentence of 10 words'),
        ('squad1', {'context': 'In Leeds'}, "the context at 3 is 'Leed', not the answer 'York'"),
        (
            'xnli',
            {'premise': {'fr': 'Oui'}},
            "no text for data.language='de'; the languages are fr",
        ),
        ('conll2003', {'tokens': []}, 'no words'),
    ],
)
def test_an_invalid_record_is_an_error(name, change, message):
    with pytest.raises(InvalidRecord, match=message):
        BENCHMARKS[name].example(RECORDS[name][0] | change, 'n', 'de')


def test_unknown_labels_are_none_and_another_text_is_not_used():
    record = RECORDS['stsb'][0] | {'label': -1.0}
    assert BENCHMARKS['stsb'].example(record, 'n', '').label is None
    record = RECORDS['record'][0] | {'answers': []}
    assert BENCHMARKS['record'].example(record, 'n', '').label is None
    record = RECORDS['copa'][0] | {'label': None}
    assert BENCHMARKS['copa'].example(record, 'n', '').label is None
    words = RECORDS['ud_pos'][0] | {'text': 'Something else'}
    assert BENCHMARKS['ud_pos'].example(words, 'n', '').text == 'Go !'


@pytest.fixture(scope='module')
def folder(tmp_path_factory):
    """Five tiny data sets on disk, written by TFDS."""
    tf, tfds = tensorflow_import.tensorflow(), tensorflow_import.tensorflow_datasets()
    folder = tmp_path_factory.mktemp('tensorflow_datasets')
    features = tfds.features

    def store(name, kinds, splits):
        name, _, subset = name.partition('/')
        tfds.dataset_builders.store_as_tfds_dataset(
            name=name,
            config=subset or None,
            version='1.0.0',
            data_dir=folder,
            split_datasets={
                split: tf.data.Dataset.from_tensor_slices(columns)
                for split, columns in splits.items()
            },
            features=features.FeaturesDict(kinds),
        )

    text = features.Text()
    classes = features.ClassLabel(names=['not_equivalent', 'equivalent'])
    pairs = {'sentence1': ['A', 'É'], 'sentence2': ['B', 'D'], 'idx': np.array([0, 1], np.int32)}
    known, unknown = {'label': np.array([1, 0])}, {'label': np.array([-1, -1])}
    store(
        'glue/mrpc',
        {'sentence1': text, 'sentence2': text, 'label': classes, 'idx': np.int32},
        {'train': pairs | known, 'validation': pairs | known, 'test': pairs | unknown},
    )
    answer = features.Sequence({'text': text, 'answer_start': np.int32})
    found = {'text': [['York', 'In York']], 'answer_start': np.array([[3, 0]], np.int32)}
    question = {'id': ['q'], 'context': ['In York.'], 'question': ['Where?'], 'answers': found}
    store(
        'squad/v1.1',
        {'id': text, 'context': text, 'question': text, 'answers': answer},
        {'train': question, 'validation': question},
    )
    tags = features.Sequence(features.ClassLabel(names=['O', 'B-LOC']))
    words = {'tokens': [['York', 'is']], 'ner': np.array([[1, 0]])}
    store(
        'conll2003/conll2003',
        {'tokens': features.Sequence(text), 'ner': tags},
        {'train': words, 'dev': words, 'test': words},
    )
    labels = features.ClassLabel(names=['entailment', 'neutral', 'contradiction'])
    inference = {'premise': text, 'hypothesis': text, 'label': labels, 'idx': np.int32}
    entailed, unlabeled = ({k: [v] for k, v in (NLI | {'label': n}).items()} for n in (0, -1))
    parts = {'train': entailed | {'label': [1]}}
    for genre in ('matched', 'mismatched'):
        parts |= {f'validation_{genre}': entailed, f'test_{genre}': unlabeled}
    store('glue/mnli', inference, parts)
    store('glue/ax', inference, {'test': unlabeled})
    binary = features.ClassLabel(names=['entailment', 'not_entailment'])
    store('super_glue/rte', inference | {'label': binary}, dict.fromkeys(SPLITS, entailed))
    store('super_glue/axg', inference | {'label': binary}, {'test': entailed | {'label': [1]}})
    broad = {k: [v] for k, v in (PAIR | {'label': 0}).items()}
    kinds = {'sentence1': text, 'sentence2': text, 'label': binary, 'idx': np.int32}
    store('super_glue/axb', kinds, {'test': broad})
    translated = {'language': [['de', 'en']], 'translation': [['Nein', 'No']]}
    record = {'premise': {'de': ['Ja'], 'en': ['Yes']}, 'hypothesis': translated, 'label': [2]}
    store(
        'xnli',
        {
            'premise': features.FeaturesDict({'de': text, 'en': text}),
            'hypothesis': features.Sequence({'language': text, 'translation': text}),
            'label': labels,
        },
        {'validation': record, 'test': record},
    )
    return str(folder)


def test_classes_are_names_and_unknown_ones_are_none(folder):
    splits = read('classification', dataset='mrpc', data_dir=folder)
    examples = [
        TextExample('0', ('A', 'B'), 'equivalent'),
        TextExample('1', ('É', 'D'), 'not_equivalent'),
    ]
    assert sorted(splits.train) == sorted(splits.dev) == examples
    assert sorted(splits.test) == [one._replace(label=None) for one in examples]


def test_questions_are_read_with_all_answers(folder):
    splits = read('question_answering', dataset='squad1', data_dir=folder)
    answers = (Answer('York', 3), Answer('In York', 0))
    assert splits.train == splits.dev == [QuestionExample('q', 'Where?', 'In York.', answers)]
    assert splits.test == []


def test_words_are_read_from_the_folder_in_tfds_data_dir(folder, monkeypatch):
    monkeypatch.setenv('TFDS_DATA_DIR', folder)
    splits = read('tagging', dataset='conll2003')
    example = TaggedExample('dev-1', 'York is', ((0, 4), (5, 7)), ('B-LOC', 'O'))
    assert splits.dev == [example]
    assert splits.train == [example._replace(id='train-1')]


def test_mnli_has_both_dev_and_test_sets_and_the_diagnostic_set(folder, tmp_path, monkeypatch):
    splits = read('classification', dataset='mnli', data_dir=folder)
    example = TextExample('3', ('P', 'H'), 'entailment')
    assert splits.dev == [example]
    unlabeled = [example._replace(label=None)]
    assert splits.test == unlabeled
    assert splits.more == {
        'dev_mismatched': [example],
        'test_mismatched': unlabeled,
        'ax': unlabeled,
    }
    monkeypatch.delenv('TFDS_DATA_DIR', raising=False)
    shutil.copytree(f'{folder}/glue/mnli', tmp_path / 'glue' / 'mnli')
    splits = read('classification', dataset='mnli', data_dir=str(tmp_path))
    assert splits.more.keys() == {'dev_mismatched', 'test_mismatched'}
    assert splits.report.lines() == ['splits that are not on disk: 1 (ax: glue/ax)']


def test_rte_of_superglue_has_two_labeled_diagnostic_sets(folder):
    splits = read('classification', dataset='superglue_rte', data_dir=folder)
    assert splits.train == splits.dev == [TextExample('3', ('P', 'H'), 'entailment')]
    assert splits.more == {
        'axb': [TextExample('3', ('A', 'B'), 'entailment')],
        'axg': [TextExample('3', ('P', 'H'), 'not_entailment')],
    }


def test_xnli_is_trained_in_english_and_evaluated_in_the_set_language(folder):
    splits = read('classification', dataset='xnli', data_dir=folder, language='de')
    assert splits.train == [TextExample('3', ('P', 'H'), 'neutral')]
    assert splits.dev == [TextExample('dev-1', ('Ja', 'Nein'), 'contradiction')]
    with pytest.raises(
        UserError, match=r"1 of 1 records are malformed: xnli dev-1: no text for data.language='sw'"
    ):
        read('classification', dataset='xnli', data_dir=folder, language='sw')


def test_a_benchmark_that_cannot_be_read_is_an_error(folder, tmp_path, monkeypatch):
    monkeypatch.delenv('TFDS_DATA_DIR', raising=False)
    with pytest.raises(UserError) as caught:
        read('classification', dataset='sst2', data_dir=str(tmp_path))
    message = str(caught.value)
    assert message.startswith(f"data.dataset='sst2': glue/sst2 was not found in {tmp_path}, ")
    assert 'data.download=True' in message
    assert 'configs/finetune.py:file' in message
    assert '\n' not in message
    with pytest.raises(
        UserError, match=r"unknown data.dataset 'sst3'; did you mean sst2. known: boolq, cb, "
    ):
        read('classification', dataset='sst3')
    with pytest.raises(
        UserError, match=r"'squad1' is a question_answering problem, not classification"
    ):
        read('classification', dataset='squad1')
    with pytest.raises(UserError, match='set one of the two'):
        read('classification', dataset='sst2', train=('a.tsv',))
    with pytest.raises(UserError, match=r"unknown data.group 'topic'; known: hypothesis, idx"):
        read('classification', dataset='xnli', data_dir=folder, group='topic')


def test_classes_without_names_are_numbers(tmp_path):
    found = [BENCHMARKS['rte'].example(PAIR | {'label': n}, '1', 'en') for n in (1, -1)]
    assert [one.label for one in found] == ['1', None]


@pytest.mark.parametrize(
    ('name', 'fields'),
    [
        ('rte', {'sentence1': 1, 'sentence2': 'B', 'label': 'x'}),
        ('rte', {'sentence1': 'A', 'label': 'x'}),
        ('stsb', PAIR | {'label': 'high'}),
        ('copa', {'premise': 1, 'choice1': 2, 'choice2': 3, 'question': 4, 'label': 0}),
        ('multirc', {'paragraph': 'P', 'question': 'Q?', 'answer': 'A', 'label': 'x', 'idx': 3}),
        ('record', {'passage': 7, 'query': 'Q', 'entities': 'E', 'answers': 0, 'idx': 1}),
        ('wic', PAIR | {'start1': 'a', 'end1': None, 'start2': 0, 'end2': 1, 'label': 'x'}),
        ('wsc', {'text': 'a b', 'span1_text': 5, 'span1_index': 0, 'label': 'x'}),
        ('squad1', {'id': 1, 'question': 'q', 'context': 3, 'answers': {'text': ['a']}}),
        ('conll2003', {'tokens': [1, 2], 'ner': [0, 0]}),
    ],
)
def test_a_record_with_other_fields_than_published_is_malformed(name, fields):
    with pytest.raises(InvalidRecord, match='other fields than in the published data|not a string'):
        BENCHMARKS[name].example(fields, '1', 'en')
