"""Predictions of a fine-tuned model for raw input."""

import copy
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import jax
from ml_collections import ConfigDict

from bert_jax import config_keys
from bert_jax.errors import UserError, unknown
from bert_jax.examples.finetune_batches import BatchShape, row_length
from bert_jax.inference import prompts
from bert_jax.interop import pretrained
from bert_jax.interop.pretrained import Pretrained
from bert_jax.labels import labeled_files, loader, seen_examples, word_spans
from bert_jax.labels.examples import Example
from bert_jax.labels.records import ReadingReport
from bert_jax.metrics import intervals
from bert_jax.metrics.scores import Scores
from bert_jax.models.architecture import Compute
from bert_jax.models.model import Model
from bert_jax.problems import PROBLEMS
from bert_jax.problems.finetuning_model import (
    EncodedExamples,
    FineTuningModel,
    PredictionStep,
    decode_all,
    predict,
    prediction_step,
)
from bert_jax.problems.prompt import Prompt
from bert_jax.tokenizers import Tokenizer
from bert_jax.tokenizers.special_token_layout import SpecialTokenLayout
from bert_jax.types import JsonObject, JsonView, Params

# Head → kind of problem, for models of other libraries, whose folders do not name the problem.
_KIND_OF_HEAD = {
    'sequence_classification': 'classification',
    'token_classification': 'tagging',
    'question_answering': 'question_answering',
    'multiple_choice': 'multiple_choice',
}


def problem_kind(model: Pretrained) -> str | None:
    """The kind of problem (key of PROBLEMS) a model was fine-tuned on; None for other models."""
    if 'task' in model.metadata:
        task = model.metadata['task']
        return task if task in PROBLEMS else None
    if 'mlm' in model.heads and model.metadata.get('config', {}).get('problem', {}).get('template'):
        return 'prompt'
    kind = next((kind for head, kind in _KIND_OF_HEAD.items() if head in model.heads), None)
    if kind == 'classification' and len(model.labels) == 1:
        kind = 'regression'
    return None if unsupported(model) else kind


def unsupported(model: Pretrained) -> str | None:
    """Why a published sequence classifier cannot answer `classify`; None if it can."""
    if 'task' in model.metadata or 'sequence_classification' not in model.heads:
        return None
    is_number = pretrained.num_labels(model.params) == 1
    if model.activation in (('identity', 'sigmoid') if is_number else ('softmax',)):
        return None
    if is_number:
        return f'activation_fn {model.activation} is not supported'
    return {
        'sigmoid': 'models that may assign several classes to a text (multi-label classification) '
        'are not supported',
        'identity': 'models of several numbers (problem_type regression) are not supported',
    }[model.activation]


class PredictionOptions(NamedTuple):
    """How a fine-tuned model answers.

    Attributes:
        probabilities: whether to list the probability of every class.
        long_texts: 'truncate', or 'windows', whose predictions are averaged; None: as in training.
        words: how tagging and spans split plain text (labels/word_spans.SPLITTERS); None: as
            in training.
    """

    probabilities: bool = False
    long_texts: str | None = None
    words: str | None = None


class Evaluation(NamedTuple):
    """The results of a fine-tuned model on labeled files.

    Attributes:
        scores: metrics and tables.
        intervals: metric → its 95 % interval over the examples (metrics/intervals.py).
        records: the lines of predictions.jsonl.
        lines: lines for the log: what was skipped or malformed in the files.
        warnings: why the scores may mislead.
        candidate_labels: `data.columns.candidate_labels`, the columns with the candidate
            antecedents of a pronoun.
    """

    scores: Scores
    intervals: Mapping[str, intervals.Interval]
    records: list[JsonObject]
    lines: list[str]
    warnings: list[str]
    candidate_labels: tuple[str, ...]


class FineTuned:
    """A fine-tuned model.

    Attributes:
        task: the method of Predictor (and --task of predict.py) that queries the model.
        data: the `data` settings of the training; {} for a published model.
        problem: the `Problem`; its `counts` say how many texts were truncated or split.
    """

    def __init__(
        self,
        model: Pretrained,
        kind: str,
        tokenizer: Tokenizer,
        compute: Compute,
        batch_tokens: int,
        overlap: float,
    ) -> None:
        """Prepare inference with the settings, labels and thresholds of the training.

        Args:
            kind: key of PROBLEMS.
            batch_tokens: tokens of a batch, padding included.
            overlap: share of a window that the next window repeats, to classify long texts.
        """
        entry, architecture = PROBLEMS[kind], model.architecture
        config = model.metadata.get('config', {})
        length = config.get('training', {}).get('sequence_length')
        length = min(length or architecture.max_length, architecture.max_length)
        settings = ConfigDict({**entry.settings, **config.get('problem', {})})
        layout = SpecialTokenLayout(tokenizer, length, architecture.type_vocab_size)
        self.task = entry.predict_task
        self.problem = entry.load()(settings, layout, model.labels or settings.labels)
        self.problem.thresholds = dict(model.metadata.get('calibrated', {}))
        self.problem.kept = dict(model.metadata.get('kept', {}))
        self.problem.activation = model.activation if kind == 'regression' else 'identity'
        self._words = model.metadata.get('words', self.problem.splitter)
        self.data = config.get('data', {})
        self._num_texts = model.metadata.get('texts')
        self._model = Model(architecture, compute, self.problem.heads())
        self._max_length, self._batch_tokens = architecture.max_length, batch_tokens
        self._overlap, self._kind = overlap, kind

    def with_settings(self, changes: JsonView) -> 'FineTuned':
        """Return this model with other settings of its problem.

        Raises:
            UserError: a setting that the problem lacks, that would need another training, or a
                value of another type.
        """
        problem = copy.copy(self.problem)
        problem.settings = ConfigDict(problem.settings.to_dict())
        for name, value in changes.items():
            if name not in problem.answer_settings:
                raise unknown(f'setting of a {self._kind} model', name, problem.answer_settings)
            try:
                problem.settings[name] = _fitted(value, problem.settings[name])
            except TypeError:
                kind = type(problem.settings[name]).__name__
                raise UserError(f'problem.{name} is {value!r}, not of type {kind}') from None
        changed = copy.copy(self)
        changed.problem = problem
        return changed

    def predict(
        self,
        params: Params,
        inputs: Sequence[JsonView],
        advance: Callable[[int], object],
        options: PredictionOptions,
    ) -> list[JsonObject]:
        """Predict for JSON objects.

        Args:
            params: 'encoder' and the problem's heads.
            inputs: see `Problem.parse_input`; 'id' is the name of an input in errors and records,
                by default its number, as 'input 1'.
            advance: called with the number of windows of each finished batch.

        Returns:
            Records as in predictions.jsonl of a run, without 'gold'.
        """
        self._set_options(options)
        if not inputs:
            return []
        inputs = _with_ids(inputs)
        examples = [self._parse(str(item['id']), item) for item in inputs]
        predictions = self._predictions(params, examples, advance)
        records = map(self.problem.to_record, examples, predictions)
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
        advance: Callable[[int], object],
    ) -> 'Evaluation':
        """Score the model, loaded from the path `model`; see `Predictor.evaluate`."""
        data = data_config(self.data, changes)
        report, readers = ReadingReport(), PROBLEMS[self._kind].readers
        records = labeled_files.read_files(tuple(gold), data, self._kind, readers, report)
        examples = [record.example for record in records]
        self._set_options(PredictionOptions())
        predictions = self._predictions(params, examples, advance)
        warnings = []
        if seen := seen_examples.count(model, examples):
            warnings.append(
                f'{model} was trained on the texts of {seen:,} of {len(examples):,} examples; '
                'these scores do not show how well it does on new ones'
            )
        return Evaluation(
            scores=self.problem.score(examples, predictions),
            intervals=intervals.of_rows(
                self.problem.score_rows(examples, predictions), len(examples)
            ),
            records=list(map(self.problem.to_record, examples, predictions)),
            lines=report.lines(),
            warnings=warnings,
            candidate_labels=tuple(data.columns.candidate_labels),
        )

    def _set_options(self, options: PredictionOptions) -> None:
        """Set how the problem answers. Raises UserError if it does not support an option."""
        problem, kind = self.problem, self._kind
        if options.probabilities and not problem.has_probabilities:
            raise UserError(f'a {kind} model has no probabilities of classes')
        if options.long_texts not in (None, *problem.long_texts):
            raise UserError(
                f'long_texts is {options.long_texts!r}, but a {kind} model has only '
                f'{" or ".join(problem.long_texts)}'
            )
        if options.words and options.words not in word_spans.SPLITTERS:
            raise unknown('way to split words', options.words, word_spans.SPLITTERS)
        problem.all_probabilities = options.probabilities
        use_windows = options.long_texts == 'windows' and problem.long_texts[0] != 'windows'
        problem.window_overlap = self._overlap if use_windows else None
        problem.splitter = options.words or self._words

    def _parse(self, name: str, item: JsonView) -> Example:
        """Make an example. Raises UserError if the model takes another number of texts."""
        example = self.problem.parse_input(name, item)
        number = len(getattr(example, 'texts', ()))
        if self._num_texts == 2 and number == 1:
            raise UserError(
                f'{name}: one text, but the model was trained on pairs; give two texts, on a line '
                'separated by a tab'
            )
        if self._num_texts == 1 and number == 2:
            raise UserError(
                f'{name}: two texts, on a line separated by a tab, but the model was trained on '
                'single texts'
            )
        return example

    def _predictions(
        self, params: Params, examples: Sequence[Example], advance: Callable[[int], object]
    ) -> Sequence[object]:
        if isinstance(self.problem, Prompt):
            outputs = prompts.outputs(
                self.problem,
                self._model,
                params,
                examples,
                batch_tokens=self._batch_tokens,
                advance=advance,
            )
            return decode_all(self.problem, examples, outputs)
        encoded = EncodedExamples.of(self.problem, examples)
        length = row_length(int(encoded.items.length_N.max()), self._max_length)
        shape = BatchShape(max(1, self._batch_tokens // length), length, 1)
        step = self._step(self.problem.all_probabilities)
        outputs, _ = predict(step, params, encoded, shape, advance)
        return decode_all(self.problem, examples, outputs)

    @functools.cache  # noqa: B019  (a loaded model lives as long as its process)
    def _step(self, all_probabilities: bool) -> PredictionStep:
        """The prediction step, traced again when the problem has other outputs."""
        return jax.jit(
            prediction_step(FineTuningModel(self.problem, self._model), with_terms=False)
        )


def _with_ids(inputs: Sequence[JsonView]) -> list[JsonView]:
    """Return the inputs; those without an id get their number, as on a command line."""
    return [
        item if item.get('id') is not None else {**item, 'id': f'input {number}'}
        for number, item in enumerate(inputs, 1)
    ]


def data_config(trained: JsonView, changes: JsonView) -> ConfigDict:
    """The `data` config of the training, with changes by dotted key, to read other files."""
    data = loader.make_config()
    known = data.to_dict()
    settings = {key: value for key, value in trained.items() if key in known and key != 'columns'}
    columns = trained.get('columns', {})
    settings |= {f'columns.{key}': columns[key] for key in columns.keys() & known['columns'].keys()}
    for key, value in (settings | {'dataset': ''} | dict(changes)).items():
        section, _, name = key.rpartition('.')
        target = data[section] if section == 'columns' else data
        if section not in ('', 'columns') or name not in target:
            raise unknown('key of data', key, [*known, *(f'columns.{n}' for n in known['columns'])])
        if isinstance(target[name], str) and isinstance(value, int):
            value = str(value)  # the number of a column
        try:
            target[name] = _fitted(value, target[name])
        except TypeError:
            kind = type(target[name]).__name__
            raise UserError(f'data.{key} is {value!r}, which is not of type {kind}') from None
    config_keys.check(ConfigDict({'data': data}))
    return data


def _fitted(value: object, former: object) -> object:
    """Return a list, or a string for a key that holds a tuple, as a tuple."""
    if isinstance(former, tuple | list) and isinstance(value, str):
        return (value,)
    return tuple(value) if isinstance(value, list) else value


def as_pair(text: str | Sequence[str] | JsonView) -> JsonView:
    """The input of `FineTuned.predict` for a text, a pair of texts or a dictionary."""
    if isinstance(text, Mapping):
        return text
    texts = [text] if isinstance(text, str) else text
    if not isinstance(texts, Sequence) or not 1 <= len(texts) <= 2:
        raise UserError(f'expected a text or a pair of texts, not {text!r:.60}')
    return dict(zip(('text', 'text2'), texts, strict=False))


def as_words(text: str | Sequence[str] | JsonView) -> JsonView:
    """The input of `FineTuned.predict` for a text, a list of words or a dictionary."""
    if isinstance(text, Mapping):
        return text
    if isinstance(text, str):
        return {'text': text}
    if not isinstance(text, Sequence):
        raise UserError(f'expected a text or a list of words, not {text!r:.60}')
    return {'words': list(text)}
