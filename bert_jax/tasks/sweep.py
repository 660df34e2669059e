"""Trains several seeds and learning rates in one command and compares the runs.

Every run has its own folder in the workdir. After an interruption, finished runs are kept and the
others resume.
"""

import copy
import functools
import json
import pathlib
from collections.abc import Callable
from typing import Any, TypeAlias

from bert_jax import files, progress
from bert_jax.errors import UserError
from bert_jax.evaluation import comparison, intervals
from bert_jax.evaluation.scores import Table
from bert_jax.evaluation.tables import markdown_table
from bert_jax.training import multihost, workdir
from bert_jax.training.early_stopping import lower_is_better
from bert_jax.types import Config

RunKey: TypeAlias = tuple[float, int]  # learning rate, seed
Results: TypeAlias = dict[str, Any]  # the contents of a results.json


def is_wanted(config: Config) -> bool:
    """Whether `config.sweep` asks for several runs."""
    values = config.sweep.seeds or config.sweep.learning_rates
    return bool(values) and not config.debug.batch  # a batch is shown for the config itself


def run(config: Config, train: Callable[[Config], Results], writes: bool = True) -> Results:
    """Train every learning rate with every seed and compare the results.

    Runs are compared by `evaluation.best` or, if that is empty, by the first metric.

    Args:
        config: The config of the sweep.
        train: Function from the config of one run to its results.
        writes: Whether this process writes results.json, table.md and the plot into the workdir.

    Returns:
        The contents of results.json, see `compare`.

    Raises:
        UserError: For invalid seeds or rates, without a dev split, or if the workdir belongs to
            another config.
    """
    folder, configs = pathlib.Path(config.workdir), runs(config)
    if (folder / 'config.json').exists():
        raise UserError(f'workdir {folder} holds a single run; choose another --config.workdir')
    if not _has_dev_split(config.data):
        raise UserError('a sweep compares runs on a dev split; set data.dev_fraction or data.dev')
    results = _train_at_once(config, configs) if config.sweep.vmap else _train_each(configs, train)
    found = compare(config, results)
    splits = multihost.run_on_host0(functools.partial(other_splits, config, results))
    found |= {'other_splits': splits} if splits else {}
    if writes:
        write(folder, found)
    return found


def _train_each(
    configs: dict[RunKey, Config], train: Callable[[Config], Results]
) -> dict[RunKey, Results]:
    """Train the runs one after the other, unless they are finished."""
    results = {}
    for number, (key, run_config) in enumerate(configs.items(), start=1):
        print(f'run {number} of {len(configs)}: {run_config.workdir}', flush=True)
        done = multihost.run_on_host0(functools.partial(finished, run_config))
        results[key] = done or train(run_config)
    return results


def _train_at_once(config: Config, configs: dict[RunKey, Config]) -> dict[RunKey, Results]:
    """Train the runs that are not finished in one program (`sweep.vmap`)."""
    from bert_jax.tasks import vmapped_sweep  # fine-tuning, which pretraining does without

    vmapped_sweep.check(config)
    done = {key: finished(run_config) for key, run_config in configs.items()}
    left = {key: configs[key] for key, found in done.items() if not found}
    trained = vmapped_sweep.train(left) if left else {}
    return {key: trained.get(key) or found or {} for key, found in done.items()}


def _has_dev_split(data: Config) -> bool:
    """Whether the data has documents or examples to evaluate on; pretraining always has."""
    return bool(data.get('dataset') or data.get('dev') or data.get('dev_fraction', True))


def runs(config: Config) -> dict[RunKey, Config]:
    """Return the config of every run.

    Raises:
        UserError: For invalid or repeated seeds or rates.
    """
    seeds, rates = tuple(config.sweep.seeds), tuple(config.sweep.learning_rates)
    if len(set(seeds)) < len(seeds) or not all(
        isinstance(seed, int) and seed >= 0 for seed in seeds
    ):
        raise UserError(
            f'sweep.seeds is {seeds}; use distinct whole numbers of at least 0, such as (0, 1, 2)'
        )
    if len(set(rates)) < len(rates) or not all(
        isinstance(rate, float) and rate > 0 for rate in rates
    ):
        raise UserError(
            f'sweep.learning_rates is {rates}; use distinct rates above 0, such as (2e-5, 5e-5)'
        )
    configs = {}
    for rate in rates or (config.schedule.learning_rate,):
        for seed in seeds or (config.seed,):
            run_config = copy.deepcopy(config)
            name = _run_name(config, (rate, seed))
            with run_config.unlocked():
                run_config.sweep.update(dict(seeds=(), learning_rates=(), vmap=False))
                run_config.schedule.learning_rate, run_config.seed = float(rate), seed
                run_config.workdir = str(pathlib.Path(config.workdir) / name)
                if config.data.get('shots'):
                    run_config.data.split_seed = seed  # each seed draws its own examples
            configs[float(rate), seed] = run_config
    return configs


def _run_name(config: Config, key: RunKey) -> str:
    """Return the name of the folder of a run."""
    rate, seed = key
    return f'rate_{rate:g}_seed_{seed}' if config.sweep.learning_rates else f'seed_{seed}'


def finished(config: Config) -> Results | None:
    """Return the results of a finished run, or None if it has to be trained or resumed."""
    path = pathlib.Path(config.workdir) / 'results.json'
    if not path.exists():
        return None
    if workdir.check_config(path.parent, config.to_dict()):
        return None
    return json.loads(path.read_text(encoding='utf-8'))


def compare(config: Config, results: dict[RunKey, Results]) -> Results:
    """Summarize the metrics of every learning rate over its seeds.

    Returns:
        {'metric': the name of the metric that is compared, 'best_learning_rate': the rate with the
        best mean, 'best_run': the folder of the run with the best value, 'rates':
        [{'learning_rate', 'seeds', 'metrics': name → summary}, …]}.
    """
    metric = _compared_metric(config, results)
    rates: list[dict[str, Any]] = []
    for rate in sorted({rate for rate, _ in results}):
        by_seed = {seed: found['held_out'] for (at, seed), found in results.items() if at == rate}
        metrics = {
            name: _summary([metrics[name] for metrics in by_seed.values()])
            for name in by_seed[min(by_seed)]
        }
        rates.append({'learning_rate': rate, 'seeds': list(by_seed), 'metrics': metrics})
    sign = -1 if lower_is_better(metric) else 1
    best = max(rates, key=lambda rate: sign * rate['metrics'][metric]['mean'])
    best_run = max(results, key=lambda key: sign * results[key]['held_out'][metric])
    return {
        'metric': metric,
        'best_learning_rate': best['learning_rate'],
        'best_run': _run_name(config, best_run),
        'rates': rates,
    }


def other_splits(config: Config, results: dict[RunKey, Results]) -> dict[str, dict[str, Any]]:
    """Summarize the metrics of splits other than dev over the seeds.

    Of each seed counts the run with the learning rate that is best on dev (Gao et al. 2021, "Making
    Pre-trained Language Models Better Few-shot Learners", section 3).

    Returns:
        Split → metric → summary; empty if runs have no other splits.
    """
    metric = _compared_metric(config, results)
    sign = -1 if lower_is_better(metric) else 1
    values: dict[str, dict[str, list[float]]] = {}
    for seed in dict.fromkeys(seed for _, seed in results):
        own = [key for key in results if key[1] == seed]
        best = max(own, key=lambda key: sign * results[key]['held_out'][metric])
        folder = pathlib.Path(config.workdir) / _run_name(config, best)
        for path in sorted(folder.glob('*/metrics.json')):
            if path.parent.name != 'dev':
                for name, value in files.read_json(path)['metrics'].items():
                    values.setdefault(path.parent.name, {}).setdefault(name, []).append(value)
    return {
        split: {name: _summary(own) for name, own in metrics.items()}
        for split, metrics in values.items()
    }


def _compared_metric(config: Config, results: dict[RunKey, Results]) -> str:
    return config.evaluation.best or next(iter(next(iter(results.values()))['held_out']))


def _summary(values: list[float]) -> dict[str, Any]:
    return comparison.summarize(values)._asdict()


def write(folder: pathlib.Path, found: Results) -> None:
    """Write results.json, table.md, plot.png and plot.pdf, and print the table."""
    files.write_json(folder / 'results.json', found)
    (folder / 'table.md').write_text(table(found), encoding='utf-8')
    metric = found['metric']
    by_rate = {f'{rate["learning_rate"]:g}': rate['metrics'] for rate in found['rates']}
    comparison.plot_runs(folder / 'plot', by_rate, {metric: metric}, 'learning rate')
    progress.say(table(found))
    print(f'sweep in {folder}: results.json, table.md, plot.png')


def table(found: Results) -> str:
    """Return a Markdown table with one row per learning rate and one column per metric.

    The compared metric comes first, with its confidence interval; the best rate is marked.
    """
    main = found['metric']
    others = [name for name in found['rates'][0]['metrics'] if name != main]
    rows = []
    for rate in found['rates']:
        metrics = rate['metrics']
        is_best = rate['learning_rate'] == found['best_learning_rate']
        mark = ' (best)' if is_best and len(found['rates']) > 1 else ''
        rows.append(
            (
                f'{rate["learning_rate"]:g}{mark}',
                len(rate['seeds']),
                comparison.mean_cell(metrics[main]),
                comparison.interval_cell(metrics[main]),
                *(comparison.mean_cell(metrics[name]) for name in others),
            )
        )
    interval = f'{intervals.LEVEL:.0%} interval of the mean'
    columns = ('learning rate', 'seeds', main, interval, *others)
    tables = [markdown_table(Table(columns, rows))]
    for split, metrics in found.get('other_splits', {}).items():
        cells = [
            (name, comparison.mean_cell(own), comparison.interval_cell(own))
            for name, own in metrics.items()
        ]
        title = f'{split}, each seed with its best learning rate on dev'
        tables.append(f'{title}\n\n{markdown_table(Table((split, "mean", interval), cells))}')
    return '\n\n'.join(tables) + '\n'
