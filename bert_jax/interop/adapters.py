"""The weights that the adapters of peft give.

LoRA with its variants (rank-stabilized, DoRA, biases, patterns of ranks) and (IA)³ are exactly
expressed by the weights of the tuned model, so they are applied to these weights.
"""

import collections
import re
from collections.abc import Collection, Mapping

import numpy as np

from bert_jax.errors import UserError
from bert_jax.interop.adapter_config import AdapterConfig

Weights = Mapping[str, np.ndarray]

_PART = re.compile(
    r'(.+)\.(lora_[AB]\.weight|lora_B\.bias|lora_embedding_[AB]|lora_magnitude_vector|ia3_l)'
)
_BIAS, _MAGNITUDE = 'lora_B.bias', 'lora_magnitude_vector'


def split(arrays: Weights) -> tuple[dict[str, np.ndarray], dict[str, dict[str, np.ndarray]]]:
    """Separate weights that are saved as a whole from the added arrays of each module.

    Returns:
        Weights by name, and for each tuned module its arrays, such as 'lora_A.weight'.
    """
    saved: dict[str, np.ndarray] = {}
    added: dict[str, dict[str, np.ndarray]] = collections.defaultdict(dict)
    for name, array in arrays.items():
        match = _PART.fullmatch(name.replace('magnitude_vector.weight', 'magnitude_vector'))
        if match:
            added[match[1]][match[2]] = array
        else:
            saved[name] = array
    return saved, dict(added)


def apply(
    config: AdapterConfig,
    arrays: Weights,
    weights: Weights,
    linear: Collection[str],
    embeddings: Collection[str],
) -> dict[str, np.ndarray]:
    """Apply the arrays of an adapter to the weights of the tuned model.

    Args:
        arrays: arrays of the adapter, float32, such as 'bert.pooler.dense.lora_A.weight', and
            weights that the adapter saves as a whole.
        weights: weights of the model, float32, by name.
        linear, embeddings: names of the linear modules and of the embeddings of the model.

    Raises:
        UserError: an array is missing, has another shape, or is of a module that the config does
            not name or that cannot be tuned.
    """
    saved, added = split(arrays)
    _check_modules(config, linear, added, saved)
    changed = {**weights, **saved}
    for module, parts in added.items():
        if module not in linear and module not in embeddings:
            raise UserError(f'{module} is tuned, but is not a linear layer or an embedding')
        if f'{module}.weight' not in changed:
            raise UserError(f'{module} is tuned, but the base model has no weights of it')
        changed |= _apply_to(config, module, parts, changed, module in embeddings)
    return changed


def _check_modules(
    config: AdapterConfig, linear: Collection[str], added: Collection[str], saved: Collection[str]
) -> None:
    """Raise UserError if a module lacks its arrays, or has arrays that peft would ignore."""
    if config.targets is None:
        return
    expected = {name for name in linear if config.tunes(name) and f'{name}.weight' not in saved}
    lacking = sorted(expected - {*added})
    if lacking:
        raise UserError(f'no arrays of {lacking[0]}, which target_modules names')
    ignored = sorted(name for name in added if name in linear and not config.tunes(name))
    if ignored:
        raise UserError(f'arrays of {ignored[0]}, which target_modules does not name')


def _apply_to(
    config: AdapterConfig, module: str, added: Weights, weights: Weights, is_embedding: bool
) -> dict[str, np.ndarray]:
    """The new weight and bias of a module with added arrays, such as 'lora_A.weight', by name."""
    weight, bias = weights[f'{module}.weight'], weights.get(f'{module}.bias')
    if config.method == 'IA3':
        found = _scaled(module, added, weight, bias)
    elif is_embedding:
        if config.is_dora or config.has_bias:
            raise UserError(f'{module}: use_dora or lora_bias of an embedding is not supported')
        _check_parts(module, added, ('lora_embedding_A', 'lora_embedding_B'))
        factors = added['lora_embedding_A'], added['lora_embedding_B']
        found = [weight + _update(config, module, *factors, weight.shape[::-1]).T]
    else:
        found = _low_rank(config, module, added, weight, bias)
    names = (f'{module}.weight', f'{module}.bias')
    return {name: array for name, array in zip(names, found, strict=False) if array is not None}


def _low_rank(
    config: AdapterConfig,
    module: str,
    added: Weights,
    weight: np.ndarray,
    bias: np.ndarray | None,
) -> list[np.ndarray | None]:
    required = ['lora_A.weight', 'lora_B.weight']
    required += [_MAGNITUDE] * config.is_dora + [_BIAS] * config.has_bias
    _check_parts(module, added, required)
    factors = added['lora_A.weight'], added['lora_B.weight']
    total = weight + _update(config, module, *factors, weight.shape)
    vectors = {name: added[name] for name in (_MAGNITUDE, _BIAS) if name in added}
    for name, vector in vectors.items():
        if vector.shape != (len(weight),) or len(vectors) > 1 or (name == _BIAS and bias is None):
            raise UserError(f'{module}.{name} does not fit the module')
    if config.is_dora:  # Liu et al. 2024, arXiv 2402.09353, equation 5
        norms = np.linalg.norm(total, axis=1)
        total *= (vectors[_MAGNITUDE] / norms)[:, None]
    if config.has_bias and bias is not None:
        bias = bias + np.float32(config.scale(module, len(factors[0]))) * vectors[_BIAS]
    return [total, bias]


def _update(
    config: AdapterConfig,
    module: str,
    down_RI: np.ndarray,
    up_OR: np.ndarray,
    shape: tuple[int, ...],
) -> np.ndarray:
    """α / r · B A, [outputs, inputs]."""
    (outputs, inputs), rank = shape, len(down_RI) if down_RI.ndim else 0
    if not rank or (down_RI.shape, up_OR.shape) != ((rank, inputs), (outputs, rank)):
        raise UserError(
            f'the arrays of {module} have the shapes {list(down_RI.shape)} and '
            f'{list(up_OR.shape)}, which do not fit its weight, {list(shape)}'
        )
    return np.asarray(np.float32(config.scale(module, rank)) * (up_OR @ down_RI))


def _scaled(
    module: str, added: Weights, weight: np.ndarray, bias: np.ndarray | None
) -> list[np.ndarray | None]:
    """Multiply the inputs ([1, inputs], before a feed-forward) or the outputs ([outputs, 1])."""
    _check_parts(module, added, ('ia3_l',))
    factor = added['ia3_l']
    if factor.shape == (1, weight.shape[1]):
        return [weight * factor, bias]
    if factor.shape != (len(weight), 1):
        raise UserError(
            f'the factors of {module} have the shape {list(factor.shape)}, which does not fit its '
            f'weight, {list(weight.shape)}'
        )
    return [weight * factor, None if bias is None else bias * factor[:, 0]]


def _check_parts(module: str, added: Weights, required: Collection[str]) -> None:
    """Raise UserError unless a module has exactly the required arrays."""
    for name in required:
        if name not in added:
            raise UserError(f'{module} lacks {name}')
    extra = sorted({*added} - {*required})
    if extra:
        raise UserError(f'{module}.{extra[0]} has no place')
