"""How the files of architectures/ say what is their own: what differs from DEFAULTS, BERT base."""

import dataclasses
import inspect
from collections.abc import Callable, Mapping

from bert_jax.models.architecture import Architecture

DEFAULTS = dict(
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
_FIELDS = {field.name: field.default for field in dataclasses.fields(Architecture)}


class Builder:
    """A function of sizes (keywords) that gives an Architecture.

    sizes: what differs from DEFAULTS and from the defaults of Architecture, and sizes that only
        this family has; all can be given other values.
    fixed: the fields that make the family what it is.
    derive: a function of all sizes (keywords) that gives further fields.

    Every field of Architecture that is neither fixed nor derived is a size too.
    """

    def __init__(
        self,
        sizes: Mapping = {},
        fixed: Mapping = {},
        derive: Callable[..., dict] = lambda **sizes: {},
    ):
        self.sizes, self.fixed, self.derive = DEFAULTS | dict(sizes), dict(fixed), derive
        closed = {*self.fixed, *self.derive(**self.sizes)}
        known = {name: value for name, value in _FIELDS.items() if name not in closed} | self.sizes
        # What inspect.signature finds: the names that build() knows.
        self.__signature__ = inspect.Signature(
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=known[name])
            for name in known
            if name not in self.fixed
        )

    def resized(self, **sizes) -> 'Builder':
        """The same family with other default sizes."""
        return Builder(self.sizes | sizes, self.fixed, self.derive)

    def __call__(self, **sizes) -> Architecture:
        sizes = self.sizes | sizes
        sizes['num_heads'] = sizes['num_heads'] or max(1, sizes['hidden_size'] // 64)
        sizes['intermediate_size'] = sizes['intermediate_size'] or 4 * sizes['hidden_size']
        fields = sizes | self.fixed | self.derive(**sizes)
        return Architecture(**{name: fields[name] for name in fields if name in _FIELDS})
