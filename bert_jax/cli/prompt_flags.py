"""Command-line flags for prompts: cloze of a masked language model, prefix of a causal model."""

import dataclasses
from typing import TYPE_CHECKING

from bert_jax.errors import UserError
from bert_jax.files import parse_json
from bert_jax.flag_parser import flag
from bert_jax.storage import paths
from bert_jax.types import JsonObject

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
    shots: str = flag(
        'causal models: JSON lines with the fields of the template and "label", answered examples '
        'before each text',
        '',
        only=_ONLY,
    )

    def apply_prompt(self, predictor: 'Predictor') -> 'Predictor':
        """Return the model with this prompt, or unchanged without flags.

        Raises:
            UserError: the template or the answers are missing, or the prompt is not valid.
        """
        names = [field.name for field in dataclasses.fields(PromptFlags)]
        options: JsonObject = {name: value for name in names if (value := getattr(self, name))}
        if not options:
            return predictor
        if missing := {'template', 'answers'} - options.keys():
            raise UserError(
                f'--{min(missing)} is missing; give --template and --answers, or neither for the '
                'prompt of the training'
            )
        if self.shots:
            options['shots'] = _read_shots(self.shots)
        return predictor.with_prompt(**options)


def _read_shots(file: str) -> list[JsonObject]:
    """Read JSON lines of strings. Raises UserError for others, with the number of the line."""
    shots = []
    for number, line in enumerate(paths.path(file).read_text(encoding='utf-8').splitlines(), 1):
        try:
            shot = parse_json(line)
        except ValueError as error:
            raise UserError(f'{file}, line {number} is not valid JSON: {error}') from None
        if not isinstance(shot, dict) or not all(isinstance(v, str) for v in shot.values()):
            raise UserError(f'{file}, line {number} is not a JSON object of strings')
        shots.append(shot)
    return shots
