"""The published families by model_type. A new one is one file here and one line in FAMILIES."""

from bert_jax.errors import UserError, unknown
from bert_jax.interop.families import bert
from bert_jax.interop.families.family import Family

FAMILIES: dict[str, Family] = {
    'bert': bert.FAMILY,
}


def by_model_type(model_type: str) -> Family:
    """Raises UserError for one we do not know."""
    if model_type not in FAMILIES:
        raise unknown('model_type', str(model_type), FAMILIES)
    return FAMILIES[model_type]


def by_architecture(name: str) -> Family:
    """The family of one of our architectures. Raises UserError if it has none."""
    for family in FAMILIES.values():
        if name in family.architectures:
            return family
    raise UserError(f'architecture {name!r} belongs to no published family, so cannot be traded')
