"""What fine-tuning writes at its end: predictions, scores, warnings and the card."""

import dataclasses
import functools
import pathlib
import sys
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from ml_collections import ConfigDict

from bert_jax import problems, progress
from bert_jax.errors import warn
from bert_jax.labels import seen_examples
from bert_jax.labels.examples import Example, is_labeled
from bert_jax.problems import finetuning_model
from bert_jax.problems.base import AnyProblem
from bert_jax.problems.evaluation import Evaluated
from bert_jax.reports import finetuning_card, glue, tables
from bert_jax.tasks import initialization
from bert_jax.training.early_stopping import lower_is_better
from bert_jax.training.workdir import Workdir
from bert_jax.types import JsonRecord, Params


class EvaluatedSplit(NamedTuple):
    """The evaluation of a split with some parameters."""

    params: Params
    result: Evaluated


@dataclasses.dataclass(frozen=True, eq=False)
class Report:
    """The results of a fine-tuning run on its held-out splits.

    Attributes:
        config: the config of configs/finetune.py.
        train: the labeled examples that were trained on.
        held_out: the other encoded splits by name.
        problem: the `Problem` of config.task.
        learning_rate: the peak learning rate.
        attention: its direction in words; '' for a model with a decoder.
        evaluated: the last evaluation of each held-out split.
    """

    config: ConfigDict
    train: Sequence[Example]
    held_out: Mapping[str, finetuning_model.EncodedExamples]
    problem: AnyProblem
    learning_rate: float
    attention: str
    evaluated: Mapping[str, EvaluatedSplit]

    @functools.cached_property
    def copies(self) -> dict[str, str]:
        """Splits with texts that are also trained on → a sentence that says how many."""
        trained_N = seen_examples.hashes(self.train)
        sentences = {}
        for name, split in self.held_out.items():
            copies = np.isin(seen_examples.hashes(split.examples), trained_N).sum()
            if copies:
                sentences[name] = (
                    f'{name}: the texts of {copies:,} of {len(split.examples):,} examples are also '
                    'in the train split, so scores on them are too high'
                )
        return sentences

    @property
    def _tuned(self) -> Mapping[str, float]:
        """The thresholds that were tuned on the dev split; {} if none were."""
        return self.evaluated['dev'].result.thresholds if 'dev' in self.evaluated else {}

    def write(self, workdir: Workdir, results: JsonRecord) -> None:
        """Write predictions, scores and the card; add warnings to the results."""
        scored: dict[str, finetuning_card.SplitScores] = {}
        if self._tuned:
            results['tuned_on_dev'] = dict(self._tuned)
            progress.say(f'tuned on dev: {finetuning_card.describe_thresholds(self._tuned)}')
        for split, (_, result) in self.evaluated.items():
            if result.metrics:
                scored[split] = self._split_scores(result)
            with workdir.writing():
                self._save(workdir.local / split, split, result, scored.get(split))
            shown = ', '.join(f'{name} {value:.4g}' for name, value in result.metrics.items())
            name = finetuning_card.name_of_split(split, self._tuned)
            progress.say(f'{name}: {shown or why_no_metrics(result.examples)}')
        if self.attention:
            results['attention'] = self.attention
        results['warnings'] = self._warnings(scored)
        pictures = [
            path.relative_to(workdir.local).as_posix()
            for pattern in ('loss.png', *(f'{split}/*.png' for split in self.held_out))
            for path in sorted(workdir.local.glob(pattern))
        ]
        card = finetuning_card.finetuned(
            self.config,
            results,
            len(self.train),
            scored,
            sys.argv,
            initialization.license_of(self.config.init_from),
            pictures,
            problems.find(self.config.task).pipeline_tag,
        )
        with workdir.writing():
            seen_examples.save(self.train, workdir.local)
            (workdir.local / 'README.md').write_text(card, encoding='utf-8')

    def _split_scores(self, result: Evaluated) -> finetuning_card.SplitScores:
        """Return the scores of a split with intervals, and those of a blind guess."""
        assert result.scores is not None
        return finetuning_card.SplitScores(
            len(result.examples),
            result.scores.metrics,
            result.intervals(),
            self.problem.decoder.baseline(self.train, result.examples),
            result.scores.signatures,
        )

    def _warnings(self, scored: Mapping[str, finetuning_card.SplitScores]) -> list[str]:
        """Return warnings about splits: no better than a blind guess, or trained on."""
        found = {split: scores.weakness(lower_is_better) for split, scores in scored.items()}
        advice = (
            f'train longer or with another schedule.learning_rate (this run: '
            f'{self.learning_rate:.3g}), or compare rates with sweep.learning_rates'
        )
        warnings = [
            f'{split}: {weakness}; {advice}' for split, weakness in found.items() if weakness
        ]
        warnings += self.copies.values()
        for warning in warnings:
            warn(warning)
        return warnings

    def _save(
        self,
        folder: pathlib.Path,
        split: str,
        result: Evaluated,
        scored: finetuning_card.SplitScores | None,
    ) -> None:
        """Write predictions, scores, and the file for the scorer of GLUE or GAP, if it applies."""
        records = result.records
        tables.save_results(
            folder,
            f'{self.config.task}, {finetuning_card.name_of_split(split, self._tuned)}',
            records,
            result.scores if scored else None,
            self.config.data.columns.candidate_labels,
            intervals=scored.intervals if scored else {},
            baseline=scored.baseline if scored else {},
            attention=self.attention,
            losses=result.losses,
        )
        if test_set := glue.test_set(self.config.data.dataset, split):
            predicted = {record['id']: record['predicted'] for record in records}
            glue.write_submission(test_set, predicted, folder)


def why_no_metrics(examples: Sequence[Example]) -> str:
    """Return the words that replace the metrics of a split that has none."""
    unknown = sum(not is_labeled(example) for example in examples)
    if unknown == len(examples):
        return 'no labels, predictions only'
    if unknown:
        return f'predictions only, {unknown:,} of {len(examples):,} have no label'
    return 'predictions only, no metric is defined for these examples'
