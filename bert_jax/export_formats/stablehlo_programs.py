"""StableHLO programs as bytes, in a chosen version and without the paths of their source files."""

import jax
from jax.extend.mlir import ir
from jax.extend.mlir.dialects import stablehlo

# Readers as old as twelve weeks, the longest time that the StableHLO of JAX promises.
_READERS = stablehlo.StablehloCompatibilityRequirement.WEEK_12
LONGEST_READABLE = str(stablehlo.get_version_from_compatibility_requirement(_READERS))


def rewrite(program: bytes, version: str = LONGEST_READABLE) -> bytes:
    """Return a portable program in a version of StableHLO.

    Locations, which name the source files of the exporting machine, are left out.
    """
    with ir.Context() as context:
        text = str(stablehlo.deserialize_portable_artifact(context, program))
    return bytes(stablehlo.serialize_portable_artifact_str(text, version))


def program_of(exported: jax.export.Exported) -> bytes:
    """The program of an export, as `rewrite` returns it."""
    return rewrite(exported.mlir_module_serialized)
