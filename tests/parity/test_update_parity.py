"""One whole update (loss, gradient, clip, Adam, decay) of BERT pretraining against torch, fp32."""

import jax
import numpy as np
import pytest
import torch

from bert_jax.models.architecture import Compute
from bert_jax.objectives.masking import Masked
from bert_jax.tasks.pretraining import PretrainingModel
from bert_jax.training import optimizers
from bert_jax.training.state import TrainState
from bert_jax.training.step import make_train_step
from tests.parity.test_bert_parity import agree_trees, make_architecture, make_batch
from tests.parity.test_bert_parity import make_reference as make_torch_model
from tests.parity.torch_weights import to_tree
from tests.training.synthetic import OPTIMIZER

RATE, STEPS = 0.01, 1


class GivenMasks:
    """Pretraining without dropout whose masked positions are in the batch."""

    weights = {'mlm_loss': 1.0, 'nsp_loss': 1.0}

    def __init__(self, architecture):
        self.model = PretrainingModel(architecture, Compute(), ('mlm', 'nsp'))

    def terms(self, params, batch, key, train):
        masked = Masked(
            batch['input_ids'],
            batch['positions'],
            batch['targets'],
            np.ones(batch['targets'].shape, np.float32),
        )
        return self.model.apply({'params': params}, batch, masked)


def torch_update(model, batch, moments, vocab_size):
    """google-research/bert: clip to norm 1, Adam without correction, decoupled decay."""
    tensors = {key: torch.from_numpy(np.asarray(value, np.int64)) for key, value in batch.items()}
    output = model(
        input_ids=tensors['input_ids'],
        attention_mask=tensors['attention_mask'],
        token_type_ids=tensors['token_type_ids'],
    )
    index = tensors['positions'][:, :, None].expand(-1, -1, vocab_size)
    cross_entropy = torch.nn.functional.cross_entropy
    loss = cross_entropy(
        output.prediction_logits.gather(1, index).flatten(0, 1), tensors['targets'].flatten()
    ) + cross_entropy(output.seq_relationship_logits, tensors['next_sentence_label'])
    model.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    with torch.no_grad():
        for name, value in model.named_parameters():
            first, second = moments.setdefault(
                name, (torch.zeros_like(value), torch.zeros_like(value))
            )
            first.mul_(0.9).add_(0.1 * value.grad)
            second.mul_(0.999).add_(0.001 * value.grad**2)
            direction = first / (second.sqrt() + 1e-6)
            if 'LayerNorm' not in name and not name.endswith('bias'):
                direction = direction + 0.01 * value
            value -= RATE * direction
    return float(loss)


@pytest.mark.parametrize('case', ['odd', 'maximum_length'])
def test_an_update_equals_torch(case):
    rng = np.random.default_rng(3)
    architecture = make_architecture(case)
    model = make_torch_model(architecture, rng)

    def tree():
        state = {name: value.numpy().copy() for name, value in model.state_dict().items()}
        found = to_tree(state, architecture)
        heads = {name: {'head': found[name]} for name in ('mlm', 'nsp')}
        return {'encoder': found['encoder'], **heads}

    task = GivenMasks(architecture)
    optimizer = optimizers.build(OPTIMIZER, lambda step: RATE)
    params, zero = tree(), np.zeros((), np.int32)
    state = TrainState(zero, zero, zero, params, optimizer.init(params))
    step = jax.jit(make_train_step(task, optimizer, 1, seed=0))
    moments = {}
    for _ in range(STEPS):
        batch = make_batch(case, rng)
        # transformers' lookup never trains the row of [PAD]: no real token may be one
        real_pad = (batch['input_ids'] == 0) & (batch['attention_mask'] == 1)
        batch['input_ids'] = np.where(real_pad, 1, batch['input_ids'])
        theirs = torch_update(model, batch, moments, architecture.vocab_size)
        state, metrics = step(state, batch)
        assert float(metrics['loss']) == pytest.approx(theirs, rel=1e-5)
        agree_trees(state.params, tree())
