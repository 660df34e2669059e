"""Model card of a fine-tuning run: data, training, and scores with intervals and a baseline.

Intervals are bootstrap intervals over the examples; the baseline always gives the best answer that
does not depend on the input.
"""

import math
import pathlib
import shlex
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from bert_jax import markdown
from bert_jax.metrics import intervals
from bert_jax.metrics.scores import Table
from bert_jax.reports.model_card import json_block, table
from bert_jax.reports.tables import markdown_table
from bert_jax.storage import hub
from bert_jax.types import Config, JsonObject, JsonRecord


class SplitScores(NamedTuple):
    """The scores of a split.

    Attributes:
        num_examples: number of examples.
        metrics: name → value.
        intervals: name → (low, high).
        baseline: name → value of the baseline; empty if the problem has none.
        signatures: name → how a metric was computed, for some metrics.
    """

    num_examples: int
    metrics: Mapping[str, float]
    intervals: Mapping[str, tuple[float, float]]
    baseline: Mapping[str, float]
    signatures: Mapping[str, str] = {}

    def weakness(self, lower_is_better: Callable[[str], bool]) -> str:
        """Say that the main metric is not clearly better than the baseline's; '' if it is.

        Clearly better: the baseline is outside the interval of the metric.

        Args:
            lower_is_better: whether a lower value of the metric with this name is better.
        """
        name = next(iter(self.metrics))
        if name not in self.baseline:
            return ''
        value, guess, (low, high) = self.metrics[name], self.baseline[name], self.intervals[name]
        if high < guess if lower_is_better(name) else low > guess:
            return ''
        return (
            f'{name} {value:.4g} is not clearly better than {guess:.4g}, which a guess without '
            f'a model reaches ({intervals.LEVEL:.0%} interval {low:.4g} to {high:.4g}, '
            f'{self.num_examples:,} examples)'
        )


def finetuned(
    config: Config,
    results: JsonObject,
    num_train: int,
    splits: Mapping[str, SplitScores],
    command: Sequence[str],
    license_name: str = 'unknown',
    pictures: Sequence[str] = (),
    pipeline_tag: str = '',
) -> str:
    """The card of a fine-tuning run, in Markdown.

    Args:
        results: what the training loop returns, and 'tuned_on_dev', tuned thresholds by name.
        num_train: number of training examples.
        splits: scores by split.
        command: sys.argv of the run.
        license_name: license of the initial weights.
        pictures: names of files beside the card.
        pipeline_tag: of the kind of problem, see `ProblemKind`; '' for none.
    """
    tuned = results.get('tuned_on_dev', {})
    facts = {
        'problem': config.task,
        'initialized from': markdown.escape(config.init_from) or 'random values',
        **({'attention': results['attention']} if 'attention' in results else {}),
        'data': markdown.escape(_data_name(config)),
        'training examples': f'{num_train:,}',
        'parameters': f'{results["parameters"]:,}',
        'steps': f'{results["steps"]:,} in {results["train_seconds"]:,.0f} s on '
        f'{results["devices"]}',
        'learning rate': f'{results["learning_rate"]:.3g}',
        'seed': config.seed,
        'command': markdown.code(shown_command(command)),
    }
    if tuned:
        facts['thresholds, tuned on dev'] = markdown.escape(describe_thresholds(tuned))
    scores = '\n'.join(
        f'### {markdown.escape(name_of_split(name, tuned))}, {split.num_examples:,} examples\n\n'
        f'{_scores(split)}\n'
        for name, split in splits.items()
    )
    warnings = ''.join(
        f'**Warning:** {markdown.escape(text)}\n\n' for text in results.get('warnings', ())
    )
    shown = ''.join(f'![{picture}]({picture})\n' for picture in pictures)
    header = _header(config, tuned, splits, license_name, pipeline_tag)
    return f"""{markdown.header(header)}# {config.task}

A model fine-tuned with bert_jax.

{table(facts)}
{shown}
## Scores

{intervals.LEVEL:.0%} intervals: bootstrap over the examples of this run; results also vary by seed
(`config.sweep.seeds`). Baseline: a guess without a model, namely for each metric the one class for
all examples that is best; the most frequent tag, or the mean, of these examples; no span; no
answer; of texts to write the best of the first three sentences, the source and the most frequent
target; of instructions, the frequency of each token in the answers of the training data.

{warnings}{scores}
## Limits

The model reproduces biases of its training data and was not evaluated for any use beyond these
scores.

## Config

{json_block(config.to_dict())}"""


def describe_thresholds(thresholds: Mapping[str, float]) -> str:
    """List tuned thresholds by name for the log and the card."""
    return ', '.join(f'{name} {value:.4g}' for name, value in thresholds.items())


def name_of_split(split: str, tuned: Mapping[str, float]) -> str:
    """Return the name of a split; that of dev says whether thresholds were `tuned` on it."""
    return 'dev, on which the thresholds were tuned' if tuned and split == 'dev' else split


def shown_command(argv: Sequence[str]) -> str:
    """Return the command line of a run as it can be typed, from its sys.argv."""
    program = pathlib.PurePath(argv[0])
    if program.name == 'bert-jax' or program.parent.name == 'bert_jax':
        return shlex.join(['python', '-m', 'bert_jax.main', *argv[1:]])
    return shlex.join(['python', *argv] if program.suffix == '.py' else argv)


def _data_name(config: Config) -> str:
    data = config.data
    return data.dataset or ', '.join([*data.train, *data.dev, *data.test])


def _header(
    config: Config,
    tuned: Mapping[str, float],
    splits: Mapping[str, SplitScores],
    license_name: str,
    tag: str,
) -> JsonRecord:
    """Return the header for the Hugging Face Hub: license, base model, task and metrics."""
    name = pathlib.PurePath(config.workdir).name
    base = hub.repository(config.init_from)
    results = [
        {
            'task': {'type': tag or 'other'},
            'dataset': {
                'name': f'{_data_name(config)} ({name_of_split(split, tuned)})',
                'type': 'custom',
                'split': split,
            },
            'metrics': [
                {'type': metric, 'name': metric, 'value': value}
                for metric, value in scores.metrics.items()
                if math.isfinite(value)
            ],
        }
        for split, scores in splits.items()
    ]
    return {
        'library_name': 'bert_jax',
        'license': license_name,
        **({'base_model': base} if base else {}),
        **({'pipeline_tag': tag} if tag else {}),
        **({'model-index': [{'name': name, 'results': results}]} if results else {}),
    }


def _scores(split: SplitScores) -> str:
    rows: list[tuple[object, ...]] = []
    for name, value in split.metrics.items():
        baseline = f'{split.baseline[name]:.4f}' if name in split.baseline else '–'
        rows.append(
            (name, value, intervals.cell(split.intervals[name], split.num_examples), baseline)
        )
    lines = [markdown_table(Table(('metric', 'value', 'interval', 'baseline'), rows))]
    lines += [f'{name}: `{text}`' for name, text in split.signatures.items()]
    return '\n\n'.join(lines)
