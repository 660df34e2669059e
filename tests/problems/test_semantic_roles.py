"""Semantic roles: gold tags survive, the model sees the predicate, long sentences are counted."""

import numpy as np
import pytest

from bert_jax.errors import UserError
from bert_jax.labels.examples import TaggedExample
from bert_jax.labels.word_spans import join_words
from bert_jax.problems import PROBLEMS
from bert_jax.problems.base import Calibration
from bert_jax.problems.semantic_roles import SEMANTIC_ROLES
from bert_jax.tokenizers.special_token_layout import SpecialTokenLayout
from tests.tasks.small_problems import fit, make, problem_of, tokenizer

SETTINGS = dict(PROBLEMS['semantic_roles'].settings)
LABELS = ('B-A0', 'B-A1', 'B-V', 'I-A0', 'I-A1', 'O')
WORDS = ['the', 'cow', 'saw', 'the', 'ship', 'and', 'the', 'gull', 'saw', 'the', 'tram']


def example(predicate, tags, words=WORDS, name='x'):
    return TaggedExample(name, *join_words(words), tags and tuple(tags.split()), predicate)


FIRST = example(2, 'B-A0 I-A0 B-V B-A1 I-A1 O O O O O O', name='first')
SECOND = example(8, 'O O O O O O B-A0 I-A0 B-V B-A1 I-A1', name='second')


def roles(max_length=64, types=2, **settings):
    layout = SpecialTokenLayout(tokenizer(), max_length, types)
    return problem_of(SEMANTIC_ROLES, SETTINGS | settings, layout, LABELS, [FIRST])


def round_trip(problem, one):
    """The decoded tags of a model that predicts every learned tag."""
    ((sequence,),) = problem.encoding.encode(one)
    number_N = np.maximum(sequence.tokens['label'] - 1, 0)
    part = {'word': sequence.tokens['word'], 'tag': number_N, 'probability': np.ones(len(number_N))}
    return sequence, problem.decoder.decode(one, [[part]], Calibration())['tags']


@pytest.mark.parametrize('mark', ['types', 'marks'])
def test_gold_tags_survive_encoding_and_decoding(mark):
    for one in (FIRST, SECOND):
        _, tags = round_trip(roles(predicate=mark), one)
        assert tuple(tags) == one.tags


def test_the_predicate_has_token_type_1_or_stands_between_marks():
    vocab = tokenizer().vocab
    sequence, _ = round_trip(roles(), SECOND)
    tokens = [vocab[number] for number in sequence.ids]
    typed = [token for token, kind in zip(tokens, sequence.token_type_ids, strict=True) if kind]
    assert ''.join(typed).replace('##', '') == 'saw'
    assert np.flatnonzero(sequence.token_type_ids).min() > len(tokens) // 2  # the second one
    marked, _ = round_trip(roles(types=0), SECOND)
    assert not marked.token_type_ids.any()
    plain, _ = round_trip(roles(), SECOND._replace(predicate=0))
    assert len(marked.ids) == len(plain.ids) + 2
    assert not plain.token_type_ids[2:].any()
    with pytest.raises(UserError, match="problem.predicate is 'types', but the model has no token"):
        roles(types=0, predicate='types')


@pytest.mark.parametrize('mark', ['types', 'marks'])
@pytest.mark.parametrize('max_length', [5, 8, 12])
def test_a_long_sentence_keeps_the_words_around_its_predicate(mark, max_length):
    for one in (FIRST, SECOND):
        problem = roles(max_length, predicate=mark)
        sequence, tags = round_trip(problem, one)
        assert len(sequence.ids) <= max_length
        left_out = problem.setup.counts['words beyond the sequence length']
        assert left_out > 0
        assert tags[one.predicate] == 'B-V'
        kept = [number for number, tag in enumerate(tags) if tag == one.tags[number] != 'O']
        wanted = [number for number, tag in enumerate(one.tags) if tag != 'O']
        assert {*wanted} - {*kept} <= {n for n, tag in enumerate(tags) if tag == 'O'}
        assert len(tags) == len(WORDS)
        assert sum(tag == 'O' for tag in tags) >= left_out - 1


def test_a_model_learns_the_arguments_of_each_predicate_of_one_sentence():
    """The same words with another predicate have other tags, so that the mark must be read."""
    settings = {name: value for name, value in SETTINGS.items() if name != 'labels'}
    problem, model = make(SEMANTIC_ROLES, LABELS, train=[FIRST, SECOND], **settings)
    parts, losses = fit(model, [FIRST, SECOND], 150)
    assert losses[-1] < 0.1 * losses[0]
    predictions = [
        problem.decoder.decode(one, own, Calibration())
        for one, own in zip([FIRST, SECOND], parts, strict=True)
    ]
    assert [tuple(one['tags']) for one in predictions] == [FIRST.tags, SECOND.tags]
    scores = problem.decoder.score([FIRST, SECOND], predictions)
    assert scores.metrics['f1'] == scores.metrics['exact_match'] == 1.0
    record = problem.decoder.to_record(FIRST, predictions[0])
    assert record['predicate'] == {'start': 8, 'end': 11, 'text': 'saw', 'word': 2}
    assert [one['role'] for one in record['predicted']] == ['A0', 'V', 'A1']
    assert record['predicted'][0]['pieces'] == [{'start': 0, 'end': 7, 'text': 'the cow'}]
    gold = [{'role': one['role'], 'pieces': one['pieces']} for one in record['predicted']]
    assert record['gold'] == gold


@pytest.mark.parametrize('given', [None, 11, -1, True, 'saw'])
def test_a_predicate_that_is_not_the_index_of_a_word_is_refused(given):
    encoding = roles().encoding
    record = {'words': WORDS} | ({} if given is None else {'predicate': given})
    with pytest.raises(UserError, match="'predicate' is"):
        encoding.parse_input('line 1', record)
    assert encoding.parse_input('line 1', {'words': WORDS, 'predicate': 2}).predicate == 2
