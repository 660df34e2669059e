"""Forward pass and every gradient against transformers' BertForPreTraining, fp32.

Parameters are ten times the usual scale, norms perturbed, biases not zero, since at .02 a missing
term can hide. Two arrays agree if they differ nowhere by more than 1e-5 · max(1, max |theirs|).
"""

import functools

import jax
import numpy as np
import optax
import pytest
import torch
import transformers
from flax import linen as nn

from bert_jax.models import architectures
from bert_jax.models.architecture import Compute
from bert_jax.models.encoder import Encoder
from bert_jax.models.gather import gather_positions
from bert_jax.models.heads import MaskedLanguageModelHead, NextSentenceHead
from bert_jax.models.parameters import stack_layers, unstack_layers
from tests.parity.torch_weights import to_tree

TOLERANCE = 1e-5
# vocab_size, hidden_size, num_layers, num_heads, intermediate_size, positions, length, hidden_act
CASES = {
    'odd': (97, 24, 3, 3, 40, 19, 11, 'gelu'),
    'maximum_length': (1000, 20, 2, 5, 33, 16, 16, 'gelu'),
    'length_one': (130, 16, 1, 2, 64, 8, 1, 'gelu'),
    'one_head_tanh': (128, 12, 2, 1, 48, 32, 7, 'gelu_tanh'),
    'many_layers': (53, 32, 6, 8, 16, 12, 10, 'gelu'),
}


def agree(ours, theirs, what=''):
    ours, theirs = np.asarray(ours), np.asarray(theirs)
    assert ours.shape == theirs.shape, what
    bound = TOLERANCE * max(1, np.abs(theirs).max())
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=bound, err_msg=what)


def agree_trees(ours, theirs):
    ours, theirs = (dict(jax.tree.leaves_with_path(tree)) for tree in (ours, theirs))
    assert ours.keys() == theirs.keys()
    for path in ours:
        agree(ours[path], theirs[path], jax.tree_util.keystr(path))


def make_architecture(case):
    vocab, size, layers, heads, intermediate, positions, _, act = CASES[case]
    return architectures.build(
        'bert',
        vocab_size=vocab,
        hidden_size=size,
        num_layers=layers,
        num_heads=heads,
        intermediate_size=intermediate,
        max_position_embeddings=positions,
        hidden_act=act,
    )


def make_batch(case, rng):
    vocab, length, size = CASES[case][0], CASES[case][6], 4
    lengths = np.append(length, rng.integers(1, length + 1, size - 1))
    attention_mask = (np.arange(length) < lengths[:, None]).astype(np.int32)
    num_predictions = max(1, length // 4)
    return {
        'input_ids': rng.integers(0, vocab, (size, length)) * attention_mask,
        'attention_mask': attention_mask,
        'token_type_ids': (np.arange(length) >= rng.integers(0, length, (size, 1)))
        * attention_mask,
        'positions': np.stack([rng.permutation(length)[:num_predictions] % n for n in lengths]),
        'targets': rng.integers(0, vocab, (size, num_predictions)),
        'next_sentence_label': rng.integers(0, 2, size),
    }


def make_reference(architecture, rng):
    config = transformers.BertConfig(
        vocab_size=architecture.vocab_size,
        hidden_size=architecture.hidden_size,
        num_hidden_layers=architecture.num_layers,
        num_attention_heads=architecture.num_heads,
        intermediate_size=architecture.intermediate_size,
        max_position_embeddings=architecture.max_position_embeddings,
        type_vocab_size=architecture.type_vocab_size,
        hidden_act={'gelu': 'gelu', 'gelu_tanh': 'gelu_pytorch_tanh'}[architecture.hidden_act],
        layer_norm_eps=architecture.layer_norm_eps,
    )
    model = transformers.BertForPreTraining(config).eval()
    with torch.no_grad():
        for name, value in model.named_parameters():
            noise = 10 * architecture.initializer_range * rng.standard_normal(value.shape)
            centre = 1 if name.endswith('LayerNorm.weight') else 0
            value.copy_(torch.from_numpy(centre + noise))
    return model


def run_reference(model, batch, architecture):
    tensors = {key: torch.from_numpy(np.asarray(value, np.int64)) for key, value in batch.items()}
    output = model(
        input_ids=tensors['input_ids'],
        attention_mask=tensors['attention_mask'],
        token_type_ids=tensors['token_type_ids'],
        output_hidden_states=True,
    )
    index = tensors['positions'][:, :, None].expand(-1, -1, architecture.vocab_size)
    logits = output.prediction_logits.gather(1, index)
    cross_entropy = torch.nn.functional.cross_entropy
    loss = cross_entropy(logits.flatten(0, 1), tensors['targets'].flatten()) + cross_entropy(
        output.seq_relationship_logits, tensors['next_sentence_label']
    )
    loss.backward()
    gradients = {name: value.grad.numpy() for name, value in model.named_parameters()}
    numbers = {
        'all_hidden': np.stack([state.detach().numpy() for state in output.hidden_states]),
        'pooled': model.bert(
            tensors['input_ids'], tensors['attention_mask'], tensors['token_type_ids']
        ).pooler_output.detach(),
        'mlm_logits': logits.detach(),
        'nsp_logits': output.seq_relationship_logits.detach(),
        'loss': loss.detach(),
    }
    return numbers, to_tree(gradients, architecture)


@functools.cache
def make_ours(architecture, compute):
    """A jitted (params, batch) → (gradients, numbers)."""
    encoder = Encoder(architecture, compute)

    def forward(params, batch):
        output = encoder.apply(
            {'params': params['encoder']},
            batch['input_ids'],
            batch['attention_mask'],
            batch['token_type_ids'],
            all_hidden=True,
        )
        mlm_logits = MaskedLanguageModelHead(architecture, compute).apply(
            {'params': params['mlm']},
            gather_positions(output.hidden_BTD, batch['positions']),
            params['encoder']['embeddings']['token'],
        )
        nsp_logits = NextSentenceHead(architecture, compute).apply(
            {'params': params['nsp']}, output.pooled_BD
        )
        cross_entropy = optax.softmax_cross_entropy_with_integer_labels
        loss = (
            cross_entropy(mlm_logits, batch['targets']).mean()
            + cross_entropy(nsp_logits, batch['next_sentence_label']).mean()
        )
        return loss, {
            'all_hidden': output.all_hidden_LBTD,
            'pooled': output.pooled_BD,
            'mlm_logits': mlm_logits[..., : architecture.vocab_size],
            'nsp_logits': nsp_logits,
            'loss': loss,
        }

    return jax.jit(jax.grad(forward, has_aux=True))


@pytest.mark.parametrize('case', CASES)
def test_forward_and_gradients_equal_transformers(case):
    rng = np.random.default_rng(sorted(CASES).index(case))
    architecture, batch = make_architecture(case), make_batch(case, rng)
    model = make_reference(architecture, rng)
    state = {name: value.numpy().copy() for name, value in model.state_dict().items()}
    params = to_tree(state, architecture)
    theirs, their_gradients = run_reference(model, batch, architecture)

    for scan_layers in (False, True):
        compute = Compute(scan_layers=scan_layers, remat=scan_layers)
        arranged = params
        if scan_layers:
            arranged = params | {'encoder': stack_layers(params['encoder'])}
        expected = jax.eval_shape(
            Encoder(architecture, compute).init,
            jax.random.key(0),
            batch['input_ids'],
            batch['attention_mask'],
        )
        shapes = jax.tree.map(lambda leaf: leaf.shape, nn.unbox(expected)['params'])
        assert shapes == jax.tree.map(lambda leaf: leaf.shape, arranged['encoder'])

        gradients, ours = make_ours(architecture, compute)(arranged, batch)
        agree_trees(ours, theirs)
        if scan_layers:
            gradients = gradients | {'encoder': unstack_layers(gradients['encoder'])}
        agree_trees(gradients, their_gradients)


def test_scale_is_large_enough_to_see_a_missing_bias():
    rng = np.random.default_rng(0)
    architecture, batch = make_architecture('odd'), make_batch('odd', rng)
    model = make_reference(architecture, rng)
    params = to_tree({k: v.numpy().copy() for k, v in model.state_dict().items()}, architecture)
    run = make_ours(architecture, Compute())
    _, complete = run(params, batch)
    for path, leaf in jax.tree.leaves_with_path(params):
        name = jax.tree_util.keystr(path)
        if 'bias' in name and 'key' not in name:  # a bias of the keys changes no softmax
            lacking = jax.tree.map(
                lambda x, leaf=leaf: np.zeros_like(x) if x is leaf else x, params
            )
            assert abs(run(lacking, batch)[1]['loss'] - complete['loss']) > 1e-3, name
