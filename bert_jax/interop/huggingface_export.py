"""Writes Hugging Face folders that transformers opens: config.json, weights, tokenizer, card."""

import dataclasses
import pathlib
from typing import Any, NamedTuple

import jax
import numpy as np

from bert_jax import files, rounding, tree_paths
from bert_jax.errors import UserError, warn
from bert_jax.interop import (
    huggingface,
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
from bert_jax.models.heads import HEADS
from bert_jax.models.rows import Rows
from bert_jax.reports import model_card
from bert_jax.storage import paths
from bert_jax.tokenizers import Tokenizer
from bert_jax.types import JsonObject, JsonView, Params

# Setting of a generation problem → key of generation_config.json, and the type of the value.
_GENERATION_KEYS: tuple[tuple[str, str, Any], ...] = (
    ('target_tokens', 'max_new_tokens', int),
    ('min_new_tokens', 'min_new_tokens', int),
    ('beams', 'num_beams', int),
    ('length_penalty', 'length_penalty', float),
    ('no_repeat_ngrams', 'no_repeat_ngram_size', int),
)


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
    model = dataclasses.replace(
        model, architecture=planned.architecture, tokenizer=planned.tokenizer, params=params
    )
    return model, planned.lines


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
    return not planned.dropped and not model.other_parts.keys() - {'generator'}


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
        names = ', '.join(family.unused)
        lines.append(f'{names} are left out: transformers initializes them newly')
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


def write_tokenizer(tokenizer: Tokenizer, architecture: Architecture, folder: pathlib.Path) -> None:
    """Write tokenizer.json, tokenizer_config.json and, for WordPiece, vocab.txt."""
    inputs = ['input_ids', 'attention_mask']
    if architecture.type_vocab_size > 1:
        tokenizer = tokenizer.with_token_types()
        inputs.insert(1, 'token_type_ids')
    tokenizer.save(folder)
    if tokenizer.has_rules:
        warn(
            'transformers and the tokenizers library drop characters of decomposed text (NFD) with '
            'this SentencePiece vocabulary, bert_jax does not: give them text in NFC'
        )
    settings = {f'{role}_token': name for role, name in _special_names(tokenizer).items()} | {
        'do_lower_case': tokenizer.lowercase,
        'strip_accents': tokenizer.strip_accents,
        'tokenizer_class': 'PreTrainedTokenizerFast',  # reads everything from tokenizer.json
        'model_max_length': architecture.max_length,
        'model_input_names': inputs,
    }
    if tokenizer.is_cls_last:  # transformers pools the last position, even of padding
        settings['padding_side'] = 'left'
    if tokenizer.kind == 'bytebpe':  # the default of transformers 4 is false
        settings['add_prefix_space'] = not tokenizer.sentence_prefix
    files.write_json(folder / 'tokenizer_config.json', settings)
    if tokenizer.kind == 'wordpiece' and all(t and '\n' not in t for t in tokenizer.vocab):
        text = ''.join(f'{token}\n' for token in tokenizer.vocab)
        (folder / 'vocab.txt').write_text(text, encoding='utf-8')


def _special_names(tokenizer: Tokenizer) -> dict[str, str]:
    """Role of a special token, as transformers calls it → the token."""
    names = {role: tokenizer.vocab[index] for role, index in tokenizer.role_ids.items()}
    if tokenizer.starts_texts:
        return names
    if 'cls' not in names:  # an encoder–decoder
        return {'eos': names.pop('sep')} | names
    others = {role: names[role] for role in ('unk', 'mask') if role in names}
    return {'bos': names['sep'], 'eos': names['sep']} | others


def _label_config(model: LoadedModel) -> JsonObject:
    """The config keys id2label and label2id; {} for a model without classes."""
    labels, number = model.labels, loaded_model.num_labels(model.params)
    has_labels = bool(loaded_model.label_heads(model.params))
    if not labels and not has_labels:
        return {}
    labels = labels or tuple(f'LABEL_{index}' for index in range(number))
    has_two_classes = bool({'question_answering', 'sop'} & model.params.keys())
    if len(labels) != number and (has_labels or has_two_classes):
        raise UserError(f'the head has {number} outputs, but there are {len(labels)} label names')
    return {
        'id2label': dict(enumerate(labels)),
        'label2id': {label: index for index, label in enumerate(labels)},
    }


def _activation_config(model: LoadedModel) -> JsonObject:
    """The keys that tell transformers and CrossEncoder the activation of a classifier."""
    problem_type, name = model.problem_type, model.activation_fn
    if loaded_model.num_labels(model.params) == 1:
        is_logit = model.activation == 'identity'
        problem_type = 'regression' if is_logit else None
        name = 'torch.nn.modules.linear.Identity' if is_logit else name
    config: JsonObject = {'problem_type': problem_type} if problem_type else {}
    return config | ({'sentence_transformers': {'activation_fn': name}} if name else {})


def _forced_tokens(architecture: Architecture, config: JsonView) -> JsonObject:
    """The config keys for tokens that generation always writes; null: it does not."""
    stack = architecture.decoder
    if stack is None or stack.start not in ('sep', 'language'):
        return {}
    is_first = stack.forced_first and stack.start == 'sep'
    return {
        'forced_bos_token_id': config['bos_token_id'] if is_first else None,
        'forced_eos_token_id': config['eos_token_id'] if stack.forced_last else None,
    }


def _generation_config(model: LoadedModel, config: JsonView) -> JsonObject:
    """How a model that was fine-tuned to write does so; {} for others.

    Without it, `generate` of transformers ends every text after 20 tokens.
    """
    run, chosen = model.usage, dict[str, Any]()
    if run.task == 'generation':
        for name, key, kind in _GENERATION_KEYS:
            chosen[key] = run.setting('problem', name, kind)
    elif run.task == 'instructions' and model.is_causal:
        longest = run.setting('training', 'sequence_length', int)
        longest = min(longest, model.architecture.max_length)
        answer = run.setting('problem', 'answer_tokens', int | None)
        chosen = {'max_new_tokens': answer or longest // 2}
    else:
        return {}
    ids = {name: config[name] for name in config if name.endswith('_token_id')}
    return {name: value for name, value in {**ids, **chosen}.items() if value is not None}


def _write(model: LoadedModel, folder: pathlib.Path) -> None:
    family, architecture = huggingface.family_of(model), model.architecture
    published = family.class_of(model.heads)
    config: JsonObject = {'architectures': [published], 'model_type': family.model_type}
    config |= {'dtype': 'float32'} | family.write_config(architecture) | _label_config(model)
    if 'sequence_classification' in model.heads:
        config |= _activation_config(model)
    if model.is_causal and not family.is_causal:
        config['is_decoder'] = True
    if model.tokenizer is not None:
        loaded_model.check_padding(architecture, model.tokenizer, 'the model')
        config |= {name: getattr(model.tokenizer, role) for name, role in family.token_keys.items()}
        write_tokenizer(model.tokenizer, architecture, folder)
    elif 'pad_token_id' not in config:
        config['pad_token_id'] = family.pad_token_id
    config |= _forced_tokens(architecture, config)
    files.write_json(folder / 'config.json', config)
    if generation := _generation_config(model, config):
        files.write_json(folder / 'generation_config.json', generation)

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
