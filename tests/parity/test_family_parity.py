"""Every family against transformers, fp32: the states of every layer, the heads' logits and the
gradients of all parameters.

Parameters are ten times the usual scale and biases not zero, since at .02 a missing term can hide.
Two arrays agree if they differ nowhere by more than 1e-5 · max(1, max |theirs|). States of padding
are not compared: nothing may depend on them, and the gradients would show if something did.
"""

import jax
import numpy as np
import pytest
import torch
from flax import linen as nn

from bert_jax.models import architectures
from bert_jax.models.architecture import Compute
from bert_jax.models.encoder import Encoder
from bert_jax.models.heads import MaskedLanguageModelHead, NextSentenceHead
from bert_jax.models.parameters import stack_layers, unstack_layers
from tests.parity.families import FAMILIES, parameters, randomise
from tests.parity.test_bert_parity import agree, agree_trees

HEAD_NAMES = {
    'MaskedLanguageModelHead': 'mlm',
    'NextSentenceHead': 'sop',
    'ReplacedTokenHead': 'rtd',
}
CASES = [(family, case) for family in FAMILIES for case in FAMILIES[family].cases]


def make_batch(family, architecture, length, rng):
    """Five sequences: whole, padded right, left, on both sides, and of one token."""
    starts = np.array([0, 0, length // 3, length // 4, 0])
    ends = np.array([length, (length + 1) // 2, length, length - length // 3, 1])
    at = np.arange(length)
    mask = ((at >= starts[:, None]) & (at < ends[:, None])).astype(np.int32)
    ids = rng.integers(2, architecture.vocab_size, mask.shape)
    batch = {'input_ids': np.where(mask > 0, ids, family.pad_id), 'attention_mask': mask}
    if architecture.type_vocab_size > 1:
        batch['token_type_ids'] = (at >= (starts + ends)[:, None] // 2) * mask
    return batch


def run_reference(family, model, batch, weights):
    tensors = {key: torch.from_numpy(np.asarray(value, np.int64)) for key, value in batch.items()}
    output = model(**tensors, output_hidden_states=True)
    loss = sum((output[name] * torch.from_numpy(weights[name])).sum() for name in family.heads)
    loss.backward()
    gradients = {name: value.grad.numpy() for name, value in parameters(model).items()}
    numbers = {name: output[name].detach().numpy() for name in family.heads}
    return numbers, np.stack([state.detach() for state in output.hidden_states]), gradients


def forward(family, architecture, compute, params, batch):
    """Our hidden states and logits by their names."""
    output = Encoder(architecture, compute).apply(
        {'params': params['encoder']},
        batch['input_ids'],
        batch['attention_mask'],
        batch.get('token_type_ids'),
        all_hidden=True,
    )
    logits = {}
    for name, head in family.heads.items():
        inputs = _inputs(head, output, params['encoder']['embeddings']['token'])
        variables = {'params': params[HEAD_NAMES[head.__name__]]}
        logits[name] = head(architecture, compute).apply(variables, *inputs)
        if head is MaskedLanguageModelHead:
            logits[name] = logits[name][..., : architecture.vocab_size]
    return output.all_hidden_LBTD, logits


def _inputs(head, output, table_VD):
    if head is MaskedLanguageModelHead:
        return output.hidden_BTD, table_VD
    return (output.pooled_BD if head is NextSentenceHead else output.hidden_BTD,)


def make_shapes(family, architecture, batch):
    """The shapes of all parameters, unboxed, layers not stacked."""

    def init():
        key, compute = jax.random.key(0), Compute()
        inputs = (batch['input_ids'], batch['attention_mask'])
        output, variables = Encoder(architecture, compute).init_with_output(key, *inputs)
        params = {'encoder': variables['params']}
        table_VD = nn.unbox(params['encoder'])['embeddings']['token']
        for head in family.heads.values():
            made = head(architecture, compute).init(key, *_inputs(head, output, table_VD))
            params[HEAD_NAMES[head.__name__]] = made['params']
        return nn.unbox(params)

    return jax.eval_shape(init)


def _real(logits, real_BT):
    """Which logits come from no padding: of each position, or of each sequence's first one."""
    return real_BT if logits.shape[:2] == real_BT.shape else real_BT[:, 0]


@pytest.mark.parametrize(('name', 'case'), CASES)
def test_states_logits_and_gradients_equal_transformers(name, case):
    family, rng = FAMILIES[name], np.random.default_rng(CASES.index((name, case)))
    length, changes = family.cases[case]
    architecture = architectures.build(family.build, **(dict(family.sizes) | dict(changes)))
    batch = make_batch(family, architecture, length, rng)
    model = family.make_model(architecture)
    randomise(model, rng, 10 * architecture.initializer_range)
    shapes = make_shapes(family, architecture, batch)
    state = {key: value.detach().numpy().copy() for key, value in parameters(model).items()}
    params = family.to_tree(state, shapes, architecture)

    real_BT = batch['attention_mask'] > 0
    with torch.no_grad():
        output = model(**{key: torch.from_numpy(np.int64(value)) for key, value in batch.items()})
    weights = {}
    for key in family.heads:
        weights[key] = rng.standard_normal(output[key].shape).astype(np.float32) / real_BT.sum()
        weights[key][~_real(output[key], real_BT)] = 0
    their_logits, their_hidden, gradients = run_reference(family, model, batch, weights)
    their_gradients = family.to_tree(gradients, shapes, architecture)

    for scan_layers in (False, True) if architecture.equal_layers and case == 'odd' else (False,):
        compute = Compute(scan_layers=scan_layers)

        def loss(params, compute=compute):
            hidden_LBTD, logits = forward(family, architecture, compute, params, batch)
            return sum((logits[key] * weights[key]).sum() for key in logits), (hidden_LBTD, logits)

        arranged = params
        if scan_layers:
            arranged = params | {'encoder': stack_layers(params['encoder'])}
        ours, (our_hidden, our_logits) = jax.jit(jax.grad(loss, has_aux=True))(arranged)
        if scan_layers:
            ours = ours | {'encoder': unstack_layers(ours['encoder'])}
        assert our_hidden.shape == their_hidden.shape
        for number in range(len(their_hidden)):
            agree(our_hidden[number][real_BT], their_hidden[number][real_BT], f'state {number}')
        for key, theirs in their_logits.items():
            real = _real(theirs, real_BT)
            agree(our_logits[key][real], theirs[real], key)
        agree_trees(ours, their_gradients)
