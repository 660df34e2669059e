"""`Builder`: an architecture family as its differences from BERT base."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from bert_jax.models.architecture import Architecture

FIELDS = tuple(field.name for field in dataclasses.fields(Architecture))


@dataclasses.dataclass(frozen=True)
class Builder:
    """An architecture family.

    Attributes:
        sizes: changes to BERT base, as in `Architecture.changed`, which callers can override.
        fixed: fields that define the family; callers can override fields of its parts only.
        family: model_type of the published models, a key of interop.families.FAMILIES; None if no
            published class has this architecture.
        always_projects: whether embeddings as wide as the states are projected, too.
    """

    sizes: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    fixed: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    family: str | None = None
    always_projects: bool = False

    @property
    def free_fields(self) -> list[str]:
        """The fields of Architecture that callers can override."""
        return [name for name in FIELDS if name not in self.fixed]

    def resized(self, family: str | None = None, /, **sizes: Any) -> 'Builder':
        """The same family, or one with the name `family`, with other default sizes."""
        family = family or self.family
        return dataclasses.replace(self, sizes={**self.sizes, **sizes}, family=family)

    def __call__(self, **sizes: Any) -> Architecture:
        """Build the architecture with some sizes changed.

        Where neither the family nor the caller says otherwise, num_heads is hidden_size / 64 and
        intermediate_size is 4 · hidden_size.
        """
        changes = {'hidden_size': Architecture.hidden_size, **self.fixed, **self.sizes, **sizes}
        width = changes['hidden_size']
        changes.setdefault('num_heads', max(1, width // 64))
        changes.setdefault('intermediate_size', 4 * width)
        if changes.get('embedding_size') == width and not self.always_projects:
            changes['embedding_size'] = None
        return Architecture().changed(changes)
