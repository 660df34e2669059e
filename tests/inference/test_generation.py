"""Texts of causal models equal those of `generate` of transformers."""

import functools
import itertools
import timeit

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax.inference import beam_search, next_tokens
from bert_jax.inference.beam_search import BeamSearch
from bert_jax.inference.decoding import Constraints, Sampling, noise
from bert_jax.interop import conversion, families
from bert_jax.models import architectures
from bert_jax.models.architecture import Compute
from bert_jax.models.model import Model
from bert_jax.models.rows import Rows
from tests.random_parameters import random_parameters

VOCAB, NEW, ENDS = 60, 12, (5, 17, 33)
LENGTHS = (1, 4, 7, 9, 10)  # of the prompts
RNG = np.random.default_rng(1)
PROMPTS = [RNG.integers(0, VOCAB, LENGTHS[number % 5]) for number in range(50)]
HIGHEST = 1e-4  # difference of scores


@functools.cache
def published():
    """A model of transformers with random weights that prefer some tokens clearly."""
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(0)
    sizes = dict(vocab_size=VOCAB, n_embd=32, n_layer=2, n_head=4, n_positions=24)
    config = GPT2Config(**sizes, eos_token_id=list(ENDS), pad_token_id=0, bos_token_id=None)
    model = GPT2LMHeadModel(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(10 if parameter.dim() > 1 else 1)
    return model


@functools.cache
def ours():
    """The same model: the prediction of the next token, and its parameters."""
    family = families.by_model_type('gpt2')
    architecture = family.read_config(published().config.to_dict())
    state = {name: array.numpy() for name, array in published().state_dict().items()}
    params, _ = conversion.from_state_dict(family, architecture, state, 'test', declared=['clm'])
    model = Model(architecture, Compute(), {'clm': {}}, is_causal=True)
    return next_tokens.CausalPredict(model), params


def reference(prompts, **options):
    """The tokens after each prompt, and the scores of beam search, by transformers."""
    import torch

    texts, scores = {}, {}
    for length in {len(prompt) for prompt in prompts}:  # padding would be a part of n-grams
        numbers = [n for n, prompt in enumerate(prompts) if len(prompt) == length]
        ids = torch.tensor(np.array([prompts[n] for n in numbers]))
        output = published().generate(
            ids,
            attention_mask=torch.ones_like(ids),
            max_new_tokens=NEW,
            do_sample=False,
            return_dict_in_generate=True,
            output_scores=True,
            **options,
        )
        found = getattr(output, 'sequences_scores', None)
        for row, number in enumerate(numbers):
            ends = options.get('eos_token_id', ENDS)
            texts[number] = cut(output.sequences[row, length:].tolist(), ends)
            scores[number] = None if found is None else found[row].item()
    return [texts[n] for n in range(len(prompts))], [scores[n] for n in range(len(prompts))]


def cut(ids, ends):
    end = next((place + 1 for place, token in enumerate(ids) if token in ends), len(ids))
    return ids[:end]


def start(prompts):
    predict, params = ours()
    longest = max(map(len, prompts))
    ids = np.array([np.pad(prompt, (0, longest - len(prompt))) for prompt in prompts], np.int32)
    lengths = np.array([*map(len, prompts)], np.int32)
    texts = next_tokens.read_prompts(predict.model, params, ids, lengths, NEW)
    return predict, params, texts, lengths


def write(prompts, constraints, sampling=None):
    """The tokens after each prompt, all prompts in one batch."""
    predict, params, texts, lengths = start(prompts)
    keys = jax.vmap(jax.random.key)(np.arange(len(prompts)))
    for _ in range(NEW):
        texts = next_tokens.write_token(predict, params, texts, constraints, sampling, keys)
    ends = zip(np.asarray(texts.ids_BT), lengths, np.asarray(texts.length_B), strict=True)
    return [ids[first:end].tolist() for ids, first, end in ends]


def search(prompts, constraints, settings):
    """The best text after each prompt and its score, all prompts in one batch."""
    predict, params, texts, lengths = start(prompts)
    beams = beam_search.start(texts, settings)
    while not np.all(beams.done(constraints, settings)):
        beams = beam_search.advance(predict, params, beams, constraints, settings)
    best = jax.device_get(beams.finished)
    found = [
        ids[first : first + length].tolist()
        for ids, first, length in zip(
            best.ids_BCT[:, 0], lengths, best.length_BC[:, 0], strict=True
        )
    ]
    log_p = best.log_p_BCI[:, 0].sum(1)
    return found, best.scores_BC[:, 0], log_p


@pytest.mark.parametrize('no_repeat', [0, 2])
def test_greedy_texts_of_prompts_of_different_lengths_are_those_of_transformers(no_repeat):
    expected, _ = reference(PROMPTS, no_repeat_ngram_size=no_repeat, min_new_tokens=3)
    constraints = Constraints(NEW, ENDS, min_tokens=3, no_repeat_ngrams=no_repeat)
    found = write(PROMPTS, constraints)
    assert found == expected
    assert {len(text) for text in found} > {NEW, 4}  # some end early


SETTINGS = list(itertools.product((0.6, 1.0, 2.0), (False, True, 'never'), (0, 3)))
QUICK = [(0.6, True, 3), (2.0, 'never', 0), (1.0, False, 0)]


@pytest.mark.parametrize(
    ('penalty', 'early', 'no_repeat'),
    [
        pytest.param(*setting, marks=[] if setting in QUICK else pytest.mark.slow)
        for setting in SETTINGS
    ],
)
def test_beams_are_those_of_transformers(penalty, early, no_repeat):
    expected, scores = reference(
        PROMPTS,
        num_beams=3,
        length_penalty=penalty,
        early_stopping=early,
        no_repeat_ngram_size=no_repeat,
    )
    constraints = Constraints(NEW, ENDS, no_repeat_ngrams=no_repeat)
    found, found_scores, log_p = search(PROMPTS, constraints, BeamSearch(3, penalty, early))
    assert found == expected
    np.testing.assert_allclose(found_scores, scores, atol=HIGHEST)
    lengths = np.array([*map(len, found)])
    np.testing.assert_allclose(log_p / lengths**penalty, scores, atol=HIGHEST)


@pytest.mark.parametrize(
    ('least', 'ends'), [(6, ENDS), pytest.param(6, ENDS[:1], marks=pytest.mark.slow)]
)
def test_beams_with_forced_tokens_are_those_of_transformers(least, ends):
    """The first token is forced after prompts of one token, as after the start of a decoder."""
    prompts = [prompt for prompt in PROMPTS if len(prompt) == 1]
    options = dict(forced_bos_token_id=7, forced_eos_token_id=ends[0], eos_token_id=list(ends))
    expected, scores = reference(
        prompts, num_beams=4, min_new_tokens=least, suppress_tokens=[2, 9], **options
    )
    constraints = Constraints(
        NEW, ends, least, suppressed_ids=(2, 9), forced_first=7, forced_last=ends[0]
    )
    found, found_scores, _ = search(prompts, constraints, BeamSearch(4))
    assert found == expected
    np.testing.assert_allclose(found_scores, scores, atol=HIGHEST)


def warp_in_numpy(scores, temperature, top_k, top_p, min_p):
    """The warpers of transformers for one row of scores."""
    scores = scores.astype(np.float64) / temperature

    def softmax(x):
        e = np.exp(x - x.max())
        return e / e.sum()

    if top_k:
        scores = np.where(scores < np.sort(scores)[-top_k], -np.inf, scores)
    if top_p < 1:
        p, total = softmax(scores), 0.0
        for token in np.argsort(scores)[:-1]:
            total += p[token]
            if total <= 1 - top_p:
                scores[token] = -np.inf
    if min_p:
        p = softmax(scores)
        scores = np.where(p < min_p * p.max(), -np.inf, scores)
    return scores


@pytest.mark.parametrize(
    'options',
    [
        (1.0, 0, 1.0, 0.0),
        (0.7, 10, 1.0, 0.0),
        (1.3, 0, 0.8, 0.0),
        (1.0, 0, 1.0, 0.1),
        (0.9, 20, 0.9, 0.05),
    ],
)
def test_sampling_with_given_noise_is_that_of_a_loop_over_rows(options):
    rng = np.random.default_rng(0)
    scores = rng.normal(scale=3, size=(50, VOCAB)).astype(np.float32)
    noises = rng.gumbel(size=scores.shape).astype(np.float32)
    sampling = Sampling(*options)
    warped = np.array([warp_in_numpy(row, *options) for row in scores])
    np.testing.assert_allclose(sampling.warp(scores), warped, atol=1e-5)
    found = sampling.draw(scores, noises)
    np.testing.assert_array_equal(found, (warped + noises).argmax(1))


def test_samples_have_the_probabilities_of_the_scores():
    scores = np.log(np.array([[0.5, 0.3, 0.15, 0.05]]))
    keys = jax.vmap(jax.random.key)(np.arange(4000))
    drawn = np.asarray(Sampling().draw(scores, noise(keys, 3, 4)))
    shares = np.bincount(drawn, minlength=4) / len(drawn)
    np.testing.assert_allclose(shares, np.exp(scores[0]), atol=0.025)  # three standard errors


def test_a_prompt_that_is_read_in_parts_gives_the_same_texts(monkeypatch):
    constraints = Constraints(NEW, ENDS)
    whole = write(PROMPTS, constraints)
    monkeypatch.setattr(next_tokens, '_READ_AT_ONCE', 4)
    assert write(PROMPTS, constraints) == whole


def test_a_sampled_text_does_not_depend_on_the_other_texts():
    constraints, sampling = Constraints(NEW, ENDS), Sampling(top_k=8)
    together = write(PROMPTS[:3], constraints, sampling)
    assert together[0] == write(PROMPTS[:1], constraints, sampling)[0]


@pytest.mark.slow
def test_a_cache_makes_64_tokens_five_times_as_fast():
    """Without a cache, every token needs all states of its row again."""
    sizes = dict(vocab_size=2000, hidden_size=256, num_layers=6, max_position_embeddings=96)
    model = Model(architectures.build('gpt2', **sizes), Compute(), {'clm': {}}, is_causal=True)
    ids = np.random.default_rng(0).integers(0, 2000, (4, 16)).astype(np.int32)
    params = random_parameters(model, Rows(ids, np.ones_like(ids)), deviation=0.05)
    lengths, constraints = np.full(4, 16, np.int32), Constraints(64)
    keys = jax.vmap(jax.random.key)(np.arange(4))
    predict = next_tokens.CausalPredict(model)

    def cached():
        texts = next_tokens.read_prompts(model, params, ids, lengths, 64)
        for _ in range(64):
            texts = next_tokens.write_token(predict, params, texts, constraints, None, keys)
        return np.asarray(texts.ids_BT)

    @jax.jit
    def append(ids_BT, length):
        mask_BT = jnp.broadcast_to(jnp.arange(80) < length, ids_BT.shape).astype(jnp.int32)
        logits_BTV = model.apply({'params': params}, Rows(ids_BT, mask_BT)).heads['clm']
        return ids_BT.at[:, length].set(jnp.argmax(logits_BTV[:, length - 1], axis=1))

    def uncached():
        texts = jnp.pad(jnp.asarray(ids), [(0, 0), (0, 64)])
        for length in range(16, 80):
            texts = append(texts, length)
        return np.asarray(texts)

    np.testing.assert_array_equal(cached(), uncached())  # compiles both
    seconds = [min(timeit.repeat(run, number=1, repeat=3)) for run in (cached, uncached)]
    assert seconds[1] >= 5 * seconds[0], seconds
