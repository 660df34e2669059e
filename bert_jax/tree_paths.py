"""Names for the leaves of a pytree: components joined by '/', as 'encoder/layers_0/kernel'.

Checkpoints, weight conversion, weight-decay patterns and error messages all use these names.
"""

from collections.abc import Callable
from typing import Any

import jax


def path_name(path: tuple[object, ...]) -> str:
    """Return the name of a key path, as `jax.tree_util.tree_map_with_path` passes it."""
    return jax.tree_util.keystr(path, simple=True, separator='/')


def flatten(tree: Any, is_leaf: Callable[[Any], bool] | None = None) -> dict[str, Any]:
    """Map the name of every leaf to the leaf, in the order of `jax.tree.leaves`."""
    leaves = jax.tree_util.tree_leaves_with_path(tree, is_leaf=is_leaf)
    return {path_name(path): leaf for path, leaf in leaves}
