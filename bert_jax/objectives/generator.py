"""Replaces tokens by samples of a small masked language model, the generator.

Source: Clark et al. 2020 (ELECTRA, arXiv 2003.10555), section 2.
"""

import dataclasses
import math
from collections.abc import Callable
from typing import NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
from flax.core import unfreeze

from bert_jax.errors import UserError, unknown
from bert_jax.models.architecture import Architecture
from bert_jax.models.dropout import fold_in, random_bits
from bert_jax.models.encoders import Encoder, build_encoder
from bert_jax.models.heads.prediction import MaskedLanguageModelHead
from bert_jax.models.model import Model, ModelOutput
from bert_jax.models.module import Module
from bert_jax.models.partitioning import param
from bert_jax.models.rows import Rows
from bert_jax.objectives.masking import MaskedText
from bert_jax.types import Key, Params, Tree

SEEDS = 'generator_seeds'  # label of rows: uint32 [B], seeds of the generator's samples
_SAMPLES = 1  # folded into an example's key for the seed of its samples
_DROPOUT = 2**31 - 1  # dropout site of the generator


class Sharing(NamedTuple):
    """How generator and discriminator share embeddings.

    Attributes:
        shared: Parts of the embeddings that the generator takes from the discriminator.
        separated: Parts of `shared` that only the generator's loss trains. The discriminator reads
            stop_gradient(E) + Δ, where Δ starts at 0.
    """

    shared: tuple[str, ...]
    separated: tuple[str, ...]


_ALL = ('token', 'position', 'type', 'norm')
SHARING = {
    'tied': Sharing(_ALL, ()),
    'disentangled': Sharing(_ALL, ('token',)),
    'gdes': Sharing(('token', 'position'), ('token', 'position')),
}
DELTAS = {'token': 'delta', 'position': 'position_delta'}  # part → the generator's parameter Δ


class ReplacedText(MaskedText):
    """The text with some tokens replaced by a generator.

    The corruption only masks tokens and draws seeds: the generator has parameters, so it runs as
    part of the model (`ModelWithGenerator`).
    """

    def __call__(self, keys_B: Key, rows: Rows) -> Rows:
        """Mask rows and draw the seeds of the generator's samples, the label SEEDS."""
        sample_keys_B = jax.vmap(jax.random.fold_in, (0, None))(keys_B, _SAMPLES)
        seeds_B = jax.vmap(jax.random.bits)(sample_keys_B)
        masked = super().__call__(keys_B, rows)
        return masked.replace(labels={**rows.labels, SEEDS: seeds_B})


@dataclasses.dataclass(frozen=True)
class GeneratorOptions:
    """Size of the generator and what it shares with the discriminator; `config.rtd`.

    Attributes:
        generator_width: Factor on the encoder's hidden size, heads and intermediate size.
        generator_depth: Factor on the encoder's number of layers.
        sharing: 'tied': both losses train the embeddings (ELECTRA). 'gdes': gradient-disentangled
            embedding sharing of tokens and positions; each model has its own norm and types
            (DeBERTaV3, He et al. 2021, arXiv 2111.09543, section 3.2; microsoft/DeBERTa,
            rtd_task.py). 'disentangled': disentangled for tokens only; both losses train the rest.
        temperature: Sampling temperature; 0 takes the most likely token.
    """

    generator_width: float
    generator_depth: float
    sharing: str
    temperature: float

    def __post_init__(self) -> None:
        if self.sharing not in SHARING:
            raise unknown('rtd.sharing', self.sharing, SHARING)
        for name in ('generator_width', 'generator_depth'):
            if not 0 < getattr(self, name) < math.inf:
                raise UserError(f'rtd.{name} is {getattr(self, name)}, must be above 0 and finite')


def generator_architecture(architecture: Architecture, options: GeneratorOptions) -> Architecture:
    """Return a smaller architecture of the same kind, with embeddings of the same width.

    Raises:
        UserError: If a mask decoder would add positions that are wider than the hidden states.
    """
    width, depth = options.generator_width, options.generator_depth
    heads = max(1, round(architecture.num_heads * width))
    size = heads * max(2, 2 * round(architecture.hidden_size * width / heads / 2))
    layers = max(1, round(architecture.num_layers * depth))
    embedding_width = architecture.embedding_width
    if architecture.positions.kind == 'mask_decoder' and size != embedding_width:
        raise UserError(
            f'rtd.generator_width is {width}, which makes the generator {size} wide, but with '
            f'model.positions=mask_decoder it must be as wide as its embeddings ({embedding_width})'
        )
    return dataclasses.replace(
        architecture,
        hidden_size=size,
        num_layers=layers,
        num_heads=heads,
        intermediate_size=max(1, round(architecture.intermediate_size * width)),
        embedding_size=None if embedding_width == size else embedding_width,
        pooler=False,
    )


def deployed(params: Params) -> dict[str, Tree]:
    """Return the parameters of the discriminator alone, with the embeddings that it reads.

    Separated embeddings are the generator's embeddings plus a learned difference.
    """
    embeddings = dict(params['encoder']['embeddings'])
    for part, delta in DELTAS.items():
        if delta in params['generator']:
            embeddings[part] = embeddings[part] + params['generator'][delta]
    encoder = params['encoder'] | {'embeddings': embeddings}
    parts = {part: leaves for part, leaves in params.items() if part != 'generator'}
    return parts | {'encoder': encoder}


def deployed_generator(
    architecture: Architecture, options: GeneratorOptions, params: Params
) -> tuple[Architecture, dict[str, Tree]]:
    """Return the architecture and the parameters of the generator, an encoder with the head mlm."""
    generator = params['generator']
    embeddings = generator['encoder'].get('embeddings', {}) | {
        name: array
        for name, array in params['encoder']['embeddings'].items()
        if name in SHARING[options.sharing].shared
    }
    encoder = generator['encoder'] | {'embeddings': embeddings}
    parts = {'encoder': encoder, 'mlm': {'head': generator['head']}}
    return generator_architecture(architecture, options), parts


class TokenGenerator(Module):
    """A small masked language model that shares the discriminator's embeddings.

    Parameters: `encoder` (without the shared embeddings), `head` and, for separated embeddings,
    `delta` [padded_vocab_size, E] and `position_delta` [max_position_embeddings, E], initially 0.

    Attributes:
        architecture: The discriminator's architecture.
        compute: Precision and kernels.
        options: Size and sharing.
    """

    options: GeneratorOptions

    def setup(self) -> None:
        self.smaller = generator_architecture(self.architecture, self.options)
        self.encoder = self.param('encoder', self._init_encoder)
        self.head = MaskedLanguageModelHead(self.smaller, self.compute)
        architecture, zeros = self.architecture, nn.initializers.zeros
        width = architecture.embedding_width
        rows = {'token': ('vocab', architecture.padded_vocab_size)}
        if architecture.positions.kind != 'none':
            rows['position'] = ('positions', architecture.max_position_embeddings)
        self.deltas = {
            part: param(self, DELTAS[part], zeros, (num_rows, width), (axis, 'embed'))
            for part, (axis, num_rows) in rows.items()
            if part in self.sharing.separated
        }

    @property
    def sharing(self) -> Sharing:
        return SHARING[self.options.sharing]

    def __call__(
        self,
        masked: Rows,
        embeddings: dict[str, Tree],
        dropout_seeds_B: jax.Array | None,
    ) -> tuple[Rows, dict[str, Tree], jax.Array]:
        """Fill in masked rows.

        Args:
            masked: The rows of a `ReplacedText`.
            embeddings: The discriminator's embedding parameters.
            dropout_seeds_B: uint32, one per example; None for evaluation.

        Returns:
            The filled-in rows, the embeddings with which the discriminator reads them, and the
            logits of the masked tokens, float32 [B, P, V].
        """
        logits_BPV = self._logits(masked, embeddings, dropout_seeds_B)
        fixed_BPV = jax.lax.stop_gradient(logits_BPV)
        samples_BP = gumbel_samples(
            fixed_BPV, self.options.temperature, jnp.asarray(masked.labels[SEEDS])
        )
        for part, delta in self.deltas.items():
            embeddings = embeddings | {part: jax.lax.stop_gradient(embeddings[part]) + delta}
        return put_samples(masked, samples_BP), embeddings, logits_BPV

    def _unbound_encoder(self) -> Encoder:
        """Build an encoder without a parent, because some parameters are the discriminator's."""
        return build_encoder(self.smaller, self.compute, parent=None)

    def _init_encoder(self, key: Key) -> dict[str, Tree]:
        ids = jnp.zeros((1, 1), jnp.int32)
        params = self._unbound_encoder().init(key, Rows(ids, ids + 1))['params']
        shared = self.sharing.shared
        unshared = {name: p for name, p in params['embeddings'].items() if name not in shared}
        all_params: dict[str, Tree] = params | {'embeddings': unshared}
        return all_params

    def _logits(
        self,
        masked: Rows,
        embeddings: dict[str, Tree],
        dropout_seeds_B: jax.Array | None,
    ) -> jax.Array:
        """Return the logits at the masked positions, float32 [B, P, V]."""
        shared = {name: p for name, p in embeddings.items() if name in self.sharing.shared}
        params = unfreeze(self.encoder)
        params = params | {'embeddings': params['embeddings'] | shared}
        seeds_B = fold_in(dropout_seeds_B, _DROPOUT)
        output: Tree = self._unbound_encoder().apply({'params': params}, masked, seeds_B)
        return self.head(output._replace(embedding_VE=embeddings['token']), masked)


class ModelWithGenerator(Model):
    """A model whose encoder reads the samples of a generator, and the generator.

    The logits of the generator, float32 [B, P, V], are the output of the head 'mlm'.

    Parameters: those of `Model` and `generator`.

    Attributes:
        options: Size and sharing of the generator.
    """

    options: GeneratorOptions = dataclasses.field(kw_only=True)

    def setup(self) -> None:
        super().setup()
        self.generator = TokenGenerator(self.architecture, self.compute, self.options)

    def __call__(
        self, rows: Rows, dropout_seeds_B: jax.Array | None = None, *, all_hidden: bool = False
    ) -> ModelOutput:
        """Fill in the rows of a `ReplacedText`, encode them and compute the heads."""
        if self.is_initializing():  # create the embeddings, which the generator shares
            self.encoder(rows)
        params = unfreeze(nn.unbox(self.encoder.variables))['params']
        rows, embeddings, logits_BPV = self.generator(rows, params['embeddings'], dropout_seeds_B)
        encoder = build_encoder(self.architecture, self.compute, parent=None)
        variables = {'params': params | {'embeddings': embeddings}}
        states: Tree = encoder.apply(variables, rows, dropout_seeds_B, all_hidden=all_hidden)
        output = self.apply_heads(rows, states, dropout_seeds_B)
        return output._replace(heads={**output.heads, 'mlm': logits_BPV})

    @nn.nowrap
    def flops_per_token(self, sequence_length: int, num_predictions: int) -> float:
        """Add the operations of the generator."""
        sizes = (sequence_length, num_predictions)
        smaller = generator_architecture(self.architecture, self.options)
        generator = Model(smaller, self.compute, {'mlm': {}})
        return super().flops_per_token(*sizes) + generator.flops_per_token(*sizes)


def gumbel_samples(logits_BPV: jax.Array, temperature: float, seeds_B: jax.Array) -> jax.Array:
    """Draw tokens from softmax(logits / temperature), int32 [B, P].

    Takes argmax(logits + temperature · G) with standard Gumbel draws G that depend on the example's
    seed, the slot and the token alone. Finds the maximum by comparison, because XLA's argmax is
    several times slower on CPU.
    """
    bits_BPV = random_bits(logits_BPV.shape, seeds_B)
    uniform_BPV = ((bits_BPV >> 9).astype(jnp.float32) + 0.5) * 2.0**-23  # 0 < u < 1, exact
    scores_BPV = logits_BPV - temperature * jnp.log(-jnp.log(uniform_BPV))
    is_best_BPV = scores_BPV >= scores_BPV.max(axis=-1, keepdims=True)
    ids_BPV = jax.lax.broadcasted_iota(jnp.int32, scores_BPV.shape, 2)
    return jnp.max(jnp.where(is_best_BPV, ids_BPV, 0), axis=-1)


def put_samples(masked: Rows, samples_BP: jax.Array) -> Rows:
    """Put the samples in place of the predicted tokens.

    Tokens that the masking chose but kept are replaced as well, as in google-research/electra
    run_pretraining.py, get_fake_data.
    """
    positions_BP, original_BP, weights_BP = masked.chosen
    new_BP = jnp.where(jnp.asarray(weights_BP) > 0, samples_BP, original_BP)
    put: Callable[..., jax.Array] = jax.vmap(
        lambda ids_T, positions_P, new_P: ids_T.at[positions_P].set(new_P)
    )
    return masked.replace(input_ids_BT=put(jnp.asarray(masked.input_ids_BT), positions_BP, new_BP))
