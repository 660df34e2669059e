"""Reads Hugging Face folders: config.json, weights and tokenizer, as transformers does."""

import dataclasses
import pathlib
import re
import reprlib
from collections.abc import Iterable

from bert_jax import files, tokenizers
from bert_jax.errors import UserError, report, warn
from bert_jax.interop import (
    conversion,
    families,
    late_folder,
    sentence_folder,
    usage,
    weights,
)
from bert_jax.interop.families.family import Family
from bert_jax.loaded import loaded_model, sentence_modules
from bert_jax.loaded.loaded_model import LoadedModel
from bert_jax.loaded.sentence_modules import SentenceModules
from bert_jax.models.architecture import Architecture
from bert_jax.storage.path import Path
from bert_jax.tokenizers import Tokenizer
from bert_jax.types import JsonView, RecordView

_MAX_LABELS = 1_000_000
_SPARE_ROWS = 1023  # at most, of an embedding padded to a multiple of 1024


def load(
    path: str | Path,
    heads: Iterable[str] = (),
    allow_missing: Iterable[str] = (),
    leave_out: str = '',
) -> LoadedModel:
    """Read a local folder.

    Args:
        heads: heads that the model must have besides the heads in the folder. A head that
            config.json declares but the files lack is only reported.
        allow_missing: regular expressions (re.search) for the names of our parameters, such as
            '^mlm/', that may be newly initialized if the folder lacks them.
        leave_out: a regular expression (re.search) for the names of weights to leave out, such as
            those of heads that we do not have; '' for none. They are reported.

    Raises:
        UserError: an unknown model_type, a config value that is not supported, a weight that is
            left over, missing, of another shape or not finite, a damaged file, or a tokenizer of
            another model.
    """
    read = sentence_folder.read(pathlib.Path(path))
    folder = sentence_folder.transformer_folder(pathlib.Path(path))
    config = files.read_json(folder / 'config.json')
    try:
        family = families.of_config(config)
        architecture = _with_forced_tokens(family.read_config(config), folder, config)
        labels = _read_labels(config)
    except UserError as error:
        raise UserError(f'{folder / "config.json"}: {error}') from None
    ignored = family.ignored_keys(config)
    if ignored:
        warn(f'{folder / "config.json"}: ignored keys: {", ".join(ignored)}')
    published = family.current_class(families.published_class(config) or '')
    state, modules = weights.read(folder), read.modules
    if modules and read.has_inline_projection:
        layers = late_folder.take_projection(state := dict(state))
        modules = dataclasses.replace(modules, layers=layers)
    state = _with_decoder(state, family, architecture, published, folder)
    if leave_out:
        state = _without(state, leave_out, folder)
    architecture = _with_stored_parts(architecture, family, state, folder)
    tokenizer = load_tokenizer(folder, architecture)
    if tokenizer:
        _check_start(architecture, tokenizer, config, folder)
        tokenizer = tokenizer.with_lowercase() if read.is_lowercased else tokenizer
        tokenizer = tokenizer.with_markers(read.markers) if read.markers else tokenizer
    if (published or family.bare_class) in family.without_pooler:
        allow_missing = (*allow_missing, '^encoder/pooler/')
    declared = family.classes.get(published, ())
    params, new = conversion.from_state_dict(
        family,
        architecture,
        state,
        folder,
        heads,
        allow_missing,
        len(labels),
        declared,
        _likely_heads(config, labels),
    )
    if family.pooling and modules is None:
        modules = SentenceModules((family.pooling,), similarity='dot')
    if not (config.get('id2label') or loaded_model.label_heads(params)):
        labels = ()
    return LoadedModel(
        family.model_type if family.is_written else None,
        architecture,
        params,
        tokenizer,
        labels,
        new,
        usage=usage.read(folder),
        problem_type=config.get('problem_type'),
        activation_fn=sentence_folder.activation_fn(pathlib.Path(path), config),
        is_causal=family.is_causal or bool(config.get('is_decoder')),
        writes=family.classes.get(published) != (),
        sentence_modules=modules,
        other_parts=sentence_modules.parts(modules) if modules else {},
    )


def _with_stored_parts(
    architecture: Architecture, family: Family, state: weights.Weights, folder: pathlib.Path
) -> Architecture:
    """Return the architecture with what only the names and shapes of the weights tell."""
    try:
        architecture = family.fit(architecture, state)
    except UserError as error:
        raise UserError(f'{folder}: {error}') from None
    if not architecture.pooler and conversion.has_weight(family, state, 'encoder/pooler'):
        architecture = dataclasses.replace(architecture, pooler=True)
    position = 'encoder/embeddings/position'
    if architecture.positions.kind == 'none' and conversion.has_weight(family, state, position):
        architecture = architecture.changed({'positions': 'mask_decoder'})
    return architecture


def _with_decoder(
    state: weights.Weights,
    family: Family,
    architecture: Architecture,
    published: str,
    folder: pathlib.Path,
) -> weights.Weights:
    """Add the decoder of T5 1.1 and mT5, which transformers 5 makes equal to the embeddings."""
    decoder, token = f'{family.decoder}.weight', family.table[family.token_table]
    is_lacking = family.saves_decoder_once and not architecture.prediction.tied
    is_lacking = is_lacking and decoder not in state and token in state
    if not is_lacking or (published and not family.classes.get(published)):
        return state
    report(f'{folder}: {decoder} is a copy of {token}, to which transformers 5 ties it')
    return {**state, decoder: state[token]}


def _without(state: weights.Weights, leave_out: str, folder: pathlib.Path) -> weights.Weights:
    """The weights whose names do not match a regular expression; reports the others."""
    try:
        left_out = [name for name in state if re.search(leave_out, name)]
    except re.error as error:
        raise UserError(f'{leave_out!r} is not a valid regular expression: {error}') from None
    if not left_out:
        raise UserError(f'{folder} has no weight that matches {leave_out!r}')
    report(f'{folder}: left out {loaded_model.enumerate_names(left_out)}')
    return {name: array for name, array in state.items() if name not in left_out}


def load_tokenizer(folder: pathlib.Path, architecture: Architecture) -> Tokenizer | None:
    """Read the tokenizer of a folder; None if it has none.

    Raises:
        UserError: the tokenizer cannot belong to the model: its vocabulary is larger than the
            embedding, or much smaller, or its padding token differs.
    """
    if not tokenizers.has_tokenizer(folder):
        return None
    tokenizer = tokenizers.load(str(folder))
    size, rows = tokenizer.vocab_size, architecture.vocab_size
    if size > rows or rows - size > max(_SPARE_ROWS, rows // 100):
        raise UserError(
            f'{folder}: the tokenizer has {size} tokens, but the model has embeddings for {rows} '
            '(vocab_size): it is not the tokenizer of this model'
        )
    loaded_model.check_padding(architecture, tokenizer, folder)
    return tokenizer


def family_of(model: LoadedModel) -> Family:
    """The published family of a model. Raises UserError if it has none."""
    family = families.by_model_type(model.family)
    if family.is_causal and not model.is_causal:
        raise UserError(
            f'the model attends in both directions, but {family.model_type} models of transformers '
            'attend only to earlier tokens; use the model with bert_jax'
        )
    return family.as_decoder() if model.is_causal else family


def _with_forced_tokens(
    architecture: Architecture, folder: pathlib.Path, config: RecordView
) -> Architecture:
    """Read which tokens generation always writes, as `generate` of transformers does.

    They stand in generation_config.json or, without this file, in config.json, where BART's
    forced_eos_token_id is set by default.

    Raises:
        UserError: the first token is not the one that starts texts.
    """
    stack = architecture.decoder
    if stack is None or stack.start not in ('sep', 'language'):
        return architecture
    defaults = {'forced_eos_token_id': config.get('eos_token_id', 2), **config}
    generation = files.read_json(folder / 'generation_config.json', default=defaults)
    first, last = (generation.get(f'forced_{name}_token_id') for name in ('bos', 'eos'))
    if first is None and generation.get('force_bos_token_to_be_generated'):
        first = config.get('bos_token_id', 0)
    if stack.start == 'sep' and first not in (None, config.get('bos_token_id', 0)):
        raise UserError(
            f'forced_bos_token_id is {first}, but bos_token_id is {config.get("bos_token_id", 0)}; '
            'only the token that starts texts is supported'
        )
    is_first = first is not None or stack.start == 'language'  # a language starts texts anyway
    stack = dataclasses.replace(stack, forced_first=is_first, forced_last=last is not None)
    return dataclasses.replace(architecture, decoder=stack)


def _check_start(
    architecture: Architecture, tokenizer: Tokenizer, config: RecordView, folder: pathlib.Path
) -> None:
    """Raise UserError if config.json and the architecture name other starts of a target."""
    given, stack = config.get('decoder_start_token_id'), architecture.decoder
    if given is None or stack is None or stack.start == 'language':
        return
    expected = tokenizer.role_ids[stack.start]
    if given != expected:
        raise UserError(
            f'{folder / "config.json"}: decoder_start_token_id is {given}, but only targets that '
            f'start with {tokenizer.vocab[expected]} ({expected}) are supported'
        )


def _likely_heads(config: RecordView, labels: tuple[str, ...]) -> tuple[str, ...]:
    """The head that problem_type or the names of the labels suggest, if any."""
    if config.get('problem_type'):
        return ('sequence_classification',)
    tags = {label for label in labels if label != 'O'}
    if tags and tags < {*labels} and all(re.match('[BIESLU]-', tag) for tag in tags):
        return ('token_classification',)
    return ()


def _read_labels(config: JsonView) -> tuple[str, ...]:
    """Label names of id2label; LABEL_i without id2label or with another num_labels.

    As in transformers, there are two labels by default, and label2id is not read.

    Raises:
        UserError: the keys of id2label are not 0, 1, 2, …, or num_labels is not valid.
    """
    id2label = config.get('id2label') or {}
    try:
        by_id = {int(index): str(label) for index, label in id2label.items()}
    except ValueError:
        by_id = {-1: ''}
    if sorted(by_id) != list(range(len(by_id))):
        keys = reprlib.repr(list(id2label))
        raise UserError(f'id2label has the keys {keys}, expected 0, 1, 2, …')
    number = config.get('num_labels') or len(by_id) or 2
    if not 0 < number <= _MAX_LABELS:
        raise UserError(f'num_labels is {number}, must be between 1 and {_MAX_LABELS}')
    label2id = {label: str(index) for label, index in (config.get('label2id') or {}).items()}
    if by_id and label2id and label2id != {label: str(index) for index, label in by_id.items()}:
        warn('id2label and label2id disagree; using id2label')
    if number == len(by_id):
        return tuple(by_id[index] for index in range(number))
    if by_id:
        warn(f'num_labels is {number}, but id2label has {len(by_id)}; not used')
    return tuple(f'LABEL_{index}' for index in range(number))
