"""Description of a published model family: its config keys, weight names and classes."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from flax.core import FrozenDict

from bert_jax.errors import UserError
from bert_jax.models import architectures
from bert_jax.models.architecture import Architecture

ACTIVATIONS = {
    'gelu': 'gelu',
    'gelu_python': 'gelu',
    'gelu_new': 'gelu_tanh',
    'gelu_fast': 'gelu_tanh',
    'gelu_pytorch_tanh': 'gelu_tanh',
    'relu': 'relu',
    'silu': 'silu',
    'swish': 'silu',
    'tanh': 'tanh',
}
# Config keys of any family that do not change what an encoder computes: names, token ids, output
# options, settings of text generation, and keys of older versions.
_HARMLESS = """
_name_or_path architectures dtype id2label label2id model_type name_or_path num_labels
_num_labels finetuning_task gradient_checkpointing problem_type task_specific_params
tokenizer_class torch_dtype torchscript transformers_version use_bfloat16 use_cache
bos_token_id cls_token_id decoder_start_token_id eos_token_id mask_token_id pad_token_id
sep_token_id unk_token_id
attn_implementation chunk_size_feed_forward language output_attentions output_hidden_states
output_past prefix return_dict return_dict_in_generate tf_legacy_loss xla_device
bad_words_ids begin_suppress_tokens diversity_penalty do_sample early_stopping
encoder_no_repeat_ngram_size exponential_decay_length_penalty forced_bos_token_id
forced_eos_token_id length_penalty max_length min_length no_repeat_ngram_size num_beam_groups
num_beams num_return_sequences output_scores remove_invalid_values repetition_penalty
suppress_tokens temperature top_k top_p typical_p
"""
_FIXED: dict[str, object] = {
    'add_cross_attention': False,
    'cross_attention_hidden_size': None,
    'is_decoder': False,
    'is_encoder_decoder': False,
    'position_embedding_type': 'absolute',
    'pruned_heads': {},
    'tie_encoder_decoder': False,
    'tie_word_embeddings': True,
}


@dataclasses.dataclass(frozen=True)
class Key:
    """A key of a config.json.

    Attributes:
        field: field of Architecture.
        default: value of an absent key.
        values: translation of values, theirs → ours; empty if they are the same. If several
            of theirs give one of ours, the first is written.
    """

    field: str
    default: object
    values: Mapping[Any, Any] = FrozenDict()


def with_defaults(keys: Mapping[str, Key], **defaults: object) -> dict[str, Key]:
    """The keys of a config, some of them with other defaults."""
    changed = {n: dataclasses.replace(keys[n], default=value) for n, value in defaults.items()}
    return {**keys, **changed}


BERT_KEYS = {
    'vocab_size': Key('vocab_size', 30522),
    'hidden_size': Key('hidden_size', 768),
    'num_hidden_layers': Key('num_layers', 12),
    'num_attention_heads': Key('num_heads', 12),
    'intermediate_size': Key('intermediate_size', 3072),
    'max_position_embeddings': Key('max_position_embeddings', 512),
    'type_vocab_size': Key('type_vocab_size', 2),
    'hidden_act': Key('hidden_act', 'gelu', ACTIVATIONS),
    'layer_norm_eps': Key('layer_norm_eps', 1e-12),
    'hidden_dropout_prob': Key('hidden_dropout', 0.1),
    'attention_probs_dropout_prob': Key('attention_dropout', 0.1),
    'initializer_range': Key('initializer_range', 0.02),
    'classifier_dropout': Key('classifier_dropout', None),
}


@dataclasses.dataclass(frozen=True)
class Family:
    """One value of `model_type` in a config.json.

    Attributes:
        architectures: names of our architectures in this family; `keys` refers to the first one.
        keys: config key → field of Architecture.
        table: our parameter names → theirs (see `state_dict_map.places`).
        prefix: prefix of the encoder's weights in a model with heads; absent in a bare encoder.
        classes: published class → its heads.
        decoder: the module that predicts tokens, whose weights are tied to others.
        optional_heads: published class → heads that its files may contain but the class ignores.
        without_pooler: the classes that have no pooler.
        fixed: keys with only one supported value → that value; in addition to _FIXED.
        harmless: keys that do not change what the encoder computes, separated by white space; in
            addition to _HARMLESS.
        complete: (architecture from `keys`, config) → the complete architecture.
        more_keys: architecture → config values that `keys` does not give.
        token_keys: config keys with token ids → attribute of the tokenizer.
        old_names: ends of weight names in early versions → current ends.
        training_only: weights that only training needs; skipped with a log line.
    """

    model_type: str
    architectures: tuple[str, ...]
    keys: dict[str, Key]
    table: Mapping[str, str]
    prefix: str
    classes: Mapping[str, tuple[str, ...]]
    decoder: str
    optional_heads: Mapping[str, tuple[str, ...]] = FrozenDict()
    without_pooler: tuple[str, ...] = ()
    fixed: Mapping[str, object] = FrozenDict()
    harmless: str = ''
    complete: Callable[[Architecture, Mapping[str, Any]], Architecture] = lambda read, config: read
    more_keys: Callable[[Architecture], dict[str, Any]] = lambda architecture: {}
    token_keys: Mapping[str, str] = FrozenDict(pad_token_id='pad_id')
    old_names: Mapping[str, str] = FrozenDict()
    training_only: tuple[str, ...] = ()

    @property
    def duplicates(self) -> dict[str, str]:
        """Weights that some files contain twice → the weight that they must equal."""
        embedding, bias = self.table['encoder/embeddings/token'], self.table['mlm/head/bias']
        tied = {f'{self.decoder}.weight': embedding, f'{self.decoder}.bias': bias}
        return {copy: original for copy, original in tied.items() if copy != original}

    @property
    def position_ids(self) -> str:
        """A buffer with 0, 1, 2, … that files of early versions contain."""
        return f'{self.prefix}embeddings.position_ids'

    @property
    def heads(self) -> tuple[str, ...]:
        """All heads that a model of the family can have."""
        tuples = (*self.classes.values(), *self.optional_heads.values())
        return tuple(dict.fromkeys(head for heads in tuples for head in heads))

    def current_name(self, name: str) -> str:
        """The name of a weight in the latest version."""
        for old, new in self.old_names.items():
            if name.endswith(old):
                return name.removesuffix(old) + new
        return name

    def class_of(self, heads: Sequence[str]) -> str:
        """The class that consists of an encoder with exactly these heads."""
        for name, own in self.classes.items():
            optional = self.optional_heads.get(name, ())
            if own == tuple(heads) or (own and set(heads) == {*own, *optional}):
                return name
        raise UserError(
            f'transformers has no {self.model_type} class with exactly the heads '
            f'{", ".join(heads) or "none"}'
        )

    def read_config(self, config: Mapping[str, Any]) -> Architecture:
        """The architecture of a config.

        Raises:
            UserError: an unknown key, or a value that is not supported.
        """
        self._check_keys(config)
        fields = {key.field: _read(config, name, key) for name, key in self.keys.items()}
        return self.complete(architectures.build(self.architectures[0], **fields), config)

    def write_config(self, architecture: Architecture) -> dict[str, Any]:
        """The inverse of `read_config`. Raises UserError if there is none."""
        config = self.more_keys(architecture)
        for name, key in self.keys.items():
            if name not in config:
                config[name] = _write(getattr(architecture, key.field), key)
        read = self.read_config(config)
        # These two are expressed by the class and the weights.
        implied = {name: getattr(architecture, name) for name in ('pooler', 'mask_decoder')}
        if dataclasses.replace(read, **implied) != architecture:
            raise UserError(f'a {self.model_type} config cannot express {architecture}')
        return config

    def _check_keys(self, config: Mapping[str, Any]) -> None:
        fixed = _FIXED | dict(self.fixed)
        for name, value in fixed.items():
            if name in config and config[name] != value:
                raise UserError(f'{name} is {config[name]!r}; only {value!r} is supported')
        harmless = f'{_HARMLESS} {self.harmless}'.split()
        unknown = sorted(config.keys() - {*harmless, *fixed, *self.keys})
        if unknown:
            raise UserError(
                f'unknown for model_type {self.model_type}: {", ".join(unknown)}; remove keys that '
                'do not change what the model computes'
            )


def _read(config: Mapping[str, Any], name: str, key: Key) -> Any:
    """The value of one of our fields."""
    value = config.get(name, key.default)
    if key.values:
        if value not in key.values:
            known = ', '.join(map(str, key.values))
            raise UserError(f'{name} is {value!r}; known: {known}')
        return key.values[value]
    kind = int if isinstance(key.default, int) else float
    if kind is float and type(value) is int:
        value = float(value)
    if type(value) is not kind and not (value is None and key.default is None):
        raise UserError(f'{name} is {value!r}, expected {kind.__name__}')
    return value


def _write(value: Any, key: Key) -> Any:
    """The inverse of `_read`; a value without translation is kept, and rejected when read back."""
    return next((theirs for theirs, ours in key.values.items() if ours == value), value)


def bert_like(prefix: str, layer: str, names: Mapping[str, str] | None = None) -> dict[str, str]:
    """The names of embeddings, layers and classifiers that most families inherit from BERT.

    Args:
        prefix: prefix of the embeddings.
        layer: name of a layer, with '#' for its number.
        names: parts of a layer with other names than BERT's.
    """
    embeddings = {
        'token': 'word_embeddings.weight',
        'position': 'position_embeddings.weight',
        'type': 'token_type_embeddings.weight',
        'norm': 'LayerNorm',
    }
    parts = {
        'attention/query': 'attention.self.query',
        'attention/key': 'attention.self.key',
        'attention/value': 'attention.self.value',
        'attention/output': 'attention.output.dense',
        'attention_norm': 'attention.output.LayerNorm',
        'feedforward/input': 'intermediate.dense',
        'feedforward/output': 'output.dense',
        'feedforward_norm': 'output.LayerNorm',
    } | dict(names or {})
    classifiers = {
        'sequence_classification/head/output': 'classifier',
        'token_classification/head/output': 'classifier',
        'multiple_choice/head/output': 'classifier',
        'question_answering/head/output': 'qa_outputs',
    }
    return (
        {f'encoder/embeddings/{ours}': f'{prefix}.embeddings.{n}' for ours, n in embeddings.items()}
        | {f'encoder/layers_#/{ours}': f'{layer}.{name}' for ours, name in parts.items()}
        | classifiers
    )


def common_classes(prefix: str) -> dict[str, tuple[str, ...]]:
    """The classes that most families have, and their heads."""
    return {
        f'{prefix}Model': (),
        f'{prefix}ForMaskedLM': ('mlm',),
        f'{prefix}ForSequenceClassification': ('sequence_classification',),
        f'{prefix}ForTokenClassification': ('token_classification',),
        f'{prefix}ForQuestionAnswering': ('question_answering',),
        f'{prefix}ForMultipleChoice': ('multiple_choice',),
    }
