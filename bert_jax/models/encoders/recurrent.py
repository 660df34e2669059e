"""The recurrent encoder of ELMo: LSTM layers in both directions that do not read each other."""

import jax
import jax.numpy as jnp
from flax import linen as nn

from bert_jax.errors import UserError
from bert_jax.models.architecture import Architecture, Compute
from bert_jax.models.dropout import dropout, fold_in
from bert_jax.models.embeddings import Embeddings
from bert_jax.models.encoders import Encoder, EncoderOutput
from bert_jax.models.module import Module
from bert_jax.models.recurrence import Layer
from bert_jax.models.rows import Rows

_DIRECTIONS = ('forward', 'backward')


class Recurrent(Encoder):
    """A bidirectional language model's encoder (Peters et al. 2018, arXiv 1802.05365, section 3.1).

    The states are [forward; backward], each half of the hidden size. Cells have intermediate_size
    values and are projected to half of the hidden size; cells and projections are clipped, and from
    the second layer on the input of a layer is added to its output (allenai/bilm-tf, training.py).
    Layer 0 is the token vector, twice. States start at zero in every sequence: unlike the original,
    no state is carried from one batch to the next.

    Parameters, all fp32: embeddings; layers_0 … layers_{L−1}, each with forward and backward.

    Raises:
        UserError: a setting of `Compute` or a tuning method that only the Transformer has.
    """

    def setup(self) -> None:
        _check(self.architecture, self.compute)
        self.embeddings = Embeddings(_of_direction(self.architecture), self.compute)
        numbers = range(self.architecture.num_layers)
        self.layers = [_BothDirections(self.architecture, self.compute) for _ in numbers]

    def __call__(
        self,
        rows: Rows,
        dropout_seeds_B: jax.Array | None = None,
        *,
        all_hidden: bool = False,
        causal: bool = False,
    ) -> EncoderOutput:
        if causal:
            raise UserError(
                'the recurrent encoder reads both directions; train it with objectives.bilm, not '
                'with a causal objective'
            )
        x_BTE = self.embeddings(rows, fold_in(dropout_seeds_B, 0))
        hidden = [jnp.concatenate([x_BTE, x_BTE], axis=-1)]
        for number, layer in enumerate(self.layers):
            seeds_B = fold_in(dropout_seeds_B, 1 + number)
            hidden.append(layer(hidden[-1], rows, seeds_B, is_residual=number > 0))
        states_LBTD = jnp.stack(hidden) if all_hidden else None
        return EncoderOutput(hidden[-1], None, states_LBTD)


class _BothDirections(Module):
    """A layer: the two halves of its input and output are the two directions."""

    @nn.compact
    def __call__(
        self, x_BTD: jax.Array, rows: Rows, seeds_B: jax.Array | None, *, is_residual: bool
    ) -> jax.Array:
        architecture, outputs = self.architecture, []
        assert architecture.recurrence is not None
        for site, (name, x_BTE) in enumerate(
            zip(_DIRECTIONS, jnp.split(x_BTD, 2, axis=-1), strict=True)
        ):
            layer = Layer(
                architecture,
                self.compute,
                architecture.intermediate_size,
                reverse=name == 'backward',
                projection=architecture.embedding_width,
                clip=architecture.recurrence.clip,
                name=name,
            )
            x_BTE = dropout(x_BTE, architecture.hidden_dropout, fold_in(seeds_B, site))
            h_BTE = layer(x_BTE, rows)
            outputs.append(h_BTE + x_BTE if is_residual else h_BTE)
        return jnp.concatenate(outputs, axis=-1)


def _of_direction(architecture: Architecture) -> Architecture:
    """The architecture of the embeddings, which both directions read."""
    width, plain = architecture.embedding_width, {'encoder': 'transformer', 'recurrence': None}
    return architecture.changed({'hidden_size': width, 'num_heads': 1, **plain})


def _check(architecture: Architecture, compute: Compute) -> None:
    for name in ('scan_layers', 'remat'):
        if getattr(compute, name):
            raise UserError(f'compute.{name}=True is for the Transformer; set it to False')
    if architecture.tuning is not None:
        raise UserError(
            f'transfer.method={architecture.tuning.method} changes layers of a Transformer; the '
            'recurrent encoder has transfer.method=full, with transfer.trainable'
        )
