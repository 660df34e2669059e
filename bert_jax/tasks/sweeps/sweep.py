"""Trains settings of any config keys with several seeds in one command, and compares them.

With rungs a sweep is successive halving (Jamieson & Talwalkar 2016, arXiv 1502.07943, figure 3): at
each rung the runs pause, the best settings resume, the others end. A run that pauses has the
schedule of its full length, so that it ends as if it had never paused.

Every run has its own folder in the workdir, named after its setting and its seed. All that a sweep
knows is in these folders: rerun the same command to resume it, or one with further settings or
seeds to extend it.
"""

import copy
import functools
import json
import math
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TypeAlias

import jax

from bert_jax import config_keys, progress
from bert_jax.errors import Diverged, UserError, warn
from bert_jax.storage import paths
from bert_jax.tasks.sweeps import settings, summary
from bert_jax.tasks.sweeps.settings import SHORTCUTS, Setting
from bert_jax.tasks.sweeps.summary import EvaluatedRun, Outcome, RunKey
from bert_jax.training import multihost
from bert_jax.training.workdir import Workdir
from bert_jax.types import Config, JsonObject

# (config of a run, step to pause at or 0) → its results; None if it paused.
Train: TypeAlias = Callable[[Config, int], JsonObject | None]
_HELD_OUT_MASKS = ('masking_scheme', 'masking_rate')  # keys of config.evaluation
_TO_THE_END = 0  # the last rung


def check(config: Config, overwrite: bool = False, user_keys: Collection[str] = ()) -> None:
    """Raise UserError for a sweep that cannot be run.

    Args:
        config: the config of the sweep.
        overwrite: whether what the working directory holds will be deleted.
        user_keys: keys that the user set.
    """
    config_keys.check(config)
    rungs, seeds = config.sweep.rungs, config.sweep.seeds
    if len(set(seeds)) < len(seeds):
        raise UserError(f'sweep.seeds is {seeds}; use distinct whole numbers')
    if list(rungs) != sorted(set(rungs)) or 0 in rungs:
        raise UserError(f'sweep.rungs is {rungs}; write rising numbers of steps above 0')
    if config.training.get('minutes') and rungs:
        raise UserError('sweep.rungs counts steps, but training.minutes ends runs at a time')
    keys = settings.parse(config)
    if both := [key for key in keys if key in user_keys]:
        raise UserError(f'{both[0]} is set and is in sweep.keys; leave one of them out')
    for run_config in runs(config).values():
        config_keys.check(run_config)
        config_keys.check_used(run_config, keys)
    _check_folder(config, overwrite)
    if config.sweep.vmap:
        _check_at_once(config, keys)


def _check_folder(config: Config, overwrite: bool) -> None:
    """Raise UserError if a sweep cannot use its folder or its data."""
    if not overwrite:
        workdir = Workdir.of(config.workdir)
        workdir.check_files()
        if (workdir.path / 'config.json').exists():
            raise UserError(
                f'workdir {workdir.path} holds a single run; choose another --config.workdir, or '
                'delete that run with --overwrite'
            )
    data = config.data  # pretraining always has held-out text
    if not (data.get('dataset') or data.get('dev') or data.get('dev_fraction', True)):
        raise UserError('a sweep compares runs on a dev split; set data.dev_fraction or data.dev')


def _check_at_once(config: Config, keys: Collection[str]) -> None:
    """Raise UserError for a config whose runs cannot be trained at once."""
    if config.task == 'pretraining':
        raise UserError('sweep.vmap is for fine-tuning; set sweep.vmap=False for pretraining')
    if config.transfer.get('method', 'full') == 'full':
        raise UserError(
            'sweep.vmap trains several runs over one frozen model; set transfer.method, such as '
            'lora, or sweep.vmap=False'
        )
    if others := [key for key in keys if key not in SHORTCUTS.values()]:
        raise UserError(
            f'with sweep.vmap runs differ in {" and ".join(SHORTCUTS.values())} only, not in '
            f'{others[0]}; set sweep.vmap=False'
        )
    if config.evaluation.best or config.evaluation.patience or config.sweep.rungs:
        raise UserError(
            'with sweep.vmap all runs have the same number of steps and are evaluated at the end; '
            'leave evaluation.best, evaluation.patience and sweep.rungs out'
        )
    if config.schedule.end_learning_rate and 'schedule.learning_rate' in keys:
        raise UserError(
            'with sweep.vmap all runs have one schedule, multiplied by a factor; leave '
            'schedule.end_learning_rate or the learning rates of the sweep out'
        )
    if jax.device_count() > 1:
        raise UserError(f'sweep.vmap runs on one device, not on {jax.device_count()}')


def runs(config: Config) -> dict[RunKey, Config]:
    """Return the config of every run.

    Raises:
        UserError: see `settings.settings`.
    """
    found, folders = settings.settings(config), set[str]()
    configs = {}
    for number, setting in enumerate(found):
        for seed in config.sweep.seeds or (config.seed,):
            name = _name(setting, seed)
            name += f'_{number}' * (name in folders)  # values that differ in punctuation only
            folders.add(name)
            configs[RunKey(number, seed)] = _run_config(config, setting, seed, name)
    return configs


def _run_config(config: Config, setting: Setting, seed: int, name: str) -> Config:
    """Return the config of one run."""
    run_config, declared = copy.deepcopy(config), config_keys.declarations(config)
    with run_config.unlocked():
        for key in config.sweep:
            run_config.sweep[key] = declared[f'sweep.{key}'].default
        run_config.seed = seed
        run_config.workdir = str(paths.path(config.workdir) / name)
        run_config.update_from_flattened_dict(setting)
        if config.data.get('shots'):
            run_config.data.split_seed = seed  # each seed draws its own examples
    return run_config


def _name(setting: Setting, seed: int) -> str:
    """Return the name of the folder of a run, such as 'learning_rate_0.001_seed_0'."""
    ends = [key.rpartition('.')[2] for key in setting]
    names = [key if ends.count(end) > 1 else end for key, end in zip(setting, ends, strict=True)]
    values = [re.sub(r'[^\w.+-]+', '_', str(value)).strip('_') for value in setting.values()]
    return '_'.join([*map('_'.join, zip(names, values, strict=True)), f'seed_{seed}'])


def run(
    config: Config, train: Train, writes: bool = True, user_keys: Collection[str] = ()
) -> JsonObject:
    """Train the settings, discard bad ones at each rung, and compare the others.

    Args:
        config: the config of the sweep.
        train: trains a run to its end or to a step.
        writes: whether this process writes results.json, table.md and the plot into the workdir.
        user_keys: keys that the user set.

    Returns:
        The contents of results.json, see `summary.summarize`.

    Raises:
        UserError: see `check`; or all settings diverged.
    """
    check(config, user_keys=user_keys)
    _warn_of_masks(config)
    found, configs = settings.settings(config), runs(config)
    if config.sweep.trials > len(found):
        progress.say(f'{len(found)} distinct settings of {config.sweep.trials} draws')
    if config.sweep.vmap:
        _train_at_once(configs, user_keys)
    outcomes: dict[int, Outcome] = {}
    survivors: Sequence[int] = range(len(found))
    for rung in (*config.sweep.rungs, _TO_THE_END):
        outcomes |= {number: _train_setting(configs, number, rung, train) for number in survivors}
        alive = {n: outcomes[n].metrics for n in survivors if outcomes[n].state != 'diverged'}
        if not alive:
            raise UserError('all settings of the sweep diverged; try lower learning rates')
        metric = summary.compared_metric(config, alive)
        kept = math.ceil(config.sweep.keep * len(alive)) if rung else len(alive)
        survivors = summary.best(alive, metric, kept)
        if rung:
            progress.say(f'step {rung}: {len(survivors)} of {len(found)} settings continue')
    folders = {key: Workdir.of(run_config.workdir).path for key, run_config in configs.items()}
    summarize = functools.partial(summary.summarize, found, outcomes, survivors, metric, folders)
    results = multihost.run_on_host0(summarize)
    if writes:
        summary.write(Workdir.of(config.workdir), results)
    return results


def _warn_of_masks(config: Config) -> None:
    """Warn if the held-out losses that are compared are of different masks."""
    for key in settings.parse(config):
        name = key.replace('masking.end_rate', 'masking.rate')
        own = name.replace('masking.', 'masking_')
        if own in _HELD_OUT_MASKS and not config.evaluation[own]:
            warn(
                f'settings that differ in {key} are compared on different held-out masks; '
                f'set evaluation.{own}, so that all are evaluated alike'
            )


def _train_at_once(configs: Mapping[RunKey, Config], user_keys: Collection[str]) -> None:
    """Train all unfinished runs in one program (`sweep.vmap`)."""
    from bert_jax.tasks.sweeps import (
        vmapped,  # imports fine-tuning, which pretraining does not need
    )

    unfinished = {key: config for key, config in configs.items() if not finished(config)}
    if unfinished:
        vmapped.train(unfinished, user_keys)


def _train_setting(
    configs: Mapping[RunKey, Config], number: int, rung: int, train: Train
) -> Outcome:
    """Train the runs of a setting to a rung; a setting that then resumes is not 'discarded'."""
    found: dict[int, EvaluatedRun] = {}
    for place, (key, config) in enumerate(configs.items(), start=1):
        if key.setting != number:
            continue
        known = multihost.run_on_host0(functools.partial(_evaluated_at, config, rung))
        if known is None:
            end = f' to step {rung}' if rung else ''
            progress.say(f'run {place} of {len(configs)}{end}: {config.workdir}')
            try:
                results = train(config, rung)
            except Diverged as error:
                progress.say(f'{config.workdir} is discarded: {error}')
                return Outcome('diverged', error.step, {})
            if results is None:
                known = multihost.run_on_host0(functools.partial(_evaluated_at, config, rung))
            else:
                known = EvaluatedRun.of_results(results)
        assert known is not None
        found[key.seed] = EvaluatedRun(*known)
    step = max(run.step for run in found.values())
    return Outcome('discarded' if rung else 'finished', step, found)


def finished(config: Config) -> JsonObject | None:
    """Return the results of a finished run, or None if it has to be trained or resumed."""
    workdir = Workdir.of(config.workdir)
    path = workdir.path / 'results.json'
    if not path.exists() or workdir.check_config(config):
        return None
    results: JsonObject | None = json.loads(path.read_text(encoding='utf-8'))
    return results


def _evaluated_at(config: Config, rung: int) -> EvaluatedRun | None:
    """Return what is known of a run that is finished or has reached a rung, else None."""
    results = finished(config)
    if results and (not rung or results['steps'] < rung):
        return EvaluatedRun.of_results(results)
    path = paths.path(config.workdir) / 'metrics.jsonl'
    if not rung or not path.exists():
        return None
    for line in path.read_text(encoding='utf-8').splitlines():
        record = _parsed(line)
        if record.get('kind') == 'held_out' and record['step'] == rung:
            metrics = {name: record[name] for name in record if name not in ('kind', 'step')}
            return EvaluatedRun(rung, metrics)
    return None


def _parsed(line: str) -> JsonObject:
    try:
        record: JsonObject = json.loads(line)
    except ValueError:  # a kill cut the line off
        return {}
    return record
