"""The adapter_config.json of peft: which modules are tuned, and how.

Settings that are not supported are refused; those without an effect on the outputs are ignored.
"""

import dataclasses
import math
import re
import reprlib
from collections.abc import Collection, Mapping
from typing import Any

from bert_jax import limits
from bert_jax.errors import UserError
from bert_jax.tokenizers import patterns
from bert_jax.types import RecordView

METHODS = ('LORA', 'IA3')
_STARS = 4  # of a regular expression for names of some 60 characters: 10^6 steps
_NEUTRAL: tuple[object, ...] = (None, False, (), [], {})
# Keys that change what is computed in ways that are not supported; they must be neutral or absent.
_UNSUPPORTED = """
alora_invocation_tokens arrow_config kasa_config layer_replication megatron_config monteclora_config
target_parameters trainable_token_indices use_bdlora use_qalora velora_config
"""
# Keys that do not change what the saved weights compute.
_METADATA = """
auto_mapping base_model_name_or_path bias corda_config ensure_weight_tying eva_config
fan_in_fan_out feedforward_modules inference_mode init_ia3_weights loftq_config lora_dropout
lora_ga_config megatron_core peft_type peft_version qalora_group_size revision
"""
# Keys that `parse` reads.
_READ = """
alpha_pattern exclude_modules init_lora_weights layers_pattern layers_to_transform lora_alpha
lora_bias modules_to_save r rank_pattern target_modules task_type use_dora use_rslora
"""
# Other initializations subtract the initial adapter from the base model.
_INITIALIZATIONS = (True, False, None, 'gaussian', 'eva', 'orthogonal')


@dataclasses.dataclass(frozen=True)
class AdapterConfig:
    """The settings of an adapter_config.json.

    Attributes:
        method: one of METHODS.
        task_type: such as 'SEQ_CLS'; None if the config has none.
        base_class: published class of the tuned model, if the config has no task_type.
        targets: regular expression or final parts of the names of the tuned modules; None: unknown.
        excluded: the same for modules that are not tuned.
        saved: regular expressions for the names of modules that are saved as a whole.
        layers: the tuned layers; None: all.
        layers_patterns: names of the lists of layers; () for any.
        rank, alpha: LoRA's; `rank_pattern` and `alpha_pattern` override them by module.
        is_rank_stabilized: whether the update is multiplied by α / √r instead of α / r.
        is_dora: whether the rows of the weights have learned norms.
        has_bias: whether the update has a bias.
        prefix: prefix of the names of modules that patterns in the config do not contain.
    """

    method: str
    task_type: str | None
    base_class: str | None
    targets: str | tuple[str, ...] | None
    excluded: str | tuple[str, ...]
    saved: tuple[str, ...]
    layers: tuple[int, ...] | None
    layers_patterns: tuple[str, ...]
    rank: int
    alpha: float
    rank_pattern: Mapping[str, float]
    alpha_pattern: Mapping[str, float]
    is_rank_stabilized: bool
    is_dora: bool
    has_bias: bool
    prefix: str = ''

    def tunes(self, module: str) -> bool:
        """Whether a linear module of the model is tuned (check_target_module_exists of peft)."""
        module = module.removeprefix(self.prefix)
        if _is_named(self.excluded, module):
            return False
        if any(_match(rf'(^|.*\.){name}($|\..*)', module) for name in self.saved):
            return False
        targets = self.targets or ()
        if isinstance(targets, str) and targets.lower() == 'all-linear':
            return True
        if not _is_named(targets, module):
            return False
        if self.layers is None or isinstance(targets, str):
            return True
        lists = [rf'(?:^|.*?\.){name}\.(\d+)\.' for name in self.layers_patterns]
        matches = (_match(one, module) for one in lists or [r'.*?\.[^.]*\.(\d+)\.'])
        numbers = (match[match.re.groups] for match in matches if match)
        return next((int(number) in self.layers for number in numbers if number), False)

    def scale(self, module: str, rank: int) -> float:
        """Factor of the update of a module. Raises UserError if its rank is not the config's."""
        module = module.removeprefix(self.prefix)
        expected = int(_of_pattern(self.rank_pattern, module, self.rank))
        if rank != expected:
            raise UserError(f'{module} has rank {rank}, but the config says {expected}')
        alpha = _of_pattern(self.alpha_pattern, module, self.alpha)
        return alpha / (math.sqrt(rank) if self.is_rank_stabilized else rank)


def parse(config: RecordView) -> AdapterConfig:
    """Check the contents of an adapter_config.json.

    Raises:
        UserError: a method or setting that is not supported, or a value of another type.
    """
    method = config.get('peft_type')
    if method is None and not {'config', 'model_class', 'model_name'}.isdisjoint(config):
        raise UserError(
            'an adapter of the library adapters (AdapterHub), which is not supported; with that '
            'library, merge_adapter and save_pretrained write a folder that is (LoRA and (IA)³)'
        )
    if method not in METHODS:
        raise UserError(f'peft_type is {method!r}; supported: {", ".join(METHODS)}')
    for key in _UNSUPPORTED.split():
        if config.get(key) not in _NEUTRAL:
            raise UserError(f'{key} is {reprlib.repr(config[key])}, which is not supported')
    initialization = config.get('init_lora_weights')
    if initialization not in _INITIALIZATIONS:
        raise UserError(
            f'init_lora_weights is {initialization!r}, which changes the base model; save the '
            'adapter with path_initial_model_for_weight_conversion'
        )
    mapping = _value(config, 'auto_mapping', dict, {})
    layers, patterns = config.get('layers_to_transform'), _names(config, 'layers_pattern')
    return AdapterConfig(
        method,
        _value(config, 'task_type', str, None),
        _value(mapping, 'base_model_class', str, None),
        _names(config, 'target_modules'),
        _names(config, 'exclude_modules') or (),
        _list(config, 'modules_to_save'),
        None if layers in _NEUTRAL else _numbers('layers_to_transform', layers),
        (patterns,) if patterns and isinstance(patterns, str) else tuple(patterns or ()),
        _value(config, 'r', int, 8),
        _value(config, 'lora_alpha', int | float, 8),
        _pattern(config, 'rank_pattern'),
        _pattern(config, 'alpha_pattern'),
        bool(config.get('use_rslora')),
        bool(config.get('use_dora')),
        bool(config.get('lora_bias')),
    )


def ignored_keys(config: RecordView) -> list[str]:
    """Keys of an adapter_config.json that are set and not known."""
    known = {*_UNSUPPORTED.split(), *_METADATA.split(), *_READ.split()}
    return sorted(key for key in config if key not in known and config[key] not in _NEUTRAL)


def _match(pattern: str, module: str) -> re.Match[str] | None:
    """Match a regular expression with a part of the config; that part may not fit into it."""
    try:
        return re.match(pattern, module)
    except re.error as error:
        raise UserError(f'{pattern!r:.80} is not a regular expression: {error}') from None


def _is_named(names: str | Collection[str], module: str) -> bool:
    """Whether a regular expression, or one of the final parts of names, matches a module."""
    if isinstance(names, str):
        return bool(names) and re.fullmatch(names, module) is not None
    return any(module == name or module.endswith(f'.{name}') for name in names)


def _of_pattern(pattern: Mapping[str, float], module: str, default: float) -> float:
    """The value of the first key that matches the end of a module's name (get_pattern_key)."""
    found = (value for key, value in pattern.items() if _match(rf'(.*\.)?({key})$', module))
    return next(found, default)


def _value(config: RecordView, key: str, expected: Any, default: Any) -> Any:
    value = config.get(key)
    if value is None:
        return default
    if not isinstance(value, expected) or isinstance(value, bool):
        raise UserError(f'{key} is {reprlib.repr(value)}, expected {_type_name(expected)}')
    return value


def _type_name(expected: Any) -> str:
    return getattr(expected, '__name__', str(expected))


def _list(config: RecordView, key: str) -> tuple[str, ...]:
    found = _value(config, key, list | tuple, ())
    if not all(isinstance(name, str) for name in found):
        raise UserError(f'{key} is {reprlib.repr(found)}, expected a list of names')
    return tuple(_regular_expression(key, name) for name in found)


def _regular_expression(key: str, text: str) -> str:
    """Return the text. Raises UserError if it is not a regular expression, or may be slow."""
    if len(text) > limits.PATTERN_CHARACTERS:
        raise UserError(
            f'{key}: a regular expression has {len(text):,} characters; the limit is '
            f'{limits.PATTERN_CHARACTERS:,}'
        )
    try:
        re.compile(text)
    except re.error as error:
        raise UserError(f'{key}: {text!r} is not a regular expression: {error}') from None
    shape = patterns.shape(text)
    if shape.is_repeated or shape.stars > _STARS:
        raise UserError(
            f'{key}: the regular expression {text!r:.80} may take very long; write it with at most '
            f'{_STARS} stars, and without a repeated group that itself has repetitions or |'
        )
    return text


def _names(config: RecordView, key: str) -> str | tuple[str, ...] | None:
    """A regular expression, a list of names, or None."""
    value = config.get(key)
    if isinstance(value, str):
        return _regular_expression(key, value)
    return None if value is None else _list(config, key)


def _numbers(key: str, value: Any) -> tuple[int, ...]:
    numbers = tuple(value) if isinstance(value, list) else (value,)
    if not all(isinstance(number, int) for number in numbers):
        raise UserError(f'{key} is {reprlib.repr(value)}, expected layer numbers')
    return numbers


def _pattern(config: RecordView, key: str) -> dict[str, float]:
    pattern = _value(config, key, dict, {})
    if not all(isinstance(value, int | float) for value in pattern.values()):
        raise UserError(f'{key} is {reprlib.repr(pattern)}, expected numbers')
    return {_regular_expression(key, name): value for name, value in pattern.items()}
