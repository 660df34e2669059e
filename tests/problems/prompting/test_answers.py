"""Answers of classes: their tokens, and mistakes in them."""

import numpy as np
import pytest

from bert_jax import tokenizers
from bert_jax.errors import UserError
from bert_jax.problems.prompting.answers import Answers
from bert_jax.problems.prompting.decoding import PartialScore
from tests.tasks.small_problems import TEXT, tokenizer


def answers(*given, labels=('a', 'b'), is_spaced=True, kind='wordpiece'):
    return Answers(given, labels, tokenizer(kind), is_spaced)


def test_a_class_has_several_answers_of_several_pieces():
    own = answers('b=sea', 'a=the|red gull')
    assert [(one.label, one.word) for one in own.all] == [
        ('a', 'the'),
        ('a', 'red gull'),
        ('b', 'sea'),
    ]
    sizes = [len(tokenizer().encode_batch([word]).ids[0]) for word in ('the', 'red gull', 'sea')]
    assert own.length_A.tolist() == sizes
    assert own.lengths == sorted(set(sizes))
    assert own.share_CA.tolist() == [[0.5, 0.5, 0], [0, 0, 1]]
    for row, is_piece, one in zip(own.pieces_AK, own.is_piece_AK, own.all, strict=True):
        assert row[is_piece].tolist() == one.pieces.tolist()


def test_labels_are_their_own_answers_by_default():
    assert [one.word for one in answers(labels=('sea', 'ship')).all] == ['sea', 'ship']


def test_byte_bpe_answers_carry_the_space_before_them():
    backend = tokenizers.train('bytebpe:300', iter([TEXT] * 3), True)
    for is_spaced, text in ((True, ' sea'), (False, 'sea')):
        own = Answers(['a=sea', 'b=ship'], ('a', 'b'), backend, is_spaced)
        assert own.all[0].pieces.tolist() == backend.encode_batch([text]).ids[0].tolist()
    assert backend.vocab[Answers(['the', 'a'], ('the', 'a'), backend, True).all[0].pieces[0]] == (
        'Ġthe'
    )


@pytest.mark.parametrize(
    ('given', 'message'),
    [
        (['a=Sea', 'b=sea'], r"'Sea' of 'a' and 'sea' of 'b' are the same tokens \(.*\); choose"),
        (['a=sea|SEA', 'b=ship'], "'sea' of 'a' and 'SEA' of 'a' are the same tokens"),
        (['a=sea'], "no answer for the class 'b'"),
        (['a=sea', 'b=ship', 'c=tram'], "answers for 'c', but the classes are a, b"),
        (['a=sea', 'b=語'], "the answer '語' of 'b' has characters that the tokenizer does not"),
        (['a=', 'b=x'], "the answer 'a=' has no label, an empty word"),
        (['a=x', 'a=y'], 'or a label that already has answers'),
    ],
)
def test_a_mistake_in_the_answers_is_one_clear_line(given, message):
    with pytest.raises(UserError, match=message) as error:
        answers(*given)
    assert '\n' not in str(error.value)


def test_masks_are_filled_in_the_order_of_the_decoding():
    rounds = [np.log([0.1, 0.5, 0.2]), np.log([0.3, 0.9, 0.25]), np.log([0.6, 0.9, 0.7])]
    for decoding, picked in (
        ('max_first', [0.5, 0.3, 0.7]),
        ('left_to_right', [0.1, 0.9, 0.7]),
        ('parallel', [0.1, 0.5, 0.2]),
    ):
        score = PartialScore(3).fill(decoding, rounds)
        assert np.exp(score.log_p) == pytest.approx(np.prod(picked))
        assert score.masks == []
    assert PartialScore(3).fill('max_first', rounds[:1]).masks == [0, 2]
