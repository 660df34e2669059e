"""Only biases are trained (BitFit, Ben Zaken et al. 2022, arXiv 2106.10199)."""

import dataclasses
from typing import ClassVar

from bert_jax.models.tuning_method import Tuning

BIASES = ('all', 'query_and_intermediate')
_SUBSET = ('attention/query/bias', 'feedforward/input/bias')


@dataclasses.dataclass(frozen=True)
class BitFit(Tuning):
    """Trains every bias of the encoder, or only query and inner feed-forward biases (section 3)."""

    method: str = 'bitfit'
    biases: str = 'all'

    published_rate: ClassVar[float | None] = 1e-3
    adds_parameters: ClassVar[bool] = False
    can_merge: ClassVar[bool] = True

    def problems(self) -> list[str]:
        if self.biases in BIASES:
            return []
        return [f'transfer.biases is {self.biases!r}; choose from {", ".join(BIASES)}']

    def trains(self, name: str) -> bool:
        return name.endswith('/bias' if self.biases == 'all' else _SUBSET)
