"""The evaluation of a fine-tuning problem: the same for training and for `bert_jax.evaluate`."""

import dataclasses
from collections.abc import Mapping, Sequence

from bert_jax import averages
from bert_jax.labels.examples import Example, is_labeled
from bert_jax.metrics import intervals
from bert_jax.metrics.scores import Scores
from bert_jax.problems.base import AnyProblem, Calibration, ExampleWriter
from bert_jax.problems.finetuning_model import Predicted
from bert_jax.types import JsonObject


@dataclasses.dataclass(frozen=True, eq=False)
class Evaluated:
    """Examples, what a model predicted for them, and how good that is.

    Attributes:
        problem: the problem.
        examples: the examples.
        predictions: one for each example.
        thresholds: the thresholds of the predictions.
        scores: None if some examples have no label.
        losses: name of a loss term + '_loss' → its mean; {} without scores.
    """

    problem: AnyProblem
    examples: Sequence[Example]
    predictions: Sequence[object]
    thresholds: Mapping[str, float]
    scores: Scores | None
    losses: Mapping[str, float]

    @property
    def metrics(self) -> dict[str, float]:
        """The metrics of `scores`, the main one first, and the losses; {} without scores."""
        return {} if self.scores is None else {**self.scores.metrics, **self.losses}

    @property
    def records(self) -> list[JsonObject]:
        """The lines of predictions.jsonl."""
        to_record = self.problem.decoder.to_record
        return list(map(to_record, self.examples, self.predictions))

    def intervals(self) -> dict[str, intervals.Interval]:
        """Return metric → its 95 % interval over the examples (metrics/intervals.py)."""
        score_rows = self.problem.decoder.score_rows(self.examples, self.predictions)
        return intervals.of_rows(score_rows, len(self.examples))


def decode(
    problem: AnyProblem,
    examples: Sequence[Example],
    predicted: Predicted,
    thresholds: Mapping[str, float],
    writer: ExampleWriter,
) -> Sequence[object]:
    """Return the prediction for each example.

    Args:
        predicted: the outputs of the model for the examples.
        thresholds: decision thresholds by name.
        writer: the model, for predictions that are texts.
    """
    decoder, calibration = problem.decoder, Calibration(thresholds, predicted.references)
    pairs = zip(examples, predicted.parts, strict=True)
    predictions = [decoder.decode(example, own, calibration) for example, own in pairs]
    return decoder.complete(examples, decoder.postprocess(examples, predictions), writer)


def evaluate(
    problem: AnyProblem,
    examples: Sequence[Example],
    predicted: Predicted,
    thresholds: Mapping[str, float] | None,
    writer: ExampleWriter,
) -> Evaluated:
    """Predict examples and, if all of them have a label, score the predictions.

    Args:
        predicted: the outputs of the model for the examples, and its loss terms.
        thresholds: decision thresholds by name; None to tune them on these examples.
        writer: see `decode`.
    """
    decoder, loss = problem.decoder, problem.loss
    if thresholds is None:
        thresholds = decoder.tune_thresholds(examples, predicted.parts)
    predictions = decode(problem, examples, predicted, thresholds, writer)
    if not all(map(is_labeled, examples)):
        return Evaluated(problem, examples, predictions, thresholds, None, {})
    means = averages.means({**predicted.terms, **loss.held_out_terms(examples, predictions)})
    losses = {f'{name}_loss': means[name] for name in loss.weights if name in means}
    scores = decoder.score(examples, predictions)
    return Evaluated(problem, examples, predictions, thresholds, scores, losses)
