"""Names of layers, which mean the same in every command, in Python and in `model.head_states`.

0 … L           the embeddings, and the layers; −1 … −L−1 count from the last layer.
last            layer L.
sum_last_4, mean_last_4, concat_last_4
                of the last four layers (Devlin et al. 2019, section 5.3).
"""

import re
from collections.abc import Sequence

from bert_jax.errors import UserError

OF_LAST_FOUR = ('sum_last_4', 'mean_last_4', 'concat_last_4')


def resolve(layer: int | str, num_layers: int, owner: str, others: Sequence[str] = ()) -> int | str:
    """Find a layer or a combination of layers.

    Args:
        layer: a name of the table above, or a number of it as an int or as text.
        num_layers: L of the encoder.
        owner: the model, for errors.
        others: further names that the caller knows.

    Returns:
        The number of the layer from 0 to L, or the name of a combination or of `others`.

    Raises:
        UserError: the encoder has no such layer, or fewer than four layers to combine.
    """
    name = str(layer)
    if name == 'last':
        return num_layers
    if re.fullmatch('-?[0-9]+', name) and -num_layers - 1 <= int(name) <= num_layers:
        return int(name) % (num_layers + 1)
    if name in OF_LAST_FOUR and num_layers < 4:
        raise UserError(
            f"{name} needs 4 layers, but {owner} has {num_layers}; 'last' is its last layer"
        )
    if name in (*OF_LAST_FOUR, *others):
        return name
    known = ', '.join(('last', *OF_LAST_FOUR, *others))
    raise UserError(
        f'{owner} has no layer {name}; it must be a number from 0 (embeddings) to {num_layers}, '
        f'negative from the last, or {known}'
    )
