"""How texts are written from left to right."""

import dataclasses
from collections.abc import Callable, Sequence

from bert_jax.errors import UserError
from bert_jax.inference.beam_search import BeamSearch, EarlyStopping
from bert_jax.inference.decoding import Sampling
from bert_jax.inference.generate_options import GenerateOptions


@dataclasses.dataclass(frozen=True, kw_only=True)
class CausalOptions(GenerateOptions):
    """Options of generation from left to right, in addition to those of all generation.

    Attributes:
        top_k, top_p, min_p: see `Sampling`.
        beams: number of texts that beam search continues at the same time; 1: no beam search.
        length_penalty, early_stopping: see `Search`.
        no_repeat_ngrams: see `Constraints`.
        min_new_tokens: number of tokens before a text may end.
        stream: called with each piece of the text as it is written; for one text.
        target_language: language of the text, such as 'en_XX', for a model with a decoder whose
            texts start with their language (mBART).
    """

    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    beams: int = 1
    length_penalty: float = 1.0
    early_stopping: EarlyStopping = False
    no_repeat_ngrams: int = 0
    min_new_tokens: int = 0
    stream: Callable[[str], object] | None = None
    target_language: str = ''

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.new_tokens:
            raise UserError('new_tokens is 0; set the number of tokens to write after each text')
        for name, least in (('top_k', 0), ('beams', 1), ('no_repeat_ngrams', 0)):
            if (value := getattr(self, name)) < least:
                raise UserError(f'{name} is {value}; it must be at least {least}')
        if not 0 < self.top_p <= 1:
            raise UserError(f'top_p is {self.top_p}; it must be above 0 and at most 1')
        if not 0 <= self.min_p < 1:
            raise UserError(f'min_p is {self.min_p}; it must be at least 0 and below 1')
        if not 0 <= self.min_new_tokens <= self.new_tokens:
            raise UserError(
                f'min_new_tokens is {self.min_new_tokens}; it must be from 0 to new_tokens, '
                f'{self.new_tokens}'
            )
        if self.early_stopping not in (False, True, 'never'):
            raise UserError(
                f"early_stopping is {self.early_stopping!r}; it must be False, True or 'never'"
            )
        self._check_effects()

    def _check_effects(self) -> None:
        """Raise UserError for an option that has no effect with the others."""
        drawn, compared = ('top_k', 'top_p', 'min_p'), ('length_penalty', 'early_stopping')
        if self.beams > 1:
            if self.temperature not in (0, 1):
                raise UserError('beams are not sampled, so temperature has no effect; leave it out')
            self._refuse((*drawn, 'seed'), 'with beams, which are not sampled')
            self._refuse(('stop', 'stream'), 'with beams, whose texts change until the last step')
        else:
            self._refuse(compared, 'without beams')
            if self.temperature == 0:
                self._refuse(
                    (*drawn, 'seed'), 'at temperature 0, which takes the most probable token'
                )

    def _refuse(self, names: Sequence[str], where: str) -> None:
        defaults = {field.name: field.default for field in dataclasses.fields(self)}
        for name in names:
            if getattr(self, name) != defaults[name]:
                raise UserError(f'{name} has no effect {where}; leave it out')

    @property
    def sampling(self) -> Sampling | None:
        """How tokens are drawn; None: the most probable is taken."""
        if not self.temperature:
            return None
        return Sampling(self.temperature, self.top_k, self.top_p, self.min_p)

    @property
    def search(self) -> BeamSearch | None:
        """The beam search; None without beams."""
        if self.beams == 1:
            return None
        return BeamSearch(self.beams, self.length_penalty, self.early_stopping)
