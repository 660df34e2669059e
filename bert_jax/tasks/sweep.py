"""Several seeds and learning rates in one command: a run of each, then what they say together.

Every run has a folder of its own in the workdir. A finished one is kept, a killed one goes on where
it stopped.
"""

import copy
import json
import pathlib
from collections.abc import Callable
from typing import Any

from bert_jax.errors import UserError
from bert_jax.evaluation import comparison
from bert_jax.evaluation.scores import Table
from bert_jax.evaluation.tables import markdown_table
from bert_jax.training import multihost, workdir
from bert_jax.training.early_stopping import lower_is_better

Run = tuple[float, int]  # learning rate, seed


def is_wanted(config) -> bool:
    """Whether `config.sweep` asks for runs beside the one of the config itself."""
    asked = config.sweep.seeds or config.sweep.learning_rates
    return bool(asked) and not config.debug.batch  # a batch is shown of that one


def run(config, train: Callable[[Any], dict], writes: bool = True) -> dict:
    """Trains every learning rate with every seed, and compares them by the metric of
    `config.evaluation.best`, or the first one.

    train: from the config of one run to its results. writes: whether this process is the one that
    writes results.json, table.md and plot.png into the workdir. Returns what is in results.json.
    Raises UserError for seeds and rates that cannot be, and for a folder of another config.
    """
    folder, configs, results = pathlib.Path(config.workdir), runs(config), {}
    if (folder / 'config.json').exists():
        raise UserError(f'workdir {folder} holds a single run; choose another --config.workdir')
    for number, (key, own) in enumerate(configs.items(), start=1):
        print(f'run {number} of {len(configs)}: {own.workdir}', flush=True)
        results[key] = multihost.run_on_host0(lambda own=own: finished(own)) or train(own)
    found = compare(config, results)
    if writes:
        write(folder, found)
    return found


def runs(config) -> dict[Run, Any]:
    """The config of every run by (learning rate, seed)."""
    seeds, rates = tuple(config.sweep.seeds), tuple(config.sweep.learning_rates)
    if any(not isinstance(seed, int) or seed < 0 for seed in seeds) or len({*seeds}) < len(seeds):
        raise UserError(f'sweep.seeds is {seeds}; whole numbers that differ, such as (0, 1, 2)')
    if not all(isinstance(rate, float) and rate > 0 for rate in rates) or len({*rates}) < len(
        rates
    ):
        raise UserError(f'sweep.learning_rates is {rates}; rates above 0 that differ')
    found = {}
    for rate in rates or (config.schedule.learning_rate,):
        for seed in seeds or (config.seed,):
            own = copy.deepcopy(config)
            name = f'rate_{rate:g}_seed_{seed}' if rates else f'seed_{seed}'
            with own.unlocked():
                own.sweep.update(dict(seeds=(), learning_rates=()))
                own.schedule.learning_rate, own.seed = float(rate), seed
                own.workdir = str(pathlib.Path(config.workdir) / name)
            found[float(rate), seed] = own
    return found


def finished(config) -> dict | None:
    """The results of a run that has been, None if there is something left to do."""
    path = pathlib.Path(config.workdir) / 'results.json'
    if not path.exists():
        return None
    workdir.check_config(path.parent, config.to_dict())
    return json.loads(path.read_text(encoding='utf-8'))


def compare(config, results: dict[Run, dict]) -> dict:
    """{'metric', 'best_learning_rate', 'rates': a rate each with its 'seeds' and the summary of
    every metric}: the best rate by the mean of the metric over the seeds."""
    metric = config.evaluation.best or next(iter(next(iter(results.values()))['held_out']))
    rates = []
    for rate in sorted({rate for rate, _ in results}):
        own = {seed: result['held_out'] for (at, seed), result in results.items() if at == rate}
        metrics = {name: _summary([one[name] for one in own.values()]) for name in own[min(own)]}
        rates.append({'learning_rate': rate, 'seeds': list(own), 'metrics': metrics})
    sign = -1 if lower_is_better(metric) else 1
    best = max(rates, key=lambda rate: sign * rate['metrics'][metric]['mean'])
    return {'metric': metric, 'best_learning_rate': best['learning_rate'], 'rates': rates}


def _summary(values: list[float]) -> dict:
    return comparison.summarize(values)._asdict() | {'values': values}


def write(folder: pathlib.Path, found: dict):
    """results.json, table.md and plot.png."""
    workdir.write_json(folder / 'results.json', found)
    (folder / 'table.md').write_text(table(found), encoding='utf-8')
    metric = found['metric']
    by_rate = {f'{rate["learning_rate"]:g}': rate['metrics'] for rate in found['rates']}
    comparison.plot_runs(folder / 'plot.png', by_rate, {metric: metric})
    print(table(found))
    print(f'sweep in {folder}: results.json, table.md, plot.png')


def table(found: dict) -> str:
    """Markdown: a row a learning rate, a column a metric, the one that counts first and with its
    interval; the best rate is marked."""
    main = found['metric']
    others = [name for name in found['rates'][0]['metrics'] if name != main]
    interval = f'{comparison.LEVEL:.0%} interval of the mean'
    rows = []
    for rate in found['rates']:
        metrics = rate['metrics']
        mark = ' (best)' if rate['learning_rate'] == found['best_learning_rate'] else ''
        rows.append(
            (
                f'{rate["learning_rate"]:g}{mark if len(found["rates"]) > 1 else ""}',
                len(rate['seeds']),
                _shown(metrics[main]),
                f'{metrics[main]["low"]:.4f} – {metrics[main]["high"]:.4f}',
                *(_shown(metrics[name]) for name in others),
            )
        )
    columns = ('learning rate', 'seeds', main, interval, *others)
    return markdown_table(Table(columns, rows)) + '\n'


def _shown(summary: dict) -> str:
    return f'{summary["mean"]:.4f} ± {summary["sd"]:.4f}'
