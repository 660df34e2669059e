"""The option --layers: names of layers, and of combinations of the last four layers."""

from typing import Any

from bert_jax.analyze.base import AnalyzedModel
from bert_jax.errors import unknown
from bert_jax.flag_parser import flag

_COMBINATIONS = ('sum_last_4', 'mean_last_4')
Layer = int | str


def declare(default: str = 'mean_last_4,-1') -> Any:
    """Declare the flag --layers."""
    return flag(
        'comma-separated layers: numbers (0: the embeddings; negative: from the last layer), '
        'sum_last_4, mean_last_4; or all',
        default,
    )


def parse(text: str, model: AnalyzedModel) -> tuple[Layer, ...]:
    """Parse --layers. With fewer than four layers, a combination is the last layer instead.

    Raises:
        UserError: the model does not have one of the layers.
    """
    last = model.num_layers
    names: list[Layer] = list(range(last + 1)) if text == 'all' else []
    for name in text.split(',') if text != 'all' else ():
        if name in _COMBINATIONS:
            names.append(name if last >= 4 else last)
        elif name.removeprefix('-').isdecimal() and -last - 1 <= int(name) <= last:
            names.append(int(name) % (last + 1))
        else:
            raise unknown(f'layer of {model.name}', name, [f'0 to {last}', *_COMBINATIONS, 'all'])
    return tuple(dict.fromkeys(names))


def describe(layer: Layer) -> str:
    """A layer in words: 'layer 3', 'mean of the last 4'."""
    if isinstance(layer, int):
        return f'layer {layer}'
    return f'{layer.removesuffix("_last_4")} of the last 4'
