"""What a fine-tuned model answers; `Predictor` loads it for such models only."""

import contextlib
import dataclasses
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager

import jax
import jax.numpy as jnp

from bert_jax import progress
from bert_jax.errors import UserError
from bert_jax.inference import finetuned, problem_kinds
from bert_jax.inference.engine import Engine
from bert_jax.inference.finetuned import Evaluation, FineTuned
from bert_jax.inference.inputs import PredictionOptions
from bert_jax.inference.responses import Responder
from bert_jax.inference.text_rows import check_list
from bert_jax.loaded.loaded_model import LoadedModel
from bert_jax.loaded.record import Usage
from bert_jax.problems.instructions.encoding import InstructionEncoding
from bert_jax.problems.instructions.problem import AnswerPrediction
from bert_jax.problems.prompting.answers import parse as parse_answers
from bert_jax.problems.prompting.prefix import PrefixTemplate
from bert_jax.types import JsonObject, JsonView


@dataclasses.dataclass(frozen=True, eq=False)
class FineTunedPredictor:
    """The problems that a loaded model was fine-tuned on.

    Attributes:
        engine: the model, whose parameters include the heads of the problems.
        problems: that of the training, and another one that the same head answers; () if there is
            none that is known.
        unsupported: why a published sequence classifier cannot classify; None if it can.
    """

    engine: Engine
    problems: tuple[FineTuned, ...]
    unsupported: str | None = None

    @property
    def main(self) -> FineTuned:
        """The problem of the training."""
        return self.problems[0]

    @property
    def tasks(self) -> tuple[str, ...]:
        """The tasks that the model answers."""
        main, others = self.problems[:1], self.problems[1:]
        chat = ('chat',) if main and self._instructions else ()
        return (*(one.task for one in main), *chat, *(one.task for one in others))

    @property
    def _instructions(self) -> InstructionEncoding | None:
        encoding = self.main.problem().encoding
        return encoding if isinstance(encoding, InstructionEncoding) else None

    def predict(
        self, task: str, inputs: Sequence[JsonView], options: PredictionOptions
    ) -> list[JsonObject]:
        """See `Predictor.predict`."""
        answering = next((one for one in self.problems if one.task == task), None)
        if answering is None:
            raise UserError(f'{task} is not a task of fine-tuned models')
        return answering.predict(self.engine.params, inputs, self.engine.advance, options)

    def evaluate(
        self, gold: Sequence[str], changes: JsonView, *, show_progress: bool
    ) -> Evaluation:
        """See `Predictor.evaluate`."""
        engine = self.engine

        def bars(total: int, unit: str) -> AbstractContextManager[progress.Advance]:
            if show_progress:
                return progress.evaluation_bar(total, unit, is_shown=True)
            return contextlib.nullcontext(engine.advance)

        return self.main.evaluate(engine.name, engine.params, gold, changes, bars)

    def with_settings(self, settings: JsonView) -> 'FineTunedPredictor':
        """See `Predictor.with_settings`."""
        changed = self.main.with_settings(settings)
        return dataclasses.replace(self, problems=(changed, *self.problems[1:]))

    def responder(self, options: Mapping[str, object]) -> Responder:
        """See `Predictor.responder`."""
        assert self._instructions is not None
        return Responder.of(self.engine, self._instructions, options)

    def respond(
        self, conversations: Sequence[str | JsonView], options: Mapping[str, object]
    ) -> list[JsonObject]:
        """See `Predictor.respond`."""
        responder, counts = self.responder(options), self.engine.counts
        decoder = self.main.problem().decoder
        inputs = [{'prompt': one} if isinstance(one, str) else one for one in conversations]
        examples, prompts = [], []
        for number, item in enumerate(inputs, 1):
            name = str(item.get('id', f'input {number}'))
            example = responder.encoding.parse_input(name, item)
            if example.answer is not None:
                raise UserError(f"{name}: the last message is the assistant's; end with the user's")
            prompt, dropped = responder.prompt(example)
            counts['conversations without their oldest turns, which do not fit'] += dropped > 0
            examples.append(example)
            prompts.append(prompt)
        records = []
        for example, answer in zip(examples, responder.respond(prompts), strict=True):
            record = decoder.to_record(example, AnswerPrediction(0.0, 0, 0, 0.0, answer))
            records.append({name: value for name, value in record.items() if name != 'gold'})
        return records


def load(engine: Engine, model: LoadedModel) -> FineTunedPredictor:
    """Prepare the problems that a model was fine-tuned on, and add their heads to the engine."""
    kind = problem_kinds.problem_kind(model)
    kinds = [one for one in (kind, problem_kinds.other_kind(model, kind)) if one]
    if kinds:
        engine.params |= jax.tree.map(jnp.asarray, model.other_parts)
    problems = tuple(_load_problem(engine, model, one) for one in kinds)
    return FineTunedPredictor(engine, problems, problem_kinds.unsupported(model))


def prompted(
    engine: Engine,
    template: str,
    answers: Mapping[str, str | Sequence[str]] | Sequence[str],
    *,
    decoding: str,
    calibration: str,
    shots: Sequence[Mapping[str, str]],
) -> FineTunedPredictor:
    """See `Predictor.with_prompt`."""
    if not engine.is_causal:
        engine.require('fill_mask')
        if shots:
            raise UserError('shots are for causal models; see problem.demonstrations')
    else:
        engine.require('pseudo_likelihood')
        if decoding:
            raise UserError(
                f'decoding is {decoding!r}, but a causal model reads an answer from left to '
                'right; leave decoding out'
            )
    if isinstance(answers, Mapping):
        answers = [
            f'{label}={words if isinstance(words, str) else "|".join(words)}'
            for label, words in answers.items()
        ]
    settings = {
        'template': template,
        'answers': tuple(check_list(answers)),
        'decoding': 'parallel' if engine.is_causal else decoding or 'max_first',
        'calibration': calibration,
    }
    config = {'problem': settings, 'training': {'sequence_length': engine.max_length}}
    labels = tuple(parse_answers(settings['answers']))
    _check_shots(shots, PrefixTemplate(template).fields if shots else (), labels)
    kept = {'shots': [dict(shot) for shot in shots]}
    model = LoadedModel(
        None,
        engine.architecture,
        {},
        labels=labels,
        usage=Usage(config=config, kept=kept),
        is_causal=engine.is_causal,
    )
    return FineTunedPredictor(engine, (_load_problem(engine, model, 'prompt'),))


def _load_problem(engine: Engine, model: LoadedModel, kind: str) -> FineTuned:
    settings = engine.tokenizer, engine.compute, engine.batch_tokens, engine.overlap, engine.counts
    return finetuned.build(model, kind, *settings)


def _check_shots(
    shots: Sequence[Mapping[str, str]], fields: Sequence[str], labels: Sequence[str]
) -> None:
    """Raise UserError for a shot without a field, or with an unknown label."""
    for number, shot in enumerate(shots, 1):
        if missing := [name for name in fields if name not in shot]:
            raise UserError(f'shot {number} lacks {missing[0]!r}, a field of the template')
        if shot.get('label') not in labels:
            known = ', '.join(labels)
            raise UserError(f'shot {number} has the label {shot.get("label")!r}; known: {known}')
