"""Published model families by model_type; a new one is a file here and a line in FAMILIES."""

from bert_jax.errors import UserError, unknown
from bert_jax.interop.families import (
    albert,
    bert,
    deberta,
    distilbert,
    electra,
    modernbert,
    roberta,
)
from bert_jax.interop.families.family import Family

FAMILIES: dict[str, Family] = {
    'albert': albert.FAMILY,
    'bert': bert.FAMILY,
    'deberta': deberta.V1,
    'deberta-v2': deberta.V2,
    'distilbert': distilbert.FAMILY,
    'electra': electra.FAMILY,
    'modernbert': modernbert.FAMILY,
    'roberta': roberta.ROBERTA,
    'xlm-roberta': roberta.XLM_R,
}


def by_model_type(model_type: str | None) -> Family:
    """The family of a model_type. Raises UserError if it is unknown or None."""
    if model_type is None:
        raise UserError(
            'the architecture belongs to no published family, so the model cannot be exported'
        )
    if model_type not in FAMILIES:
        raise unknown('model_type', str(model_type), FAMILIES)
    return FAMILIES[model_type]


def of_architecture(name: str) -> str | None:
    """The model_type of the family of one of our architectures; None if it has no family."""
    return next((kind for kind, family in FAMILIES.items() if name in family.architectures), None)
