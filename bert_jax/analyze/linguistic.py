"""Linguistic evaluation during pretraining, within a budget of floating-point operations."""

import pathlib
import time
from collections.abc import Mapping, Sequence

from bert_jax import files
from bert_jax.analyze.linguistic_measures import MeanCosine, Metrics, Pairs, Probe, SharedInputs
from bert_jax.analyze.measures import linguistic_curves
from bert_jax.errors import UserError
from bert_jax.types import Params

SECONDS = 'linguistic_seconds'


class LinguisticEvaluation:
    """The measures that `config.evaluation.linguistic` enables.

    Each measure is a pure function of the parameters: a resumed run repeats it exactly.

    Attributes:
        lines: log lines: what is measured and what it costs.
        unigram: the metrics that token frequencies reach on the minimal pairs; empty without pairs.
    """

    def __init__(self, setting: SharedInputs, total_flops: float, num_evaluations: int) -> None:
        """Read and tokenize the data.

        Args:
            setting: the config, the model and the corpus.
            total_flops: operations of the whole training.
            num_evaluations: number of evaluations of the run.

        Raises:
            UserError: the data is unreadable, the model has no head that predicts tokens, or the
                evaluation exceeds its budget.
        """
        config = setting.config
        budget = config.max_share * total_flops / num_evaluations
        self._measures: list[Pairs | Probe | MeanCosine] = []
        if config.isotropy:
            self._measures.append(MeanCosine(setting))
        if config.treebank:
            self._measures.append(Probe(setting))
        self.unigram: Metrics = {}
        if config.pairs:
            pairs = Pairs(setting, budget - self._flops())
            self._measures.append(pairs)
            self.unigram = pairs.unigram
        share = config.max_share * self._flops() / budget
        self.lines: Sequence[str] = ()
        if self._measures:
            cost = f'{num_evaluations} evaluations, {share:.2%} of the operations of the training'
            lines = [*(measure.line for measure in self._measures), cost]
            self.lines = [f'linguistic evaluation: {line}' for line in lines]
        if share > config.max_share:
            raise UserError(
                f'evaluation.linguistic would take {share:.1%} of the operations of the training, '
                f'above max_share={config.max_share:g}; evaluate less often, lower '
                'evaluation.linguistic.sentences, or raise evaluation.linguistic.max_share'
            )

    def report(self, held_out: Mapping[str, float], workdir: pathlib.Path) -> str:
        """Write linguistic.json and .png of a finished run; return the section of its model card.

        Args:
            held_out: metrics of the kept parameters.
            workdir: folder of the run, with metrics.jsonl.
        """
        if records := linguistic_curves.read_records(workdir):
            path = workdir / linguistic_curves.FIGURE
            content = {'unigram': self.unigram, 'evaluations': records}
            files.write_json(path.with_suffix('.json'), content)
            linguistic_curves.plot({'': records}, self.unigram, path)
        return linguistic_curves.markdown(held_out, self.unigram)

    def _flops(self) -> float:
        return sum(measure.flops for measure in self._measures)

    def __call__(self, params: Params) -> Metrics:
        """Return the metrics of parameters, and `linguistic_seconds`, the time they took."""
        start, metrics = time.monotonic(), Metrics()
        for measure in self._measures:
            metrics |= measure(params)
        return metrics | ({SECONDS: time.monotonic() - start} if metrics else {})
