"""Classes by a prompt: a cloze of a masked language model, or a prefix of a causal model."""

import dataclasses
from typing import TYPE_CHECKING

from bert_jax.answers.finetuned import Finetuned
from bert_jax.answers.input_rows import Fields
from bert_jax.errors import UserError
from bert_jax.files import parse_json
from bert_jax.flag_parser import flag
from bert_jax.storage import paths
from bert_jax.types import JsonObject, JsonRecord

if TYPE_CHECKING:
    from bert_jax.inference.predictor import Predictor  # imports JAX


@dataclasses.dataclass(frozen=True, kw_only=True)
class PromptFlags:
    """The flags of a prompt."""

    template: str = flag(
        "such as '{text} It was [MASK].': asks a model without training (docs/prompting.md); "
        'default: the template of the training',
        '',
    )
    answers: tuple[str, ...] = flag(
        'CLASS=WORD|WORD: the words that stand for each class at [MASK]; a lone WORD is its own '
        'class',
        (),
        form='several',
    )
    decoding: str = flag('max_first (default), left_to_right or parallel', '')
    calibration: str = flag('none (default), contextual or pmi', '')
    shots: str = flag(
        'causal models: JSON lines with the fields of the template and "label", answered examples '
        'before each text',
        '',
    )

    def apply_prompt(self, model: 'Predictor') -> 'Predictor':
        """Return the model with this prompt, or unchanged without flags.

        Raises:
            UserError: the template or the answers are missing, or the prompt is not valid.
        """
        names = [field.name for field in dataclasses.fields(PromptFlags)]
        options: JsonObject = {name: value for name in names if (value := getattr(self, name))}
        if not options:
            return model
        if missing := {'template', 'answers'} - options.keys():
            raise UserError(
                f'--{min(missing)} is missing; give --template and --answers, or neither for the '
                'prompt of the training'
            )
        if self.shots:
            options['shots'] = _read_shots(self.shots)
        return model.with_prompt(**options)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Prompt(PromptFlags, Finetuned):
    """The class of a text by a prompt, from the training or from --template."""

    summary = (
        'classes by a prompt (problem prompt; with --template any pretrained model with a '
        'masked-language-model head, and causal models)'
    )
    reads = (
        'a text, TEXT<tab>TEXT for {text} and {text2}, or {"FIELD": "...", ...} for the fields of '
        'the template, a line'
    )
    fields = Fields(('text', 'text2'))

    probabilities: bool = flag('write the probabilities of all classes and of all answers', False)

    def prepare(self, model: 'Predictor') -> 'Predictor':
        return self.apply_prompt(model)


def _read_shots(file: str) -> list[JsonRecord]:
    """Read JSON lines of strings. Raises UserError for others, with the number of the line."""
    shots = []
    for number, line in enumerate(paths.bring(file).read_text(encoding='utf-8').splitlines(), 1):
        try:
            shot = parse_json(line)
        except ValueError as error:
            raise UserError(f'{file}, line {number} is not valid JSON: {error}') from None
        if not isinstance(shot, dict) or not all(isinstance(v, str) for v in shot.values()):
            raise UserError(f'{file}, line {number} is not a JSON object of strings')
        shots.append(shot)
    return shots
