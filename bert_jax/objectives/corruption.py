"""The form in which the encoder is shown the text, which all objectives of a run share.

masked     chosen tokens are hidden (masking.py)
replaced   and filled by a generator (replacing.py)
causal     as it is, but nothing is seen of what is to the right (clm.py)
edited     tokens and sentences are moved, left out, put in (editing.py)
"""

from dataclasses import dataclass

import jax

from bert_jax.errors import UserError, unknown
from bert_jax.objectives import OBJECTIVES
from bert_jax.objectives.clm import next_tokens
from bert_jax.objectives.edits import Edited, Editing
from bert_jax.objectives.generator import Drafted
from bert_jax.objectives.masking import Masked, Masking, mask_tokens

_SAMPLES = 1  # a purpose beside masking of an example's key


@dataclass(frozen=True, eq=False)
class Corruption:
    """From a clean batch to what the objectives train on, one key an example.

    num_predictions: masked tokens at most, by sequence length.
    """

    form: str
    masking: Masking
    editing: Editing
    num_predictions: dict[int, int]

    def __call__(self, keys_B, batch) -> Masked | Drafted | Edited:
        return FORMS[self.form](self, keys_B, batch)

    def masked(self, keys_B, batch) -> Masked:
        """Tokens hidden by the scheme."""
        ids_BT, mask_BT = batch['input_ids'], batch['attention_mask']
        return mask_tokens(
            self.masking, keys_B, ids_BT, mask_BT, self.num_predictions[ids_BT.shape[1]]
        )

    def drafted(self, keys_B, batch) -> Drafted:
        """Tokens hidden by the scheme, and the seeds of what a generator puts in their place."""
        sample_keys_B = jax.vmap(jax.random.fold_in, (0, None))(keys_B, _SAMPLES)
        return Drafted(self.masked(keys_B, batch), jax.vmap(jax.random.bits)(sample_keys_B))

    def causal(self, keys_B, batch) -> Masked:
        """Nothing hidden; every next token to be predicted."""
        return next_tokens(self.masking, batch['input_ids'], batch['attention_mask'])

    def edited(self, keys_B, batch) -> Edited:
        """All edits that are to be found."""
        return self.editing(keys_B, batch)


FORMS = {
    'masked': Corruption.masked,
    'replaced': Corruption.drafted,
    'causal': Corruption.causal,
    'edited': Corruption.edited,
}


def with_weight(weights) -> tuple[str, ...]:
    """The names of the objectives with a weight, in the order of the table. Raises UserError for an
    unknown name, a negative weight, or none above 0."""
    for name, weight in weights.items():
        if name not in OBJECTIVES:
            raise unknown('objective', name, OBJECTIVES)
        if not 0 <= weight < float('inf'):
            raise UserError(
                f'objectives.{name} is {weight}; a weight must be a number of at least 0'
            )
    names = tuple(name for name in OBJECTIVES if weights.get(name, 0) > 0)
    if not names:
        raise UserError('objectives: none has a weight above 0')
    return names


def common_form(names, masking_scheme: str) -> str:
    """The form that suits all these objectives. Raises UserError where there is none, where one
    lacks another that it needs, or the masking scheme it needs."""
    for name in names:
        objective = OBJECTIVES[name]
        for other in getattr(objective, 'beside', ()):
            if other not in names:
                raise UserError(f'objective {name!r} needs {other!r} too, with a weight above 0')
        schemes = getattr(objective, 'schemes', (masking_scheme,))
        if masking_scheme not in schemes:
            raise UserError(
                f'objective {name!r} needs masking.scheme {" or ".join(map(repr, schemes))}, not '
                f'{masking_scheme!r}'
            )
    for form in FORMS:
        if all(form in OBJECTIVES[name].forms for name in names):
            return form
    wanted = '; '.join(f'{name}: {" or ".join(OBJECTIVES[name].forms)}' for name in names)
    raise UserError(
        f'objectives: one encoder pass cannot show the text in all these forms ({wanted}); give '
        'those of one form a weight'
    )


def loss_weights(weights) -> dict[str, float]:
    """Term → weight of the training loss."""
    return {
        term: weights[name]
        for name in with_weight(weights)
        for term in getattr(OBJECTIVES[name], 'losses', (f'{name}_loss',))
    }
