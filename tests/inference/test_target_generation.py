"""Texts that decoders write equal those of `generate` of transformers."""

import functools
import itertools

import jax
import numpy as np
import pytest

from bert_jax.inference import beam_search, next_tokens
from bert_jax.inference.beam_search import BeamSearch
from bert_jax.inference.decoding import Constraints, Sampling
from bert_jax.interop import conversion, families
from bert_jax.models.architecture import Compute
from bert_jax.models.cache import Cache
from bert_jax.models.model import Model
from bert_jax.models.rows import Rows

VOCAB, NEW, END = 60, 12, 2
LENGTHS = (1, 4, 7, 9, 10)  # of the sources
RNG = np.random.default_rng(1)
SOURCES = [RNG.integers(3, VOCAB, LENGTHS[number % 5]) for number in range(50)]
HIGHEST = 1e-4  # difference of scores


@functools.cache
def published(kind: str = 'bart'):
    """A model of transformers with random weights that prefer some tokens clearly."""
    import torch
    from transformers import (
        BartConfig,
        BartForConditionalGeneration,
        T5Config,
        T5ForConditionalGeneration,
    )

    torch.manual_seed(0)
    ids = dict(eos_token_id=END, pad_token_id=1, decoder_start_token_id=END)
    if kind == 'bart':
        layers = {f'{stack}_layers': 2 for stack in ('encoder', 'decoder')}
        heads = {f'{stack}_attention_heads': 4 for stack in ('encoder', 'decoder')}
        sizes = {f'{stack}_ffn_dim': 48 for stack in ('encoder', 'decoder')}
        config = BartConfig(
            vocab_size=VOCAB,
            d_model=32,
            max_position_embeddings=24,
            forced_eos_token_id=None,
            **layers | heads | sizes | ids,
        )
        model = BartForConditionalGeneration(config)
        model.final_logits_bias[0, END] = 2.0  # so that some texts end early
    else:
        config = T5Config(
            vocab_size=VOCAB, d_model=32, d_kv=8, d_ff=48, num_layers=2, num_heads=4, **ids
        )
        model = T5ForConditionalGeneration(config)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if 'norm' not in name:
                parameter.normal_(0.0, 0.2)
            if name.endswith(('shared.weight', 'embed_tokens.weight')):
                parameter.mul_(3)
    return model.eval()


@functools.cache
def ours(kind: str = 'bart'):
    """The same model: the prediction of the next token, and its parameters."""
    family = families.by_model_type(kind)
    architecture = family.read_config(published(kind).config.to_dict())
    state = {name: array.numpy() for name, array in published(kind).state_dict().items()}
    params, _ = conversion.from_state_dict(
        family, architecture, state, 'test', declared=['seq2seq']
    )
    return next_tokens.TargetPredict(Model(architecture, Compute(), {'seq2seq': {}})), params


def batch():
    longest = max(LENGTHS)
    ids = np.array([np.pad(one, (0, longest - len(one)), constant_values=1) for one in SOURCES])
    return ids, (np.arange(longest) < np.array([*map(len, SOURCES)])[:, None]).astype(np.int32)


def reference(kind, **options):
    """The tokens of each text, and the scores of beam search, by transformers."""
    import torch

    ids, mask = map(torch.from_numpy, batch())
    output = published(kind).generate(
        ids,
        attention_mask=mask,
        max_new_tokens=NEW,
        do_sample=False,
        return_dict_in_generate=True,
        output_scores=True,
        **options,
    )
    return [cut(row.tolist()[1:]) for row in output.sequences], getattr(
        output, 'sequences_scores', None
    )


def cut(ids):
    end = next((place + 1 for place, token in enumerate(ids) if token == END), len(ids))
    return ids[:end]


def start(kind):
    predict, params = ours(kind)
    rows = Rows(*batch())
    start_B = np.full(len(SOURCES), END, np.int32)
    return predict, *next_tokens.start_targets(predict.model, params, rows, start_B, NEW)


def write(kind, constraints, sampling=None):
    predict, texts, fixed = start(kind)
    keys = jax.vmap(jax.random.key)(np.arange(len(SOURCES)))
    for _ in range(NEW):
        texts = next_tokens.write_token(predict, fixed, texts, constraints, sampling, keys)
    ends = zip(np.asarray(texts.ids_BT), np.asarray(texts.length_B), strict=True)
    return [ids[1:end].tolist() for ids, end in ends]


def search(kind, constraints, settings):
    """The best text for each source and its score."""
    predict, texts, fixed = start(kind)
    beams = beam_search.start(texts, settings)
    while not np.all(beams.done(constraints, settings)):
        beams = beam_search.advance(predict, fixed, beams, constraints, settings)
    best = jax.device_get(beams.finished)
    rows = zip(best.ids_BCT[:, 0], best.length_BC[:, 0], strict=True)
    return [ids[1 : 1 + length].tolist() for ids, length in rows], best.scores_BC[:, 0]


@pytest.mark.parametrize('kind', ['bart', 't5'])
def test_greedy_texts_are_those_of_transformers(kind):
    expected, _ = reference(kind, no_repeat_ngram_size=2, min_new_tokens=3)
    found = write(kind, Constraints(NEW, (END,), min_tokens=3, no_repeat_ngrams=2))
    assert found == expected
    assert len({*map(tuple, found)}) > 25  # the source matters


SETTINGS = [
    (kind, *others)
    for kind in ('bart', 't5')
    for others in itertools.product((0.6, 1.0, 2.0), (False, True, 'never'), (0, 3))
]
QUICK = [('bart', 0.6, True, 3), ('t5', 2.0, 'never', 0)]


@pytest.mark.parametrize(
    ('kind', 'penalty', 'early', 'no_repeat'),
    [
        pytest.param(*setting, marks=[] if setting in QUICK else pytest.mark.slow)
        for setting in SETTINGS
    ],
)
def test_beams_are_those_of_transformers(kind, penalty, early, no_repeat):
    expected, scores = reference(
        kind,
        num_beams=3,
        length_penalty=penalty,
        early_stopping=early,
        no_repeat_ngram_size=no_repeat,
    )
    constraints = Constraints(NEW, (END,), no_repeat_ngrams=no_repeat)
    found, found_scores = search(kind, constraints, BeamSearch(3, penalty, early))
    assert found == expected
    np.testing.assert_allclose(found_scores, scores, atol=HIGHEST)
    if kind == 'bart' and penalty <= 1:
        assert len({*map(len, found)}) > 1  # some end early


def test_beams_with_forced_tokens_are_those_of_transformers():
    """As BART: <s> is written first, and </s> as the last token."""
    expected, scores = reference(
        'bart', num_beams=4, forced_bos_token_id=0, forced_eos_token_id=END, min_new_tokens=4
    )
    constraints = Constraints(NEW, (END,), 4, forced_first=0, forced_last=END)
    found, found_scores = search('bart', constraints, BeamSearch(4))
    assert found == expected
    np.testing.assert_allclose(found_scores, scores, atol=HIGHEST)


def test_samples_depend_on_their_keys():
    constraints = Constraints(NEW, (END,))
    one, again = (write('bart', constraints, Sampling()) for _ in range(2))
    assert one == again != write('bart', constraints)


def test_a_step_reads_one_token_and_computes_no_keys_of_the_source():
    """By the operations that XLA counts for 64 tokens, cached and not."""
    predict, params = ours('t5')
    ids, mask = batch()
    sources, length = Rows(ids, mask), 64
    model, variables = predict.model, {'params': params}
    memory = jax.jit(lambda: model.apply(variables, sources, method='memory'))()
    cache = Cache.empty(model.architecture.of_decoder, Compute(), len(ids), length)

    def flops(function, *arguments):
        return jax.jit(function).lower(*arguments).compile().cost_analysis()['flops']

    step = flops(lambda cache: predict((params, memory), ids[:, :1], cache), cache)
    target = Rows(np.ones((len(ids), length), int), np.ones((len(ids), length), int))
    whole = flops(lambda: model.apply(variables, sources.replace(target=target)).heads['seq2seq'])
    assert whole > 20 * step
