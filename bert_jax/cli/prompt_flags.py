"""Command-line flags for cloze prompts to a model with a masked-language-model head."""

import dataclasses
from typing import TYPE_CHECKING

from bert_jax.errors import UserError
from bert_jax.flag_parser import flag

if TYPE_CHECKING:
    from bert_jax.inference.predictor import Predictor  # imports JAX

_ONLY = ('task', ('prompt',))  # of predict


@dataclasses.dataclass(frozen=True, kw_only=True)
class PromptFlags:
    """The flags of a prompt."""

    template: str = flag(
        "such as '{text} It was [MASK].': asks a model without training (docs/prompting.md); "
        'default: the template of the training',
        '',
        only=_ONLY,
    )
    answers: tuple[str, ...] = flag(
        'CLASS=WORD|WORD: the words that stand for each class at [MASK]; a lone WORD is its own '
        'class',
        (),
        form='several',
        only=_ONLY,
    )
    decoding: str = flag('max_first (default), left_to_right or parallel', '', only=_ONLY)
    calibration: str = flag('none (default), contextual or pmi', '', only=_ONLY)

    def apply_prompt(self, predictor: 'Predictor') -> 'Predictor':
        """Return the model with this prompt, or unchanged without flags.

        Raises:
            UserError: the template or the answers are missing, or the prompt is not valid.
        """
        names = [field.name for field in dataclasses.fields(PromptFlags)]
        options = {name: value for name in names if (value := getattr(self, name))}
        if not options:
            return predictor
        if missing := {'template', 'answers'} - options.keys():
            raise UserError(
                f'--{min(missing)} is missing; give --template and --answers, or neither for the '
                'prompt of the training'
            )
        return predictor.with_prompt(**options)
