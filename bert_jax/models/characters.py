"""Vectors of tokens from their characters: a convolutional network with highway layers.

Peters et al. 2018, arXiv 1802.05365, section 3.4; Kim et al. 2016, "Character-Aware Neural Language
Models", arXiv 1508.06615; allenai/bilm-tf training.py (_build_word_char_embeddings) and data.py
(UnicodeCharsVocabulary).
"""

import functools
import json
from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn

from bert_jax.models.architecture_parts import (
    CHARACTERS,
    FILTER_WIDTHS,
    WORD_LENGTH,
    Characters,
)
from bert_jax.models.linear import product
from bert_jax.models.module import Module
from bert_jax.models.partitioning import param
from bert_jax.types import Array

_TEXT_BEGIN, _TEXT_END, _BEGIN, _END, _PADDING = range(256, CHARACTERS)
_CARRY_BIAS = -2.0  # at the start, highways let most of their input pass


def spell(vocab: Sequence[str], cls_id: int, sep_id: int) -> str:
    """Return how the tokens of a vocabulary are written, for `Characters.spelling`.

    A JSON list with the text of each id, or the code of [CLS] (begin of a text) and [SEP] (end).
    Marks of the vocabulary, such as ## or ▁, belong to the text.
    """
    tokens: list[str | int] = list(vocab)
    tokens[cls_id], tokens[sep_id] = _TEXT_BEGIN, _TEXT_END
    return json.dumps(tokens, ensure_ascii=False)


@functools.lru_cache(maxsize=4)
def character_ids(spelling: str, num_rows: int) -> np.ndarray:
    """Return the character ids of each token, int32 [V, WORD_LENGTH].

    A token is begin, the bytes of its text in UTF-8 (the first WORD_LENGTH − 2), end, and padding;
    rows without a token are padding.
    """
    ids_VN = np.full((num_rows, WORD_LENGTH), _PADDING, np.int32)
    for row, token in zip(ids_VN, json.loads(spelling), strict=False):
        middle = list(token.encode())[: WORD_LENGTH - 2] if isinstance(token, str) else [token]
        row[: len(middle) + 2] = [_BEGIN, *middle, _END]
    return ids_VN


class CharacterEmbeddings(Module):
    """Character vectors, convolutions of widths 1 to 7, maximum, ReLU, highways, projection.

    A highway is g · ReLU(x W + b) + (1 − g) · x with g = σ(x V + c) (Srivastava et al. 2015, arXiv
    1505.00387).

    Parameters, all fp32: character [261, size]; for each width, kernel_w [w, size, N] and bias_w;
    for each highway, transform_i, transform_bias_i, carry_i and carry_bias_i; projection and bias.
    """

    @nn.compact
    def __call__(self, input_ids_BT: Array) -> jax.Array:
        """Return fp32 vectors [B, T, embedding_width] of token ids."""
        architecture, dtype = self.architecture, self.compute.activation_dtype
        options = architecture.characters
        assert options is not None
        table_VN = character_ids(options.spelling, architecture.padded_vocab_size)
        ids_XN = jnp.asarray(table_VN)[jnp.asarray(input_ids_BT).reshape(-1)]
        x_XE = self._convolve(ids_XN, options)
        for number in range(options.highways):
            x_XE = self._highway(x_XE, number)
        shape = (options.num_filters, architecture.embedding_width)
        projection = self._matrix('projection', shape)
        bias = param(self, 'bias', nn.initializers.zeros, shape[1:], (None,))
        x_XE = product('XF,FE->XE', x_XE, projection, dtype) + bias
        return x_XE.reshape(*input_ids_BT.shape, -1)

    def _convolve(self, ids_XN: jax.Array, options: Characters) -> jax.Array:
        """The largest value of each filter over the characters of a token, [X, num_filters]."""
        dtype, size = self.compute.activation_dtype, options.size
        table = param(self, 'character', _uniform(1.0), (CHARACTERS, size), (None, None))
        # One-hot products with few characters: their gradient needs no scatter.
        one_hot_XNC = jax.nn.one_hot(ids_XN, CHARACTERS, dtype=dtype)
        x_XNE = product('XNC,CE->XNE', one_hot_XNC, table, dtype).astype(dtype)
        outputs = []
        for width, number in zip(FILTER_WIDTHS, options.filters, strict=True):
            shape = (width, size, number)
            kernel = param(self, f'kernel_{width}', _uniform(0.05), shape, (None, None, None))
            bias = param(self, f'bias_{width}', nn.initializers.zeros, (number,), (None,))
            places = WORD_LENGTH - width + 1
            windows = [x_XNE[:, first : first + places] for first in range(width)]
            windows_XNF = jnp.concatenate(windows, axis=-1)
            y_XNF = product('XNF,FG->XNG', windows_XNF, kernel.reshape(-1, number), dtype)
            outputs.append(jax.nn.relu(y_XNF.max(1) + bias))
        return jnp.concatenate(outputs, axis=-1)

    def _highway(self, x_XF: jax.Array, number: int) -> jax.Array:
        size, dtype = x_XF.shape[-1], self.compute.activation_dtype

        def dense(name: str, bias: float) -> jax.Array:
            kernel = self._matrix(f'{name}_{number}', (size, size))
            init = nn.initializers.constant(bias)
            bias_F = param(self, f'{name}_bias_{number}', init, (size,), (None,))
            return product('XF,FG->XG', x_XF, kernel, dtype) + bias_F

        carry_XF = jax.nn.sigmoid(dense('carry', _CARRY_BIAS))
        return carry_XF * jax.nn.relu(dense('transform', 0.0)) + (1 - carry_XF) * x_XF

    def _matrix(self, name: str, shape: tuple[int, int]) -> jax.Array:
        return param(self, name, nn.initializers.normal(shape[0] ** -0.5), shape, (None, None))


def _uniform(bound: float) -> Callable[..., jax.Array]:
    """Initializer with values from −bound to bound."""
    init = nn.initializers.uniform(2 * bound)
    return lambda *args: init(*args) - bound
