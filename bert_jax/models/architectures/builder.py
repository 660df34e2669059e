"""`Builder`: an architecture family as its differences from BERT base."""

import dataclasses
import inspect
from collections.abc import Callable, Mapping
from typing import Any

from bert_jax.errors import UserError
from bert_jax.models.architecture import Architecture
from bert_jax.models.block import ATTENTIONS
from bert_jax.models.encoders import ENCODERS
from bert_jax.models.feedforward import ACTIVATIONS, FEEDFORWARDS
from bert_jax.models.heads.classification import CLASSIFIERS
from bert_jax.models.normalization import NORMS

DEFAULTS: dict[str, Any] = dict(
    vocab_size=30522,
    hidden_size=768,
    num_layers=12,
    num_heads=None,  # hidden_size / 64
    intermediate_size=None,  # 4 · hidden_size
    max_position_embeddings=512,
    type_vocab_size=2,
    hidden_act='gelu',
    layer_norm_eps=1e-12,
    hidden_dropout=0.1,
    attention_dropout=0.1,
    initializer_range=0.02,
)
# Field that names a component → table of valid names.
COMPONENTS: dict[str, Mapping[str, Any]] = {
    'encoder': ENCODERS,
    'hidden_act': ACTIVATIONS,
    'attention': ATTENTIONS,
    'feedforward': FEEDFORWARDS,
    'norm': NORMS,
    'convolution_act': ACTIVATIONS,
    'prediction_act': ACTIVATIONS,
    'classifier': CLASSIFIERS,
    'classifier_act': ACTIVATIONS,
}
_FIELDS = {field.name: field.default for field in dataclasses.fields(Architecture)}


class Builder:
    """A function from sizes (keywords) to an Architecture.

    Every field of Architecture that is neither fixed nor derived is a size.

    Args:
        sizes: defaults that differ from DEFAULTS or Architecture, and sizes that only this family
            has. Callers can override them.
        fixed: fields that define the family; callers cannot override them.
        derive: computes further fields from all sizes (keywords).
        family: model_type of the published models, a key of interop.families.FAMILIES; None if no
            published class has this architecture.
    """

    def __init__(
        self,
        sizes: Mapping[str, Any] = {},
        fixed: Mapping[str, Any] = {},
        derive: Callable[..., dict[str, Any]] = lambda **sizes: {},
        family: str | None = None,
    ) -> None:
        self.family = family
        self.sizes, self.fixed, self.derive = DEFAULTS | dict(sizes), dict(fixed), derive
        derived = self.derive(**self.sizes)
        defaults = {name: _FIELDS[name] for name in _FIELDS if name not in derived} | self.sizes
        # inspect.signature returns this: the names that build() accepts.
        self.__signature__ = inspect.Signature(
            [
                inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default)
                for name, default in defaults.items()
                if name not in self.fixed
            ]
        )

    def resized(self, family: str | None = None, /, **sizes: Any) -> 'Builder':
        """The same family, or one with the name `family`, with other default sizes."""
        return Builder(self.sizes | sizes, self.fixed, self.derive, family or self.family)

    def __call__(self, **sizes: Any) -> Architecture:
        sizes = self.sizes | sizes
        sizes['num_heads'] = sizes['num_heads'] or max(1, sizes['hidden_size'] // 64)
        sizes['intermediate_size'] = sizes['intermediate_size'] or 4 * sizes['hidden_size']
        fields = sizes | self.fixed | self.derive(**sizes)
        architecture = Architecture(**{name: fields[name] for name in fields if name in _FIELDS})
        _check_components(architecture)
        return architecture


def _check_components(architecture: Architecture) -> None:
    for field, table in COMPONENTS.items():
        name = getattr(architecture, field)
        is_default = name is None and _FIELDS[field] is None
        if name not in table and not is_default:
            known = ', '.join(table)
            raise UserError(f'architecture: unknown {field} {name!r}; known: {known}')
