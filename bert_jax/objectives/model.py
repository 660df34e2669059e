"""An encoder together with the heads of its pretraining objectives."""

import functools
from collections.abc import Callable, Mapping
from typing import Any

import flax.linen as nn
import jax
from flax.core import FrozenDict, unfreeze

from bert_jax.averages import Terms
from bert_jax.models.architecture import Architecture
from bert_jax.models.encoders import build_encoder
from bert_jax.models.flops import training_flops_per_token
from bert_jax.models.module import Module
from bert_jax.models.rows import Rows, Targets
from bert_jax.objectives import OBJECTIVES
from bert_jax.objectives.base import EncodedBatch
from bert_jax.objectives.generator import Generator, generator_architecture
from bert_jax.objectives.mlm import cross_entropy, masked_terms
from bert_jax.types import Batch


class PretrainingModel(Module):
    """An encoder with the heads of its objectives.

    Parameters: `encoder`, one entry per head under the name of its objective, and `generator` if an
    objective needs one.

    Attributes:
        architecture: The encoder's architecture.
        compute: Precision and kernels.
        objectives: Names in OBJECTIVES.
        options: Objective → its options; objectives without options may be left out.
    """

    objectives: tuple[str, ...]
    options: Mapping[str, Any] = FrozenDict()

    def setup(self) -> None:
        settings = (self.architecture, self.compute)
        self.encoder = build_encoder(*settings)
        if generator := self._find_generator():
            name, generator_class = generator
            self.generator = generator_class(*settings, self.options[name])
        for name in self.heads():
            setattr(self, name, OBJECTIVES[name](*settings, self.options.get(name)))

    @nn.nowrap
    def _find_generator(self) -> tuple[str, type[Generator]] | None:
        """Return the objective that needs a generator, and the generator's class."""
        for name in self.objectives:
            if generator_class := OBJECTIVES[name].generator:
                return name, generator_class
        return None

    @nn.nowrap
    def heads(self) -> tuple[str, ...]:
        """Return the objectives that have a head on the encoder, not on a generator."""
        generator = self._find_generator()
        on_generator = generator[1].trained_by if generator else ()
        return tuple(name for name in self.objectives if name not in on_generator)

    @nn.nowrap
    def mask_filler(self) -> str | None:
        """Return the objective whose head predicts masked tokens, if there is one."""
        return next((name for name in self.heads() if OBJECTIVES[name].fills_masks), None)

    @nn.nowrap
    def is_causal(self) -> bool:
        """Whether positions do not attend to later positions."""
        return any(OBJECTIVES[name].is_causal for name in self.objectives)

    @nn.nowrap
    def token_predictor(self) -> str | None:
        """Return the objective whose head predicts masked tokens, or next tokens if causal."""
        for name in self.heads():
            if OBJECTIVES[name].fills_masks or OBJECTIVES[name].is_causal:
                return name
        return None

    def __call__(self, clean: Rows, rows: Rows, dropout_seeds_B: jax.Array | None = None) -> Terms:
        """Compute the terms of all objectives.

        Args:
            clean: The clean rows.
            rows: The rows after the run's corruption.
            dropout_seeds_B: uint32, one per example (models/dropout.py); None for evaluation.
        """
        encoder: Callable[..., Any] = self.encoder
        terms: Terms = {}
        if self._find_generator():
            rows, encoder, terms = self._generate(rows, dropout_seeds_B)
        encoded = self._encode(encoder, clean, rows, dropout_seeds_B)
        for name in self.heads():
            terms |= getattr(self, name)(encoded)
        return terms

    def _encode(
        self,
        encoder: Callable[..., Any],
        clean: Rows,
        rows: Rows,
        dropout_seeds_B: jax.Array | None = None,
    ) -> EncodedBatch:
        output = encoder(rows, dropout_seeds_B, causal=self.is_causal())
        states = (output.hidden_BTD, output.decoded_BTD, output.pooled_BD)
        return EncodedBatch(clean, rows, *states, self.encoder.embedding_table())

    def _generate(
        self, masked: Rows, dropout_seeds_B: jax.Array | None
    ) -> tuple[Rows, Callable[..., Any], Terms]:
        """Return rows with the generator's samples, the encoder of these rows, and its terms."""
        if self.is_initializing():  # create the embeddings, which the generator shares
            self.encoder(masked)
        params = unfreeze(nn.unbox(self.encoder.variables))['params']
        rows, embeddings, logits_BPV = self.generator(masked, params['embeddings'], dropout_seeds_B)
        variables = {'params': params | {'embeddings': embeddings}}
        encoder = build_encoder(self.architecture, self.compute, parent=None)
        return rows, functools.partial(encoder.apply, variables), masked_terms(logits_BPV, masked)

    def predictions(self, rows: Rows) -> jax.Array:
        """Return the logits of the `mask_filler` at the masked positions, float32 [B, P, V]."""
        encoded = self._encode(self.encoder, rows, rows)
        return getattr(self, str(self.mask_filler())).logits(encoded)

    def log_probabilities(self, batch: Batch) -> jax.Array:
        """Return log probabilities of chosen tokens in nats, float32 [B, P].

        Args:
            batch: Rows whose hidden tokens are [MASK] already; the tokens `targets` are predicted
                at `positions`, int32 [B, P] each (metrics/scored_rows.py).
        """
        ids_BP, rows = batch['targets'], Rows.of(batch)
        rows = rows.replace(targets=Targets(batch['positions'], ids_BP, ids_BP))
        head = getattr(self, str(self.token_predictor()))
        return -cross_entropy(head.logits(self._encode(self.encoder, rows, rows)), ids_BP)

    def states(self, batch: Batch) -> jax.Array:
        """Return the embeddings and the states of every layer for clean text, [L + 1, B, T, D]."""
        encoded = self.encoder(Rows.of(batch), all_hidden=True, causal=self.is_causal())
        states_LBTD: Any = encoded.all_hidden_LBTD
        return states_LBTD

    @nn.nowrap
    def flops_per_token(self, sequence_length: int, num_predictions: int) -> float:
        """Count the operations of a training step per position of the batch (models/flops.py).

        Args:
            sequence_length: Tokens per sequence.
            num_predictions: Maximum number of masked tokens per sequence.

        Returns:
            Operations of the encoder and of the generator if there is one, both with their heads.
        """

        def count(architecture: Architecture, names: tuple[str, ...]) -> float:
            if not any(OBJECTIVES[name].reads_decoded for name in names):
                architecture = architecture.without_mask_decoder()
            products = flops = 0
            for name in names:
                sizes = (self.options.get(name), sequence_length, num_predictions)
                products += OBJECTIVES[name].vocabulary_products(*sizes)
                flops += OBJECTIVES[name].head_flops(architecture, *sizes)
            return training_flops_per_token(architecture, sequence_length, products, flops)

        flops = count(self.architecture, self.heads())
        if generator := self._find_generator():
            name, generator_class = generator
            smaller = generator_architecture(self.architecture, self.options[name])
            flops += count(smaller, generator_class.trained_by)
        return flops
