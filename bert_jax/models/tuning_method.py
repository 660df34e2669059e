"""The interface of tuning methods: what they add to a frozen encoder and what they train.

A method is a value, `Architecture.tuning`. The encoder's modules ask the method for a module of
added parameters and name that module `tuning`, which marks the paths of all added parameters.
"""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, NamedTuple

import jax
import numpy as np
from flax import linen as nn

from bert_jax import lazy_table
from bert_jax.errors import UserError, unknown

_METHODS = 'bert_jax.models.tuning:METHODS'
ADDED = 'tuning'  # the path component of added parameters

Arrays = Mapping[str, np.ndarray]  # last component of the path → array
ModuleMaker = Callable[..., nn.Module]  # takes (architecture, compute) and a name


class Sublayer(NamedTuple):
    """The arrays around attention or feed-forward of a block.

    Attributes:
        name: 'attention', 'feedforward' or, in a decoder, 'cross_attention'.
        residual_BTD: states to which the output is added.
        input_BTD: the input: the residual states, normalized unless the architecture's norms
            are 'post'.
        output_BTD: the output, after dropout.
        norm: the norm of this part of the block.
    """

    name: str
    residual_BTD: jax.Array
    input_BTD: jax.Array
    output_BTD: jax.Array
    norm: Callable[..., jax.Array]


@dataclasses.dataclass(frozen=True)
class Tuning:
    """Base class of tuning methods; this class itself adds nothing.

    Each `*_module` returns the class of a module of added parameters, constructed with
    (architecture, compute), or None if the method adds nothing there.

    Attributes:
        method: the name of the method in tuning.METHODS.
        per_layer: whether layers that share parameters have separate added parameters. No effect on
            other architectures.
        uses: number of layers that share this layer's parameters, set if per_layer applies.
        use: index of this layer among the layers that share its parameters.
    """

    method: str = ''
    per_layer: bool = True
    uses: int | None = None
    use: int = 0

    published_rate: ClassVar[float | None] = None  # learning rate of the method's authors
    adds_parameters: ClassVar[bool] = True  # or only trains parameters of the encoder
    can_merge: ClassVar[bool] = False  # whether the encoder can hold what it adds, see `merge`
    needs_scores: ClassVar[bool] = False  # whether attention must materialize its scores

    @classmethod
    def from_json(cls, fields: Mapping[str, Any], source: object) -> 'Tuning':
        """Rebuild a method from what `dataclasses.asdict` made; `source` is its file, for errors.

        Raises:
            UserError: an unknown method; or a key is missing, unknown, or has a wrong value.
        """
        from bert_jax import schema

        methods = lazy_table.load(_METHODS)
        name = fields.get('method') if isinstance(fields, Mapping) else None
        if not isinstance(name, str) or name not in methods:
            raise unknown(f'method in {source}', name, methods)
        method: Tuning = schema.read(methods[name], fields, source)
        return method

    def __post_init__(self) -> None:
        for problem in self.problems():
            raise UserError(f'transfer.method={self.method}: {problem}')

    def problems(self) -> list[str]:
        """Describe invalid values."""
        return []

    def trains(self, name: str) -> bool:
        """Whether a parameter of the frozen encoder is trained too.

        Args:
            name: path of the parameter, such as 'encoder/layers_0/attention/query/bias'.
        """
        return False

    def dense_module(self, role: str) -> ModuleMaker | None:
        """Around a projection: the module maps (projection function, input) to the output.

        Outputs of the projection function are fp32, with heads side by side.

        Args:
            role: the last two components of the projection's path, such as 'attention/query'.
        """
        return None

    def block_module(self) -> ModuleMaker | None:
        """After attention and feed-forward: the module maps a `Sublayer` to its new output."""
        return None

    def attention_module(self) -> ModuleMaker | None:
        """In attention: the module returns additional keys and values, [L, H, K] each."""
        return None

    def embeddings_module(self) -> ModuleMaker | None:
        """In the embeddings: the module returns vectors [L, E] to insert after the first token."""
        return None

    @property
    def prompt_length(self) -> int:
        """The number of vectors that `embeddings_module` inserts."""
        return 0

    def merge(self, role: str, weights: Arrays, added: Arrays) -> dict[str, Any]:
        """Fold the added parameters of a projection into its weights, with the same results.

        Args:
            role: as in `dense_module`.
            weights: 'kernel' and, if the projection has one, 'bias', fp32.
            added: the projection's added parameters, fp32.
        """
        raise NotImplementedError
