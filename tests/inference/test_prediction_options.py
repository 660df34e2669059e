"""Options of fine-tuned models: all probabilities, long texts, words, one text or two."""

import dataclasses
import functools

import numpy as np
import pytest
import torch
import transformers

import bert_jax
from bert_jax.errors import UserError
from bert_jax.inference.inputs import PredictionOptions
from tests.inference.small_runs import KINDS, LENGTH, save_run
from tests.interop import published

LONG = 'the ship near the moon and the cow near the barn ' * 6


@pytest.fixture(scope='module')
def load(tmp_path_factory):
    """Kind of problem → a loaded model."""
    folder = tmp_path_factory.mktemp('runs')
    return functools.cache(lambda kind: bert_jax.load(save_run(folder / kind, kind)))


@pytest.mark.parametrize('kind', ['classification', 'relation', 'multiple_choice'])
def test_the_probabilities_of_all_classes_are_listed_on_request(load, kind):
    given = KINDS[kind][1]
    (plain,), (record,) = (load(kind).classify([given], probabilities=on) for on in (False, True))
    shares = record.pop('probabilities')
    assert record == plain
    if kind == 'multiple_choice':
        shares = dict(enumerate(shares))
    else:
        assert tuple(shares) == KINDS[kind][0]
    assert sum(shares.values()) == pytest.approx(1, abs=1e-5)
    assert max(shares, key=shares.get) == record['predicted']
    assert shares[record['predicted']] == record['probability']


def test_the_probabilities_of_all_tags_are_listed_on_request(load):
    (plain,), (record,) = (load('tagging').tag(['the ship'], on) for on in (False, True))
    for word, before in zip(record['words'], plain['words'], strict=True):
        shares = word.pop('probabilities')
        assert tuple(shares) == KINDS['tagging'][0]
        assert max(shares, key=shares.get) == word['predicted']
        assert word == before


@pytest.mark.parametrize(('kind', 'key'), [('regression', 'predicted'), ('classification', 'no')])
def test_windows_of_a_long_text_are_averaged(load, kind, key):
    model = load(kind)

    def value(record):
        return record.get(key, record.get('probabilities', {}).get(key))

    def answer(text, **options):
        options |= {'probabilities': True} if kind == 'classification' else {}
        (record,) = model.classify([text], **options)
        return value(record)

    before = model.counts[f'texts truncated to {LENGTH} tokens']
    truncated = answer(LONG)
    assert answer(f'{LONG} star') == truncated
    assert model.counts[f'texts truncated to {LENGTH} tokens'] == before + 2
    averaged = answer(LONG, long_texts='windows')
    assert abs(averaged - truncated) > 1e-4
    assert abs(answer(f'{LONG} star', long_texts='windows') - averaged) > 1e-6
    assert model.counts['texts split into windows'] > 0
    short = 'the ship'
    assert answer(short, long_texts='windows') == pytest.approx(answer(short), abs=1e-6)


def test_the_windows_of_a_pair_keep_its_shorter_text(load):
    model = load('classification')
    windows = PredictionOptions(long_texts='windows')
    problem = dataclasses.replace(model.finetuned.main, overlap=0.0).problem(windows)
    example = problem.encoding.parse_input('x', {'text': 'the ship', 'text2': LONG})
    items = problem.encoding.encode(example)
    ship = model.tokenizer.encode_batch(['the ship']).ids[0]
    shown = []
    for (sequence,) in items:
        assert len(sequence.ids) <= LENGTH
        assert sequence.ids[1 : 1 + len(ship)].tolist() == ship.tolist()
        shown += sequence.ids[len(ship) + 2 : -1].tolist()
    rest = model.tokenizer.encode_batch([LONG]).ids[0].tolist()
    assert shown[: len(shown) // 2] == rest[: len(shown) // 2]
    assert set(shown) == set(rest)


def test_a_model_of_pairs_takes_pairs_and_a_model_of_texts_texts(tmp_path):
    folder = tmp_path / 'pairs'
    pairs = bert_jax.load(save_run(folder, 'classification', texts=2))
    pairs.classify([('the ship', 'the moon')])
    with pytest.raises(UserError, match=r'input 2: one text, but .* trained on pairs; give two'):
        pairs.classify([('the ship', 'the moon'), 'the ship'])
    single = dataclasses.replace(pairs.finetuned.main, num_texts=1)
    pairs.finetuned = dataclasses.replace(pairs.finetuned, problems=(single,))
    with pytest.raises(UserError, match=r'input 1: two texts.* was trained on single texts'):
        pairs.classify([('the ship', 'the moon')])


def test_plain_text_is_split_as_in_training_or_as_asked(tmp_path):
    model = bert_jax.load(save_run(tmp_path / 'run', 'tagging', kept={'splitter': 'whitespace'}))

    def words(text, **options):
        (record,) = model.tag([text], **options)
        return [word['text'] for word in record['words']]

    assert words('the U.S. ship.') == ['the', 'U.S.', 'ship.']
    assert words('the ship.', words='punctuation') == ['the', 'ship', '.']
    assert words('the ship.') == ['the', 'ship.']
    assert words('') == words(' ') == []
    model = bert_jax.load(save_run(tmp_path / 'spans', 'spans', kept={'splitter': 'whitespace'}))
    text = 'the U.S. ship.'
    assert model.spans([text]) == model.spans([text.split()])
    assert model.spans([text]) != model.spans([text], words='punctuation')


@pytest.mark.parametrize(
    ('kind', 'call', 'message'),
    [
        ('regression', {'probabilities': True}, 'a regression model has no probabilities'),
        (
            'relation',
            {'long_texts': 'windows'},
            "is 'windows', but a relation model has only trunc",
        ),
        ('tagging', {'long_texts': 'truncate'}, 'a tagging model has only windows'),
        ('tagging', {'words': 'letters'}, "to split words 'letters'; known: characters, punct"),
    ],
)
def test_an_option_a_model_does_not_have_is_refused(load, kind, call, message):
    model = load(kind)
    task = 'tag' if kind == 'tagging' else 'classify'
    with pytest.raises(UserError, match=message):
        model.predict(task, [KINDS[kind][1]], PredictionOptions(**call))


@pytest.mark.parametrize(
    ('kind', 'task', 'given', 'message'),
    [
        (
            'classification',
            'classify',
            {'text': ['a', 'b']},
            r'\'text\' is \["a", "b"\], not a str',
        ),
        ('classification', 'classify', {'text': 'a', 'text2': 3}, "'text2' is 3, not a string"),
        (
            'classification',
            'classify',
            {'id': 7},
            "7: key 'text' is missing; the input has no keys",
        ),
        ('multiple_choice', 'classify', {'premise': 'a', 'choices': 'abc'}, "'choices', a list of"),
        (
            'multiple_choice',
            'classify',
            {'premise': 1, 'choices': ['a']},
            "give 'premise', a string",
        ),
        ('tagging', 'tag', {'words': 'the ship'}, "give a text as 'text', a list of words as"),
        ('tagging', 'tag', {'words': ['the', 3]}, 'word 1 is 3, not a string'),
        ('relation', 'classify', {'text': 'a', 'marks': 3}, 'give two pairs'),
        ('relation', 'classify', {'text': 'a', 'marks': [[0, 0.5], [0, 1]]}, 'give two pairs'),
        (
            'question_answering',
            'answer',
            {'question': 'a', 'context': ['b']},
            "'context' is .*not a",
        ),
    ],
)
def test_a_value_of_a_wrong_type_is_one_line(load, kind, task, given, message):
    with pytest.raises(UserError, match=message) as refused:
        load(kind).predict(task, [given])
    assert '\n' not in str(refused.value)


@pytest.mark.parametrize(
    ('call', 'message'),
    [
        (
            lambda model: model.embed([['the', 'ship']]),
            r"text 1 is \['the', 'ship'\], not a string",
        ),
        (lambda model: model.embed(['a', None]), 'text 2 is None, not a string'),
        (lambda model: model.embed({'text': 'a'}), r"expected a list of texts, not \{'text'"),
        (lambda model: model.embed(['a'], long_texts='cut'), "long texts 'cut'; known: truncate"),
        (lambda model: model.classify([5]), 'a text or a pair of texts, not 5'),
        (lambda model: model.classify([('a', 5)]), "'text2' is 5, not a string"),
        (lambda model: model.classify({'text': 'a'}), r"expected a list of texts, not \{'text'"),
    ],
)
def test_what_is_not_a_list_of_texts_is_one_line(load, call, message):
    with pytest.raises(UserError, match=message):
        call(load('classification'))


def test_long_texts_are_embedded_in_windows_or_truncated(load):
    model = load('classification')
    size = model.architecture.max_length
    text = LONG * 2
    (whole,), (start,) = model.embed([text]), model.embed([text], long_texts='truncate')
    assert model.counts == model.counts | {
        f'texts split into windows of {size} tokens': 1,
        f'texts truncated to {size} tokens': 1,
    }
    assert np.abs(whole - start).max() > 1e-4
    ids = model.tokenizer.encode_batch([text]).ids[0][: size - 2]
    (expected,) = model.embed([model.tokenizer.decode(ids.tolist())])
    np.testing.assert_allclose(start, expected, atol=1e-5)


def test_published_taggers_and_readers_answer_like_transformers(tmp_path):
    path = published.folder(
        tmp_path / 'tagger', 'BertForTokenClassification', id2label={0: 'O', 1: 'B-X', 2: 'I-X'}
    )
    tokenize = transformers.BertTokenizer(str(path / 'vocab.txt'))
    theirs = transformers.BertForTokenClassification.from_pretrained(path).eval()
    (record,) = bert_jax.load(path).tag(['the ship near the moon'], probabilities=True)
    with torch.no_grad():
        shares = theirs(**tokenize('the ship near the moon', return_tensors='pt')).logits[0]
    for word, own in zip(record['words'], shares.softmax(-1)[1:-1].numpy(), strict=True):
        expected = dict(zip(('O', 'B-X', 'I-X'), own.tolist(), strict=True))
        assert word['probabilities'] == pytest.approx(expected, abs=1e-5)

    path = published.folder(tmp_path / 'reader', 'BertForQuestionAnswering')
    theirs = transformers.BertForQuestionAnswering.from_pretrained(path).eval()
    question, context = 'the ship', 'the cow near the barn'
    (record,) = bert_jax.load(path).answer([question], [context])
    with torch.no_grad():
        output = theirs(**tokenize(question, context, return_tensors='pt'))
    first, words = 4, context.split()
    starts, ends = (x[0, first : first + 5] for x in (output.start_logits, output.end_logits))
    scores = {(i, j): starts[i] + ends[j] for i in range(5) for j in range(i, 5)}
    i, j = max(scores, key=scores.get)
    assert record['answer'] == ' '.join(words[i : j + 1])


def test_independent_classes_are_not_taken_for_exclusive_ones(tmp_path):
    path = published.folder(
        tmp_path / 'bert',
        'BertForSequenceClassification',
        problem_type='multi_label_classification',
    )
    (record,) = bert_jax.load(path).classify(['the ship'], probabilities=True)
    assert isinstance(record['predicted'], list)
    assert abs(sum(record['probabilities'].values()) - 1) > 1e-3


@pytest.mark.parametrize('kind', ['SequenceClassification', 'TokenClassification'])
def test_classes_of_the_same_name_are_refused(kind, tmp_path):
    """Their probabilities would replace each other: transformers answers id2label[argmax]."""
    names = {0: 'other', 1: 'good', 2: 'other'}
    path = published.folder(tmp_path / 'model', f'BertFor{kind}', id2label=names)
    with pytest.raises(UserError, match=r"classes 0 and 2 are both named 'other'.*id2label"):
        bert_jax.load(path)


@pytest.mark.parametrize('given', [0, 7, 'a', '7'])
def test_ids_keep_their_type(load, given):
    (record,) = load('classification').predict(
        'classify', [KINDS['classification'][1] | {'id': given}]
    )
    assert record['id'] == given
    assert type(record['id']) is type(given)


def test_an_input_without_an_id_gets_its_number(tmp_path):
    model = bert_jax.load(save_run(tmp_path / 'run', 'classification'))
    _, given = KINDS['classification']
    inputs = [given, given | {'id': 'a'}, given | {'id': None}]
    records = model.predict('classify', inputs)
    assert [record['id'] for record in records] == ['input 1', 'a', 'input 3']
