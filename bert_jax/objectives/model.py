"""An encoder with whatever its objectives need, as one module."""

from collections.abc import Mapping

import flax.linen as nn
import jax
from flax.core import FrozenDict, unfreeze

from bert_jax.averages import Terms
from bert_jax.models.architecture import Architecture, Compute
from bert_jax.models.encoder import Encoder
from bert_jax.models.flops import training_flops_per_token
from bert_jax.objectives import OBJECTIVES
from bert_jax.objectives.base import Encoded
from bert_jax.objectives.edits import Edited
from bert_jax.objectives.generator import (
    Drafted,
    Generator,
    Replaced,
    generator_architecture,
    put_samples,
)
from bert_jax.objectives.masking import Masked
from bert_jax.objectives.mlm import masked_terms
from bert_jax.objectives.packed import encoder_arguments


class PretrainingModel(nn.Module):
    """An encoder and one head an objective; parameters `encoder`, one part for each objective by
    its name, and with `rtd` a `generator`, which then is what `mlm` trains.

    options: of objectives by name: a Boundary for `sbo`, a Generation for `rtd`.
    """

    architecture: Architecture
    compute: Compute
    objectives: tuple[str, ...]
    options: Mapping = FrozenDict()

    def setup(self):
        settings = (self.architecture, self.compute)
        self.encoder = Encoder(*settings)
        if 'rtd' in self.objectives:
            self.generator = Generator(*settings, self.options['rtd'])
        for name in self._trained_here():
            options = (self.options['sbo'],) if name == 'sbo' else ()
            setattr(self, name, OBJECTIVES[name](*settings, *options))

    def _trained_here(self) -> tuple[str, ...]:
        """The objectives that have a head on the encoder."""
        if 'rtd' not in self.objectives:
            return self.objectives
        return tuple(name for name in self.objectives if name != 'mlm')

    def __call__(self, batch, corrupted: Masked | Drafted | Edited, dropout_seeds_B=None) -> Terms:
        """The terms of all objectives."""
        encoded = self.encode(batch, corrupted, dropout_seeds_B)
        terms = {}
        for name in self._trained_here():
            terms |= getattr(self, name)(encoded)
        return terms

    def encode(self, batch, corrupted, dropout_seeds_B) -> Encoded:
        """What the objectives read: the encoder's states of the corrupted text."""
        variables = None
        if isinstance(corrupted, Drafted):
            corrupted, variables = self._replace(batch, corrupted, dropout_seeds_B)
        shown = batch if not isinstance(corrupted, Edited) else corrupted._asdict()
        arguments = (
            corrupted.input_ids,
            shown['attention_mask'],
            shown['token_type_ids'],
            dropout_seeds_B,
        )
        rows = encoder_arguments(batch)
        if variables is None:
            output = self.encoder(*arguments, causal='clm' in self.objectives, **rows)
        else:
            encoder = Encoder(self.architecture, self.compute, parent=None)
            output = encoder.apply(variables, *arguments, **rows)
        table_VD = self.encoder.embedding_table()
        return Encoded(
            batch, corrupted, output.hidden_BTD, output.decoded_BTD, output.pooled_BD, table_VD
        )

    def _replace(self, batch, drafted: Drafted, dropout_seeds_B):
        """The text with a generator's samples, and the variables of the encoder to read it with."""
        masked = drafted.masked
        if self.is_initializing():  # so that the embeddings are there
            self.encoder(masked.input_ids, batch['attention_mask'], batch['token_type_ids'])
        params = unfreeze(nn.unbox(self.encoder.variables))['params']
        embeddings = params['embeddings']
        logits_BPV = self.generator.logits(batch, masked, embeddings, dropout_seeds_B)
        samples_BP = self.generator.samples(logits_BPV, drafted.seeds)
        ids_BT, is_replaced_BT = put_samples(masked, samples_BP, batch['input_ids'])
        terms = masked_terms(logits_BPV, masked, batch['attention_mask'])
        read_with = self.generator.discriminator_embeddings(embeddings)
        variables = {'params': params | {'embeddings': read_with}}
        return Replaced(ids_BT, is_replaced_BT, terms), variables

    def predictions(self, batch, masked: Masked) -> jax.Array:
        """float32 [B, P, V] logits of the masked language model at the masked positions."""
        return self.mlm.logits(self.encode(batch, masked, None))


def flops_per_token(model: PretrainingModel, sequence_length: int, num_predictions: int) -> float:
    """Operations of a training step per position of the batch (flops.py): the encoder, the
    projections onto the vocabulary, and a generator where there is one."""
    projections = sum(name in ('mlm', 'sbo') for name in model.objectives) * num_predictions
    if 'clm' in model.objectives:
        projections = sequence_length - 1
    if 'rtd' not in model.objectives:
        return training_flops_per_token(model.architecture, sequence_length, projections)
    generator = generator_architecture(model.architecture, model.options['rtd'])
    return training_flops_per_token(
        model.architecture, sequence_length, 0
    ) + training_flops_per_token(generator, sequence_length, num_predictions)
