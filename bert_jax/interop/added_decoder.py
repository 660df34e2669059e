"""Adds a decoder to a pretrained encoder, with the encoder's weights (bert2bert).

Rothe et al. 2020, arXiv 1907.12461: self-attention, feed-forward layers, embeddings and prediction
head of the decoder start as those of the encoder; only attention to the encoder's states is newly
initialized.
"""

import dataclasses

from bert_jax import tree_paths
from bert_jax.errors import UserError, report
from bert_jax.interop.families import encoder_pairs
from bert_jax.loaded import loaded_model
from bert_jax.loaded.loaded_model import LoadedModel


def add(model: LoadedModel) -> LoadedModel:
    """Return the model with a decoder of as many layers; its head mlm becomes seq2seq.

    Raises:
        UserError: the model has a decoder or attends to earlier tokens only, is tuned, or no
            EncoderDecoderModel has such an encoder.
    """
    architecture = model.architecture
    if architecture.decoder is not None:
        raise UserError(
            "init_decoder is 'encoder', but the model at init_from has a decoder already"
        )
    if model.is_causal:
        raise UserError(
            "init_decoder is 'encoder', but the model at init_from is causal; it writes texts "
            'without a decoder'
        )
    if architecture.tuning is not None:
        raise UserError(
            "init_decoder is 'encoder', but the model at init_from is tuned; export it with "
            '--merge and set init_from to the exported model'
        )
    if model.family not in encoder_pairs.PAIRS:
        raise UserError(
            f"init_decoder is 'encoder', but the model at init_from is a {model.family} model; "
            f'supported: {", ".join(encoder_pairs.PAIRS)}'
        )
    paired = encoder_pairs.paired(architecture, architecture.num_layers)
    known = {}
    for name, array in tree_paths.flatten(model.params).items():
        part, _, rest = name.partition('/')
        if part == 'encoder':
            known[name] = array
        if part == 'encoder' and not rest.startswith('pooler/'):
            known[f'decoder/{rest}'] = array
        if part == 'mlm':
            known[f'seq2seq/{rest}'] = array
    if dropped := [name for name in model.heads if name != 'mlm']:
        report(f'dropped: {", ".join(dropped)}, which cannot be trained beside a decoder')
    params, new = loaded_model.fill(known, paired, ('seq2seq',))
    old = tuple(name for name in model.newly_initialized if name in known)
    return dataclasses.replace(
        model,
        family=encoder_pairs.PAIRS[model.family].model_type,
        architecture=paired,
        params=params,
        newly_initialized=(*old, *new),
    )


def describe(model: LoadedModel) -> str:
    """Return a line for the log: the initial weights of a decoder that `add` made."""
    parts = 'cross-attention'
    if any(name.startswith('seq2seq/') for name in model.newly_initialized):
        parts += ' and the prediction head'
    return f'decoder: weights copied from the encoder; newly initialized: {parts}'
