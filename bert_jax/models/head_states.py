"""The states that fine-tuning heads read: of a layer or a combination, and through an LSTM.

Values of `Architecture.head_states` are those of layer_names.py, and
    mix: γ Σ softmax(w)_l h_l over the embeddings and all layers, with learned w and γ (Peters et
        al. 2018, arXiv 1802.05365, equation 1).
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from flax import linen as nn

from bert_jax.models.architecture import Architecture, Compute
from bert_jax.models.encoders import EncoderOutput
from bert_jax.models.module import Module
from bert_jax.models.partitioning import param
from bert_jax.models.recurrence import Bidirectional
from bert_jax.models.rows import Rows
from bert_jax.types import Key, Params, Tree

# Name → function of the states of all layers [L + 1, B, T, D].
COMBINATIONS: dict[str, Callable[[jax.Array], jax.Array]] = {
    'sum_last_4': lambda states_LBTD: states_LBTD[-4:].sum(0),
    'mean_last_4': lambda states_LBTD: states_LBTD[-4:].mean(0),
    'concat_last_4': lambda states_LBTD: jnp.concatenate(states_LBTD[-4:], axis=-1),
    'all': lambda states_LBTD: jnp.moveaxis(states_LBTD, 0, 2),
}


def mix(states_LX: jax.Array, weights_L: jax.Array, scale: jax.Array) -> jax.Array:
    """Return γ Σ softmax(w)_l h_l, fp32 […].

    Args:
        states_LX: the states h of L layers, [L, …].
        weights_L: w, fp32.
        scale: γ, fp32.
    """
    shares_L = jax.nn.softmax(weights_L)
    states_LX = states_LX.astype(jnp.float32)
    return scale * jnp.tensordot(shares_L, states_LX, axes=1, precision='highest')


def describe_states(architecture: Architecture) -> str:
    """Say in words which states heads read."""
    number, name = architecture.head_layer, architecture.head_states
    of_layer = {'last': 'the last layer', 'mix': 'a learned mix of all layers'}
    text = of_layer.get(name, name if number is None else f'layer {number}')
    lstm = architecture.head_lstm
    if lstm.layers:
        text += f' through {lstm.layers} bidirectional LSTM layers of {lstm.size} states each way'
    return text


class HeadStates(Module):
    """The states of `architecture.head_states`, read by the LSTM of `architecture.head_lstm`.

    Parameters: weights [L + 1], initially 0, and scale, initially 1, of a mix; lstm.
    """

    @nn.compact
    def __call__(self, states: EncoderOutput, rows: Rows) -> EncoderOutput:
        """Replace the states of the last layer; the pooled state, which has read them, is None.

        Args:
            states: with the states of all layers if `reads_all_layers`.
            rows: the rows that were encoded.
        """
        hidden_BTD, lstm = self._layers(states), self._lstm('lstm')
        if lstm is not None:
            hidden_BTD = lstm(hidden_BTD, rows)
        return states._replace(hidden_BTD=hidden_BTD, pooled_BD=None)

    def _layers(self, states: EncoderOutput) -> jax.Array:
        name = self.architecture.head_states
        if name == 'last':
            return states.hidden_BTD
        states_LBTD = states.all_hidden_LBTD
        assert states_LBTD is not None
        if (number := self.architecture.head_layer) is not None:
            return states_LBTD[number]
        if name in COMBINATIONS:
            return COMBINATIONS[name](states_LBTD)
        weights_L = param(self, 'weights', nn.initializers.zeros, (len(states_LBTD),), (None,))
        scale = param(self, 'scale', nn.initializers.ones, (), ())
        return mix(states_LBTD, weights_L, scale).astype(states_LBTD.dtype)

    @nn.nowrap
    def initial(self, key: Key) -> Params:
        """Initialize parameters; the encoder is not run."""
        size, layers = self.architecture.hidden_size, self.architecture.num_layers
        zeros = jnp.zeros((layers + 1, 1, 1, size))
        rows = Rows(jnp.zeros((1, 1), jnp.int32), jnp.ones((1, 1), jnp.int32))
        variables = self.init(key, EncoderOutput(zeros[-1], None, zeros), rows)
        params: Params = variables['params']
        return params

    @nn.nowrap
    def _lstm(self, name: str | None = None) -> Bidirectional | None:
        options = self.architecture.head_lstm
        if not options.layers:
            return None
        sizes = (options.layers, options.size)
        return Bidirectional(self.architecture, self.compute, *sizes, name=name)

    @nn.nowrap
    def flops(self, sequence_length: int) -> int:
        """Return the forward operations of the LSTM per sequence."""
        lstm = HeadStates(self.architecture, self.compute, parent=None)._lstm()
        size = self.architecture.hidden_size
        width = 4 * size if self.architecture.head_states == 'concat_last_4' else size
        return 0 if lstm is None else lstm.flops(width, sequence_length)


def with_lstm(params: Params) -> Tree | None:
    """The parameters of the `HeadStates` of a model whose head reads an LSTM; None: it has none."""
    of_parts = (part.get('states', {}) for part in params.values())
    return next((states for states in of_parts if 'lstm' in states), None)


def lstm_layer(
    architecture: Architecture,
    compute: Compute,
    number: int,
    params: Tree,
    states: EncoderOutput,
    rows: Rows,
) -> jax.Array:
    """Return the states of a layer of the LSTM, both directions: fp32 [B, T, 2U].

    Args:
        architecture, compute: of the model.
        number: of the layer, from 1.
        params: of `HeadStates`; see `with_lstm`.
        states: of the encoder, with those of all layers.
        rows: the rows that were encoded.
    """
    cut = architecture.changed({'head_lstm.layers': number})
    output: Any = HeadStates(cut, compute).apply({'params': params}, states, rows)
    hidden_BTU: jax.Array = output.hidden_BTD.astype(jnp.float32)
    return hidden_BTU
