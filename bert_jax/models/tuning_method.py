"""The interface of tuning methods: what they add to a frozen encoder, and what they train of it.

A method is a value, `Architecture.tuning`. The modules of the encoder ask it for a module of added
parameters, which they name `tuning`: so all added parameters have that component in their path.
"""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, NamedTuple

import jax
import numpy as np
from flax import linen as nn

from bert_jax.errors import UserError

ADDED = 'tuning'  # the path component of added parameters

Arrays = Mapping[str, np.ndarray]  # by the last component of their path
ModuleMaker = Callable[..., nn.Module]  # takes (architecture, compute) and a name


class Sublayer(NamedTuple):
    """What attention or feed-forward of a block did.

    Attributes:
        name: 'attention' or 'feedforward'.
        residual_BTD: what its output is added to.
        input_BTD: its input: the residual, normalized with residual 'pre'.
        output_BTD: its output, after dropout.
        norm: the norm of this part of the block.
    """

    name: str
    residual_BTD: jax.Array
    input_BTD: jax.Array
    output_BTD: jax.Array
    norm: Callable[[jax.Array], jax.Array]


@dataclasses.dataclass(frozen=True)
class Tuning:
    """Base class of tuning methods, which override what they need; here nothing is added.

    Each `*_module` returns the class of a module of added parameters, constructed with
    (architecture, compute), or None if the method adds nothing there.

    Attributes:
        method: the name of the method in tuning.METHODS.
        per_layer: layers that share their parameters have added parameters of their own each. No
            effect on other architectures.
        uses: the number of layers with the parameters of this one, if each has its own added ones.
        use: which of them this is.
    """

    method: str = ''
    per_layer: bool = True
    uses: int | None = None
    use: int = 0

    published_rate: ClassVar[float | None] = None  # learning rate of the method's authors
    can_merge: ClassVar[bool] = False  # whether `merge` exists
    needs_scores: ClassVar[bool] = False  # whether attention must materialize its scores

    def __post_init__(self) -> None:
        for problem in self.problems():
            raise UserError(f'transfer.method={self.method}: {problem}')

    def problems(self) -> list[str]:
        """Descriptions of values that are not valid."""
        return []

    def trains(self, name: str) -> bool:
        """Whether a parameter of the frozen encoder is trained too.

        Args:
            name: its path, such as 'encoder/layers_0/attention/query/bias'.
        """
        return False

    def dense_module(self, role: str) -> ModuleMaker | None:
        """Around a projection: the module maps (function from input to output, input) to output.

        Outputs of the function have their heads side by side and are fp32.

        Args:
            role: the last two components of its path, such as 'attention/query'.
        """
        return None

    def block_module(self) -> ModuleMaker | None:
        """After attention and feed-forward: the module maps a `Sublayer` to its new output."""
        return None

    def attention_module(self) -> ModuleMaker | None:
        """In attention: the module returns additional keys and values, [L, H, K] each."""
        return None

    def embeddings_module(self) -> ModuleMaker | None:
        """Among the embeddings: the module returns vectors [L, E] that follow the first token."""
        return None

    @property
    def prompt_length(self) -> int:
        """The number of vectors of `embeddings_module`."""
        return 0

    def merge(self, role: str, weights: Arrays, added: Arrays) -> dict[str, Any]:
        """Weights of a projection that compute the same without the added parameters.

        Args:
            role: as in `dense_module`.
            weights: 'kernel' and, if the projection has one, 'bias', fp32.
            added: its added parameters, fp32.
        """
        raise NotImplementedError
