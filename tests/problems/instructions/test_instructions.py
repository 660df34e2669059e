"""Answers to instructions: what is learned, its loss, packing, long conversations, bad input."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax import tokenizers
from bert_jax.errors import UserError
from bert_jax.examples.finetune_batches import BatchShape
from bert_jax.labels.conversations import Message, make_conversation, read_messages
from bert_jax.labels.records import InvalidRecord
from bert_jax.models.rows import Rows
from bert_jax.problems.base import Calibration
from bert_jax.problems.instructions.kinds import hidden_weights
from bert_jax.problems.instructions.turns import TurnTemplate
from tests.problems.instructions.conversations import (
    EXAMPLES,
    TEXT,
    conversation,
    encoded,
    make,
    tokenizer,
)
from tests.random_parameters import random_parameters
from tests.tasks.small_problems import answers, batches

KINDS = {'causal': (True, {}), 'prefix': (True, {'prefix_lm': True}), 'diffusion': (False, {})}
END = '[SEP]'


def tokens(ids):
    return [tokenizer().vocab[index] for index in ids]


def words(text):
    (ids,) = tokenizer().encode_batch([text]).ids
    return tokens(ids)


@pytest.fixture(scope='module', params=KINDS)
def answering(request):
    """A problem, its model, and large random parameters."""
    is_causal, settings = KINDS[request.param]
    problem, model = make(is_causal, **settings)
    ((batch, _), *_) = batches(encoded(problem), BatchShape(1, 64, 8))
    return problem, model, random_parameters(model.model, model.rows(batch), deviation=0.2)


def test_a_causal_model_learns_all_answers_of_a_conversation_in_one_row():
    problem, _ = make(True)
    ((sequence,),) = problem.encoding.encode(EXAMPLES[1])
    first, second = [*words('tree'), END], [*words('fish stone'), END]
    before = ['[CLS]', *words('User: Repeat: tree\n'), *words('Assistant:')]
    between = [*words('User: Repeat: fish stone\n'), *words('Assistant:')]
    assert tokens(sequence.ids) == [*before, *first, *between, *second]
    expected = np.repeat([0, 1, 0, 1], [len(before), len(first), len(between), len(second)])
    np.testing.assert_array_equal(sequence.tokens['is_answer'], expected)


def test_diffusion_has_a_row_for_each_answer_which_end_tokens_fill():
    problem, _ = make(False, answer_tokens=8)
    (first,), (second,) = problem.encoding.encode(EXAMPLES[1])
    assert 'fish' not in ''.join(tokens(first.ids[first.tokens['size'] == 0]))
    for row, answer in ((first, words('tree')), (second, words('fish stone'))):
        place = row.tokens['size'] > 0
        assert place.sum() == 8 == row.tokens['size'].max()
        assert tokens(row.ids[place]) == answer + [END] * (8 - len(answer))
        assert tokens(row.ids[row.tokens['is_answer'] > 0]) == [*answer, END]
    (whole,) = problem.encoding.encode(EXAMPLES[0])[0]
    unlimited, _ = make(False)
    (to_the_end,) = unlimited.encoding.encode(EXAMPLES[0])[0]
    assert len(whole.ids) < len(to_the_end.ids) == 48


@functools.partial(jax.jit, static_argnums=0)
def _heads(model, params, rows):
    return model.apply({'params': params}, rows).heads


def log_probabilities(model, params, rows):
    """Of one row, which is padded so that all rows have one shape."""
    rest = [(0, 0), (0, 48 - rows.input_ids_BT.shape[1])]
    rows = rows.replace(labels={}, targets=None)
    (logits_BTV,) = _heads(model, params, jax.tree.map(lambda x: np.pad(x, rest), rows)).values()
    return np.asarray(jax.nn.log_softmax(logits_BTV[0]))


def expected_loss(problem, model, params, seeds_R=None):
    """Σ weight · −log p, and the number of counted tokens, one row and token at a time."""
    total, count = 0.0, 0
    for example in EXAMPLES:
        for (sequence,) in problem.encoding.encode(example):
            rows = Rows.of(
                {
                    'input_ids': sequence.ids[None],
                    'attention_mask': np.ones_like(sequence.ids)[None],
                    **{name: field[None] for name, field in sequence.tokens.items()},
                }
            )
            is_answer = sequence.tokens['is_answer']
            count += is_answer.sum()
            read, places = rows, np.flatnonzero(is_answer)
            if not problem.setup.is_causal:
                weights = np.asarray(hidden_weights(rows, seeds_R))[0]
                places = np.flatnonzero(weights)
                number, size = len(places), sequence.tokens['size'].max()
                np.testing.assert_allclose(weights[places], size / number, rtol=1e-6)
                hidden = sequence.ids.copy()
                hidden[places] = tokenizer().mask_id
                read = Rows(hidden[None], rows.attention_mask_BT)
            elif problem.setup.settings.prefix_lm:
                read = rows.replace(is_prefix_BT=1 - is_answer[None])
            log_p_TV = log_probabilities(model.model, params, read)
            for place in places:
                weight = 1 if problem.setup.is_causal else weights[place]
                source = place - problem.setup.is_causal
                total -= weight * log_p_TV[source, sequence.ids[place]]
    return total, count


def test_the_loss_is_that_of_an_obvious_loop_packed_or_not(answering):
    problem, model, params = answering
    total, count = expected_loss(problem, model, params)
    for rows, length in ((2, 64), (1, None)):
        parts, terms = answers(model, params, EXAMPLES, rows=rows, length=length)
        np.testing.assert_allclose(terms['answer'].sum, total, rtol=2e-5)
        assert terms['answer'].count == count
        found = [
            problem.decoder.decode(example, own, Calibration())
            for example, own in zip(EXAMPLES, parts, strict=True)
        ]
        assert sum(one.nats for one in found) == pytest.approx(total, rel=2e-5)
        assert sum(one.tokens for one in found) == count
    scores = problem.decoder.score(EXAMPLES, found).metrics
    assert scores['answer_loss'] == pytest.approx(total / count, rel=2e-5)


def test_hidden_tokens_are_others_for_other_seeds_and_every_number_is_hidden():
    problem, _ = make(False, answer_tokens=6)
    (sequence,) = problem.encoding.encode(EXAMPLES[0])[0]
    batch = {name: np.tile(field, (600, 1)) for name, field in sequence.tokens.items()}
    rows = Rows(np.tile(sequence.ids, (600, 1)), np.ones((600, len(sequence.ids))), labels=batch)
    weights = np.asarray(hidden_weights(rows, jnp.arange(600, dtype=jnp.uint32)))
    numbers = (weights > 0).sum(1)
    assert not weights[:, sequence.tokens['size'] == 0].any()
    np.testing.assert_allclose(np.bincount(numbers, minlength=7)[1:], 100, atol=35)
    share = (weights > 0).mean(0)[sequence.tokens['size'] > 0]
    np.testing.assert_allclose(share, 3.5 / 6, atol=0.08)
    np.testing.assert_allclose(weights.sum(1), 6, rtol=1e-5)


def test_a_long_conversation_loses_its_oldest_turns_and_long_texts_are_counted():
    for is_causal in (True, False):
        problem, _ = make(is_causal, max_length=28, **({} if is_causal else {'answer_tokens': 6}))
        turns = ['Repeat: cat dog bird', 'cat dog bird'] * 4
        *_, (last,) = problem.encoding.encode(conversation('x', *turns))
        assert len(last.ids) <= 28
        assert tokens(last.ids)[1] == words('User:')[0]
        (count,) = [n for name, n in problem.setup.counts.items() if 'oldest' in name]
        assert count == 3 if not is_causal else count >= 2
    problem, _ = make(True, max_length=24)
    ((long,),) = problem.encoding.encode(conversation('x', 'Repeat: cat', 'cat dog ' * 20))
    assert len(long.ids) == 24
    assert tokens(long.ids)[-1] != END
    assert problem.setup.counts['answers cut to fewer tokens, which do not end'] == 1
    ((long,),) = problem.encoding.encode(conversation('x', 'cat dog ' * 20, 'cat'))
    assert tokens(long.ids)[-2:] == ['cat', END]


def test_the_baseline_is_the_frequency_of_tokens_in_answers():
    problem, _ = make(True)
    guesses = problem.decoder.blind_guesses(EXAMPLES, EXAMPLES[:1])
    learned = [*words('cat dog'), *words('tree'), *words('fish stone'), *words('river')]
    learned += [END] * 4
    total = len(learned) + tokenizer().vocab_size
    expected = sum(np.log(total / (1 + learned.count(t))) for t in [*words('cat dog'), END])
    assert guesses[0].nats == pytest.approx(expected)


def test_names_of_special_tokens_in_a_text_are_ordinary_text():
    problem, _ = make(True)
    ((sequence,),) = problem.encoding.encode(conversation('x', 'say [SEP] [MASK]', 'cat'))
    assert (sequence.ids == tokenizer().sep_id).sum() == 1
    assert not (sequence.ids == tokenizer().mask_id).any()


@pytest.mark.parametrize(
    ('settings', 'message'),
    [
        ({'user': 'User:'}, 'problem.user is'),
        ({'assistant': '{text}'}, 'must be a marker'),
        ({'assistant': 'A: {text}!'}, 'must be a marker'),
    ],
)
def test_templates_that_cannot_work_are_refused(settings, message):
    with pytest.raises(UserError, match=message):
        make(True, **settings)


def test_a_prefix_is_refused_for_a_model_that_sees_everything():
    with pytest.raises(UserError, match='prefix_lm is for causal models'):
        make(False, prefix_lm=True)


@pytest.mark.parametrize(
    ('turns', 'message'),
    [
        ([], 'none; they must be'),
        ([('assistant', 'a')], 'they must be'),
        ([('user', 'a'), ('tool', 'b')], 'they must be'),
        ([('system', 'a'), ('system', 'b'), ('user', 'c')], 'they must be'),
        ([('user', 'a'), ('system', 'b')], 'they must be'),
        ([('user', ' ')], 'the user has an empty message'),
    ],
)
def test_conversations_in_another_order_are_refused(turns, message):
    with pytest.raises(InvalidRecord, match=message):
        make_conversation(turns, 'x')


def test_messages_that_are_none_are_refused():
    for value in ('no', {'role': 'user'}, [{'role': 'boss', 'content': 'x'}], [{'role': 'user'}]):
        with pytest.raises(InvalidRecord):
            read_messages(value, 'messages')
    assert read_messages('[{"role": "user", "content": "a"}]', '') == [Message('user', 'a')]


def test_answers_that_are_not_learned_are_read():
    """They are tokens of the prompt of the next answer, in one row or in a row of its own."""
    turns = [('user', 'Repeat: cat'), Message('assistant', 'dog', False), ('user', 'Repeat: fish')]
    example = make_conversation([*turns, ('assistant', 'fish')], 'x')
    for is_causal in (True, False):
        problem, _ = make(is_causal, answer_tokens=0 if is_causal else 6)
        ((sequence,),) = problem.encoding.encode(example)
        is_answer = sequence.tokens['is_answer'] > 0
        assert tokens(sequence.ids[is_answer]) == [*words('fish'), END]
        assert 'dog' in problem.encoding.tokenizer.decode(sequence.ids[~is_answer].tolist())
    assert problem.decoder._answer_tokens(example).size == len(words('fish')) + 1


def test_the_oldest_turns_before_a_user_are_left_out_first():
    roles = ('user', 'user', 'assistant', 'tool', 'assistant', 'user', 'assistant')
    texts = ('cat', 'dog', 'bird', 'fish', 'tree', 'Repeat: stone', 'stone')
    example = make_conversation(list(zip(roles, texts, strict=True)), 'x')
    problem, _ = make(True, max_length=28)
    prompt, dropped = problem.encoding.prompt(example.before_answer(), 6)
    text = problem.encoding.tokenizer.decode(prompt.tolist())
    assert dropped == 5
    assert 'stone' in text
    assert not {'cat', 'dog', 'bird', 'tree'} & {*text.split()}


def test_indentation_of_an_answer_is_learned_and_written():
    byte_level = tokenizers.train('bytebpe:300', iter([TEXT]))
    template = TurnTemplate(make(True)[0].encoding.settings, byte_level)
    answer = '    x = 1\n    return x'
    turn = template.encode('assistant', answer + '\n')
    assert template.decode(turn.answer) == answer
    assert byte_level.decode([*turn.before, *turn.answer]) == f' assistant:{answer}'
