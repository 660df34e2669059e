"""config.json, generation_config.json and the tokenizer files of a Hugging Face folder."""

import pathlib
from collections.abc import Mapping
from typing import Any

from flax.core import FrozenDict

from bert_jax import files
from bert_jax.errors import UserError, warn
from bert_jax.interop import huggingface
from bert_jax.loaded import loaded_model
from bert_jax.loaded.loaded_model import LoadedModel
from bert_jax.models.architecture import Architecture
from bert_jax.models.heads import HEADS
from bert_jax.tokenizers import Tokenizer
from bert_jax.types import JsonRecord, RecordView

# Setting of a generation problem → key of generation_config.json, and the type of the value.
_GENERATION_KEYS: tuple[tuple[str, str, Any], ...] = (
    ('target_tokens', 'max_new_tokens', int),
    ('min_new_tokens', 'min_new_tokens', int),
    ('beams', 'num_beams', int),
    ('length_penalty', 'length_penalty', float),
    ('no_repeat_ngrams', 'no_repeat_ngram_size', int),
)


def write(model: LoadedModel, folder: pathlib.Path) -> None:
    """Write config.json, the tokenizer, and for a model that writes generation_config.json.

    Args:
        model: as `huggingface_export.publishable` returns it.
        folder: where the files are written.

    Raises:
        UserError: no config of the family expresses the model, or the labels do not fit the head.
    """
    family, architecture = huggingface.family_of(model), model.architecture
    config: JsonRecord = {'architectures': [family.class_of(model.heads)]}
    config |= {'model_type': family.model_type, 'dtype': 'float32'}
    config |= family.write_config(architecture) | _label_config(model)
    if 'sequence_classification' in model.heads:
        config |= _activation_config(model)
    if model.is_causal and not family.is_causal:
        config['is_decoder'] = True
    if model.tokenizer is not None:
        loaded_model.check_padding(architecture, model.tokenizer, 'the model')
        config |= {name: getattr(model.tokenizer, role) for name, role in family.token_keys.items()}
        write_tokenizer(model.tokenizer, architecture, folder, family.token_keys)
    elif 'pad_token_id' not in config:
        config['pad_token_id'] = family.pad_token_id
    config |= _forced_tokens(architecture, config)
    files.write_json(folder / 'config.json', config)
    if generation := _generation_config(model, config):
        files.write_json(folder / 'generation_config.json', generation)


def write_tokenizer(
    tokenizer: Tokenizer,
    architecture: Architecture,
    folder: pathlib.Path,
    token_keys: Mapping[str, str] = FrozenDict(),
) -> None:
    """Write tokenizer.json, tokenizer_config.json and, for WordPiece, vocab.txt.

    Args:
        token_keys: `Family.token_keys` of the family of the model.
    """
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
    names = _special_names(tokenizer, token_keys)
    settings = {f'{role}_token': name for role, name in names.items()} | {
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


def _special_names(tokenizer: Tokenizer, token_keys: Mapping[str, str]) -> dict[str, str]:
    """Role of a special token, as transformers calls it → the token."""
    names = {role: tokenizer.vocab[index] for role, index in tokenizer.role_ids.items()}
    # CTranslate2 needs every token whose id is in the config by its name.
    ids = {key.removesuffix('_token_id'): getattr(tokenizer, r) for key, r in token_keys.items()}
    named = {role: tokenizer.vocab[ids[role]] for role in ('bos', 'eos') if role in ids}
    if tokenizer.starts_texts:
        return names | named
    if 'cls' not in names:  # an encoder–decoder
        return {'eos': names.pop('sep')} | names
    others = {role: names[role] for role in ('unk', 'mask') if role in names}
    # As in GPT-2's own folder, the token that ends texts stands for unknown tokens too.
    return {'bos': names['sep'], 'eos': names['sep'], 'unk': names['sep']} | others


def _label_config(model: LoadedModel) -> JsonRecord:
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


def _activation_config(model: LoadedModel) -> JsonRecord:
    """The keys that tell transformers and CrossEncoder the activation of a classifier."""
    problem_type, name = model.problem_type, model.activation_fn
    if loaded_model.num_labels(model.params) == 1:
        is_logit = model.activation == 'identity'
        problem_type = 'regression' if is_logit else None
        name = 'torch.nn.modules.linear.Identity' if is_logit else name
    config: JsonRecord = {'problem_type': problem_type} if problem_type else {}
    return config | ({'sentence_transformers': {'activation_fn': name}} if name else {})


def _forced_tokens(architecture: Architecture, config: RecordView) -> JsonRecord:
    """The config keys for tokens that generation always writes; null: it does not."""
    stack = architecture.decoder
    if stack is None or stack.start not in ('sep', 'language'):
        return {}
    is_first = stack.forced_first and stack.start == 'sep'
    return {
        'forced_bos_token_id': config['bos_token_id'] if is_first else None,
        'forced_eos_token_id': config['eos_token_id'] if stack.forced_last else None,
    }


def _generation_config(model: LoadedModel, config: RecordView) -> JsonRecord:
    """How long the texts of a model that writes are, and how it chooses; {} for others.

    Without it, `generate` of transformers ends every text after 20 tokens.
    """
    if not any(HEADS[name].writes for name in model.heads):
        return {}
    run, longest = model.usage, model.architecture.max_length
    chosen: JsonRecord = {'max_length': longest}  # with the prompt of a causal model
    if run.task == 'generation':
        chosen = {key: run.setting('problem', name, kind) for name, key, kind in _GENERATION_KEYS}
    elif run.task == 'instructions' and model.is_causal:
        longest = min(longest, run.setting('training', 'sequence_length', int))
        answer = run.setting('problem', 'answer_tokens', int | None)
        chosen = {'max_new_tokens': answer or longest // 2}
    ids = {name: config[name] for name in config if name.endswith('_token_id')}
    return {name: value for name, value in {**ids, **chosen}.items() if value is not None}
