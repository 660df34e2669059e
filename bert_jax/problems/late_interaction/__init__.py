"""Late interaction, trained: the losses by name. To add a loss, add a class and a line here."""

from ml_collections import ConfigDict

from bert_jax.lazy_table import LazyTable
from bert_jax.problems import loss_options
from bert_jax.problems.late_interaction.losses import LateLoss

_LOSSES = 'bert_jax.problems.late_interaction.losses'

# `problem.loss` → its class; the fields of the class are keys of `problem`.
LOSSES: LazyTable[type[LateLoss]] = LazyTable(
    {
        'contrastive': f'{_LOSSES}:Contrastive',
        'margin_mse': f'{_LOSSES}:LateMarginMSE',
        'distill_kl': f'{_LOSSES}:LateDistillKL',
    }
)


def make(settings: ConfigDict) -> LateLoss:
    """Make the loss that the config's `problem` describes."""
    return loss_options.make(LOSSES, settings)


def unused(config: ConfigDict, name: str) -> str:
    """Say why an option of a loss has no effect; see `loss_options.why_unused`."""
    return loss_options.why_unused(LOSSES, config, name)


def unused_top_k(config: ConfigDict, name: str) -> str:
    """Say why the number of found tokens has no effect: the scoring finds none."""
    scoring = config.problem.scoring
    return '' if scoring == 'xtr' else f'problem.scoring is {scoring!r}'
