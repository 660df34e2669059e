"""Measures greedy decoding with and without the cache of earlier keys and values, in turns.

    python experiments/benchmarks/decoding.py --rounds=7

Both sides write the same tokens with random parameters: for sources of `--length` tokens with the
decoder of BART and T5, and after prompts of this length with GPT-2. With a decoder, both encode the
sources once and keep the keys and values that cross-attention needs; without the cache, the decoder
reads all tokens so far for each new one. Their number is rounded up to a multiple of 16, so that
few shapes are compiled. Prints the median seconds, and the median ratio with its range.
"""

import argparse
import functools
import json
import statistics
import sys
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import report
from flax import linen as nn

from bert_jax.inference.decoding import Constraints
from bert_jax.inference.next_tokens import (
    CausalPredict,
    Predict,
    TargetPredict,
    Texts,
    read_prompts,
    start_targets,
    write_token,
)
from bert_jax.models import architectures
from bert_jax.models.architecture import Compute
from bert_jax.models.architecture_parts import DecoderStack
from bert_jax.models.model import Model
from bert_jax.models.rows import Rows
from bert_jax.training import runtime
from bert_jax.types import Params

MULTIPLE = 16
VOCABULARY = 8000
SIZES = {'hidden_size': 256, 'num_heads': 4, 'intermediate_size': 1024, 'vocab_size': VOCABULARY}
MODELS = {  # six layers each
    'bart': {'num_layers': 3, 'decoder': DecoderStack(3)},
    't5': {'num_layers': 3, 'decoder': DecoderStack(3, start='pad')},
    'gpt2': {'num_layers': 6},
}


class Side:
    """A model with random parameters, and the sources or prompts that it reads."""

    def __init__(self, name: str, flags: argparse.Namespace):
        self.has_decoder, self.tokens = 'decoder' in MODELS[name], flags.tokens
        architecture = architectures.build(name, **SIZES, **MODELS[name])
        head = 'seq2seq' if self.has_decoder else 'clm'
        self.model = Model(architecture, Compute(), {head: {}}, is_causal=not self.has_decoder)
        rng = np.random.default_rng(0)
        ids_BT = rng.integers(5, VOCABULARY, (flags.batch, flags.length), np.int32)
        self.rows = Rows(ids_BT, np.ones_like(ids_BT))
        target = self.rows if self.has_decoder else None
        self.params = jax.jit(
            lambda: nn.unbox(self.model.init(jax.random.key(0), self.rows.replace(target=target)))
        )()['params']

    def start(self) -> tuple[Predict, Params, Texts]:
        """Read the sources or prompts."""
        num_rows, length = self.rows.input_ids_BT.shape
        if self.has_decoder:
            start_B = np.full(num_rows, 2, np.int32)
            arguments = (self.model, self.params, self.rows, start_B, self.tokens)
            texts, fixed = start_targets(*arguments)
            return TargetPredict(self.model), fixed, texts
        length_B = np.full(num_rows, length, np.int32)
        arguments = (self.model, self.params, self.rows.input_ids_BT, length_B, self.tokens)
        return CausalPredict(self.model), self.params, read_prompts(*arguments)

    def with_cache(self) -> np.ndarray:
        """Write with the cache, int32 [B, T + new tokens]."""
        predict, fixed, texts = self.start()
        keys_B = jax.random.split(jax.random.key(0), len(texts.length_B))
        for _ in range(self.tokens):
            texts = write_token(predict, fixed, texts, Constraints(self.tokens), None, keys_B)
        return np.asarray(texts.ids_BT)

    def without_cache(self) -> np.ndarray:
        """Write and read all tokens again for each new one."""
        _, fixed, texts = self.start()
        ids_BT, first = texts.ids_BT, int(texts.length_B[0])
        for number in range(first, first + self.tokens):
            length = min(-(-number // MULTIPLE) * MULTIPLE, ids_BT.shape[1])
            ids_BT = _write(self.model, length, fixed, ids_BT, number)
        return np.asarray(ids_BT)


@functools.partial(jax.jit, static_argnums=(0, 1))
def _write(model: Model, length: int, fixed: Params, ids_BT: jax.Array, number: int) -> jax.Array:
    """Put the next token after the first `number` tokens, which are among the first `length`."""
    rows = Rows(ids_BT[:, :length], jnp.ones_like(ids_BT[:, :length]))
    if model.architecture.decoder is None:
        logits_BTV = model.apply({'params': fixed}, rows).heads['clm']
    else:
        params, memory = fixed
        output = model.apply({'params': params}, rows, memory, method='decode')
        logits_BTV = output.heads['seq2seq']
    logits_BV = jnp.take(logits_BTV, number - 1, axis=1)[:, :VOCABULARY]
    return ids_BT.at[:, number].set(jnp.argmax(logits_BV, axis=1).astype(jnp.int32))


def measure(name: str, flags: argparse.Namespace) -> dict[str, object]:
    """The record of a model."""
    side = Side(name, flags)
    sides: dict[str, Callable[[], np.ndarray]] = {
        'with': side.with_cache,
        'without': side.without_cache,
    }
    np.testing.assert_array_equal(*(write() for write in sides.values()))  # compiles
    seconds = report.take_turns(sides, flags.rounds)
    ratios = [slow / fast for fast, slow in zip(seconds['with'], seconds['without'], strict=True)]
    return {
        'model': name,
        'seconds': round(statistics.median(seconds['with']), 3),
        'seconds_without_cache': round(statistics.median(seconds['without']), 3),
        'ratio': round(statistics.median(ratios), 1),
        'range': [round(min(ratios), 1), round(max(ratios), 1)],
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument('--batch', type=int, default=4, help='texts')
    parser.add_argument('--length', type=int, default=64, help='tokens of a source or prompt')
    parser.add_argument('--tokens', type=int, default=64, help='new tokens')
    parser.add_argument('--rounds', type=int, default=7)
    parser.add_argument('--models', default=','.join(MODELS))
    flags = parser.parse_args()
    runtime.keep_freed_memory()
    for name in flags.models.split(','):
        print(json.dumps(measure(name, flags)), flush=True)


if __name__ == '__main__':
    sys.exit(main())
