"""`Module`, the base class of encoders, their parts and heads."""

from typing import Any

from flax import linen as nn

from bert_jax.models.architecture import Architecture, Compute
from bert_jax.models.linear import Dense
from bert_jax.models.normalization import NORMS


class Module(nn.Module):
    """A module of an architecture."""

    architecture: Architecture
    compute: Compute

    @nn.nowrap
    def make_dense(
        self, spec: str, shape: tuple[int, ...], names: tuple[str | None, ...], **options: Any
    ) -> Dense:
        """A `Dense` of this architecture; options: further fields of `Dense`, and `name`."""
        return Dense(spec, shape, names, self.architecture, self.compute, **options)

    @nn.nowrap
    def make_norm(self, name: str | None = None) -> nn.Module:
        """The norm that the architecture names."""
        return NORMS[self.architecture.norm](self.architecture, self.compute, name=name)

    @nn.nowrap
    def make_tuning(self, part: str) -> Any:
        """The module of added parameters of this 'block', 'attention' or 'embeddings', or None.

        Assigned to an attribute `tuning`, which names it.
        """
        method = self.architecture.tuning
        make = None if method is None else getattr(method, f'{part}_module')()
        return None if make is None else make(self.architecture, self.compute)
