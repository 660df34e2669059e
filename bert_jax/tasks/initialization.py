"""What a run begins with: an architecture by name, or the weights of another model."""

import dataclasses
import re
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from bert_jax import tree_paths
from bert_jax.data.tokenizers import Tokenizer
from bert_jax.errors import UserError
from bert_jax.interop import families, surgery
from bert_jax.interop.pretrained import Pretrained
from bert_jax.models import architectures
from bert_jax.models.architecture import Architecture
from bert_jax.models.parameters import stack_layers


class Start(NamedTuple):
    """family: one of interop.families, or None. params: fp32 arrays by '/'-joined name; a parameter
    that is not there is initialized. lines: for the log, what was done to the weights."""

    family: str | None
    architecture: Architecture
    params: dict[str, np.ndarray]
    lines: list[str]

    @property
    def has_head(self) -> bool:
        """Whether more than the encoder is there."""
        return any(not name.startswith('encoder/') for name in self.params)


def weights(config) -> Pretrained | None:
    """The model of init_from; None where it is empty. Raises UserError if it cannot be read or is
    of another family than model.architecture."""
    if not config.init_from:
        return None
    from bert_jax.interop import loading  # the formats, which a run from scratch need not wait for

    model = loading.load_any(config.init_from, allow_missing=('^encoder/pooler/',))
    name = config.model.architecture
    if name is not None and families.of_architecture(name) != model.family:
        raise UserError(
            f'init_from={config.init_from} is a {model.family} model, but model.architecture is '
            f'{name!r}'
        )
    return model


def begin(config, model: Pretrained | None, tokenizer: Tokenizer, heads: Iterable[str]) -> Start:
    """The start that `model` and `compute` of a config ask for, with or without weights.

    Sizes that `model` leaves open (None) are the architecture's own or, with `init_from`, those of
    the weights. The vocabulary is always the tokenizer's. Raises UserError if a size that is set
    does not fit the weights, and for more layers to begin afresh than there are.
    """
    sizes = {name: value for name, value in config.model.items() if value is not None}
    sizes['vocab_size'] = tokenizer.vocab_size
    name = sizes.pop('architecture', None)
    if model is None:
        if name is None:
            raise UserError('set init_from to the weights of a model, or model.architecture')
        if config.transfer.reinit_layers:
            raise UserError('transfer.reinit_layers needs init_from: without, all layers are new')
        architecture = _for_padding(architectures.build(name, **sizes), tokenizer)
        return Start(families.of_architecture(name), architecture, {}, [])
    architecture = dataclasses.replace(model.architecture, **sizes)
    fitted, lines = surgery.fit(model, architecture, tokenizer, heads, config.init_positions)
    lines.insert(0, f'weights of {config.init_from}')
    tree = fitted.params
    if config.compute.scan_layers:
        tree = tree | {'encoder': stack_layers(tree['encoder'])}
    params = tree_paths.flatten(tree)
    for name in fitted.newly_initialized:
        params.pop(name, None)
    if config.transfer.reinit_layers:
        lines.append(_begin_afresh(params, config.transfer.reinit_layers))
    return Start(model.family, architecture, params, lines)


def _begin_afresh(params: dict, number: int) -> str:
    """Takes the last layers and the pooler out of `params`; the line that says so."""
    found = (re.match(r'encoder/layers_(\d+)/', name) for name in params)
    layers = sorted({int(match[1]) for match in found if match})
    if not 0 < number <= len(layers):
        raise UserError(
            f'transfer.reinit_layers is {number}, but there are {len(layers)} layers that can begin'
            ' afresh (shared ones count once, stacked ones of compute.scan_layers not at all)'
        )
    parts = [f'layers_{layer}' for layer in layers[-number:]] + ['pooler']
    for name in list(params):
        if name.split('/')[:2] in [['encoder', part] for part in parts]:
            del params[name]
    return f'begun afresh: {", ".join(parts)}'


def _for_padding(architecture: Architecture, tokenizer: Tokenizer) -> Architecture:
    """Where positions are counted, on from the tokenizer's id of padding: by that id published code
    tells which tokens to count."""
    if architecture.positions != 'offset_by_padding':
        return architecture
    return dataclasses.replace(architecture, first_position=tokenizer.pad_id + 1)
