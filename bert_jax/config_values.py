"""Checks of config values that do not depend on other keys: their ranges and types."""

import re
from collections.abc import Iterator
from typing import Any

from ml_collections import ConfigDict

from bert_jax.errors import UserError

# Pattern of keys → interval of their values or, for tuples, elements. The first match counts.
RANGES = {
    'seed|data.split_seed': '[0, 4294967295]',
    'data.(dev|test)_fraction|transfer.unfreeze_every_fraction': '[0, 1)',
    'data.(held_out_fraction)|masking.(rate|span_p)': '(0, 1)',
    'data.(short_sequence_probability|max_bad_share|.*fraction|.*language_alpha)': '[0, 1]',
    'data.(tokenizer_characters|reading_threads|field_limit)': '[1, inf)',
    'data.cache_gigabytes': '(0, inf)',
    'data.(prepare_workers|train_examples)': '[0, inf)',
    'model.(hidden|attention)_dropout|optimizer.beta[12]|schedule.warmup_fraction': '[0, 1)',
    'model.(initializer_range|layer_norm_eps)|schedule.(base_)?learning_rate': '(0, inf)',
    'model.type_vocab_size': '[0, inf)',
    'model.*': '[1, inf)',
    'masking.(mask|random)': '[0, 1]',
    'masking.longest_.*|sbo.*': '[1, inf)',
    'rtd.generator_.*|transfer.layer_decay': '(0, 1]',
    'transfer.(rank|bottleneck|length)': '[1, inf)',
    'transfer.(alpha|scale)': '(0, inf)',
    'editing.*': '(0, 1)',
    'training.(steps|epochs)': '[0, inf)',
    'training.*': '[1, inf)',
    'evaluation.linguistic.max_share': '(0, 1]',
    'evaluation.examples|evaluation.linguistic.*|checkpoint.keep|max_skipped_in_row': '[1, inf)',
    'logging.profile_steps': '[1, inf)',
    'sweep.seeds': '[0, 4294967295]',
    'sweep.learning_rates': '(0, inf)',
    'sweep.ranks': '[1, inf)',
    'problem.(label_smoothing|overlap)': '[0, 1)',
    'problem.crf_rate': '(0, inf)',
    'problem.(lowest|highest)': '(-inf, inf)',
    'problem.temperature': '[0, inf)',
    'problem.mlm_weight': '[0, 1)',
    'problem.demonstrations': '[0, inf)',
    'problem.*': '[1, inf)',
    'mesh.*': '[-1, inf)',
    'data.first_choice': '(-inf, inf)',
    '.*': '[0, inf)',
}
# Keys whose tuples have numbers.
_NUMBERS = r'(training|sweep|logging)\..*|evaluation\.steps'


def check(config: ConfigDict) -> None:
    """Check the values of a config.

    Raises:
        UserError: a number is out of range, a tuple has an element of a wrong type, or the name of
            a folder is empty.
    """
    for key, value in flatten(config):
        if key in ('workdir', 'data.corpus') and not value:
            raise UserError(f'{key} is {value!r}; it must be the name of a folder')
        values = value if isinstance(value, tuple) else (value,)
        if isinstance(value, tuple) and key != 'sharding_rules':
            expected = 'numbers' if holds_numbers(key) else 'strings'
            is_valid = _is_number if expected == 'numbers' else lambda text: isinstance(text, str)
            if not all(map(is_valid, values)):
                raise UserError(f'{key} is {value!r}; all its values must be {expected}')
        allowed = next(RANGES[keys] for keys in RANGES if re.fullmatch(keys, key))
        if not all(_is_in(number, allowed) for number in filter(_is_number, values)):
            raise UserError(f'{key} is {value!r}; it must be in {allowed}')


def holds_numbers(key: str) -> bool:
    """Whether the value of a key, if it is a tuple, has numbers; otherwise it has strings."""
    return bool(re.fullmatch(_NUMBERS, key))


def flatten(config: ConfigDict, prefix: str = '') -> Iterator[tuple[str, Any]]:
    """Yield all keys of a config, joined by dots, with their values."""
    for key, value in config.items():
        if hasattr(value, 'items'):
            yield from flatten(value, f'{prefix}{key}.')
        else:
            yield prefix + key, value


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_in(number: float, interval: str) -> bool:
    low, high = map(float, interval[1:-1].split(', '))
    above = low <= number if interval[0] == '[' else low < number
    return above and (number <= high if interval[-1] == ']' else number < high)
