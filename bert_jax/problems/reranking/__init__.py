"""Cross-encoders, trained to rank: the losses by name. To add one, add a class and a line here."""

from ml_collections import ConfigDict

from bert_jax.lazy_table import LazyTable
from bert_jax.problems import loss_options
from bert_jax.problems.reranking.base import RankingLoss

_PACKAGE = 'bert_jax.problems.reranking'

# `problem.loss` → its class; the fields of the class are keys of `problem`.
LOSSES: LazyTable[type[RankingLoss]] = LazyTable(
    {
        'binary': f'{_PACKAGE}.pointwise:Binary',
        'squared_error': f'{_PACKAGE}.pointwise:SquaredError',
        'margin_mse': f'{_PACKAGE}.pointwise:PointwiseMarginMSE',
        'listnet': f'{_PACKAGE}.listwise:ListNet',
        'listmle': f'{_PACKAGE}.listwise:ListMLE',
        'position_listmle': f'{_PACKAGE}.listwise:PositionListMLE',
        'lambda': f'{_PACKAGE}.listwise:Lambda',
        'ranknet': f'{_PACKAGE}.listwise:RankNet',
        'approximate_rank': f'{_PACKAGE}.listwise:ApproximateRank',
    }
)


def unused(config: ConfigDict, name: str) -> str:
    """Say why an option of a loss has no effect; see `loss_options.why_unused`."""
    return loss_options.why_unused(LOSSES, config, name)
