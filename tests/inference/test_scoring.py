"""Scores equal those of obvious loops over a model of transformers, token by token."""

import difflib

import numpy as np
import pytest
import torch
import transformers

from bert_jax.errors import UserError
from bert_jax.inference import scoring
from bert_jax.inference.predictor import Predictor
from bert_jax.interop import huggingface
from tests.interop import published

# Words of the small vocabulary, and words that it splits into letters.
PAIRS = [
    ('the ship near the storm .', 'the ship near a storm .'),
    ('a cow and the barn', 'the barn and a cow'),
    ('rockets , moon', 'rocket , moons .'),
    ('star', 'star'),
]
TEXTS = [text for pair in PAIRS for text in pair]
NATS = 1e-3


class Loop:
    """A model of transformers, one masked row at a time."""

    def __init__(self, folder):
        self.tokenizer = transformers.BertTokenizerFast(str(folder / 'vocab.txt'))
        self.model = transformers.BertForMaskedLM.from_pretrained(folder).eval()

    def ids(self, text):
        return self.tokenizer(text)['input_ids']

    def words(self, text):
        return self.tokenizer(text).word_ids()

    @torch.no_grad()
    def log_p(self, ids, position, hidden=()):
        """Log probability of ids[position] when it and `hidden` are masked."""
        masked = torch.tensor([ids])
        masked[0, [position, *hidden]] = self.tokenizer.mask_token_id
        return self.model(masked).logits[0, position].log_softmax(-1)[ids[position]].item()


@pytest.fixture(scope='module')
def folder(tmp_path_factory):
    return published.folder(tmp_path_factory.mktemp('model') / 'bert')


@pytest.fixture(scope='module')
def loop(folder):
    return Loop(folder)


@pytest.fixture(scope='module')
def predictor(folder):
    return Predictor(huggingface.load(folder))


def test_pseudo_likelihoods_equal_a_loop(predictor, loop):
    for text, total in zip(TEXTS, scoring.sums(predictor, TEXTS), strict=True):
        ids = loop.ids(text)
        expected = sum(loop.log_p(ids, i) for i in range(1, len(ids) - 1))
        assert total == pytest.approx(expected, abs=NATS)


def test_the_later_subwords_of_a_word_are_hidden_too_in_word_l2r(predictor, loop):
    plain = list(scoring.log_probabilities(predictor, TEXTS))
    changes = []
    for number, found in enumerate(scoring.log_probabilities(predictor, TEXTS, 'word_l2r')):
        ids, words = loop.ids(TEXTS[number]), loop.words(TEXTS[number])
        for i in range(1, len(ids) - 1):
            later = [j for j in range(i + 1, len(ids)) if words[j] == words[i]]
            assert found[i - 1] == pytest.approx(loop.log_p(ids, i, later), abs=NATS)
        changes.append(np.abs(found - plain[number]).max())
    has_subwords = ['rocket' in text for text in TEXTS]  # rockets, moons
    assert [change > 5 * NATS for change in changes] == has_subwords, changes


def test_scores_of_shared_tokens_equal_a_loop_over_the_blocks_of_difflib(predictor, loop):
    for pair, found in zip(PAIRS, scoring.shared_sums(predictor, PAIRS), strict=True):
        a, b = map(loop.ids, pair)
        expected = [0.0, 0.0]
        for block in difflib.SequenceMatcher(None, a, b).get_matching_blocks():
            for k in range(block.size):
                i, j = block.a + k, block.b + k
                if 0 < i < len(a) - 1:
                    expected[0] += loop.log_p(a, i)
                    expected[1] += loop.log_p(b, j)
        np.testing.assert_allclose(found, expected, atol=NATS)


def test_the_tokens_of_a_slot_are_scored_left_to_right_without_those_after_them(predictor, loop):
    text, span = 'the rockets near the moon', (4, 11)
    (found,) = scoring.slot_log_probabilities(predictor, [(text, span)])
    before, slot, after = (
        loop.tokenizer(part, add_special_tokens=False)['input_ids']
        for part in ('the', 'rockets', 'near the moon')
    )
    cls, sep = loop.tokenizer.cls_token_id, loop.tokenizer.sep_token_id
    assert len(slot) == len(found) > 1
    for i, target in enumerate(slot):
        ids = [cls, *before, *slot[:i], target, *after, sep]
        assert found[i] == pytest.approx(loop.log_p(ids, 1 + len(before) + i), abs=NATS)


def test_a_causal_model_gives_each_token_after_those_to_its_left(tmp_path):
    folder = published.folder(tmp_path / 'causal', 'BertLMHeadModel', is_decoder=True)
    theirs = transformers.BertLMHeadModel.from_pretrained(folder).eval()
    tokenizer = transformers.BertTokenizerFast(str(folder / 'vocab.txt'))
    predictor = Predictor(huggingface.load(folder))
    assert predictor.tasks == ('embed', 'pseudo_likelihood', 'generate')
    for text, found in zip(TEXTS, scoring.log_probabilities(predictor, TEXTS), strict=True):
        ids = torch.tensor(tokenizer(text)['input_ids'])
        with torch.no_grad():
            log_TV = theirs(ids[None]).logits[0].log_softmax(-1)
        expected = log_TV[:-2].gather(1, ids[1:-1, None])[:, 0]
        np.testing.assert_allclose(found, expected, atol=NATS)
    shared = list(scoring.shared_sums(predictor, PAIRS[3:]))
    assert shared[0][0] == pytest.approx(float(found.sum()), abs=NATS)
    with pytest.raises(UserError, match='this is causal'):
        predictor.pseudo_likelihood(TEXTS, variant='word_l2r')


def test_what_cannot_be_scored_is_named(predictor):
    with pytest.raises(UserError, match='tokens, word_l2r'):
        predictor.pseudo_likelihood(TEXTS, variant='words')
    with pytest.raises(UserError, match='a text has 23 tokens'):
        list(scoring.shared_sums(predictor, [('the ' * 21, 'the')]))
    with pytest.raises(UserError, match="' ' has no tokens"):
        list(scoring.slot_log_probabilities(predictor, [('the star', (3, 4))]))
