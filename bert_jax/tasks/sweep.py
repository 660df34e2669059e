"""Trains several seeds, learning rates and ranks in one command and compares the runs.

Every run has its own folder in the workdir. After an interruption, finished runs are kept and the
others resume.
"""

import copy
import functools
import json
import pathlib
from collections.abc import Callable, Collection
from typing import Any, NamedTuple

import jax

from bert_jax import files, progress
from bert_jax.errors import UserError
from bert_jax.metrics.scores import Table
from bert_jax.reports import comparison
from bert_jax.reports.tables import markdown_table
from bert_jax.storage import paths
from bert_jax.training import multihost
from bert_jax.training.early_stopping import lower_is_better
from bert_jax.training.workdir import Workdir
from bert_jax.types import Config, JsonObject

# Key of `config.sweep` → type and condition of its values, and how an error describes them.
_ALLOWED: dict[str, tuple[type, Callable[[Any], bool], str]] = {
    'seeds': (int, lambda seed: seed >= 0, 'whole numbers of at least 0, such as (0, 1, 2)'),
    'learning_rates': (float, lambda rate: rate > 0, 'rates above 0, such as (2e-5, 5e-5)'),
    'ranks': (int, lambda rank: rank > 0, 'whole numbers above 0, such as (4, 8)'),
}


class Setting(NamedTuple):
    """What distinguishes the runs of a sweep, apart from the seed.

    Attributes:
        learning_rate: `schedule.learning_rate`; None if the task chooses it.
        rank: `transfer.rank`; None unless ranks are swept.
    """

    learning_rate: float | None
    rank: int | None = None


class RunKey(NamedTuple):
    """The setting and the seed of a run."""

    setting: Setting
    seed: int


def check(config: Config, overwrite: bool = False, user_keys: Collection[str] = ()) -> None:
    """Raise UserError for a sweep that cannot be run.

    Args:
        config: The config of the sweep.
        overwrite: Whether what the working directory holds will be deleted.
        user_keys: Keys that the user set; all may be.
    """
    runs(config)
    check_folder(config, overwrite)
    if config.sweep.vmap:
        _check_at_once(config)


def check_folder(config: Config, overwrite: bool) -> None:
    """Raise UserError if a sweep cannot use its folder or its data."""
    if not overwrite:
        workdir = Workdir.of(config.workdir)
        workdir.check_files()
        if (workdir.path / 'config.json').exists():
            raise UserError(
                f'workdir {workdir.path} holds a single run; choose another --config.workdir, or '
                'delete that run with --overwrite'
            )
    if not _has_dev_split(config.data):
        raise UserError('a sweep compares runs on a dev split; set data.dev_fraction or data.dev')


def _check_at_once(config: Config) -> None:
    """Raise UserError for a config whose runs cannot be trained at once."""
    if config.task == 'pretraining':
        raise UserError('sweep.vmap is for fine-tuning; set sweep.vmap=False for pretraining')
    if config.transfer.get('method', 'full') == 'full':
        raise UserError(
            'sweep.vmap trains several runs over one frozen model; set transfer.method, such as '
            'lora, or sweep.vmap=False'
        )
    if config.evaluation.best or config.evaluation.patience:
        raise UserError(
            'with sweep.vmap all runs have the same number of steps and are evaluated at the end; '
            'leave evaluation.best and evaluation.patience out'
        )
    if config.schedule.end_learning_rate and len(config.sweep.learning_rates) > 1:
        raise UserError(
            'with sweep.vmap all runs have one schedule, multiplied by a factor; leave '
            'schedule.end_learning_rate or all but one of sweep.learning_rates out'
        )
    if jax.device_count() > 1:
        raise UserError(f'sweep.vmap runs on one device, not on {jax.device_count()}')


def run(
    config: Config,
    train: Callable[[Config], JsonObject],
    writes: bool = True,
    user_keys: Collection[str] = (),
) -> JsonObject:
    """Train every learning rate and rank with every seed and compare the results.

    Runs are compared by `evaluation.best` or, if that is empty, by the first metric.

    Args:
        config: The config of the sweep.
        train: Function from the config of one run to its results.
        writes: Whether this process writes results.json, table.md and the plot into the workdir.
        user_keys: Keys that the user set, which must have an effect; `train` checks them itself.

    Returns:
        The contents of results.json, see `compare`.

    Raises:
        UserError: For invalid seeds, rates or ranks, without a dev split, or if the workdir belongs
            to another config.
    """
    check(config)
    workdir, configs = Workdir.of(config.workdir), runs(config)
    if config.sweep.vmap:
        results = _train_at_once(configs, user_keys)
    else:
        results = _train_each(configs, train)
    sweep_results = compare(config, results)
    splits = multihost.run_on_host0(functools.partial(other_splits, config, results))
    sweep_results |= {'other_splits': splits} if splits else {}
    if writes:
        write(workdir.local, sweep_results)
        workdir.push()
    return sweep_results


def _train_each(
    configs: dict[RunKey, Config], train: Callable[[Config], JsonObject]
) -> dict[RunKey, JsonObject]:
    """Train the runs one after the other, unless they are finished."""
    results = {}
    for number, (key, run_config) in enumerate(configs.items(), start=1):
        progress.say(f'run {number} of {len(configs)}: {run_config.workdir}')
        finished_results = multihost.run_on_host0(functools.partial(finished, run_config))
        results[key] = finished_results or train(run_config)
    return results


def _train_at_once(
    configs: dict[RunKey, Config], user_keys: Collection[str]
) -> dict[RunKey, JsonObject]:
    """Train all unfinished runs in one program (`sweep.vmap`)."""
    from bert_jax.tasks import vmapped_sweep  # imports fine-tuning, which pretraining does not need

    results = {key: finished(run_config) for key, run_config in configs.items()}
    unfinished = {key: configs[key] for key in configs if not results[key]}
    trained = vmapped_sweep.train(unfinished, user_keys) if unfinished else {}
    return {key: trained.get(key) or results[key] or {} for key in configs}


def _has_dev_split(data: Config) -> bool:
    """Whether the data has examples to evaluate on, as pretraining always does."""
    return bool(data.get('dataset') or data.get('dev') or data.get('dev_fraction', True))


def runs(config: Config) -> dict[RunKey, Config]:
    """Return the config of every run.

    Raises:
        UserError: For invalid or repeated seeds, rates or ranks.
    """
    for name, (kind, is_allowed, expected) in _ALLOWED.items():
        values = tuple(config.sweep[name])
        are_allowed = all(isinstance(value, kind) and is_allowed(value) for value in values)
        if not are_allowed or len(set(values)) < len(values):
            raise UserError(f'sweep.{name} is {values}; use distinct {expected}')
    seeds, rates, ranks = config.sweep.seeds, config.sweep.learning_rates, config.sweep.ranks
    if ranks and config.transfer.get('method') != 'lora':
        raise UserError('sweep.ranks are ranks of LoRA; set transfer.method=lora or leave them out')
    configs = {}
    for rate in rates or (config.schedule.learning_rate,):
        for rank in ranks or (None,):
            for seed in seeds or (config.seed,):
                key = RunKey(Setting(rate and float(rate), rank), seed)
                configs[key] = _run_config(config, key)
    return configs


def _run_config(config: Config, key: RunKey) -> Config:
    """Return the config of one run of the sweep."""
    run_config = copy.deepcopy(config)
    with run_config.unlocked():
        run_config.sweep.update(dict(seeds=(), learning_rates=(), ranks=(), vmap=False))
        run_config.schedule.learning_rate, run_config.seed = key.setting.learning_rate, key.seed
        run_config.workdir = str(paths.path(config.workdir) / _run_name(config, key))
        if key.setting.rank:
            run_config.transfer.rank = key.setting.rank
        if config.data.get('shots'):
            run_config.data.split_seed = key.seed  # each seed draws its own examples
    return run_config


def _run_name(config: Config, key: RunKey) -> str:
    """Return the name of the folder of a run."""
    rate = f'rate_{key.setting.learning_rate:g}_' if config.sweep.learning_rates else ''
    rank = f'rank_{key.setting.rank}_' if key.setting.rank else ''
    return f'{rate}{rank}seed_{key.seed}'


def finished(config: Config) -> JsonObject | None:
    """Return the results of a finished run, or None if it has to be trained or resumed."""
    workdir = Workdir.of(config.workdir)
    path = workdir.path / 'results.json'
    if not path.exists() or workdir.check_config(config):
        return None
    results: JsonObject | None = json.loads(path.read_text(encoding='utf-8'))
    return results


def compare(config: Config, results: dict[RunKey, JsonObject]) -> JsonObject:
    """Summarize the metrics of every learning rate and rank over the seeds.

    Returns:
        {'metric': name of the compared metric, 'best_learning_rate': the rate with the best mean,
        'best_run': the folder of the run with the best value, 'rates': [{'learning_rate', 'seeds',
        'metrics': name → summary}, …]}; of fine-tuning also 'attention', its direction. If ranks
        are swept, also 'best_rank', and a 'rank' in each of the 'rates'.
    """
    metric = _compared_metric(config, results)
    rates: list[JsonObject] = []
    for setting in sorted({key.setting for key in results}):
        by_key = {key: run for key, run in results.items() if key.setting == setting}
        by_seed = {key.seed: run['held_out'] for key, run in by_key.items()}
        peak = setting.learning_rate or next(iter(by_key.values()))['learning_rate']
        metrics = {
            name: _summary([metrics[name] for metrics in by_seed.values()])
            for name in by_seed[min(by_seed)]
        }
        rank = {'rank': setting.rank} if setting.rank else {}
        row = {'learning_rate': peak, **rank}
        rates.append(row | {'seeds': list(by_seed), 'metrics': metrics})
    sign = -1 if lower_is_better(metric) else 1
    best = max(rates, key=lambda rate: sign * rate['metrics'][metric]['mean'])
    best_run = max(results, key=lambda key: sign * results[key]['held_out'][metric])
    return {
        'metric': metric,
        'best_learning_rate': best['learning_rate'],
        **({'best_rank': best['rank']} if 'rank' in best else {}),
        'best_run': _run_name(config, best_run),
        **(
            {'attention': results[best_run]['attention']}
            if 'attention' in results[best_run]
            else {}
        ),
        'rates': rates,
    }


def other_splits(config: Config, results: dict[RunKey, JsonObject]) -> dict[str, JsonObject]:
    """Summarize the metrics of splits other than dev over the seeds.

    Each seed contributes the run whose setting is best on dev (Gao et al. 2021, "Making Pre-trained
    Language Models Better Few-shot Learners", section 3).

    Returns:
        Split → metric → summary; empty if runs have no other splits.
    """
    metric = _compared_metric(config, results)
    sign = -1 if lower_is_better(metric) else 1
    values: dict[str, dict[str, list[float]]] = {}
    for seed in dict.fromkeys(key.seed for key in results):
        keys = [key for key in results if key.seed == seed]
        best = max(keys, key=lambda key: sign * results[key]['held_out'][metric])
        folder = paths.path(config.workdir) / _run_name(config, best)
        for path in sorted(folder.glob('*/metrics.json')):
            if path.parent.name != 'dev':
                for name, value in files.read_json(path)['metrics'].items():
                    values.setdefault(path.parent.name, {}).setdefault(name, []).append(value)
    return {
        split: {name: _summary(by_seed) for name, by_seed in metrics.items()}
        for split, metrics in values.items()
    }


def _compared_metric(config: Config, results: dict[RunKey, JsonObject]) -> str:
    return str(config.evaluation.best or next(iter(next(iter(results.values()))['held_out'])))


def _summary(values: list[float]) -> JsonObject:
    return comparison.summarize(values)._asdict()


def write(folder: pathlib.Path, sweep_results: JsonObject) -> None:
    """Write results.json, table.md, plot.png and plot.pdf, and print the table."""
    folder.mkdir(parents=True, exist_ok=True)  # missing if all runs were finished in a bucket
    markdown = table(sweep_results)
    files.write_json(folder / 'results.json', sweep_results)
    (folder / 'table.md').write_text(markdown, encoding='utf-8')
    metric, rates = sweep_results['metric'], sweep_results['rates']
    by_setting = {', '.join(_setting_cells(rate)): rate['metrics'] for rate in rates}
    name = ', '.join(_setting_columns(sweep_results))
    comparison.plot_runs(folder / 'plot', by_setting, {metric: metric}, name)
    progress.say(markdown)
    progress.say(f'sweep in {paths.name_of(folder)}: results.json, table.md, plot.png')


def table(sweep_results: JsonObject) -> str:
    """Return a Markdown table with one row per setting and one column per metric.

    The compared metric comes first, with its confidence interval; the best setting is marked.
    """
    main, rates = sweep_results['metric'], sweep_results['rates']
    best = sweep_results['best_learning_rate'], sweep_results.get('best_rank')
    setting_columns = _setting_columns(sweep_results)
    others = [name for name in rates[0]['metrics'] if name != main]
    rows = []
    for rate in rates:
        metrics = rate['metrics']
        is_best = (rate['learning_rate'], rate.get('rank')) == best
        *first, last = _setting_cells(rate)
        mark = ' (best)' if is_best and len(rates) > 1 else ''
        rows.append(
            (
                *first,
                f'{last}{mark}',
                len(rate['seeds']),
                comparison.mean_cell(metrics[main]),
                comparison.interval_cell(metrics[main]),
                *(comparison.mean_cell(metrics[name]) for name in others),
            )
        )
    interval = comparison.INTERVAL
    tables = [markdown_table(Table((*setting_columns, 'seeds', main, interval, *others), rows))]
    tables += [comparison.describe_choice(main)] * (len(rates) > 1)
    for split, metrics in sweep_results.get('other_splits', {}).items():
        cells = [
            (name, comparison.mean_cell(summary), comparison.interval_cell(summary))
            for name, summary in metrics.items()
        ]
        title = f'{split}, each seed with its best {" and ".join(setting_columns)} on dev'
        tables.append(f'{title}\n\n{markdown_table(Table((split, "mean", interval), cells))}')
    if 'attention' in sweep_results:
        tables.append(f'Attention {sweep_results["attention"]}.')
    return '\n\n'.join(tables) + '\n'


def _setting_columns(sweep_results: JsonObject) -> tuple[str, ...]:
    return ('learning rate', 'rank') if 'best_rank' in sweep_results else ('learning rate',)


def _setting_cells(rate: JsonObject) -> list[str]:
    """Format the learning rate and, if ranks are swept, the rank of an entry of 'rates'."""
    return [f'{rate["learning_rate"]:g}', *([str(rate['rank'])] if 'rank' in rate else [])]
