"""Searches any config keys in one command, and discards bad settings early.

With rungs the search is successive halving (Jamieson & Talwalkar 2016, arXiv 1502.07943, figure 3):
at each rung the runs pause, the best settings resume, the others end. A run that pauses has the
schedule of its full length, so that it ends as if it had never paused. All that a search knows is
in the folders of its runs: rerun the same command to resume it.
"""

import copy
import functools
import json
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import NamedTuple, TypeAlias

from bert_jax import config_keys, files, progress
from bert_jax.errors import Diverged, UserError, warn
from bert_jax.metrics.scores import Table
from bert_jax.reports import comparison
from bert_jax.reports.tables import markdown_table
from bert_jax.storage import paths
from bert_jax.tasks import search_space, sweep
from bert_jax.tasks.search_space import Setting
from bert_jax.training import multihost
from bert_jax.training.early_stopping import lower_is_better
from bert_jax.training.workdir import SEARCH, Workdir
from bert_jax.types import Config, JsonObject

# (config of a run, step to pause at or 0) → its results; None if it paused.
Train: TypeAlias = Callable[[Config, int], JsonObject | None]
_HELD_OUT_MASKS = ('masking_scheme', 'masking_rate')  # keys of config.evaluation
_DESCRIPTION = ('keys', 'trials', 'trial_seed', 'rungs', 'keep', 'seeds')


class RunKey(NamedTuple):
    """The number of a setting, and the seed of a run."""

    setting: int
    seed: int


class Evaluated(NamedTuple):
    """What is known of a run that paused or finished.

    Attributes:
        step: the number of its steps.
        metrics: its last held-out metrics.
        attention: the direction of attention of a fine-tuned model; '' for others.
    """

    step: int
    metrics: Mapping[str, float]
    attention: str = ''

    @classmethod
    def of_results(cls, results: JsonObject) -> 'Evaluated':
        """Return what results.json of a run says."""
        return cls(results['steps'], results['held_out'], results.get('attention', ''))


class Outcome(NamedTuple):
    """What became of a setting.

    Attributes:
        state: 'finished', 'discarded' or 'diverged'.
        step: the largest number of steps of its runs.
        runs: its runs by seed; empty if one of them diverged.
    """

    state: str
    step: int
    runs: Mapping[int, Evaluated]

    @property
    def metrics(self) -> dict[int, Mapping[str, float]]:
        """The last metrics of its runs, by seed."""
        return {seed: run.metrics for seed, run in self.runs.items()}


def check(config: Config, overwrite: bool = False, user_keys: Collection[str] = ()) -> None:
    """Raise UserError for a search that cannot be run.

    Args:
        config: The config of the search.
        overwrite: Whether what the working directory holds will be deleted.
        user_keys: Keys that the user set.
    """
    rungs = config.sweep.rungs
    if config.sweep.learning_rates or config.sweep.ranks or config.sweep.vmap:
        raise UserError(
            'sweep.keys searches any keys, but not with sweep.learning_rates, sweep.ranks or '
            'sweep.vmap; write schedule.learning_rate=A|B and transfer.rank=A|B in sweep.keys'
        )
    if list(rungs) != sorted(set(rungs)) or 0 in rungs:
        raise UserError(f'sweep.rungs is {rungs}; write rising numbers of steps above 0')
    if config.training.get('minutes') and rungs:
        raise UserError('sweep.rungs counts steps, but training.minutes ends runs at a time')
    for run_config in runs(config).values():
        config_keys.check(run_config)
        keys = search_space.parse(config)
        if both := [key for key in keys if key in user_keys]:
            raise UserError(f'{both[0]} is set and is in sweep.keys; leave one of them out')
        config_keys.check_used(run_config, keys)
    sweep.check_folder(config, overwrite)
    workdir = Workdir.of(config.workdir)
    described = json.loads(json.dumps({key: config.sweep[key] for key in _DESCRIPTION}))
    if not overwrite and (workdir.path / SEARCH).exists():
        stored = files.read_json(workdir.path / SEARCH)
        if changed := [key for key in _DESCRIPTION if stored.get(key) != described[key]]:
            raise UserError(
                f'workdir {workdir.path} holds a search with sweep.{changed[0]}='
                f'{stored.get(changed[0])}; choose another --config.workdir, or delete that search '
                'with --overwrite'
            )


def runs(config: Config) -> dict[RunKey, Config]:
    """Return the config of every run.

    Raises:
        UserError: see `search_space.settings`.
    """
    return {
        RunKey(number, seed): _run_config(config, setting, RunKey(number, seed))
        for number, setting in enumerate(search_space.settings(config))
        for seed in config.sweep.seeds or (config.seed,)
    }


def run(
    config: Config, train: Train, writes: bool = True, user_keys: Collection[str] = ()
) -> JsonObject:
    """Train the settings, discard bad ones at each rung, and compare the others.

    Args:
        config: The config of the search.
        train: Trains a run to its end or to a step.
        writes: Whether this process writes results.json, table.md and the plot into the workdir.
        user_keys: Keys that the user set.

    Returns:
        The contents of results.json: {'metric', 'best': setting, 'best_run': folder, 'settings':
        [{'values', 'state', 'step', 'metrics': name → summary}, …], best first}; of fine-tuning
        also 'attention', the direction of the best run.

    Raises:
        UserError: see `check`; or all settings diverged.
    """
    check(config, user_keys=user_keys)
    _warn_of_masks(config)
    settings, configs = search_space.settings(config), runs(config)
    workdir = Workdir.of(config.workdir)
    if config.sweep.trials > len(settings):
        progress.say(f'{len(settings)} distinct settings of {config.sweep.trials} draws')
    if writes:
        workdir.local.mkdir(parents=True, exist_ok=True)
        described = {key: config.sweep[key] for key in _DESCRIPTION}
        files.write_json(workdir.local / SEARCH, described)
        workdir.push()
    outcomes: dict[int, Outcome] = {}
    survivors = list(range(len(settings)))
    for rung in (*config.sweep.rungs, 0):  # 0: to the end
        for number in survivors:
            own = {key.seed: one for key, one in configs.items() if key.setting == number}
            outcomes[number] = _train_setting(own, rung, train, number, len(settings))
        alive = {n: outcomes[n].metrics for n in survivors if outcomes[n].state != 'diverged'}
        if not alive:
            raise UserError('all settings of the search diverged; search lower learning rates')
        metric = _compared_metric(config, alive)
        kept = math.ceil(config.sweep.keep * len(alive)) if rung else len(alive)
        survivors = _best(alive, metric, kept)
        if rung:
            progress.say(f'step {rung}: {len(survivors)} of {len(settings)} settings go on')
    results = _summarize(config, settings, outcomes, survivors, metric)
    if writes:
        write(workdir, results)
    return results


def _warn_of_masks(config: Config) -> None:
    """Warn if the held-out losses that are compared are of different masks."""
    for key in search_space.parse(config):
        name = key.replace('masking.end_rate', 'masking.rate')
        own = name.replace('masking.', 'masking_')
        if own in _HELD_OUT_MASKS and not config.evaluation[own]:
            warn(
                f'settings that differ in {key} are compared on different held-out masks; '
                f'set evaluation.{own}, so that all are evaluated alike'
            )


def _run_config(config: Config, setting: Setting, key: RunKey) -> Config:
    """Return the config of one run."""
    run_config = copy.deepcopy(config)
    with run_config.unlocked():
        run_config.sweep.update({'keys': (), 'seeds': (), 'rungs': (), 'trials': 0})
        run_config.seed = key.seed
        run_config.workdir = str(paths.path(config.workdir) / _run_name(key))
        run_config.update_from_flattened_dict(setting)
    return run_config


def _run_name(key: RunKey) -> str:
    return f'setting_{key.setting}_seed_{key.seed}'


def _train_setting(
    configs: Mapping[int, Config], rung: int, train: Train, number: int, total: int
) -> Outcome:
    """Train the runs of a setting to a rung; a setting that then resumes is not 'discarded'."""
    found: dict[int, Evaluated] = {}
    for seed, config in configs.items():
        known = multihost.run_on_host0(functools.partial(_evaluated_at, config, rung))
        if known is None:
            end = f'to step {rung}' if rung else 'to the end'
            progress.say(f'setting {number} of {total}, seed {seed}, {end}: {config.workdir}')
            try:
                results = train(config, rung)
            except Diverged as error:
                progress.say(f'setting {number} is discarded: {error}')
                return Outcome('diverged', error.step, {})
            if results is None:
                known = multihost.run_on_host0(functools.partial(_evaluated_at, config, rung))
            else:
                known = Evaluated.of_results(results)
        assert known is not None
        found[seed] = Evaluated(*known)
    step = max(run.step for run in found.values())
    return Outcome('discarded' if rung else 'finished', step, found)


def _evaluated_at(config: Config, rung: int) -> Evaluated | None:
    """Return what is known of a run that is finished or has reached a rung, else None."""
    results = sweep.finished(config)
    if results and (not rung or results['steps'] < rung):
        return Evaluated.of_results(results)
    path = paths.path(config.workdir) / 'metrics.jsonl'
    if not rung or not path.exists():
        return None
    for line in path.read_text(encoding='utf-8').splitlines():
        record = _parsed(line)
        if record.get('kind') == 'held_out' and record['step'] == rung:
            metrics = {name: record[name] for name in record if name not in ('kind', 'step')}
            return Evaluated(rung, metrics)
    return None


def _parsed(line: str) -> JsonObject:
    try:
        record: JsonObject = json.loads(line)
    except ValueError:  # a kill cut the line off
        return {}
    return record


def _compared_metric(config: Config, found: Mapping[int, Mapping[int, Mapping[str, float]]]) -> str:
    """Return evaluation.best, or the first metric: the loss in pretraining, else the main one."""
    first = next(iter(next(iter(found.values())).values()))
    return str(config.evaluation.best or next(iter(first)))


def _best(
    found: Mapping[int, Mapping[int, Mapping[str, float]]], metric: str, number: int
) -> list[int]:
    """Return the settings with the best means over seeds, best first."""
    sign = 1 if lower_is_better(metric) else -1

    def rank(setting: int) -> float:
        mean = sum(one[metric] for one in found[setting].values()) / len(found[setting])
        return math.inf if math.isnan(mean) else sign * mean

    return sorted(found, key=rank)[:number]


def _summarize(
    config: Config,
    settings: Sequence[Setting],
    outcomes: Mapping[int, Outcome],
    survivors: Sequence[int],
    metric: str,
) -> JsonObject:
    """Return the contents of results.json."""
    others = [number for number in outcomes if number not in survivors]
    others.sort(key=lambda number: (outcomes[number].state == 'diverged', -outcomes[number].step))
    best = survivors[0]
    by_seed = outcomes[best].metrics
    best_seed = _best({seed: {seed: one} for seed, one in by_seed.items()}, metric, 1)[0]
    attention = outcomes[best].runs[best_seed].attention
    return {
        'metric': metric,
        'best': dict(settings[best]),
        'best_run': _run_name(RunKey(best, best_seed)),
        **({'attention': attention} if attention else {}),
        'settings': [
            {
                'number': number,
                'values': dict(settings[number]),
                'state': outcomes[number].state,
                'step': outcomes[number].step,
                'seeds': list(outcomes[number].metrics),
                'metrics': _summaries(outcomes[number].metrics),
            }
            for number in (*survivors, *others)
        ],
    }


def _summaries(by_seed: Mapping[int, Mapping[str, float]]) -> JsonObject:
    names = next(iter(by_seed.values()), {})
    return {
        name: comparison.summarize([one[name] for one in by_seed.values()])._asdict()
        for name in names
    }


def write(workdir: Workdir, results: JsonObject) -> None:
    """Write results.json, table.md and plot.png, and print the table."""
    markdown = table(results)
    with workdir.writing():
        files.write_json(workdir.local / 'results.json', results)
        (workdir.local / 'table.md').write_text(markdown, encoding='utf-8')
        comparison.plot_search(workdir.local / 'plot', results)
    workdir.push()
    progress.say(markdown)
    progress.say(f'search in {workdir.path}: results.json, table.md, plot.png')


def table(results: JsonObject) -> str:
    """Return a Markdown table with a row for each setting, best first, and what it shows."""
    keys, metric, rows = list(results['best']), results['metric'], results['settings']
    names = [name for name in rows[0]['metrics'] if name != metric]

    def cells(row: JsonObject) -> tuple[str | int, ...]:
        metrics = row['metrics']
        at = f' at {row["step"]}' if row['state'] != 'finished' and row['step'] else ''
        return (
            row['number'],
            *(comparison.value_cell(row['values'][key]) for key in keys),
            f'{row["state"]}{at}',
            len(row['seeds']),
            comparison.mean_cell(metrics[metric]) if metrics else '–',
            comparison.interval_cell(metrics[metric]) if metrics else '–',
            *(comparison.mean_cell(metrics[name]) if name in metrics else '–' for name in names),
        )

    header = ('setting', *keys, 'run', 'seeds', metric, comparison.INTERVAL, *names)
    lines = [
        markdown_table(Table(header, [cells(row) for row in rows])),
        comparison.describe_choice(metric),
    ]
    if 'attention' in results:
        lines.append(f'Attention {results["attention"]}.')
    return '\n\n'.join(lines) + '\n'
