"""Description of a published model family: its config keys, weight names and classes."""

import dataclasses
import functools
import operator
import re
import reprlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from flax.core import FrozenDict

from bert_jax import limits
from bert_jax.errors import UserError
from bert_jax.models import architectures
from bert_jax.models.architecture import Architecture
from bert_jax.models.architecture_parts import Activation, Classifier
from bert_jax.models.heads import has_token_rows
from bert_jax.types import JsonObject, JsonView

ACTIVATIONS: dict[str, Activation] = {
    'gelu': 'gelu',
    'gelu_python': 'gelu',
    'gelu_new': 'gelu_tanh',
    'gelu_fast': 'gelu_tanh',
    'gelu_pytorch_tanh': 'gelu_tanh',
    'relu': 'relu',
    'relu2': 'relu_squared',
    'silu': 'silu',
    'swish': 'silu',
    'tanh': 'tanh',
}
# Keys of most config.json files that do not affect what the encoder computes.
_METADATA = """
_name_or_path architectures bos_token_id cls_token_id dtype eos_token_id finetuning_task
gradient_checkpointing id2label label2id mask_token_id model_type num_labels output_attentions
output_hidden_states pad_token_id position_embedding_type problem_type return_dict
sbert_ce_default_activation_function sentence_transformers sep_token_id tokenizer_class torch_dtype
torchscript transformers_version unk_token_id use_cache
"""
_FIXED: dict[str, object] = {
    'add_cross_attention': False,
    'cross_attention_hidden_size': None,
    'is_decoder': False,
    'is_encoder_decoder': False,
    'pruned_heads': {},
    'tie_encoder_decoder': False,
    # Would run code in the folder, or require dequantizing the weights.
    'auto_map': None,
    'quantization_config': None,
}
# For families that supported other values in transformers 4.
BERT_FIXED: dict[str, object] = {'position_embedding_type': 'absolute'}
# Keys that transformers 5 dropped. CTranslate2 and others ask for them where a family had them.
_OF_OTHERS = ('position_embedding_type', 'normalize_before', 'add_final_layer_norm')
# Types of the keys that every family reads; None is allowed.
_TYPES: dict[str, type] = {'architectures': list, 'id2label': dict, 'label2id': dict}
_TYPES |= {'model_type': str, 'num_labels': int, 'problem_type': str}


@dataclasses.dataclass(frozen=True)
class Key:
    """A key of a config.json.

    Attributes:
        field: field of Architecture or, after a dot, of one of its parts.
        default: value of an absent key.
        values: value in the config → our value; empty if values need no translation. If several
            values have the same translation, the first is written.
        kind: type of the value, if the default does not show it.
    """

    field: str
    default: object
    values: Mapping[Any, Any] = FrozenDict()
    kind: type | None = None


def with_defaults(keys: Mapping[str, Key], **defaults: object) -> dict[str, Key]:
    """Copy the keys of a config with other defaults for some."""
    changed = {n: dataclasses.replace(keys[n], default=value) for n, value in defaults.items()}
    return {**keys, **changed}


_KEYS = {'tie_word_embeddings': Key('prediction.tied', True)}  # of every family
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
    'classifier_dropout': Key('classifier.dropout', None),
}


@dataclasses.dataclass(frozen=True)
class Family:
    """One value of `model_type` in a config.json.

    Attributes:
        architecture: name of our architecture with the defaults of the family.
        keys: config key → field of Architecture.
        table: our parameter names → theirs (see `state_dict_map.places`).
        prefix: prefix of the encoder's weights in a model with heads; absent in a bare encoder.
        classes: published class → its heads.
        decoder: the output projection over the vocabulary, usually tied to the token embeddings.
        saves_decoder_once: whether transformers 5 leaves the decoder out of files where it equals
            the token embeddings, though its config does not say that it is tied.
        token_table: our token embeddings to which the projection is tied.
        optional_heads: published class → heads that its files may contain but the class ignores.
        without_pooler: the classes that have no pooler.
        causal_class: the class that predicts the next token; '' if transformers has no class that
            obeys `is_decoder`.
        fixed: key → its only supported value; in addition to _FIXED.
        required: key → its only supported value, which is not the default of an absent key.
        complete: (architecture from `keys`, config) → the complete architecture.
        read_by_complete: key that `complete` reads → its type; None is allowed as well.
        more_keys: architecture → config values of keys that are not in `keys`.
        token_keys: config key with a token id → attribute of the tokenizer.
        copies: further names of the token embeddings, which some files contain.
        joined: end of the name of a weight in `table` → ends of the names of the weights that it
            joins (see `state_dict_map.join`); for gated feed-forward layers.
        old_names: suffix of a weight name in early versions → its current form.
        old_prefixes: of the encoder's weights in early versions.
        old_classes: start of the names of classes in early versions, a regular expression, and
            what it is now; () for none.
        old_keys: config key of early versions → its current form.
        remote_code: regular expression for the classes of a folder's own code (auto_map) that
            compute what `architecture` does; the code is not run. '' for none.
        constants: architecture → constants that transformers keeps in its files.
        fit: (architecture, state dict) → the architecture with what only the files show.
        training_only: weights that only training needs; skipped with a log line.
        unused: regular expression for names of weights of outputs that are not computed here, which
            are skipped with a log line; '' for none.
        pooling: how the models make a vector of a text (a key of models.pooling.POOLINGS), if their
            folders do not say it; the vectors are compared by products. '' if there is no such way.
        buffers: regular expression for names of constants in a file; '' for none.
        pad_token_id: what is written for a model without a tokenizer; it has no effect.
        is_written: whether folders of the family can be written; not if only code on the Hub opens
            them.
        is_causal: whether all models of the family predict the next token.
        causal_family: the family that models of this architecture with causal attention belong to,
            if it has another model_type.
    """

    model_type: str
    architecture: str
    keys: dict[str, Key]
    table: Mapping[str, str]
    prefix: str
    classes: Mapping[str, tuple[str, ...]]
    decoder: str
    token_table: str = 'encoder/embeddings/token'
    saves_decoder_once: bool = False
    optional_heads: Mapping[str, tuple[str, ...]] = FrozenDict()
    without_pooler: tuple[str, ...] = ()
    causal_class: str = ''
    fixed: Mapping[str, object] = FrozenDict()
    required: Mapping[str, object] = FrozenDict()
    complete: Callable[[Architecture, JsonView], Architecture] = lambda partial, _: partial
    read_by_complete: JsonView = FrozenDict()
    more_keys: Callable[[Architecture], JsonObject] = lambda architecture: {}
    token_keys: Mapping[str, str] = FrozenDict(pad_token_id='pad_id')
    copies: tuple[str, ...] = ()
    joined: Mapping[str, tuple[str, ...]] = FrozenDict()
    old_names: Mapping[str, str] = FrozenDict()
    old_prefixes: tuple[str, ...] = ()
    old_classes: tuple[str, ...] = ()
    old_keys: Mapping[str, str] = FrozenDict()
    remote_code: str = ''
    constants: Callable[[Architecture], dict[str, np.ndarray]] = lambda architecture: {}
    fit: Callable[[Architecture, Mapping[str, np.ndarray]], Architecture] = lambda fitted, _: fitted
    training_only: tuple[str, ...] = ()
    unused: str = ''
    pooling: str = ''
    buffers: str = ''
    pad_token_id: int | None = None
    is_written: bool = True
    is_causal: bool = False
    causal_family: 'Family | None' = None

    def duplicates(self, architecture: Architecture) -> dict[str, str]:
        """Tied copy of a weight, which some files contain → the weight that it must equal."""
        token = self.table[self.token_table]
        copies = dict.fromkeys(self.copies, token)
        if not architecture.prediction.tied:
            return copies
        tied = {f'{self.decoder}.weight': token, **copies}
        if self.prediction_bias:
            tied[f'{self.decoder}.bias'] = self.prediction_bias
        return {copy: original for copy, original in tied.items() if copy != original}

    @property
    def prediction_bias(self) -> str | None:
        """The bias of predicted tokens; None if no model of the family has one."""
        biases = (n for n in self.table if n.endswith('/head/bias') and has_token_rows(n))
        return next((self.table[name] for name in biases), None)

    def is_buffer(self, name: str) -> bool:
        """Whether a file names a constant, not a weight."""
        return bool(self.buffers and re.fullmatch(self.buffers, name))

    def is_unused(self, name: str) -> bool:
        """Whether a file names a weight of an output that is not computed here."""
        return bool(self.unused and re.fullmatch(self.unused, name))

    def parts(self, architecture: Architecture) -> Mapping[str, tuple[str, ...]]:
        """`joined`, if weights of this architecture are joined."""
        return self.joined if architecture.feedforward == 'gated' else {}

    @property
    def position_ids(self) -> str:
        """A buffer with 0, 1, 2, … that files of early versions contain."""
        return f'{self.prefix}embeddings.position_ids'

    @property
    def heads(self) -> tuple[str, ...]:
        """All heads that a model of the family can have."""
        tuples = (*self.classes.values(), *self.optional_heads.values())
        return tuple(dict.fromkeys(head for heads in tuples for head in heads))

    @property
    def classifier(self) -> Classifier:
        """How classes of the family classify by default."""
        return architectures.build(self.architecture).classifier

    @property
    def poolings(self) -> tuple[str, ...]:
        """How classes of the family pool texts for classification, the default first."""
        default = self.classifier.pooling
        keys = [key for key in self.keys.values() if key.field == 'classifier.pooling']
        others = [pooling for key in keys for pooling in key.values.values()]
        return tuple(dict.fromkeys([default, *others]))

    def current_name(self, name: str) -> str:
        """The name of a weight in the latest version."""
        for prefix in self.old_prefixes:
            if name.startswith(prefix):
                name = self.prefix + name.removeprefix(prefix)
        for old, new in self.old_names.items():
            if name.endswith(old):
                return name.removesuffix(old) + new
        return name

    def current_class(self, published: str) -> str:
        """The name of a class in the latest version."""
        if not self.old_classes:
            return published
        old, new = self.old_classes
        return re.sub(f'^{old}', new, published)

    def as_decoder(self) -> 'Family':
        """The family with `is_decoder`: models with causal attention.

        Raises:
            UserError: transformers has no such models.
        """
        if self.is_causal:
            return self
        if self.causal_family is not None:
            return self.causal_family
        if not self.causal_class:
            raise UserError(
                f'the model was trained with causal attention (clm), but {self.model_type} models '
                'of transformers attend in both directions; use the model with bert_jax'
            )
        heads = {ours: ours.replace('mlm/', 'clm/') for ours in self.table if 'mlm/' in ours}
        return dataclasses.replace(
            self,
            table={**self.table, **{heads[ours]: self.table[ours] for ours in heads}},
            classes={self.bare_class: (), self.causal_class: ('clm',)},
            optional_heads={},
            without_pooler=(*self.without_pooler, self.causal_class),
            fixed={**self.fixed, 'is_decoder': True},
        )

    @property
    def bare_class(self) -> str:
        """The class without heads; '' if there is none."""
        return next((name for name, heads in self.classes.items() if not heads), '')

    def has_pooler(self, published: str) -> bool:
        """Whether a class of the family has a pooler."""
        return 'encoder/pooler' in self.table and published not in self.without_pooler

    def publishable_heads(self, heads: Sequence[str]) -> tuple[str, ...]:
        """The largest subset of `heads` that a class of the family has, without other heads."""
        head_sets = [
            class_heads + optional
            for name, class_heads in self.classes.items()
            for optional in ((), self.optional_heads.get(name, ()))
        ]
        return max((subset for subset in head_sets if {*subset} <= {*heads}), key=len)

    def class_of(self, heads: Sequence[str]) -> str:
        """The class with exactly these heads. Raises UserError if there is none."""
        for name, class_heads in self.classes.items():
            optional = self.optional_heads.get(name, ())
            if class_heads == tuple(heads) or (
                class_heads and set(heads) == {*class_heads, *optional}
            ):
                return name
        raise UserError(
            f'transformers has no {self.model_type} class with exactly the heads '
            f'{", ".join(heads) or "none"}'
        )

    def read_config(self, config: JsonView) -> Architecture:
        """The architecture of a config.

        Raises:
            UserError: a value has another type or is not supported.
        """
        config = self._current(config)
        self._check(config)
        fields: JsonObject = {
            key.field: _read(config, name, key) for name, key in {**_KEYS, **self.keys}.items()
        }
        architecture = architectures.build(self.architecture, **fields)
        set_keys = {name: value for name, value in config.items() if value is not None}
        return self.complete(architecture, set_keys)

    def ignored_keys(self, config: JsonView) -> list[str]:
        """Keys that neither change what the model computes nor belong to every config."""
        read = {*_METADATA.split(), *_TYPES, *_FIXED, *_KEYS, *self.keys, *self.fixed}
        known = read | {*self.read_by_complete, *self.token_keys, *self.required}
        return sorted(self._current(config).keys() - known)

    def write_config(self, architecture: Architecture) -> JsonObject:
        """The config that `read_config` reads as this architecture. Raises UserError."""
        # The published class and the weights say whether there are a pooler and a mask decoder.
        written = _normalize(architecture.without_mask_decoder())
        config = self.more_keys(dataclasses.replace(written, classifier=architecture.classifier))
        for name, key in {**_KEYS, **self.keys}.items():
            if name not in config:
                config[name] = _write(operator.attrgetter(key.field)(written), key)
        again = self.fit(self.read_config(config), self.constants(architecture))
        if _normalize(again) != written:
            raise UserError(f'a {self.model_type} config cannot express {architecture}')
        return config | {name: self.fixed[name] for name in _OF_OTHERS if name in self.fixed}

    def _current(self, config: JsonView) -> JsonObject:
        """The config with the keys of the latest version, without known code of the folder."""
        renamed = {self.old_keys.get(name, name): config[name] for name in config}
        classes = renamed.get('auto_map')
        given = [str(name) for name in classes.values()] if isinstance(classes, dict) else []
        if given and all(re.fullmatch(self.remote_code, name) for name in given):
            del renamed['auto_map']
        return renamed

    def _check(self, config: JsonView) -> None:
        for name, expected in {**_TYPES, **self.read_by_complete}.items():
            _check_type(name, config.get(name), expected)
        for name, value in {**_FIXED, **self.fixed}.items():
            if config.get(name) is not None and config[name] != value:
                raise UserError(
                    f'{name} is {reprlib.repr(config[name])}; only {value!r} is supported'
                )
        for name, value in self.required.items():
            if config.get(name) != value:
                given = reprlib.repr(config.get(name))
                raise UserError(f'{name} is {given}; only {value!r} is supported')


def _normalize(architecture: Architecture) -> Architecture:
    # Without what other files say, and without the initialization and dropout of training.
    decoder = architecture.decoder
    return dataclasses.replace(
        architecture,
        decoder=decoder and dataclasses.replace(decoder, forced_first=True, forced_last=True),
        classifier=dataclasses.replace(architecture.classifier, skipped_id=None),
        windows=architecture.layer_windows,
        pooler=False,
        scaled_output_init=False,
        zero_output_init=False,
    )


def renamed(
    family: Family, model_type: str, class_prefix: str, prefix: str | None = None, **changes: Any
) -> Family:
    """Copy a family whose models differ only in names.

    Args:
        class_prefix: prefix of the names of its classes, such as 'Bert'.
        prefix: prefix of the encoder's weights; None: unchanged.
        changes: other fields of the copy.
    """
    old_prefix = family.bare_class.removesuffix('Model')
    rename = functools.partial(re.sub, f'^{old_prefix}', class_prefix)
    table = {
        ours: re.sub(f'^{re.escape(family.prefix)}', prefix or family.prefix, theirs)
        for ours, theirs in family.table.items()
    }
    fields: JsonObject = {
        'model_type': model_type,
        'table': table,
        'prefix': prefix or family.prefix,
        'classes': {rename(name): heads for name, heads in family.classes.items()},
        'without_pooler': tuple(map(rename, family.without_pooler)),
        'causal_class': rename(family.causal_class),
    }
    return dataclasses.replace(family, **fields | changes)


def _check_type(name: str, value: Any, expected: Any) -> None:
    if value is not None and (
        not isinstance(value, expected) or (isinstance(value, bool) and expected is not bool)
    ):
        raise UserError(f'{name} is {value!r}, expected {getattr(expected, "__name__", expected)}')


def _read(config: JsonView, name: str, key: Key) -> Any:
    """Our value of a key."""
    value: Any = config.get(name, key.default)
    if key.values:
        if not isinstance(value, str | bool) or value not in key.values:
            known = ', '.join(map(str, key.values))
            raise UserError(f'{name} is {value!r}; known: {known}')
        return key.values[value]
    expected = key.kind or (type(key.default) if isinstance(key.default, int) else float)
    if expected is float and type(value) is int:
        value = float(value)
    if key.field == 'num_layers' and isinstance(value, int) and value > limits.LAYERS:
        raise UserError(f'{name} is {value}, must be at most {limits.LAYERS}')
    if type(value) is not expected and not (value is None and key.default is None):
        raise UserError(f'{name} is {value!r}, expected {expected.__name__}')
    return value


def _write(value: Any, key: Key) -> Any:
    """The inverse of `_read`; reading back rejects a value that has no translation."""
    return next((theirs for theirs, ours in key.values.items() if ours == value), value)


def with_usual_heads(architecture: Architecture) -> Architecture:
    """Leave out a size of heads (head_dim) that is the usual one, hidden_size / num_heads."""
    if architecture.head_size * architecture.num_heads != architecture.hidden_size:
        return architecture
    return dataclasses.replace(architecture, size_per_head=None)


def bert_like(prefix: str, layer: str, names: Mapping[str, str] | None = None) -> dict[str, str]:
    """The names of embeddings, layers and classifiers that most families inherit from BERT.

    Args:
        prefix: prefix of the embeddings.
        layer: name of a layer, with '#' for its number.
        names: parts of a layer whose names differ from BERT's.
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
