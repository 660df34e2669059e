"""Sparse vectors, trained: the losses by name. To add a loss, add a class and a line here."""

from ml_collections import ConfigDict

from bert_jax.lazy_table import LazyTable
from bert_jax.problems import loss_options
from bert_jax.problems.embedding.base import EmbeddingLoss

_LOSSES = 'bert_jax.problems.sparse_embedding.losses'

# `problem.loss` → its class; the fields of the class are keys of `problem`.
LOSSES: LazyTable[type[EmbeddingLoss]] = LazyTable(
    {
        'in_batch': f'{_LOSSES}:SparseInBatch',
        'margin_mse': 'bert_jax.problems.embedding.distillation:MarginMSE',
        'distill_kl': f'{_LOSSES}:SparseDistillKL',
    }
)


def make(settings: ConfigDict) -> EmbeddingLoss:
    """Make the loss that the config's `problem` describes."""
    return loss_options.make(LOSSES, settings)


def unused(config: ConfigDict, name: str) -> str:
    """Say why an option of a loss has no effect; see `loss_options.why_unused`."""
    return loss_options.why_unused(LOSSES, config, name)
