"""What all code of a process shares, and a file must never change."""

import builtins
import copyreg
import math
import pickle

import ml_dtypes
import numpy as np

from bert_jax.interop import torch_file

_DTYPES = [np.dtype(name) for name in ('?', 'u1', 'i4', 'i8', 'f2', 'f4', 'f8')]
_DTYPES += [np.dtype(ml_dtypes.bfloat16), np.dtype(ml_dtypes.float8_e4m3fn)]
_MODULES = builtins, copyreg, math, ml_dtypes, np, pickle, torch_file


def fingerprint() -> list[object]:
    """Return a description of the types of arrays, of the pickle registries, and of modules."""
    dtypes = [
        (one.str, one.num, one.itemsize, one.alignment, one.flags, one.byteorder, one.kind)
        for one in _DTYPES
    ]
    casts = [np.arange(4).astype(one).astype('f4').tolist() for one in _DTYPES]
    registries = [
        {key: id(value) for key, value in registry.items()}
        for registry in (
            copyreg.dispatch_table,
            copyreg._extension_registry,
            copyreg._extension_cache,
            pickle._Unpickler.dispatch,
        )
    ]
    modules = [{name: id(value) for name, value in vars(one).items()} for one in _MODULES]
    return [dtypes, casts, registries, modules]
