"""The option --layers: names of layers, as in every command (models/layer_names.py)."""

from typing import Any

from bert_jax.analyze.base import AnalyzedModel
from bert_jax.flag_parser import flag
from bert_jax.inference import vectors

Layer = int | str
OF_WORDS = 'mean_last_4'  # the default for vectors of words


def declare(default: str = OF_WORDS) -> Any:
    """Declare the flag --layers, whose value None is the default."""
    if '_last_4' in default:
        default += ', or last in models of fewer than four layers'
    return flag(
        'comma-separated layers: numbers (0: the embeddings; negative: from the last layer), last, '
        'sum_last_4, mean_last_4, concat_last_4, lstm_1, … (the LSTM of a fine-tuned head); or '
        f'all, those of the encoder (default: {default})',
        None,
    )


def parse(text: str | None, model: AnalyzedModel, default: str = OF_WORDS) -> tuple[Layer, ...]:
    """Parse --layers, without repetitions.

    Raises:
        UserError: the model does not have one of the layers, or their states differ in size.
    """
    last = model.num_layers
    if text is None:
        text = 'last' if '_last_4' in default and last < 4 else default
    names = tuple(text.split(',')) if text != 'all' else (*range(last + 1),)
    found = vectors.layers(model.predictor, names)
    assert isinstance(found, tuple)
    return tuple(dict.fromkeys(found))


def describe(layer: Layer) -> str:
    """A layer in words: 'layer 3', 'mean of the last 4', 'lstm_1'."""
    if isinstance(layer, int):
        return f'layer {layer}'
    return layer.replace('_last_4', ' of the last 4')
