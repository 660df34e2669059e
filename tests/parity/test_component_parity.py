"""Architectures absent from transformers agree with a plain encoder in NumPy, fp64.

Parameters have ten times the usual scale. Arrays agree if no entry differs by more than
1e-5 · max(1, max |theirs|).
"""

import math

import jax
import numpy as np
import pytest
from flax import linen as nn

from bert_jax.models import architectures
from bert_jax.models.architecture import Compute
from bert_jax.models.encoders import build_encoder
from bert_jax.models.rows import Rows
from tests.parity.agreement import agree

SIZES = dict(
    vocab_size=50,
    hidden_size=24,
    num_layers=3,
    num_heads=3,
    intermediate_size=20,
    max_position_embeddings=16,
)
CASES = [
    ('neobert', 11, {}),
    ('neobert', 16, {'num_heads': 6, 'hidden_size': 36, 'attention.theta': 100.0}),
    ('mosaicbert', 11, {}),  # 3 heads: not a power of two
    ('mosaicbert', 16, dict(num_heads=8)),
    ('mosaicbert', 1, dict(num_layers=1)),
]


def erf_gelu(x):
    return x * (1 + np.vectorize(math.erf)(x / math.sqrt(2))) / 2


def slopes_of(num_heads):
    """From the paper for a power of two, from its code for three heads."""
    return {3: [1 / 16, 1 / 256, 1 / 4], 8: [2.0**-h for h in range(1, 9)]}[num_heads]


def rotated(vector, position, theta):
    """Rotate features k and k + K/2 as a complex number."""
    half = len(vector) // 2
    pairs = vector[:half] + 1j * vector[half:]
    pairs = pairs * np.exp(1j * position * theta ** (-np.arange(half) / half))
    return np.concatenate([pairs.real, pairs.imag])


class PlainEncoder:
    """Encodes one sequence without padding, one position and head at a time."""

    def __init__(self, name, architecture, params):
        self.name, self.architecture, self.params = name, architecture, params

    def norm(self, x, params):
        if self.name == 'neobert':
            return x / np.sqrt((x**2).mean() + self.architecture.layer_norm_eps) * params['scale']
        x = (x - x.mean()) / np.sqrt(x.var() + self.architecture.layer_norm_eps)
        return x * params['scale'] + params['bias']

    def score(self, query, key, i, j, head):
        if self.name == 'neobert':
            theta = self.architecture.attention.theta
            query, key = rotated(query, i, theta), rotated(key, j, theta)
        score = query @ key / math.sqrt(len(query))
        if self.name == 'mosaicbert':
            score -= slopes_of(self.architecture.num_heads)[head] * abs(i - j)
        return score

    def dense(self, x, params, head=slice(None)):
        y = np.tensordot(x, params['kernel'], 1) + params.get('bias', 0)
        return y[head]

    def attend(self, states, params):
        updates = []
        for i in range(len(states)):
            update = 0
            for head in range(self.architecture.num_heads):
                query = self.dense(states[i], params['query'], head)
                keys = [self.dense(state, params['key'], head) for state in states]
                values = [self.dense(state, params['value'], head) for state in states]
                scores = [self.score(query, key, i, j, head) for j, key in enumerate(keys)]
                weights = np.exp(scores) / np.exp(scores).sum()
                update = update + weights @ np.array(values) @ params['output']['kernel'][head]
            updates.append(update + params['output'].get('bias', 0))
        return updates

    def feed(self, state, params):
        gated, linear = np.tensordot(state, params['input']['kernel'], 1)
        silu = gated / (1 + np.exp(-gated))
        act = silu if self.name == 'neobert' else erf_gelu(gated)
        return self.dense(act * linear, params['output'])

    def encode(self, ids, types):
        embeddings = self.params['embeddings']
        states = [embeddings['token'][token] for token in ids]
        if self.name == 'mosaicbert':
            states = [state + embeddings['type'][t] for state, t in zip(states, types, strict=True)]
            states = [self.norm(state, embeddings['norm']) for state in states]
        every = [states]
        for number in range(self.architecture.num_layers):
            layer = self.params[f'layers_{number}']
            states = self.update(
                states, lambda x, p=layer: self.attend(x, p['attention']), layer['attention_norm']
            )
            states = self.update(
                states,
                lambda x, p=layer: [self.feed(state, p['feedforward']) for state in x],
                layer['feedforward_norm'],
            )
            every.append(states)
        if self.name == 'neobert':
            every[-1] = [self.norm(state, self.params['final_norm']) for state in states]
        return np.array(every)

    def update(self, states, function, norm):
        if self.name == 'neobert':
            added = function([self.norm(state, norm) for state in states])
            return [state + new for state, new in zip(states, added, strict=True)]
        added = function(states)
        return [self.norm(state + new, norm) for state, new in zip(states, added, strict=True)]


@pytest.mark.parametrize(('name', 'length', 'changes'), CASES)
def test_states_agree_with_a_plain_encoder(name, length, changes):
    architecture = architectures.build(name, **(SIZES | changes))
    rng = np.random.default_rng(length)
    ids = rng.integers(0, 50, (2, length))
    types = rng.integers(0, 2, (2, length))
    mask = np.ones_like(ids)
    mask[1, length - length // 3 :] = 0
    encoder = build_encoder(architecture, Compute())
    variables = nn.unbox(jax.jit(encoder.init)(jax.random.key(0), Rows(ids, mask)))
    leaves, structure = jax.tree.flatten(variables)
    leaves = [leaf + 0.2 * rng.standard_normal(leaf.shape, np.float32) for leaf in leaves]
    variables = jax.tree.unflatten(structure, leaves)
    ours = jax.jit(lambda v: encoder.apply(v, Rows(ids, mask, types), all_hidden=True))(variables)

    params = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), variables['params'])
    plain = PlainEncoder(name, architecture, params)
    for row, real in enumerate(mask.sum(1)):
        theirs = plain.encode(ids[row, :real], types[row, :real])
        agree(ours.all_hidden_LBTD[:, row, :real], theirs, f'row {row}')
