"""Examples packed into one row do not attend to each other and have the losses they have alone."""

import dataclasses
import functools

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax import objectives
from bert_jax.averages import mean
from bert_jax.examples.packing import pack
from bert_jax.models import architectures
from bert_jax.models.architecture import Compute
from bert_jax.models.architecture_parts import ConvolutionOptions
from bert_jax.models.encoders import EncoderOutput, build_encoder
from bert_jax.models.rows import Rows, Targets, segment_starts
from bert_jax.objectives import OBJECTIVES
from bert_jax.objectives.clm import CausalText
from bert_jax.objectives.corruption import Vocabulary
from bert_jax.objectives.rtd import ReplacedTokenDetection
from bert_jax.objectives.sbo import SpanBoundaryObjective
from tests.objectives import heads_alone
from tests.random_parameters import random_parameters

VOCAB, LENGTH = 60, 24
CLS, SEP, PAD, MASK = 0, 1, 2, 3
LENGTHS = np.array([9, 7, 6, 13, 11])  # of the examples: three in row 0, two in row 1
PRESENT = np.array([[1, 1, 1, 0], [1, 1, 0, 0]], bool)
ROW, NTH = np.nonzero(PRESENT)
OFFSET = np.array([0, 9, 16, 0, 13])  # of each example in its row
# Examples have disjoint ids, so the gradient of an id's embedding belongs to one example.
OWN_IDS = 4 + 11 * np.arange(5)[:, None] + np.arange(11)
ARCHITECTURES = {
    'bert': {},
    'roberta': {'max_position_embeddings': LENGTH + 2},
    'modernbert': {'windows': (None, 2, 2), 'num_layers': 3},
    'mosaicbert': {},
    'mpnet': {'max_position_embeddings': LENGTH + 2},
    'eurobert': {'kv_heads': 1},
    'esm2_8m': {'token_dropout.mask_id': MASK},
    'deberta': {'attention.buckets': None},
    'deberta_v2': {'attention.buckets': 6, 'convolution': ConvolutionOptions(3)},
}


@functools.cache
def make(name: str):
    sizes = {
        'vocab_size': VOCAB,
        'hidden_size': 16,
        'num_layers': 2,
        'num_heads': 2,
        'intermediate_size': 24,
        'max_position_embeddings': LENGTH,
        'initializer_range': 0.2,
    }
    return dataclasses.replace(
        architectures.build(name, **sizes | ARCHITECTURES[name]), pooler=True
    )


def examples() -> dict[str, np.ndarray]:
    """One example per row."""
    rng = np.random.default_rng(0)
    ids = np.full((5, LENGTH), PAD, np.int32)
    for row, length in zip(range(5), LENGTHS, strict=True):
        ids[row, :length] = rng.choice(OWN_IDS[row], length)
        ids[row, [0, length // 2, length - 1]] = CLS, SEP, SEP
    mask = (np.arange(LENGTH) < LENGTHS[:, None]).astype(np.int32)
    return {
        'input_ids': ids,
        'attention_mask': mask,
        'token_type_ids': (np.arange(LENGTH) > LENGTHS[:, None] // 2) * mask,
        'next_sentence_label': np.array([0, 1, 1, 0, 1], np.int32),
        'sentence_order_label': np.array([1, 1, 0, 0, 1], np.int32),
    }


def packed() -> dict[str, np.ndarray]:
    return pack(examples(), PRESENT, PAD)


def in_rows(array_ET) -> np.ndarray:
    """Move values at the positions of examples to where these are in packed rows."""
    rows = np.zeros((2, LENGTH), array_ET.dtype)
    for one, row, offset, length in zip(array_ET, ROW, OFFSET, LENGTHS, strict=True):
        rows[row, offset : offset + length] = one[:length]
    return rows


def apart(array_BTX) -> np.ndarray:
    """Concatenate the states of the examples in packed rows, without padding."""
    pairs = zip(np.asarray(array_BTX)[ROW], OFFSET, LENGTHS, strict=True)
    return np.concatenate([one[offset : offset + length] for one, offset, length in pairs])


def masked() -> tuple[Rows, Rows]:
    """Mask the same tokens in the examples alone and in packed rows.

    Different examples have a masked run next to [CLS], in the middle, and next to the last [SEP].
    """
    hidden_E = [(1, 2, 3), (2, 5), (4, 4), (2, 3, 8, 9), (8, 9)]
    batch, rows = examples(), packed()

    def one(batch, hidden_B):
        ids = batch['input_ids'].copy()
        positions, weights = np.zeros((2, len(ids), 8), np.int32)
        for row, hidden in enumerate(hidden_B):
            fillers = [t for t in range(LENGTH) if t not in hidden]
            positions[row] = [*hidden, *fillers][:8]
            weights[row, : len(hidden)] = 1
        labels = np.take_along_axis(ids, positions, 1)
        for row, hidden in enumerate(hidden_B):
            ids[row, list(hidden)] = MASK
        targets = Targets(positions, labels, weights.astype(np.float32))
        return Rows.of(batch).replace(input_ids_BT=ids, targets=targets)

    hidden_E = [sorted(set(hidden)) for hidden in hidden_E]
    hidden_B = [[], []]
    for hidden, row, offset in zip(hidden_E, ROW, OFFSET, strict=True):
        hidden_B[row] += [t + offset for t in hidden]
    return one(batch, hidden_E), one(rows, hidden_B)


@pytest.mark.parametrize('name', ARCHITECTURES)
def test_states_are_those_of_the_examples_alone_and_ignore_neighbors(name):
    architecture = make(name)
    encoder = build_encoder(architecture, Compute())
    alone, rows = examples(), packed()
    params = random_parameters(encoder, Rows.of(alone))
    weights = np.random.default_rng(1).normal(size=(3, 2, LENGTH, 16))

    @jax.jit
    def encode(params):
        return encoder.apply({'params': params}, Rows.of(alone))

    @jax.jit
    def encode_packed(params, is_selected_BT, is_selected_S):
        """The output, and the gradient of one example's states by the token embeddings."""

        def total(token_VD):
            embeddings = params['embeddings'] | {'token': token_VD}
            variables = {'params': params | {'embeddings': embeddings}}
            output = encoder.apply(variables, Rows.of(rows))
            hidden, decoded = output.hidden_BTD, output.decoded_BTD
            both = (hidden * weights[0] + decoded * weights[1]) * is_selected_BT[..., None]
            pooled_BSD = output.pooled_BD * weights[2][:, :4] * is_selected_S[..., None]
            return both.sum() + pooled_BSD.sum(), output

        gradient_VD, output = jax.grad(total, has_aux=True)(params['embeddings']['token'])
        return gradient_VD, output

    ours = encode(params)
    for row, nth, own in zip(ROW, NTH, OWN_IDS, strict=True):
        is_selected_S = np.zeros(PRESENT.shape)
        is_selected_S[row, nth] = 1
        is_selected_BT = (np.arange(2)[:, None] == row) & (rows['segment_ids'] == nth + 1)
        gradient_VD, output = encode_packed(params, is_selected_BT, is_selected_S)
        moved_V = np.abs(gradient_VD).max(axis=1)
        others = np.setdiff1d(OWN_IDS, own)
        assert (moved_V[np.intersect1d(own, rows['input_ids'])] > 1e-4).all()
        assert not moved_V[others].any()
        assert not moved_V[PAD]
    for what in ('hidden_BTD', 'decoded_BTD'):
        theirs = np.asarray(getattr(ours, what))[alone['attention_mask'] > 0]
        np.testing.assert_allclose(apart(getattr(output, what)), theirs, atol=1e-5)
    np.testing.assert_allclose(output.pooled_BD[PRESENT], ours.pooled_BD, atol=1e-5)


def losses_of(name: str, **changes):
    """params, and functions params → (loss, terms) for the examples alone and packed."""
    architecture = dataclasses.replace(make(name), **changes)
    sbo = SpanBoundaryObjective(position_size=4, max_targets=3)
    chosen = [*(OBJECTIVES[name]() for name in ('mlm', 'nsp', 'sop')), sbo]
    model = objectives.build_model(architecture, Compute(), chosen)

    def of(rows):
        def losses(params):
            terms = objectives.compute_terms(chosen, model.apply({'params': params}, rows), rows)
            return sum(mean(terms[f'{name}_loss']) for name in model.heads), terms

        return losses

    both = masked()
    return random_parameters(model, both[0]), list(map(of, both))


@pytest.mark.parametrize('name', ARCHITECTURES)
def test_losses_are_those_of_the_examples_alone(name):
    params, (alone, in_rows) = losses_of(name)
    both = jax.jit(lambda params: (alone(params), in_rows(params)))
    (_, terms), (_, packed_terms) = jax.device_get(both(params))
    assert terms['nsp_loss'].count == terms['sop_loss'].count == 5
    assert terms['mlm_loss'].count == 12
    assert terms['sbo_loss'].count == 5  # no spans at the edge of an example, also in packed rows
    for term_name in terms.keys() - {'mlm_empty', 'sbo_empty'}:  # counted in rows
        term = terms[term_name]
        np.testing.assert_allclose(packed_terms[term_name], term, rtol=1e-5, err_msg=term_name)


def test_gradients_are_those_of_the_examples_alone():
    params, functions = losses_of('bert', num_layers=1)
    both = jax.jit(lambda params: [jax.grad(f, has_aux=True)(params)[0] for f in functions])
    alone, in_rows = jax.device_get(both(params))
    largest = max(np.abs(leaf).max() for leaf in jax.tree.leaves(alone))
    assert largest > 0.1

    def check(ours, theirs):
        np.testing.assert_allclose(ours, theirs, atol=1e-5 * largest)

    jax.tree.map(check, in_rows, alone)


@pytest.mark.parametrize('name', ['bert', 'modernbert'])
def test_next_token_losses_are_those_of_the_examples_alone(name):
    chosen = (OBJECTIVES['clm'](),)
    model = objectives.build_model(make(name), Compute(), chosen)
    vocabulary = Vocabulary(MASK, PAD, (CLS, SEP, PAD, MASK), np.ones(VOCAB, int))
    rows = [CausalText(vocabulary)(None, Rows.of(batch)) for batch in (examples(), packed())]
    params = {'params': random_parameters(model, rows[0])}
    both = jax.jit(lambda params: [model.apply(params, one) for one in rows])
    terms, packed_terms = (
        objectives.compute_terms(chosen, output, output.rows) for output in both(params)
    )
    assert terms['clm_loss'].count == (LENGTHS - 3).sum()
    np.testing.assert_allclose(packed_terms['clm_loss'], terms['clm_loss'], rtol=1e-5)


def test_pairs_without_a_pooler_read_the_first_state_of_each_example():
    params, (alone, in_rows) = losses_of('bert', pooler=False, pair_pooling='first')
    both = jax.jit(lambda params: (alone(params), in_rows(params)))
    (_, terms), (_, packed_terms) = jax.device_get(both(params))
    for name in ('nsp_loss', 'sop_loss'):
        np.testing.assert_allclose(packed_terms[name], terms[name], rtol=1e-5)


@pytest.mark.parametrize('name', ['bert', 'deberta_v2'])
def test_replaced_token_detection_adds_the_first_state_of_the_same_example(name):
    architecture = dataclasses.replace(make(name), detection_context=name == 'deberta_v2')
    objective = ReplacedTokenDetection(1.0, 1.0, 'tied', 1.0)
    hidden_ETD = np.random.default_rng(0).normal(size=(5, LENGTH, 16)).astype(np.float32)
    hidden_BTD = np.stack([in_rows(x_ET) for x_ET in np.moveaxis(hidden_ETD, 2, 0)], axis=2)
    is_replaced_ET = np.random.default_rng(1).random((5, LENGTH)) < 0.3

    def encoded(batch, hidden, is_replaced):
        clean = Rows.of(batch)
        replaced = clean.replace(input_ids_BT=clean.input_ids_BT + is_replaced)
        return EncoderOutput(hidden, None), replaced, clean

    alone = encoded(examples(), hidden_ETD, is_replaced_ET)
    rows = encoded(packed(), hidden_BTD, in_rows(is_replaced_ET))
    rng = np.random.default_rng(2)
    params = jax.tree.map(
        lambda leaf: rng.normal(0, 0.2, leaf.shape).astype(np.float32),
        nn.unbox(heads_alone.init(objective, architecture, *alone[:2])),
    )
    terms, packed_terms = (
        heads_alone.terms(objective, architecture, params, *given) for given in (alone, rows)
    )
    assert terms['rtd_loss'].count == LENGTHS.sum()
    np.testing.assert_allclose(packed_terms['rtd_loss'], terms['rtd_loss'], rtol=1e-5)


def test_segments_start_at_their_first_id():
    starts = segment_starts(jnp.array([[1, 1, 2, 2, 2, 0, 0], [1, 2, 3, 3, 3, 3, 3]]))
    assert starts.tolist() == [[0, 0, 2, 2, 2, 5, 5], [0, 1, 2, 2, 2, 2, 2]]
