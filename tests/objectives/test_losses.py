"""Losses and gradients of the objectives against slow torch versions written from the papers."""

from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

from bert_jax.averages import mean
from bert_jax.models import architectures
from bert_jax.models.encoders import EncoderOutput
from bert_jax.models.rows import Rows, Targets
from bert_jax.objectives.clm import CausalText
from bert_jax.objectives.corruption import Vocabulary
from bert_jax.objectives.edits import deleted_tokens
from bert_jax.objectives.rtd import ReplacedTokenDetection
from bert_jax.objectives.sbo import SpanBoundaryObjective
from tests.objectives import heads_alone, small_objectives

VOCAB, SIZE, LENGTH, ROWS = 40, 12, 24, 5
CLS, SEP, PAD, MASK = 0, 1, 2, 3
SBO = SpanBoundaryObjective(position_size=6, max_targets=4)
ARCHITECTURE = architectures.build(
    'bert',
    vocab_size=VOCAB,
    hidden_size=SIZE,
    num_layers=1,
    num_heads=2,
    intermediate_size=8,
    max_position_embeddings=LENGTH,
)
# Hidden spans: at both edges, of one token, longer than max_targets, and next to [SEP].
HIDDEN = [(1, 3), (5, 6), (8, 14), (16, 18), (21, 23)]
T = torch.nn.functional


class Encoded(NamedTuple):
    """Rows before and after a corruption, and states of the latter."""

    clean: Rows
    rows: Rows
    hidden: Any
    decoded: Any
    pooled: Any
    embedding_table: Any

    def states(self):
        return EncoderOutput(self.hidden, self.pooled, None, self.decoded, self.embedding_table)


def make_batch():
    rng = np.random.default_rng(0)
    lengths = np.array([24, 24, 19, 15, 9])
    ids = rng.integers(4, VOCAB, (ROWS, LENGTH)).astype(np.int32)
    mask = (np.arange(LENGTH) < lengths[:, None]).astype(np.int32)
    ids[:, 0] = CLS
    ids[np.arange(ROWS), lengths - 1] = SEP
    ids[0, 12 + 3] = SEP
    return {
        'input_ids': np.where(mask, ids, PAD).astype(np.int32),
        'attention_mask': mask,
        'token_type_ids': np.zeros_like(mask),
        'next_sentence_label': rng.integers(0, 2, ROWS).astype(np.int32),
        'sentence_order_label': rng.integers(0, 2, ROWS).astype(np.int32),
    }


def make_targets(batch):
    """Predict the spans of HIDDEN that fit into each row, in random order, with unused slots."""
    rng, slots = np.random.default_rng(1), 16
    positions, weights = np.zeros((2, ROWS, slots), np.int32)
    for row, length in enumerate(batch['attention_mask'].sum(1)):
        hidden = [t for start, stop in HIDDEN if stop < length for t in range(start, stop)]
        others = [t for t in range(LENGTH) if t not in hidden]
        positions[row] = [*rng.permutation(hidden), *others][:slots]
        weights[row] = np.arange(slots) < len(hidden)
    labels = np.take_along_axis(batch['input_ids'], positions, 1)
    return Targets(positions, labels, weights.astype(np.float32))


def make_labels(batch):
    rng = np.random.default_rng(2)
    labels = np.where(rng.random((ROWS, LENGTH)) < 0.3, rng.integers(1, VOCAB, (ROWS, LENGTH)), 0)
    return np.where(batch['attention_mask'], labels, -1).astype(np.int32)


def make_encoded(name):
    batch = make_batch()
    rng = np.random.default_rng(3)
    vocabulary = Vocabulary(MASK, PAD, (CLS, SEP, PAD, MASK), np.ones(VOCAB, int))
    is_replaced = rng.random((ROWS, LENGTH)) < 0.2
    clean = Rows.of(batch)
    rows = clean.replace(targets=make_targets(batch))
    if name == 'rtd':
        rows = rows.replace(input_ids_BT=clean.input_ids_BT + is_replaced)
    elif name == 'clm':
        rows = CausalText(vocabulary)(None, clean)
    elif name in ('deletion', 'substitution'):
        labels = make_labels(batch)
        rows = clean.replace(targets=deleted_tokens(labels), labels={name: labels})
    hidden, decoded = rng.normal(size=(2, ROWS, LENGTH, SIZE)).astype(np.float32)
    pooled = rng.normal(size=(ROWS, SIZE)).astype(np.float32)
    table = rng.normal(size=(ARCHITECTURE.padded_vocab_size, SIZE)).astype(np.float32)
    return Encoded(clean, rows, hidden, decoded, pooled, table)


# The slow versions: functions of (batch of torch arrays, parameters) that return one loss per
# prediction.


def dense(p, x):
    return x @ p['kernel'] + p['bias']


def norm(p, x):
    return T.layer_norm(x, (SIZE,), p['scale'], p['bias'], 1e-12)


def decode(p, x, table):
    """Logits of the language modeling head: dense, GELU, norm, embeddings, bias."""
    y = norm(p['norm'], T.gelu(dense(p['transform'], x)))
    return (y @ table.T + p['bias'])[:VOCAB]


def nats(logits, label):
    return torch.logsumexp(logits, -1) - logits[int(label)]


def hidden_positions(e, row):
    positions, _, weights = e.rows.targets
    return {int(t) for t, w in zip(positions[row], weights[row], strict=True) if w > 0}


def slow_mlm(e, p):
    return [
        nats(decode(p['head'], e.decoded[row, t], e.embedding_table), e.clean.input_ids_BT[row, t])
        for row in range(ROWS)
        for t in hidden_positions(e, row)
    ]


def slow_sbo(e, p):
    """Equations 1 and 2 of SpanBERT: y_i = f(x_{s−1}, x_{e+1}, p_{i−s+1}), 2-layer f."""
    losses, head = [], p['head']
    for row in range(ROWS):
        hidden, length = hidden_positions(e, row), int(e.clean.attention_mask_BT[row].sum())
        for i in sorted(hidden):
            s = e_ = i
            while s - 1 in hidden:
                s -= 1
            while e_ + 1 in hidden:
                e_ += 1
            if s - 1 == 0 or e_ + 1 == length - 1 or i - s + 1 > SBO.max_targets:
                continue
            x = torch.cat([e.hidden[row, s - 1], e.hidden[row, e_ + 1], head['place'][i - s]])
            h = norm(head['first_norm'], T.gelu(dense(head['first'], x)))
            logits = decode(head['second'], h, e.embedding_table)
            losses.append(nats(logits, e.clean.input_ids_BT[row, i]))
    return losses


def slow_pair(label):
    def slow(e, p):
        logits = dense(p['head']['dense'], e.pooled)
        return [nats(logits[row], e.clean.labels[label][row]) for row in range(ROWS)]

    return slow


def slow_clm(e, p):
    """−log p(x_{t+1} | x_0 … x_t) over tokens that are not special."""
    return [
        nats(decode(p['head'], e.hidden[row, t], e.embedding_table), token)
        for row in range(ROWS)
        for t in range(LENGTH - 1)
        if (token := int(e.clean.input_ids_BT[row, t + 1])) not in (CLS, SEP, PAD, MASK)
    ]


def detect(p, x):
    """ELECTRA's head: dense, GELU, dense to one logit; log p(changed), log p(original)."""
    logit = dense(p['output'], T.gelu(dense(p['transform'], x)))[0]
    return torch.log(torch.sigmoid(logit)), torch.log(1 - torch.sigmoid(logit))


def slow_rtd(e, p):
    """−Σ_t [1(x_t = x_t^corrupt) log D + 1(x_t ≠ x_t^corrupt) log(1 − D)] over real tokens."""
    return [
        -detect(p['head'], e.hidden[row, t])[
            0 if e.rows.input_ids_BT[row, t] != e.clean.input_ids_BT[row, t] else 1
        ]
        for row in range(ROWS)
        for t in range(int(e.clean.attention_mask_BT[row].sum()))
    ]


def slow_detection(name):
    def slow(e, p):
        labels = e.rows.labels[name]
        return [
            -detect(p['head'], e.hidden[row, t])[0 if labels[row, t] > 0 else 1]
            for row in range(ROWS)
            for t in range(LENGTH)
            if labels[row, t] >= 0
        ]

    return slow


def slow_deleted(e, p):
    labels = e.rows.labels['deletion']
    return [
        nats(decode(p['head'], e.decoded[row, t], e.embedding_table), labels[row, t] - 1)
        for row in range(ROWS)
        for t in np.flatnonzero(labels[row] > 0)[: LENGTH // 3]
    ]


SLOW = {
    'mlm': {'mlm_loss': slow_mlm},
    'sbo': {'sbo_loss': slow_sbo},
    'nsp': {'nsp_loss': slow_pair('next_sentence_label')},
    'sop': {'sop_loss': slow_pair('sentence_order_label')},
    'clm': {'clm_loss': slow_clm},
    'rtd': {'rtd_loss': slow_rtd},
    'substitution': {'substitution_loss': slow_detection('substitution')},
    'deletion': {'deletion_loss': slow_detection('deletion'), 'deletion_token_loss': slow_deleted},
}
OPTIONS = {'sbo': SBO, 'rtd': ReplacedTokenDetection(1.0, 1.0, 'tied', 1.0)}
DIFFERENTIATED = ('hidden', 'decoded', 'pooled', 'embedding_table')


@pytest.mark.parametrize('name', SLOW)
def test_losses_and_gradients_equal_the_slow_version(name):
    encoded = make_encoded(name)
    objective = OPTIONS.get(name) or small_objectives.build(name)
    params = nn.unbox(heads_alone.init(objective, ARCHITECTURE, encoded.states(), encoded.rows))
    rng = np.random.default_rng(4)
    params = jax.tree.map(lambda p: rng.normal(0, 0.5, p.shape).astype(np.float32), params)
    inputs = {key: getattr(encoded, key) for key in DIFFERENTIATED}

    @jax.jit
    def run(params, inputs):
        def loss(arguments):
            params, inputs = arguments
            states = encoded._replace(**inputs).states()
            rows = (encoded.rows, encoded.clean)
            terms = heads_alone.terms(objective, ARCHITECTURE, params, states, *rows)
            losses = {term: mean(terms[term]) for term in SLOW[name]}
            return sum(losses.values()), (losses, {term: terms[term].count for term in losses})

        return jax.value_and_grad(loss, has_aux=True)((params, inputs))

    (_, (losses, counts)), grads = jax.device_get(run(params, inputs))

    leaves, tree = jax.tree.flatten((params, inputs))
    tensors = [torch.from_numpy(np.array(a)).double().requires_grad_() for a in leaves]
    torch_params, torch_inputs = jax.tree.unflatten(tree, tensors)
    slow = encoded._replace(**torch_inputs)
    expected = {
        term: function(slow, torch_params[term.removesuffix('_loss')])
        for term, function in SLOW[name].items()
    }
    for term, values in expected.items():
        assert counts[term] == len(values) > 4
        value = float(torch.stack(values).mean().detach())
        assert losses[term] == pytest.approx(value, rel=2e-6)
    sum(torch.stack(values).mean() for values in expected.values()).backward()
    for (path, ours), theirs in zip(
        jax.tree.leaves_with_path(grads), [tensor.grad for tensor in tensors], strict=True
    ):
        wanted = np.zeros(ours.shape) if theirs is None else theirs.numpy()
        bound = 1e-5 * max(0.1, np.abs(wanted).max())
        np.testing.assert_allclose(ours, wanted, rtol=0, atol=bound, err_msg=str(path))


def test_a_span_is_predicted_from_its_two_neighbors_alone():
    encoded = make_encoded('sbo')
    rows = (encoded.rows, encoded.clean)
    rng = np.random.default_rng(5)
    params = jax.tree.map(
        lambda p: jnp.asarray(rng.normal(0, 0.5, p.shape), jnp.float32),
        nn.unbox(heads_alone.init(SBO, ARCHITECTURE, encoded.states(), encoded.rows)),
    )

    def loss(hidden):
        states = encoded._replace(hidden=hidden).states()
        return heads_alone.terms(SBO, ARCHITECTURE, params, states, *rows)['sbo_loss'].sum

    sensitivity = np.abs(jax.jit(jax.grad(loss))(jnp.asarray(encoded.hidden))).sum(-1) > 0
    # Row 0: the spans 5 – 5, 8 – 13 and 16 – 17 are predicted; the others touch an edge.
    assert np.flatnonzero(sensitivity[0]).tolist() == [4, 6, 7, 14, 15, 18]
