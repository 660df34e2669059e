"""Type aliases shared by all packages."""

if __name__ == 'types':  # a file of this folder was run and found this module as Python's own
    raise SystemExit('error: run python -m bert_jax.NAME instead of a file of the package')

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

if TYPE_CHECKING:
    import jax
    from ml_collections import ConfigDict

    Array: TypeAlias = jax.Array | np.ndarray
    Key: TypeAlias = jax.Array  # a typed PRNG key, jax.random.key
    Batch: TypeAlias = Mapping[str, Array]  # name → array whose first axis is the example or row
    Config: TypeAlias = ConfigDict  # its values are Any: config_keys.py checks them
else:  # configs are read without JAX
    Array = Key = Batch = Config = Any
Params: TypeAlias = Mapping[str, Any]  # nested dictionaries of float32 arrays
Tree: TypeAlias = Any  # a pytree, that is, nested containers of arrays
JsonObject: TypeAlias = dict[str, Any]  # an object of JSON whose values are read
JsonView: TypeAlias = Mapping[str, Any]  # the same, and it is not changed
JsonRecord: TypeAlias = dict[str, object]  # an object of JSON that is made to be written
RecordView: TypeAlias = Mapping[str, object]  # an object of JSON that is only passed on
