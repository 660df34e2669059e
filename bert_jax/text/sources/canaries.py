"""Canaries as a text source: one document per copy."""

from collections.abc import Iterator, Mapping

from bert_jax.errors import UserError
from bert_jax.storage.names import is_number
from bert_jax.text import canaries
from bert_jax.text.sources.base import COMMON_OPTIONS, Document, Option, Source


class CanarySource(Source):
    """Invented secrets, planted 1, 10 and 100 times; see `text.canaries`.

    Attributes:
        canaries: All canaries, including the control group, which is planted 0 times.
    """

    location = 'NUMBER'
    description = 'NUMBER invented secrets planted once, 10 and 100 times each, to measure exposure'
    options = {**COMMON_OPTIONS, 'seed': Option('0', 'seed of the random secrets')}
    is_training_only = True

    def __init__(self, spec: str, where: str, settings: Mapping[str, str]):
        super().__init__(spec, where, settings)
        numbers = (where, settings['seed'])
        if not all(map(is_number, numbers)) or not int(where):
            raise UserError(
                f'source {spec!r}: NUMBER must be an integer above 0, and seed an integer'
            )
        self.canaries = canaries.make(int(where), int(settings['seed']))

    def size(self) -> int:
        return sum(canary.copies * len(canary.text()) for canary in self.canaries)

    def read(self) -> Iterator[Document]:
        """Yield the copies of all canaries, interleaved."""
        for copy in range(max(canaries.COPIES)):
            for canary in self.canaries:
                if copy < canary.copies:
                    self.position += len(canary.text())
                    yield Document(canary.text(), f'canary {canary.text()!r}')
