"""Unmasking equals a loop in NumPy, keeps the prompt, and depends on the text and seed alone."""

import dataclasses

import jax
import numpy as np
import pytest

from bert_jax.errors import UserError
from bert_jax.inference.gaps import GappedText
from bert_jax.inference.predictor import Predictor
from bert_jax.inference.unmasking import UnmaskingOptions, never_written
from bert_jax.loaded.loaded_model import LoadedModel, build_model
from bert_jax.models import architectures
from bert_jax.models.rows import Rows
from bert_jax.objectives.unmasking import Schedule
from tests.inference.small_runs import tokenizer
from tests.random_parameters import random_parameters

TEXT = 'the [MASK:4] ship near the [MASK] .'


@pytest.fixture(scope='module')
def pretrained():
    architecture = architectures.build(
        'bert',
        vocab_size=tokenizer().vocab_size,
        hidden_size=16,
        num_layers=2,
        num_heads=2,
        intermediate_size=32,
        max_position_embeddings=24,
    )
    model = build_model(architecture, ['mlm'])
    rows = Rows(np.zeros((1, 8), np.int32), np.ones((1, 8), np.int32))
    params = random_parameters(model, rows, deviation=0.4)
    return LoadedModel('bert', architecture, params, tokenizer())


@pytest.fixture(scope='module')
def model(pretrained):
    return Predictor(pretrained, name='runs/sea', batch_tokens=64)


@pytest.fixture(scope='module')
def log_probabilities(pretrained, model):
    """Log probabilities of what may be written at every position of a row, [T, V]."""
    network, banned_V = build_model(pretrained.architecture, ['mlm']), never_written(model)
    apply = jax.jit(lambda rows: network.apply({'params': pretrained.params}, rows).heads['mlm'])

    def of(ids_T):
        logits_TV = np.array(apply(Rows(ids_T[None], np.ones_like(ids_T)[None]))[0], np.float64)
        logits_TV[:, banned_V] = -np.inf
        top_T1 = logits_TV.max(1, keepdims=True)
        return logits_TV - top_T1 - np.log(np.exp(logits_TV - top_T1).sum(1, keepdims=True))

    return of


def unmask_in_numpy(log_probabilities, text, options):
    """Most probable tokens, one row and one step after the other."""
    ids_T, positions = text.ids_T.copy(), text.positions_P.tolist()
    hidden, confidence, mask = set(positions), {}, tokenizer().mask_id
    schedule = Schedule.of(len(positions), options.steps, options.block, options.remask)
    for block, reveal, hide in zip(*schedule, strict=True):
        size = options.block or len(positions)
        inside = positions[block * size : (block + 1) * size]
        log_p_TV = log_probabilities(ids_T)
        score = {
            'confidence': lambda t: -log_p_TV[t].max(),  # noqa: B023
            'left_to_right': lambda t: t,
        }[options.order]
        for t in sorted(hidden & {*inside}, key=score)[:reveal]:
            ids_T[t], confidence[t] = log_p_TV[t].argmax(), log_p_TV[t].max()
            hidden.remove(t)
        for t in sorted({*inside} - hidden, key=confidence.get)[:hide]:
            ids_T[t] = mask
            hidden.add(t)
    assert not hidden
    return ids_T[positions]


@pytest.mark.parametrize(
    'changes',
    [
        {},
        {'order': 'left_to_right'},
        {'steps': 2},
        {'block': 3},
        {'steps': 3, 'remask': 0.6},
        {'block': 4, 'steps': 5, 'remask': 0.5, 'new_tokens': 5},
    ],
    ids=str,
)
def test_unmasking_equals_a_loop_in_numpy(model, log_probabilities, changes):
    options = UnmaskingOptions(temperature=0, **changes)
    texts = [TEXT, '[MASK:3] the moon', 'star [MASK]']
    for text, result in zip(texts, model.generate(texts, temperature=0, **changes), strict=True):
        gapped = GappedText.of(tokenizer(), text, options.new_tokens)
        expected = unmask_in_numpy(log_probabilities, gapped, options)
        assert result.tokens == [tokenizer().vocab[i] for i in expected]


def test_one_token_a_step_has_the_conditional_probabilities(model, log_probabilities):
    """Also of samples: each log probability is that given what had been written before."""
    (result,) = model.generate([TEXT], order='random', seed=3)
    gapped = GappedText.of(tokenizer(), TEXT)
    ids_T, index = gapped.ids_T.copy(), {t: i for i, t in enumerate(tokenizer().vocab)}
    assert sorted(result.steps) == [*range(5)]
    for slot in np.argsort(result.steps):
        position, token = gapped.positions_P[slot], index[result.tokens[slot]]
        expected = log_probabilities(ids_T)[position, token]
        assert result.log_probabilities[slot] == pytest.approx(expected, abs=1e-4)
        ids_T[position] = token


def test_samples_follow_the_distribution(model, log_probabilities):
    """The frequencies of 2,000 samples of one token, at two temperatures (chi-squared)."""
    text, number = 'the [MASK] ship', 2000
    log_p_V = log_probabilities(GappedText.of(tokenizer(), text).ids_T)[2]
    for temperature in (1.0, 3.0):
        results = model.generate([text] * number, temperature=temperature)
        tokens, counts = np.unique([r.tokens[0] for r in results], return_counts=True)
        p_V = np.exp(log_p_V / temperature)
        expected_V = number * p_V / p_V.sum()
        observed_V = np.zeros(len(p_V))
        observed_V[[tokenizer().vocab.index(token) for token in tokens]] = counts
        common = expected_V >= 5
        difference_V = (observed_V - expected_V)[common]
        statistic, degrees = np.sum(difference_V**2 / expected_V[common]), common.sum()
        assert degrees > 3
        assert statistic < degrees + 4 * np.sqrt(2 * degrees)


def test_nothing_but_gaps_changes_and_no_special_token_is_written(model):
    texts = [TEXT] * 50 + ['The OLD  [MASK:3] house , [MASK:2]!']
    for text, result in zip(texts, model.generate(texts, temperature=5), strict=True):
        special = {tokenizer().vocab[i] for i in tokenizer().special_ids}
        assert not special & {*result.tokens}
        gapped = GappedText.of(tokenizer(), text)
        rest = result.text
        for piece, written in zip(gapped.pieces, [*result.written, ''], strict=True):
            assert piece.strip() in rest
            rest = rest[rest.index(piece.strip()) + len(piece.strip()) :]
            assert written in rest[: len(written) + 1]
    assert result.text.startswith('The OLD')


def test_a_sample_depends_on_its_text_and_the_seed_alone(model, pretrained):
    others, options = ['[MASK:9] the field', ''], dict(order='random', remask=0.3, new_tokens=2)
    (alone,) = model.generate([TEXT], **options)
    *_, among = model.generate([*others, TEXT], **options)
    padded, *_ = Predictor(pretrained, batch_tokens=500).generate([TEXT, *others], **options)
    for again in (among, padded):
        assert again.text == alone.text
        np.testing.assert_array_equal(again.steps, alone.steps)
    (different,) = model.generate([TEXT], **options, seed=1)
    first, second = model.generate([TEXT] * 2, **options)
    assert first.text == alone.text
    assert len({alone.text, different.text, second.text}) == 3


def test_a_model_that_did_not_learn_to_write_warns_once(pretrained, capsys):
    for is_generative, number in ((False, 1), (True, 0)):
        model = Predictor(dataclasses.replace(pretrained, is_generative=is_generative))
        for _ in range(2):
            model.generate(['the [MASK] ship'], temperature=0)
        assert capsys.readouterr().err.count('not known to be trained to write text') == number


def test_a_model_without_a_head_for_tokens_is_refused(pretrained):
    encoder = dataclasses.replace(pretrained, params={'encoder': pretrained.params['encoder']})
    with pytest.raises(UserError, match='no head for generate; it can answer embed'):
        Predictor(encoder).generate(['the [MASK] ship'])


@pytest.mark.parametrize('block', [None, 1, 3, 10])
@pytest.mark.parametrize('remask', [0.0, 0.7])
def test_a_schedule_reveals_every_token_once_more_than_it_hides(block, remask):
    for number in range(1, 12):
        for steps in (None, number, -(-number // (block or number)) + 1):
            blocks, reveal, hide = Schedule.of(number, steps, block, remask)
            assert len(reveal) <= min(steps or number, number)
            assert (reveal > 0).all()
            for b in range(blocks[-1] + 1):
                written = np.cumsum((reveal - hide)[blocks == b])
                assert written[-1] == min(block or number, number - b * (block or 0))
                assert hide[blocks == b][-1] == 0
            if not remask and not block:
                assert np.ptp(reveal) <= 1


def test_a_stop_string_cuts_what_is_written(model):
    texts = [f'the {word} of' for word in ('ship', 'moon', 'star', 'barn')]
    plain = model.generate(texts, new_tokens=6)
    stop = plain[0].tokens[3]
    cut = model.generate(texts, new_tokens=6, stop=[stop])
    for before, after in zip(plain, cut, strict=True):
        assert after.written[0] == before.written[0].split(stop)[0].rstrip()
        prompt = before.text.removesuffix(before.written[0])
        assert after.text == (prompt + after.written[0]).rstrip()
    missing = sum(stop not in result.written[0] for result in plain)
    assert model.counts['texts in which no stop string was written'] == missing


@pytest.mark.parametrize(
    ('texts', 'options', 'message'),
    [
        (['the ship'], {}, 'text 1 has no [MASK] and new_tokens is 0'),
        (['the [MASK:0]'], {}, 'a gap of 0 tokens'),
        (['[MASK]', '[MASK:23]'], {}, 'text 2 has 25 tokens with its gaps; runs/sea supports'),
        (['[MASK:999999999999]'], {}, 'text 1 has gaps of 999,999,999,999 tokens; runs/sea'),
        (['the'], {'new_tokens': 10**12}, 'text 1 has gaps of 1,000,000,000,000 tokens'),
        (['the ship'], {'new_tokens': 22}, 'text 1 has 26 tokens'),
        (['[MASK:9]'], {'block': 2, 'steps': 3}, 'have 5 blocks of 2; set steps to 5'),
        (['[MASK]'], {'steps': 0}, 'steps is 0'),
        (['[MASK]'], {'remask': 1.0}, 'remask is 1.0'),
        (['[MASK:4]'], {'remask': 0.5, 'steps': 1}, 'remask has no effect in a single step'),
        (['[MASK:4]'], {'seed': 1, 'temperature': 0}, 'seed has no effect at temperature 0'),
        (['[MASK]'], {'steps': 1.5}, 'steps is 1.5; it must be an integer'),
        (['[MASK]'], {'temperature': 'hot'}, "temperature is 'hot'; it must be a number"),
        (['[MASK]'], {'order': 'confident'}, 'did you mean confidence?'),
        (['[MASK]'], {'temperature': -1}, 'temperature is -1'),
        (['[MASK]'], {'stop': ['.']}, 'set new_tokens'),
        (['[MASK]'], {'top_p': 0.9}, "unknown option of generation with this model 'top_p'"),
        ('[MASK]', {}, 'put it in [ ]'),
    ],
)
def test_what_cannot_be_filled_is_refused(model, texts, options, message):
    with pytest.raises(UserError) as error:
        model.generate(texts, **options)
    assert message in str(error.value)
