"""One update of BERT pretraining (loss, gradient, clipping, Adam, decay) equals torch, float32."""

import jax
import numpy as np
import pytest
import torch

from bert_jax import objectives
from bert_jax.interop import conversion
from bert_jax.interop.families import FAMILIES
from bert_jax.models.architecture import Compute
from bert_jax.models.rows import Rows, Targets
from bert_jax.training import optimizers
from bert_jax.training.state import TrainState
from bert_jax.training.step import make_train_step
from tests.interop import published
from tests.parity.agreement import agree_trees
from tests.training import synthetic
from tests.training.synthetic import OPTIMIZER

RATE, STEPS = 0.01, 1


class GivenMasks:
    """Pretraining without dropout whose masked positions are in the batch."""

    weights = {'mlm_loss': 1.0, 'nsp_loss': 1.0}

    def __init__(self, architecture):
        self.model = objectives.build_model(architecture, Compute(), synthetic.OBJECTIVES)

    def terms(self, params, batch, key, train, progress=1.0):
        weights = np.ones(batch['targets'].shape, np.float32)
        rows = Rows.of(batch)
        rows = rows.replace(targets=Targets(batch['positions'], batch['targets'], weights))
        output = self.model.apply({'params': params}, rows)
        return objectives.compute_terms(synthetic.OBJECTIVES, output, rows)


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


def make_batch(vocab_size, length, rng):
    lengths = np.append(length, rng.integers(1, length + 1, 3))
    mask = (np.arange(length) < lengths[:, None]).astype(np.int32)
    num_predictions = length // 4
    return {
        # transformers' lookup never trains the row of [PAD], 0: no real token may be one
        'input_ids': rng.integers(1, vocab_size, mask.shape) * mask,
        'attention_mask': mask,
        'token_type_ids': (np.arange(length) >= rng.integers(0, length, (4, 1))) * mask,
        'positions': np.stack([rng.permutation(length)[:num_predictions] % n for n in lengths]),
        'targets': rng.integers(0, vocab_size, (4, num_predictions)),
        'next_sentence_label': rng.integers(0, 2, 4),
    }


@pytest.mark.parametrize(('length', 'hidden_act'), [(11, 'gelu'), (19, 'gelu_new')])
def test_an_update_equals_torch(length, hidden_act):
    rng = np.random.default_rng(3)
    model = published.model('BertForPreTraining', hidden_act=hidden_act)
    architecture = FAMILIES['bert'].read_config(model.config.to_dict())

    def tree():
        state = {name: value.detach().numpy().copy() for name, value in model.named_parameters()}
        return conversion.from_state_dict(FAMILIES['bert'], architecture, state, 'torch')[0]

    task = GivenMasks(architecture)
    optimizer = optimizers.build(OPTIMIZER, lambda step: RATE)
    params, zero = tree(), np.zeros((), np.int32)
    state = TrainState(zero, zero, zero, params, optimizer.init(params))
    step = jax.jit(make_train_step(task, optimizer))
    moments = {}
    for _ in range(STEPS):
        batch = make_batch(architecture.vocab_size, length, rng)
        theirs = torch_update(model, batch, moments, architecture.vocab_size)
        state, metrics = step(state, batch, jax.random.key(0))
        assert float(metrics['loss']) == pytest.approx(theirs, rel=1e-5)
        agree_trees(state.params, tree())
