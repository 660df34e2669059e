"""`Module`, the base class of encoders, their parts, and heads."""

from typing import Any

from flax import linen as nn

from bert_jax.models.architecture import Architecture, Compute
from bert_jax.models.linear import Dense
from bert_jax.models.normalization import NORMS


class Module(nn.Module):
    """A Flax module of an architecture, with factories for its parts."""

    architecture: Architecture
    compute: Compute

    @nn.nowrap
    def make_dense(
        self, spec: str, shape: tuple[int, ...], names: tuple[str | None, ...], **options: Any
    ) -> Dense:
        """Make a `Dense` of this architecture; `options` are further fields of `Dense`."""
        return Dense(spec, shape, names, self.architecture, self.compute, **options)

    @nn.nowrap
    def make_norm(self, name: str | None = None) -> nn.Module:
        """Make the architecture's kind of norm."""
        return NORMS[self.architecture.norm](self.architecture, self.compute, name=name)

    @nn.nowrap
    def make_tuning(self, part: str) -> Any:
        """Make the tuning module of a 'block', 'attention' or 'embeddings', if there is one.

        Assign it to the attribute `tuning`, which names its parameters.
        """
        method = self.architecture.tuning
        module = None if method is None else getattr(method, f'{part}_module')()
        return None if module is None else module(self.architecture, self.compute)
