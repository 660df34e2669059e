"""Sentence embeddings, trained: the losses by name. To add a loss, add a class and a line here."""

from ml_collections import ConfigDict

from bert_jax.lazy_table import LazyTable
from bert_jax.problems.embedding.base import EmbeddingLoss

_PACKAGE = 'bert_jax.problems.embedding'

# `problem.loss` → its class; the fields of the class are keys of `problem`.
LOSSES: LazyTable[type[EmbeddingLoss]] = LazyTable(
    {
        'in_batch': f'{_PACKAGE}.in_batch:InBatch',
        'simcse': f'{_PACKAGE}.in_batch:SimCSE',
        'gist': f'{_PACKAGE}.in_batch:Guided',
        'mega_batch_margin': f'{_PACKAGE}.in_batch:MegaBatchMargin',
        'cosine': f'{_PACKAGE}.pairs:Cosine',
        'cosent': f'{_PACKAGE}.pairs:CoSENT',
        'angle': f'{_PACKAGE}.pairs:AnglE',
        'contrastive': f'{_PACKAGE}.pairs:Contrastive',
        'online_contrastive': f'{_PACKAGE}.pairs:OnlineContrastive',
        'triplet': f'{_PACKAGE}.triplets:Triplet',
        'batch_all': f'{_PACKAGE}.triplets:BatchAll',
        'batch_hard': f'{_PACKAGE}.triplets:BatchHard',
        'batch_hard_soft': f'{_PACKAGE}.triplets:BatchHardSoft',
        'batch_semi_hard': f'{_PACKAGE}.triplets:BatchSemiHard',
        'teacher_vectors': f'{_PACKAGE}.distillation:TeacherVectors',
        'margin_mse': f'{_PACKAGE}.distillation:MarginMSE',
        'distill_kl': f'{_PACKAGE}.distillation:DistillKL',
    }
)


def make(settings: ConfigDict) -> EmbeddingLoss:
    """Make the loss that the config's `problem` describes; unset keys have the loss's defaults."""
    loss = LOSSES[settings.loss]
    given = {name: settings[name] for name in loss.options() if settings[name] is not None}
    return loss(**given)


def unused(config: ConfigDict, name: str) -> str:
    """Why an option of a loss has no effect: the loss of the config does not have it."""
    loss = config.problem.loss
    if loss not in LOSSES or name.removeprefix('problem.') in LOSSES[loss].options():
        return ''
    return f'problem.loss is {loss!r}'
