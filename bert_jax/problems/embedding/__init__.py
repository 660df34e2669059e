"""Sentence embeddings, trained: the losses by name. To add a loss, add a class and a line here."""

from ml_collections import ConfigDict

from bert_jax.lazy_table import LazyTable
from bert_jax.problems import loss_options
from bert_jax.problems.embedding.base import LossOptions

_PACKAGE = 'bert_jax.problems.embedding'

# `problem.loss` → its class; the fields of the class are keys of `problem`.
LOSSES: LazyTable[type[LossOptions]] = LazyTable(
    {
        'in_batch': f'{_PACKAGE}.in_batch:InBatch',
        'simcse': f'{_PACKAGE}.in_batch:SimCSE',
        'tsdae': f'{_PACKAGE}.denoising:DenoisingLoss',
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


def make(settings: ConfigDict) -> LossOptions:
    """Make the loss that the config's `problem` describes."""
    return loss_options.make(LOSSES, settings)


def unused(config: ConfigDict, name: str) -> str:
    """Say why an option of a loss has no effect; see `loss_options.why_unused`."""
    return loss_options.why_unused(LOSSES, config, name)
