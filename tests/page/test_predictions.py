"""Predictions of fine-tuned models on the page are those of `Predictor`."""

import pytest

from bert_jax import tokenizers
from bert_jax.inference.predictor import Predictor
from bert_jax.interop import loading
from bert_jax.page import contents
from tests.inference import small_runs
from tests.inference.small_runs import KINDS, save_run
from tests.page import pages
from tests.page.pages import needs_node

SENTENCE = 'the ship near the moon. star, storm'


def both(folder, kind, *call, changes=None, **metadata):
    """The predictor of a run and the result of a call of its page."""
    model = loading.load_any(save_run(folder / 'run', kind, changes, **metadata))
    path = pages.write(folder, model, dtype='float32')
    (found,) = pages.run(path, call)
    return Predictor(model), found


@needs_node
@pytest.mark.parametrize('texts', [['the ship'], ['the ship ' * 20, 'a storm ' * 9]])
def test_classes_of_texts_and_pairs(texts, tmp_path):
    predictor, found = both(tmp_path, 'classification', 'classify', texts)
    (record,) = predictor.classify([texts], probabilities=True)
    shares = dict(zip(found['labels'], found['probabilities'], strict=True))
    assert shares == pytest.approx(record['probabilities'], abs=1e-5)
    assert found['labels'][found['best']] == record['predicted']
    assert found['isCut'] == (len(texts) == 2)


@needs_node
@pytest.mark.parametrize(
    'architecture',
    [{'pooler': False}, *({'classifier.pooling': name} for name in ('last', 'mean'))],
)
def test_poolings(architecture, tmp_path):
    model = loading.load_any(save_run(tmp_path / 'run', 'classification', None, architecture))
    (found,) = pages.run(
        pages.write(tmp_path, model, dtype='float32'), ('classify', [SENTENCE, 'a storm'])
    )
    (record,) = Predictor(model).classify([(SENTENCE, 'a storm')], probabilities=True)
    assert found['probabilities'] == pytest.approx(list(record['probabilities'].values()), abs=1e-5)


@pytest.mark.parametrize(
    ('architecture', 'states'),
    [
        ({'head_states': 'mix'}, 'a learned mix of all layers'),
        ({'classifier.pooling': 'concat'}, 'the pooling concat'),
    ],
)
def test_states_that_the_page_does_not_compute_are_named(architecture, states, tmp_path):
    model = loading.load_any(save_run(tmp_path / 'run', 'classification', None, architecture))
    found = contents.describe(model, 'test')
    assert found.description['problem'] is None
    assert found.notes == (f'the page has no predictions of a head that reads {states}',)


@needs_node
def test_numbers(tmp_path):
    predictor, found = both(tmp_path, 'regression', 'regress', [SENTENCE])
    (record,) = predictor.classify([SENTENCE])
    assert found['score'] == pytest.approx(record['predicted'], abs=1e-4)


@needs_node
@pytest.mark.parametrize('thresholds', ['none', 'per_class'])
def test_sets_of_classes(thresholds, tmp_path):
    changes, tuned = {'thresholds': thresholds}, {'a': 0.001, 'b': 0.999, 'c': 0.001}
    predictor, found = both(
        tmp_path, 'multi_label', 'chooseLabels', [SENTENCE], changes=changes, calibrated=tuned
    )
    (record,) = predictor.classify([SENTENCE])
    shares = dict(zip(found['labels'], found['probabilities'], strict=True))
    assert shares == pytest.approx(record['probabilities'], abs=1e-5)
    assert found['chosen'] == record['predicted']
    if thresholds == 'per_class':
        assert record['predicted'] == ['a', 'c']


@needs_node
def test_several_numbers(tmp_path):
    predictor, found = both(tmp_path, 'multi_regression', 'regressTargets', [SENTENCE])
    (record,) = predictor.classify([SENTENCE])
    shares = dict(zip(found['labels'], found['scores'], strict=True))
    assert shares == pytest.approx(record['predicted'], abs=1e-4)


@needs_node
def test_choices(tmp_path):
    given = KINDS['multiple_choice'][1]
    call = 'choose', given['premise'], given['choices']
    predictor, found = both(tmp_path, 'multiple_choice', *call)
    (record,) = predictor.classify([given], probabilities=True)
    assert found['probabilities'] == pytest.approx(record['probabilities'], abs=1e-5)


@needs_node
@pytest.mark.parametrize(
    'changes', [{}, {'decode_pieces': 'mean'}, {'crf': True, 'decode_pieces': 'mean'}]
)
@pytest.mark.parametrize('words', ['punctuation', 'whitespace', 'characters'])
def test_tags_and_entities(changes, words, tmp_path):
    text = 'the shipmoon near the moon. star, storm 北京 x\u0301y'
    predictor, found = both(
        tmp_path, 'tagging', 'tag', text, changes=changes, kept={'splitter': words}
    )
    (record,) = predictor.tag([text])
    assert [own['predicted'] for own in found['words']] == [
        own['predicted'] for own in record['words']
    ]
    for name in ('words', 'entities'):
        for own, wanted in zip(found[name], record[name], strict=True):
            assert own.pop('probability') == pytest.approx(wanted.pop('probability'), abs=1e-4)
            assert own == wanted


@needs_node
def test_tags_of_words_whose_first_subword_is_a_space(tmp_path, monkeypatch):
    made = tokenizers.train('bytebpe:270', ['the ship near the moon ' * 9], lowercase=False)
    monkeypatch.setattr(small_runs, 'tokenizer', lambda: made)
    text = 'the ① ship, zq ½ moon'
    assert 'Ġ' in {made.vocab[index] for index in made.encode_batch([text]).ids[0]}
    predictor, found = both(tmp_path, 'tagging', 'tag', text, kept={'splitter': 'punctuation'})
    (record,) = predictor.tag([text])
    shares = [word['probability'] for word in record['words']]
    assert [word['probability'] for word in found['words']] == pytest.approx(shares, abs=1e-4)


@needs_node
@pytest.mark.parametrize(
    'changes',
    [
        {},
        {'nested': False},
        {'summary': 'attention', 'boundary': 'state', 'max_span_words': 3},
        {'summary': 'self_attention', 'decoding': 'threshold'},
        {'decoding': 'threshold', 'threshold': 0.3},
    ],
)
@pytest.mark.parametrize('words', ['punctuation', 'characters'])
def test_spans(changes, words, tmp_path):
    text = 'the ship near the moon. 北京 star, storm'
    metadata = {'calibrated': {'threshold': 0.4}, 'kept': {'splitter': words}}
    predictor, found = both(tmp_path, 'spans', 'labelSpans', text, changes=changes, **metadata)
    (record,) = predictor.spans([text])
    assert len(record['predicted']) > 3
    for own, wanted in zip(found['spans'], record['predicted'], strict=True):
        assert own.pop('probability') == pytest.approx(wanted.pop('probability'), abs=1e-4)
        assert own == wanted


@needs_node
@pytest.mark.parametrize('no_answer', [False, True])
def test_answers(no_answer, tmp_path):
    question, context = 'the ship', 'the ship near the moon. a storm'
    changes = {'no_answer': no_answer, 'n_best': 5}
    metadata = {'calibrated': {'no_answer_threshold': 1e3}}
    call = 'answer', question, context
    predictor, found = both(tmp_path, 'question_answering', *call, changes=changes, **metadata)
    (record,) = predictor.answer([question], [context])
    assert found['isAnswerable']
    for own, wanted in zip(found['answers'], record['n_best'], strict=True):
        assert own.pop('probability') == pytest.approx(wanted.pop('probability'), abs=1e-4)
        assert own == wanted


@needs_node
def test_a_question_without_an_answer(tmp_path):
    changes, metadata = {'no_answer': True}, {'calibrated': {'no_answer_threshold': -1e3}}
    call = 'answer', 'the ship', 'the ship near the moon'
    predictor, found = both(tmp_path, 'question_answering', *call, changes=changes, **metadata)
    assert not found['isAnswerable']
    assert predictor.answer(['the ship'], ['the ship near the moon'])[0]['answer'] == ''


def test_other_fine_tuned_models_have_a_page_of_their_encoder(tmp_path):
    found = contents.describe(loading.load_any(save_run(tmp_path / 'run', 'relation')), 'test')
    assert found.description['problem'] is None
    assert found.notes == ('the page has no predictions of a relation model, only of its encoder',)
