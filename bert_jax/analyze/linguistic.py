"""Linguistic evaluation during pretraining, within a budget of floating-point operations."""

import dataclasses
import pathlib
import time
from collections.abc import Mapping, Sequence

from bert_jax import files
from bert_jax.analyze.linguistic_measures import (
    MeanCosine,
    Measure,
    Metrics,
    MinimalPairAccuracy,
    Probe,
    find_predictor,
    read_tagged,
)
from bert_jax.analyze.measures import linguistic_curves
from bert_jax.analyze.readers import minimal_pairs
from bert_jax.errors import UserError
from bert_jax.models.model import Model
from bert_jax.tasks.pretraining import EvaluatorInputs, Section
from bert_jax.types import Config, Params

SECONDS = 'linguistic_seconds'


@dataclasses.dataclass(frozen=True)
class LinguisticEvaluation:
    """The measures that `config.evaluation.linguistic` enables; an `Evaluator`.

    Attributes:
        measures: the measures, at least one.
        lines: log lines: what is measured and what it costs.
        unigram: the metrics that token frequencies reach on the minimal pairs; empty without pairs.
    """

    measures: Sequence[Measure]
    lines: Sequence[str]
    unigram: Metrics

    @classmethod
    def check(cls, settings: Config, model: Model) -> None:
        """Raise UserError if the files of the settings or the objectives cannot be used."""
        if settings.pairs:
            find_predictor(model)
            minimal_pairs.read(settings.pairs)
        if settings.treebank:
            read_tagged(settings.treebank)

    @classmethod
    def build(cls, inputs: EvaluatorInputs) -> 'LinguisticEvaluation':
        """Read and tokenize the data.

        Raises:
            UserError: the data is unreadable, the model has no head that predicts tokens, or the
                evaluation exceeds its budget.
        """
        settings, number = inputs.settings, inputs.num_evaluations
        budget = settings.max_share * inputs.flops / number
        measures: list[Measure] = []
        unigram: Metrics = {}
        if settings.isotropy:
            measures.append(MeanCosine(inputs))
        if settings.treebank:
            measures.append(Probe(inputs))
        if settings.pairs:
            pairs = MinimalPairAccuracy(inputs, budget - sum(measure.flops for measure in measures))
            measures.append(pairs)
            unigram = pairs.unigram
        share = number * sum(measure.flops for measure in measures) / inputs.flops
        if share > settings.max_share:
            raise UserError(
                f'evaluation.linguistic would take {share:.1%} of the operations of the training, '
                f'above max_share={settings.max_share:g}; evaluate less often, lower '
                'evaluation.linguistic.sentences, or raise evaluation.linguistic.max_share'
            )
        cost = f'{number} evaluations, {share:.2%} of the operations of the training'
        lines = [*(measure.line for measure in measures), cost]
        return cls(measures, [f'linguistic evaluation: {line}' for line in lines], unigram)

    def report(self, held_out: Mapping[str, float], workdir: pathlib.Path) -> Section:
        """Write linguistic.json and .png of a finished run; return the section of its card."""
        if records := linguistic_curves.read_records(workdir):
            path = workdir / linguistic_curves.FIGURE
            content = {'unigram': self.unigram, 'evaluations': records}
            files.write_json(path.with_suffix('.json'), content)
            linguistic_curves.plot({'': records}, self.unigram, path)
        text = linguistic_curves.markdown(held_out, self.unigram)
        return Section(text, frozenset(filter(linguistic_curves.is_linguistic, held_out)))

    def __call__(self, params: Params) -> Metrics:
        """Return the metrics of parameters, and `linguistic_seconds`, the time they took."""
        start, metrics = time.monotonic(), Metrics()
        for measure in self.measures:
            metrics |= measure(params)
        return metrics | {SECONDS: time.monotonic() - start}
