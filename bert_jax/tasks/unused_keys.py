"""Reports config keys that the user set but that have no effect, given the other keys."""

import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from bert_jax import objectives
from bert_jax.config_values import flatten
from bert_jax.errors import UserError
from bert_jax.models import tuning
from bert_jax.objectives import OBJECTIVES
from bert_jax.objectives.masking_schemes import SCHEMES
from bert_jax.tasks.pretraining_data import SEGMENTS
from bert_jax.types import Config


def check(config: Config, user_keys: Collection[str]) -> None:
    """Check that the keys that the user set have an effect.

    Args:
        config: the config of a run.
        user_keys: keys that the user set. Other keys, which have the values of a recipe, may be
            without effect.

    Raises:
        UserError: a key without effect, with the reason.
    """
    for pattern, reason in _unused(config):
        for key, value in flatten(config):
            if key in user_keys and not _is_off(value) and re.fullmatch(pattern, key):
                raise UserError(f'{key} is {value!r}, but {reason}; leave {key} out')


class ReadRecorder:
    """A config that records which of its keys are read.

    Attributes:
        read: the keys that were read, joined by dots.
    """

    def __init__(self, config: Config, read: set[str] | None = None, prefix: str = ''):
        self._config, self._prefix = config, prefix
        self.read: set[str] = set() if read is None else read

    def __getitem__(self, key: str) -> Any:
        value, name = self._config[key], f'{self._prefix}{key}'
        if hasattr(value, 'items'):
            return ReadRecorder(value, self.read, f'{name}.')
        self.read.add(name)
        return value

    __getattr__ = __getitem__

    def items(self) -> Any:
        """Return the keys and values, which do not count as read."""
        return self._config.items()

    def check(self, user_keys: Collection[str], section: str) -> None:
        """Raise UserError if the user set a key of this section of the config that was not read."""
        for key, value in flatten(self._config):
            if f'{section}.{key}' in user_keys and not _is_off(value) and key not in self.read:
                raise UserError(
                    f'{section}.{key} is {value!r}, but it has no effect with this kind of data or '
                    f'because of another key; leave {section}.{key} out'
                )


def _is_off(value: Any) -> bool:
    """Whether a value asks for nothing, so that a key without effect does no harm."""
    return not value or value == 'none'


def _unused(config: Config) -> Iterator[tuple[str, str]]:
    """Yield (pattern of keys without effect, reason)."""
    if config.sweep.seeds:
        yield 'seed', f'sweep.seeds is {config.sweep.seeds}'
        if config.data.get('shots'):
            yield 'data.split_seed', f'sweep.seeds is {config.sweep.seeds}, which draw the examples'
    if config.sweep.learning_rates:
        keys = r'schedule\.(base_)?learning_rate'
        yield keys, f'sweep.learning_rates is {config.sweep.learning_rates}'
    elif (rate := config.schedule.learning_rate) is not None:
        yield 'schedule.base_learning_rate', f'schedule.learning_rate is {rate}'
    if config.schedule.warmup_steps is not None:
        yield 'schedule.warmup_fraction', f'schedule.warmup_steps is {config.schedule.warmup_steps}'
    if config.sweep.ranks:
        yield 'transfer.rank', f'sweep.ranks is {config.sweep.ranks}'
    if config.sweep.vmap:
        keys = 'logging.wandb|logging.profile_steps|checkpoint.every_steps|max_skipped_in_row'
        yield keys, 'sweep.vmap is True'
    if not (config.sweep.seeds or config.sweep.learning_rates or config.sweep.ranks):
        yield 'sweep.vmap', 'sweep.seeds, sweep.learning_rates and sweep.ranks are empty'
    if not config.optimizer.weight_decay:
        yield 'optimizer.decay_exclude', 'optimizer.weight_decay is 0'
    if config.init_from:
        yield 'model.architecture', f'init_from={config.init_from!r} determines the architecture'
    else:
        yield 'init_positions', 'init_from is empty'
    if config.transfer.method == 'full':
        names = {name for method in tuning.METHODS for name in tuning.settings(method)}
        names.add('train_pooler')
        yield rf'transfer\.({"|".join(sorted(names))})', "transfer.method is 'full'"
    if 'objectives' in config:
        yield from _unused_in_pretraining(config)
    if not config.get('problem', {}).get('crf', True):
        yield 'problem.crf_rate', 'problem.crf is False'


def _unused_in_pretraining(config: Config) -> Iterator[tuple[str, str]]:
    names = objectives.enabled(config.objectives)
    for name in OBJECTIVES.keys() - names:
        yield rf'{name}\..*|editing\.{name}', f'objectives.{name} is 0'
    selected, enabled = [OBJECTIVES[name] for name in names], ', '.join(names)
    has_generator = any(objective.generator for objective in selected)
    if has_generator or not any(objective.fills_masks for objective in selected):
        yield 'evaluation.cloze_examples', f'{enabled} has no head that fills in masks'
    linguistic = config.evaluation.linguistic
    if not linguistic.pairs:
        yield 'evaluation.linguistic.pairs_per_paradigm', 'evaluation.linguistic.pairs is empty'
    if not linguistic.treebank:
        yield 'evaluation.linguistic.sentences', 'evaluation.linguistic.treebank is empty'
    if not (linguistic.pairs or linguistic.treebank or linguistic.isotropy):
        yield 'evaluation.linguistic.max_share', 'evaluation.linguistic measures nothing'
    masking = config.masking
    corruption = objectives.common_corruption(names, masking.scheme)
    yield rf'(?!({corruption.config_keys})$)masking\..*', f'{enabled} does not use it'
    if corruption.reads('masking.random') and not masking.random:
        yield 'masking.replacement', 'masking.random is 0'
    tables: dict[str, tuple[Mapping[str, Any], str]] = {
        'masking.scheme': (SCHEMES, masking.scheme),
        'data.segments': (SEGMENTS, config.data.segments),
    }
    for key, (table, name) in tables.items():
        if name in table:
            options = {option for entry in table.values() for option in entry.options}
            for option in options.difference(table[name].options):
                yield option, f'{key} is {name!r}'
    if not config.data.tokenizer.startswith('train:'):
        yield 'data.tokenizer_.*', f'data.tokenizer={config.data.tokenizer!r} is not trained'
