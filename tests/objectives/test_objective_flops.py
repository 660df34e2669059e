"""Declared operations of every objective against the matrix products of its forward pass."""

import math

import jax
import numpy as np
import pytest
from jax.extend.core import jaxprs_in_params

from bert_jax import objectives
from bert_jax.models import architectures
from bert_jax.models.architecture import Compute
from bert_jax.models.rows import Rows
from bert_jax.objectives import OBJECTIVES
from bert_jax.objectives.corruption import TargetLayout, Vocabulary
from configs import base
from tests.objectives import small_objectives

VOCAB, LENGTH, PREDICTIONS, ROWS = 128, 24, 5, 2
SIZES = dict(
    vocab_size=VOCAB,
    hidden_size=40,
    num_layers=2,
    num_heads=4,
    intermediate_size=56,
    max_position_embeddings=LENGTH,
    type_vocab_size=1,  # otherwise types are selected by a product
)
CASES = [
    *((name, *OBJECTIVES[name].companions) for name in OBJECTIVES),
    ('mlm', 'nsp'),
]


def product_flops(jaxpr) -> int:
    """Operations of all matrix products of a traced function."""
    total = 0
    for equation in jaxpr.eqns:
        steps = equation.params['length'] if equation.primitive.name == 'scan' else 1
        total += steps * sum(map(product_flops, jaxprs_in_params(equation.params)))
        if equation.primitive.name == 'dot_general':
            (contracted, _), _ = equation.params['dimension_numbers']
            first = equation.invars[0].aval.shape
            total += (
                2
                * math.prod(equation.outvars[0].aval.shape)
                * math.prod(first[axis] for axis in contracted)
            )
    return total


def counted_and_declared(names, characters=False, **changes):
    architecture = architectures.build('bert', **SIZES, **changes)
    if 'bilm' in names:
        sizes = {
            name: SIZES[name] for name in SIZES if name not in ('num_heads', 'type_vocab_size')
        }
        name = 'elmo_characters' if characters else 'elmo'
        architecture = architectures.build(name, **sizes)
    if 'mntp' in names:
        architecture = architecture.changed({'prediction.shift': True})
    if 'plm' in names:
        architecture = architectures.build('xlnet', **SIZES)
    if 'denoising' in names:
        sizes = {name: SIZES[name] for name in SIZES if name != 'type_vocab_size'}
        sizes |= {'max_position_embeddings': LENGTH + 2, 'decoder.num_layers': 3}
        architecture = architectures.build('bart', **sizes)
    scheme = 'spans' if 'sbo' in names else 'tokens'
    special, starts_V = (0, 1, 2, 3, 4), np.ones(VOCAB, bool)
    layout = TargetLayout((2,), 3, 3) if 'denoising' in names else None
    vocabulary = Vocabulary(4, 0, special, np.ones(VOCAB, int), starts_V, layout=layout)
    ids = np.full((ROWS, LENGTH), 7, np.int32)
    ones = np.ones_like(ids)
    arrays = {
        'input_ids': ids,
        'example_index': np.arange(ROWS, dtype=np.int32),
        'attention_mask': ones,
        'token_type_ids': ones,
        'sentence_start': ones,
        'next_sentence_label': ones[:, 0],
        'sentence_order_label': ones[:, 0],
    }
    clean = Rows.of(arrays)
    config = base.get_config()
    config.masking.scheme = scheme
    config.objectives.update({name: float(name in names) for name in config.objectives})
    kind = objectives.CORRUPTIONS[objectives.common_corruption(names, scheme)]
    predictions = LENGTH if {'diffusion', 'mntp'} & {*names} else PREDICTIONS
    corrupt = kind.build(config, vocabulary, {LENGTH: predictions})
    chosen = [small_objectives.build(name) for name in names]
    model = objectives.build_model(architecture, Compute(), chosen)
    rows = jax.eval_shape(corrupt, jax.random.split(jax.random.key(0), ROWS), clean)
    params = jax.eval_shape(model.init, jax.random.key(0), rows)
    # With dropout, XLNet's vectors of distances differ between rows.
    seeds = np.zeros(ROWS, np.uint32) if 'plm' in names else None
    traced = jax.make_jaxpr(model.apply)(params, rows, seeds)
    lengths = corrupt.source_length(LENGTH), corrupt.target_length(LENGTH)
    declared = model.flops_per_row(*lengths, predictions) * ROWS / 3
    return product_flops(traced.jaxpr), declared


@pytest.mark.parametrize('names', CASES, ids='+'.join)
def test_declared_operations_are_those_of_the_matrix_products(names):
    has_pooler = bool({'nsp', 'sop'} & {*names})
    counted, declared = counted_and_declared(names, pooler=has_pooler)
    assert counted == declared


def test_characters_of_tokens_are_counted():
    counted, declared = counted_and_declared(('bilm',), characters=True)
    assert counted == declared > 10 * counted_and_declared(('bilm',))[1]


def test_a_raw_state_of_pairs_needs_no_operations_of_a_pooler():
    counted, declared = counted_and_declared(('mlm', 'nsp'), pooler=False, pair_pooling='first')
    assert counted == declared


def test_objectives_are_not_free():
    """The test above would also pass if nothing were counted."""
    flops = {names: counted_and_declared(names)[1] for names in (('mlm',), ('mlm', 'sbo'))}
    assert flops['mlm', 'sbo'] > 1.05 * flops['mlm',]
