"""Predictions of a fine-tuned model for raw input."""

import contextlib
import dataclasses
import functools
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import NamedTuple

import jax
from ml_collections import ConfigDict

from bert_jax.errors import UserError, look_up, unknown
from bert_jax.examples.finetune_batches import BatchShape, row_length
from bert_jax.inference import prompts
from bert_jax.inference.changed_settings import data_config, fitted
from bert_jax.inference.inputs import AS_TRAINED, PredictionOptions, with_ids
from bert_jax.inference.problem_writer import ProblemWriter
from bert_jax.labels import class_names, labeled_files, seen_examples, word_spans
from bert_jax.labels.examples import Example
from bert_jax.labels.records import ReadingReport
from bert_jax.loaded import loaded_model
from bert_jax.loaded.loaded_model import LoadedModel
from bert_jax.metrics import intervals
from bert_jax.metrics.scores import Scores
from bert_jax.models.architecture import Compute
from bert_jax.models.model import Model
from bert_jax.problems import PROBLEMS, evaluation
from bert_jax.problems.base import AnyProblem
from bert_jax.problems.finetuning_model import (
    EncodedExamples,
    FineTuningModel,
    Predicted,
    PredictionStep,
    predict,
    prediction_step,
    run_examples,
)
from bert_jax.problems.prompting.encoding import PromptEncoding
from bert_jax.problems.setup import Setup
from bert_jax.progress import Advance, Bars
from bert_jax.tokenizers import Tokenizer
from bert_jax.tokenizers.special_token_layout import SpecialTokenLayout
from bert_jax.types import JsonObject, JsonView, Params


class Evaluation(NamedTuple):
    """The results of a fine-tuned model on labeled files.

    Attributes:
        scores: metrics and tables.
        losses: name of a loss term + '_loss' → its mean over the examples.
        intervals: metric → its 95 % interval over the examples (metrics/intervals.py).
        records: the lines of predictions.jsonl.
        lines: lines for the log: what was skipped or malformed in the files.
        warnings: why the scores may mislead.
        candidate_labels: `data.columns.candidate_labels`, the columns with the candidate
            antecedents of a pronoun.
    """

    scores: Scores
    losses: Mapping[str, float]
    intervals: Mapping[str, intervals.Interval]
    records: list[JsonObject]
    lines: list[str]
    warnings: list[str]
    candidate_labels: tuple[str, ...]

    @property
    def metrics(self) -> dict[str, float]:
        """The metrics of `scores`, the main one first, and the losses."""
        return {**self.scores.metrics, **self.losses}


@dataclasses.dataclass(frozen=True, eq=False)
class FineTuned:
    """A fine-tuned model.

    Attributes:
        kind: key of PROBLEMS.
        model: the encoder with the heads of the problem.
        setup: settings, labels and more that the problem is made from; its `counts` say how many
            texts were truncated or split.
        thresholds: decision thresholds of the training.
        data: the `data` settings of the training; {} for a published model.
        num_texts: number of texts of an example in training; None if any.
        batch_tokens: tokens of a batch, padding included.
        overlap: share of a window that the next window repeats, to classify long texts.
    """

    kind: str
    model: Model
    setup: Setup
    thresholds: Mapping[str, float]
    data: JsonView
    num_texts: int | None
    batch_tokens: int
    overlap: float

    @property
    def task(self) -> str:
        """The method of Predictor (and --task of predict.py) that queries the model."""
        return PROBLEMS[self.kind].predict_task

    def with_settings(self, changes: JsonView) -> 'FineTuned':
        """Return this model with other settings of its problem.

        Raises:
            UserError: a setting that the problem lacks, that would need another training, or a
                value that it cannot have.
        """
        entry, settings = PROBLEMS[self.kind], ConfigDict(self.setup.settings.to_dict())
        for name, value in changes.items():
            if name not in entry.answer_settings:
                raise unknown(f'setting of a {self.kind} model', name, entry.answer_settings)
            try:
                settings[name] = fitted(value, settings[name])
            except TypeError:
                kind = type(settings[name]).__name__
                raise UserError(f'problem.{name} is {value!r}, not of type {kind}') from None
            entry.keys[name].declaration.check(f'problem.{name}', settings[name])
        for name in changes:
            if reason := entry.keys[name].declaration.why_unused(
                ConfigDict({'problem': settings.to_dict()}), f'problem.{name}'
            ):
                raise UserError(f'problem.{name} has no effect: {reason}; leave it out')
        return dataclasses.replace(self, setup=dataclasses.replace(self.setup, settings=settings))

    @functools.cache  # noqa: B019  (a loaded model lives as long as its process)
    def problem(self, options: PredictionOptions = AS_TRAINED) -> AnyProblem:
        """Build the problem. Raises UserError if it does not support an option."""
        entry, setup = PROBLEMS[self.kind], self.setup
        if options.probabilities and not entry.has_probabilities:
            raise UserError(f'a {self.kind} model has no probabilities of classes')
        if options.long_texts not in (None, *entry.long_texts):
            raise UserError(
                f'long_texts is {options.long_texts!r}, but a {self.kind} model has only '
                f'{" or ".join(entry.long_texts)}'
            )
        if options.words and options.words not in word_spans.SPLITTERS:
            raise unknown('way to split words', options.words, word_spans.SPLITTERS)
        use_windows = options.long_texts == 'windows' and entry.long_texts[0] != 'windows'
        changed = dataclasses.replace(
            setup,
            kept={**setup.kept, 'splitter': options.words or setup.splitter},
            all_probabilities=options.probabilities,
            window_overlap=self.overlap if use_windows else None,
        )
        return entry.load().build(changed)

    def predict(
        self,
        params: Params,
        inputs: Sequence[JsonView],
        advance: Advance,
        options: PredictionOptions,
    ) -> list[JsonObject]:
        """Predict for JSON objects.

        Args:
            params: 'encoder' and the problem's heads.
            inputs: see `Encoding.parse_input`; 'id' is the name of an input in errors and records,
                by default its number, as 'input 1'.
            advance: called with the number of windows of each finished batch.

        Returns:
            Records as in predictions.jsonl of a run, without 'gold'.
        """
        problem = self.problem(options)
        if not inputs:
            return []
        inputs = with_ids(inputs)
        examples = [self._parse(problem, str(item['id']), item) for item in inputs]

        def bars(total: int, unit: str) -> AbstractContextManager[Advance]:
            return contextlib.nullcontext(advance)

        predicted = self._predicted(problem, params, examples, bars, with_terms=False)
        writer = self._writer(problem, params, bars)
        predictions = evaluation.decode(problem, examples, predicted, self.thresholds, writer)
        records = map(problem.decoder.to_record, examples, predictions)
        return [
            {name: value for name, value in record.items() if name != 'gold'} | {'id': item['id']}
            for record, item in zip(records, inputs, strict=True)
        ]

    def evaluate(
        self,
        model: str,
        params: Params,
        gold: Sequence[str],
        changes: JsonView,
        bars: Bars,
    ) -> 'Evaluation':
        """Score the model, loaded from the path `model`; see `Predictor.evaluate`."""
        data = data_config(self.data, changes)
        report, readers = ReadingReport(), PROBLEMS[self.kind].readers
        records = labeled_files.read_files(tuple(gold), data, self.kind, readers, report)
        names = class_names.ClassNames(self.setup.labels)
        examples = [record.example for record in names.apply(records, report)]
        problem = self.problem()
        problem.decoder.check(examples)
        predicted = self._predicted(problem, params, examples, bars, with_terms=True)
        writer = self._writer(problem, params, bars)
        result = evaluation.evaluate(problem, examples, predicted, self.thresholds, writer)
        assert result.scores is not None, 'read_files leaves no example without a label'
        warnings = []
        if seen := seen_examples.count(model, examples):
            warnings.append(
                f'{model} was trained on the texts of {seen:,} of {len(examples):,} examples; '
                'these scores do not show how well it does on new ones'
            )
        return Evaluation(
            scores=result.scores,
            losses=result.losses,
            intervals=result.intervals(),
            records=result.records,
            lines=report.lines(),
            warnings=warnings,
            candidate_labels=tuple(data.columns.candidate_labels),
        )

    def _parse(self, problem: AnyProblem, name: str, item: JsonView) -> Example:
        """Make an example. Raises UserError if the model takes another number of texts."""
        example: Example = problem.encoding.parse_input(name, item)
        number = len(getattr(example, 'texts', ()))
        if self.num_texts == 2 and number == 1:
            raise UserError(
                f'{name}: one text, but the model was trained on pairs; give two texts, on a line '
                'separated by a tab'
            )
        if self.num_texts == 1 and number == 2:
            raise UserError(
                f'{name}: two texts, on a line separated by a tab, but the model was trained on '
                'single texts'
            )
        return example

    def _predicted(
        self,
        problem: AnyProblem,
        params: Params,
        examples: Sequence[Example],
        bars: Bars,
        *,
        with_terms: bool,
    ) -> Predicted:
        """Return the outputs of examples, and with the labels that `with_terms` needs, the loss."""
        encoding, is_scored = problem.encoding, with_terms
        if isinstance(encoding, PromptEncoding) and (encoding.is_causal or not is_scored):
            return self._answer_prompts(problem, encoding, params, examples, bars)
        encoded = EncodedExamples.of(problem, examples)
        if not problem.decoder.reads_outputs and not is_scored:
            return Predicted([[]] * len(examples), [], {})
        max_length = self.model.architecture.max_length
        length = row_length(int(encoded.items.length_N.max()), max_length)
        shape = BatchShape(max(1, self.batch_tokens // length), length, 1)
        step = self._step(problem.setup.all_probabilities, with_terms)
        with bars(len(encoded.items), ' windows') as advance:
            return predict(step, params, encoded, shape, advance)

    def _answer_prompts(
        self,
        problem: AnyProblem,
        encoding: PromptEncoding,
        params: Params,
        examples: Sequence[Example],
        bars: Bars,
    ) -> Predicted:
        """Return what `fill_mask` computes for prompts; a causal model scores their answers."""
        with bars(len(examples), ' prompts') as advance:
            run = prompts.runner(encoding, self.model, params, self.batch_tokens, advance)
            references = run_examples(problem, encoding.references(), run)
            return Predicted(run_examples(problem, examples, run), references, {})

    def _writer(self, problem: AnyProblem, params: Params, bars: Bars) -> ProblemWriter:
        return ProblemWriter.of(problem, self.model, params, self.batch_tokens, bars)

    @functools.cache  # noqa: B019
    def _step(self, all_probabilities: bool, with_terms: bool) -> PredictionStep:
        """The prediction step; which other options a problem has does not matter to it."""
        problem = self.problem(PredictionOptions(all_probabilities))
        return jax.jit(prediction_step(FineTuningModel(problem, self.model), with_terms))


def build(
    model: LoadedModel,
    kind: str,
    tokenizer: Tokenizer,
    compute: Compute,
    batch_tokens: int,
    overlap: float,
    counts: Counter[str] | None = None,
) -> FineTuned:
    """Prepare inference with the settings, labels and thresholds of the training.

    Args:
        kind: key of PROBLEMS.
        batch_tokens, overlap, counts: see `FineTuned`.

    Raises:
        UserError: settings that the problem cannot have.
    """
    entry, architecture = PROBLEMS[kind], model.architecture
    run, length = model.usage, architecture.max_length
    if run.section('training').get('sequence_length') is not None:
        length = min(run.setting('training', 'sequence_length', int), length)
    trained = run.section('problem')
    for name, declared in entry.keys.items():
        if name in trained:
            declared.declaration.check_json(f'{run.source}: config.problem.{name}', trained[name])
    settings = ConfigDict({**entry.settings, **trained})
    if 'splitter' in run.kept:
        look_up(f'{run.source}: kept.splitter', run.kept['splitter'], word_spans.SPLITTERS)
    is_number = loaded_model.num_labels(model.params) == 1
    setup = Setup(
        settings,
        SpecialTokenLayout(
            tokenizer,
            length,
            architecture.type_vocab_size,
            is_published=run.task is None,
        ),
        tuple(model.labels or settings.labels),
        kept=run.kept,
        activation=model.activation if is_number else 'identity',
        is_causal=model.is_causal,
        counts=Counter() if counts is None else counts,
    )
    return FineTuned(
        kind,
        Model(architecture, compute, entry.load().build(setup).loss.heads(), model.is_causal),
        setup,
        run.calibrated,
        run.section('data'),
        run.texts,
        batch_tokens,
        overlap,
    )
