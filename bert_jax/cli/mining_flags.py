"""The flags of predict.py for --task=mine."""

import dataclasses
from typing import TYPE_CHECKING

from bert_jax.errors import UserError
from bert_jax.flag_parser import flag
from bert_jax.types import JsonObject

if TYPE_CHECKING:
    from bert_jax.inference.mining import Mined

_MINE = ('task', ('mine',))


@dataclasses.dataclass(frozen=True, kw_only=True)
class MiningFlags:
    """Which of the nearest texts are hard negatives; see `MiningOptions`."""

    negatives: int = flag('number of negatives of a query, at most', 3, '[1, inf)', only=_MINE)
    first_rank: int = flag(
        'first rank of a negative among the nearest texts that are not known answers; above 1 '
        'leaves out the likeliest answers that nobody marked',
        1,
        '[1, inf)',
        only=_MINE,
    )
    last_rank: int = flag('last rank of a negative', 100, '[1, inf)', only=_MINE)
    absolute_margin: float | None = flag(
        'negatives score at least so much less than the lowest known answer',
        None,
        '[0, inf)',
        only=_MINE,
    )
    relative_margin: float | None = flag(
        'the same as a share of the score of that answer, such as 0.05',
        None,
        '[0, inf)',
        only=_MINE,
    )
    highest_score: float | None = flag(
        'negatives score at most so much', None, '(-inf, inf)', only=_MINE
    )
    choice: str = flag(
        'top (those of the highest scores), or random (--seed)',
        'top',
        choices=('top', 'random'),
        only=_MINE,
    )

    def check_mining(self, task: str, seed: int | None) -> None:
        """Raise UserError for flags of mining that do not fit each other."""
        if task == 'mine' and seed is not None and self.choice != 'random':
            raise UserError(f'--seed has no effect with --choice={self.choice}; leave it out')
        if self.first_rank > self.last_rank:
            raise UserError(f'--first_rank={self.first_rank} is above --last_rank={self.last_rank}')


def record(mined: 'Mined') -> JsonObject:
    """Return the record of an answer, which the problems embedding and reranking read."""
    documents = [mined.positive, *mined.negatives]
    return {
        'query': mined.query,
        'positive': mined.positive.text,
        'negatives': [hit.text for hit in mined.negatives],
        'scores': [hit.score for hit in documents],
    }
