"""Pretraining with the real model on random batches, without a corpus."""

import collections

import jax
import jax.numpy as jnp
import numpy as np
from ml_collections import ConfigDict

from bert_jax import objectives
from bert_jax.models import architectures
from bert_jax.models.architecture import Compute
from bert_jax.models.rows import Rows, Targets
from bert_jax.objectives.corruption import Vocabulary
from bert_jax.objectives.masking import MaskedText
from bert_jax.objectives.masking_schemes import Tokens
from bert_jax.objectives.mlm import MaskedLanguageModel
from bert_jax.objectives.nsp import NextSentencePrediction
from bert_jax.tasks.initialization import InitialModel

ARCHITECTURE = architectures.build(
    'bert',
    vocab_size=100,
    hidden_size=16,
    num_layers=2,
    num_heads=2,
    intermediate_size=32,
    max_position_embeddings=32,
)
OBJECTIVES = (MaskedLanguageModel(), NextSentencePrediction())
OPTIMIZER = ConfigDict(
    dict(
        name='bert_adam',
        beta1=0.9,
        beta2=0.999,
        eps=1e-6,
        weight_decay=0.01,
        decay_exclude=('bias', 'norm'),
        clip_norm=1.0,
        muon_momentum=0.95,
        muon_rate=1.0,
    )
)


class SyntheticTask:
    """MLM and NSP with dropout, on random tokens of various lengths."""

    weights = {'mlm_loss': 1.0, 'nsp_loss': 0.5}
    memory = None
    start = InitialModel(None, ARCHITECTURE, {}, [])

    def __init__(self, architecture=ARCHITECTURE, compute=None):
        self.model = objectives.build_model(architecture, compute or Compute(), OBJECTIVES)
        vocabulary = Vocabulary(4, 0, (0, 1, 2, 3, 4), np.ones(100, int))
        five = collections.defaultdict(lambda: 5)
        self.corruption = MaskedText(vocabulary, Tokens(0.15, per_sequence=True), five)

    def init(self, key):
        ids = jnp.zeros((1, 1), jnp.int32)
        labels = {'next_sentence_label': ids[0]}
        rows = Rows(ids, ids, ids, targets=Targets(ids, ids, ids), labels=labels)
        return self.model.init(key, rows)['params']

    def terms(self, params, batch, key, train, progress=1.0):
        keys_B = jax.vmap(jax.random.fold_in, (None, 0))(key, batch['example_index'])
        clean, seeds_B = Rows.of(batch), jax.vmap(jax.random.bits)(keys_B)
        output = self.model.apply({'params': params}, self.corruption(keys_B, clean), seeds_B)
        return objectives.compute_terms(OBJECTIVES, output, clean)


def batch(step, size=16, length=24):
    """Return the NumPy batch of a step: [CLS] … [SEP] and padding."""
    rng = np.random.default_rng(step)
    lengths = rng.integers(6, length + 1, size)
    ids = rng.integers(5, 100, (size, length)).astype(np.int32)
    ids[:, 0] = 2
    ids[np.arange(size), lengths - 1] = 3
    attention_mask = (np.arange(length) < lengths[:, None]).astype(np.int32)
    return {
        'input_ids': ids * attention_mask,
        'attention_mask': attention_mask,
        'token_type_ids': (np.arange(length) >= lengths[:, None] // 2).astype(np.int32)
        * attention_mask,
        'next_sentence_label': rng.integers(0, 2, size).astype(np.int32),
        'example_index': np.arange(step * size, (step + 1) * size, dtype=np.int32),
    }
