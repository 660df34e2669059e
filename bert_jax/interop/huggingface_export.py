"""Writes Hugging Face folders that transformers opens: config.json, weights, tokenizer, card."""

import dataclasses
import pathlib
from typing import Any, NamedTuple

import jax
import numpy as np

from bert_jax import files, rounding, tree_paths
from bert_jax.errors import UserError
from bert_jax.interop import (
    huggingface,
    huggingface_config,
    sentence_folder,
    sparse_modules,
    state_dict_map,
    usage,
    weights,
)
from bert_jax.interop.families.family import Family
from bert_jax.loaded import loaded_model, tuned
from bert_jax.loaded.loaded_model import LoadedModel
from bert_jax.models.architecture import Architecture, Compute
from bert_jax.models.architecture_parts import HeadLSTM
from bert_jax.models.head_states import describe_states
from bert_jax.models.heads import HEADS, without_module
from bert_jax.models.rows import Rows
from bert_jax.reports import model_card
from bert_jax.storage import paths
from bert_jax.tokenizers import Tokenizer
from bert_jax.types import Params, Tree


def save(model: LoadedModel, path: str | pathlib.Path) -> tuple[LoadedModel, list[str]]:
    """Write a folder that transformers opens with from_pretrained.

    The folder is written under a temporary name, read back, and renamed if the model in it computes
    the same logits.

    Returns:
        The model as written, and a line for each difference (see `publishable`).

    Raises:
        UserError: `path` exists, the model has no published family or class or computes values that
            are not finite, or the logits differ.
    """
    with files.new_folder(paths.path(path)) as folder:
        return write(model, folder)


def write(model: LoadedModel, folder: pathlib.Path) -> tuple[LoadedModel, list[str]]:
    """Write a model into an existing, empty folder; otherwise like `save`."""
    model, lines = publishable(model)
    _write(model, folder)
    _compare(model, huggingface.load(folder))
    return model, lines


class Plan(NamedTuple):
    """What the class of transformers with the most of a model's heads holds of it.

    Attributes:
        architecture: with a pooler if and only if the class has one.
        heads: the heads of the class; it may lack pretraining heads of the model.
        tokenizer: the tokenizer of the folder.
        dropped: what the class lacks: heads, or 'modules.json'.
        lines: a line for everything that is dropped, newly initialized or computed differently.
    """

    architecture: Architecture
    heads: tuple[str, ...]
    tokenizer: Tokenizer | None
    dropped: tuple[str, ...]
    lines: list[str]


def publishable(model: LoadedModel) -> tuple[LoadedModel, list[str]]:
    """Fit a model to the class of transformers with the most of its heads.

    Returns:
        The model as its `Plan` says, and the lines of the plan.

    Raises:
        UserError: as `plan`.
    """
    planned = plan(model)
    known, num_labels = tree_paths.flatten(model.params), loaded_model.num_labels(model.params)
    params, _ = loaded_model.fill(known, planned.architecture, planned.heads, num_labels)
    params, lines = _without_single_type(params)
    model = dataclasses.replace(
        model, architecture=planned.architecture, tokenizer=planned.tokenizer, params=params
    )
    return model, planned.lines + lines


def _without_single_type(params: Params) -> tuple[dict[str, Tree], list[str]]:
    """Add the vector of the only token type to all positions: programs such as keras-hub drop it.

    Returns:
        The parameters, which compute the same function, and a line that says so if it was not zero.
    """
    parts: dict[str, Any] = {**params}
    embeddings = parts['encoder'].get('embeddings', {})
    types = np.asarray(embeddings.get('type', np.zeros((0, 1))))
    if len(types) != 1 or 'position' not in embeddings or not types.any():
        return parts, []
    moved = {'position': embeddings['position'] + types, 'type': np.zeros_like(types)}
    parts['encoder'] = {**parts['encoder'], 'embeddings': {**embeddings, **moved}}
    return parts, ['the vector of the only token type is added to the vectors of the positions']


def is_complete(model: LoadedModel) -> bool:
    """Whether a folder for transformers can hold all of a model, with tuned parameters merged.

    The generator of replaced-token detection does not count: it is a model of its own.

    Args:
        model: its `params` and `other_parts` may hold the names of parts alone.
    """
    try:
        architecture = tuned.merged_architecture(model.architecture)
        planned = plan(dataclasses.replace(model, architecture=architecture))
    except UserError:  # what is refused stands in one place
        return False
    return not planned.dropped and not {*without_module(model.other_parts)} - {'generator'}


def plan(model: LoadedModel) -> Plan:
    """Choose the class of transformers with the most of a model's heads.

    Args:
        model: its `params` may hold the names of parts alone.

    Raises:
        UserError: the architecture has no published family, no class of the family has the model's
            fine-tuned heads or causal attention, no config of the family can express the
            architecture, or the model has parameters that tuning added.
    """
    family, architecture = huggingface.family_of(model), model.architecture
    if model.has_prefix:
        raise UserError(
            'all positions of the model see the whole prompt (prefix_lm), which no class of '
            'transformers does; use the model with bert_jax'
        )
    if (method := architecture.tuning) is not None:
        advice = 'export it with --merge' if method.can_merge else 'use the folder of the run'
        raise UserError(
            f'the model was tuned with transfer.method={method.method}, which transformers does '
            f'not support; {advice}'
        )
    architecture = check_head_inputs(model, family)
    is_raw = architecture.pair_pooling == 'first'
    raw = [name for name in model.heads if is_raw and HEADS[name].is_pair]
    heads = family.publishable_heads([name for name in model.heads if name not in raw])
    dropped = [name for name in model.heads if name not in heads]
    if any(HEADS[name].is_fine_tuned for name in dropped):
        heads = model.heads  # class_of raises: fine-tuned heads are never dropped
    published = family.class_of(heads)
    why = dict.fromkeys(dropped, f'no {family.model_type} class with {", ".join(model.heads)}')
    why |= dict.fromkeys(raw, 'no class that classifies pairs by the state of [CLS] itself')
    lines = [f'{name} is dropped: transformers has {why[name]}' for name in dropped]
    has_pooler = family.has_pooler(published)
    if architecture.pooler and not has_pooler:
        lines.append('encoder/pooler is dropped: no head uses it')
    if has_pooler and not architecture.pooler:
        lines.append(f'encoder/pooler is newly initialized: {published} has a pooler')
    architecture = dataclasses.replace(architecture, pooler=has_pooler, pair_pooling='pooler')
    tokenizer = model.tokenizer
    reads_last = any(HEADS[name].reads_head_states for name in heads)
    if not family.is_causal and not reads_last:  # no head skips a token, no key names it
        architecture = architecture.changed({'classifier.skipped_id': None})
    if tokenizer is not None:
        if family.is_causal and 'sequence_classification' in heads:
            architecture = architecture.changed({'classifier.skipped_id': tokenizer.pad_id})
        if model.usage.section('problem') and tokenizer.adds_nothing:
            lines.append('the tokenizer puts <|endoftext|> around texts, as in fine-tuning')
            tokenizer = tokenizer.with_ends()
    family.write_config(architecture)
    modules = model.sentence_modules
    if modules and modules.unsupported and not (modules.sparse and 'mlm' in heads):
        dropped.append('modules.json')
        lines.append(f'modules.json is dropped: it has {modules.unsupported}')
    if family.unused:
        lines.append(f'weights {family.unused} are left out: transformers initializes them newly')
    if architecture.positions.kind == 'mask_decoder' and 'mlm' in heads:
        lines.append('transformers has no enhanced mask decoder: its predictions of [MASK] differ')
    return Plan(architecture, heads, tokenizer, tuple(dropped), lines)


def check_head_inputs(model: LoadedModel, family: Family) -> Architecture:
    """Return the architecture; without a head that reads them, other states are left out.

    Raises:
        UserError: a head reads states, or pools them in a way, that the family does not have.
    """
    architecture, has_bias = model.architecture, family.classifier.bias
    is_published = architecture.reads_last_layer and architecture.pooling in family.poolings
    if is_published and (
        architecture.classifier.bias == has_bias or 'sequence_classification' in model.heads
    ):
        return architecture
    readers = [name for name in model.heads if HEADS[name].reads_head_states]
    if readers and not is_published:
        raise UserError(
            f'{readers[0]} reads {describe_states(architecture)} with the pooling '
            f'{architecture.pooling}, which no {family.model_type} class of transformers does; '
            'export another format, such as --format=onnx'
        )
    defaults = {'head_states': 'last', 'head_lstm': HeadLSTM()}
    classifier = {'classifier.pooling': family.poolings[0], 'classifier.bias': has_bias}
    return architecture.changed(defaults | classifier)


def _write(model: LoadedModel, folder: pathlib.Path) -> None:
    family, architecture = huggingface.family_of(model), model.architecture
    published = family.class_of(model.heads)
    huggingface_config.write(model, folder)
    num_labels = loaded_model.num_labels(model.params)
    places = state_dict_map.places(family.table, architecture, model.heads, num_labels)
    state = state_dict_map.to_theirs(places, tree_paths.flatten(model.params))
    state = state_dict_map.split(state, family.parts(architecture))
    state |= family.constants(architecture)
    is_untied = not architecture.prediction.tied
    predicts_tokens = any(HEADS[name].predicts_tokens for name in model.heads)
    if predicts_tokens and is_untied and family.prediction_bias in state:
        state[f'{family.decoder}.bias'] = state[family.prediction_bias]
    if not model.heads:
        state = {name.removeprefix(family.prefix): array for name, array in state.items()}
    weights.write(folder / weights.SAFETENSORS, state)
    usage.write(model, folder)
    if model.activation_fn and 'sequence_classification' in model.heads:
        sentence_folder.write_cross_encoder(model.activation_fn, folder)
    if (modules := model.sentence_modules) and modules.sparse and 'mlm' in model.heads:
        named = modules.prompts, modules.default_prompt, modules.similarity
        sparse_modules.write(modules.sparse, *named, folder)
    if model.sentence_modules and not model.sentence_modules.unsupported:
        sentence_folder.write(model.sentence_modules, folder, architecture.hidden_size)
    card = model_card.exported(
        family=family.model_type,
        published_class=published,
        architecture=architecture,
        num_parameters=loaded_model.num_parameters(model),
        heads=model.heads,
        labels=model.labels,
        tokenizer=model.tokenizer,
        details=model.details,
        run_card=model.card,
    )
    (folder / 'README.md').write_text(card, encoding='utf-8')


def _compare(live: LoadedModel, written: LoadedModel) -> None:
    """Raise UserError unless both models compute the same states and logits for random tokens."""
    architecture = live.architecture
    rng = np.random.default_rng(0)
    length = min(16, architecture.max_length)
    ids = rng.integers(0, architecture.vocab_size, (3, length), dtype=np.int32)
    last_type = max(0, architecture.type_vocab_size - 1)
    types = (np.arange(length) >= length // 2) * np.full((3, 1), last_type)
    mask = np.arange(length) < np.array([[length], [max(1, length - 3)], [1]])
    rows = Rows(ids, mask.astype(np.int32), types.astype(np.int32))

    def compute(params: Params, model: LoadedModel = live) -> dict[str, np.ndarray]:
        outputs = loaded_model.outputs(model.architecture, Compute(), params, rows, model.is_causal)
        on_host: dict[str, np.ndarray] = jax.device_get(outputs)
        return on_host

    ours, theirs = compute(live.params), compute(written.params, written)
    for name, values in ours.items():
        if not np.isfinite(values).all():
            raise UserError(f'not saved: {name} of the model has NaN or infinite values')
    differences = {name: np.abs(values - theirs[name]).max() for name, values in ours.items()}
    if not any(differences.values()):
        return
    allowed = rounding.tolerances(compute, live.params, architecture.longest_sum)
    for name, difference in differences.items():
        if not difference <= allowed[name]:
            raise UserError(
                f'not saved: {name} of the written model differ from the live model by '
                f'{difference:g}; rounding explains {allowed[name]:.2g}'
            )
