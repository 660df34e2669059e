"""What has to be known of a family of published models to read and write them."""

import dataclasses
from collections.abc import Callable, Mapping

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
# Keys of any family that change nothing of what an encoder computes: names, ids of tokens, how
# results are returned, how text would be generated, and what older versions wrote.
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
FIXED = {
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
    """A key of a config.json: our field, the value where it is absent, and how values translate.

    values: theirs → ours; the first that gives one of ours is written. Empty: as they are.
    """

    field: str
    default: object
    values: Mapping[object, object] = dataclasses.field(default_factory=dict)


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


def _as_read(architecture: Architecture, config: Mapping) -> Architecture:
    return architecture


def _nothing_more(architecture: Architecture) -> dict:
    return {}


@dataclasses.dataclass(frozen=True)
class Family:
    """One value of `model_type` in a config.json.

    architectures: names of our architectures that are of this family; the first is the one that
        `keys` give the sizes of.
    keys: of the config → our sizes.
    table: our parameter names → theirs (see `naming.places`).
    prefix: of the encoder's weights in a model with heads; a bare encoder's lack it.
    classes: published class → the heads whose weights it has.
    beside: published class → heads whose weights its files may hold too, which it passes over.
    without_pooler: those of the classes that have no pooler.
    fixed: keys of which only one value can be computed → that value, beside those of FIXED.
    harmless: keys that change nothing we compute, beside those of _HARMLESS.
    complete: makes of the architecture that `keys` give, and the config, the whole one.
    more_keys: keys for an architecture that `keys` do not give, which `complete` or a size reads.
    token_keys: keys with ids of tokens → the attribute of the tokenizer that has them.
    old_names: ends of names in files of early versions → today's.
    duplicates: weights that some files hold twice → the weight they must equal.
    contained: weights that only tell how others came to be: passed over, and said.
    buffers: names of constants that some files hold: positions 0, 1, …
    """

    model_type: str
    architectures: tuple[str, ...]
    keys: Mapping[str, Key]
    table: Mapping[str, str]
    prefix: str
    classes: Mapping[str, tuple[str, ...]]
    beside: Mapping[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)
    without_pooler: tuple[str, ...] = ()
    fixed: Mapping[str, object] = dataclasses.field(default_factory=dict)
    harmless: frozenset[str] = frozenset()
    complete: Callable[[Architecture, Mapping], Architecture] = _as_read
    more_keys: Callable[[Architecture], dict] = _nothing_more
    token_keys: Mapping[str, str] = dataclasses.field(
        default_factory=lambda: {'pad_token_id': 'pad_id'}
    )
    old_names: Mapping[str, str] = dataclasses.field(default_factory=dict)
    duplicates: Mapping[str, str] = dataclasses.field(default_factory=dict)
    contained: tuple[str, ...] = ()
    buffers: tuple[str, ...] = ()

    @property
    def heads(self) -> tuple[str, ...]:
        """All heads that a model of the family can have."""
        tuples = (*self.classes.values(), *self.beside.values())
        return tuple(dict.fromkeys(head for heads in tuples for head in heads))

    def todays_name(self, name: str) -> str:
        """The name of a weight as the latest version writes it."""
        for old, new in self.old_names.items():
            if name.endswith(old):
                return name.removesuffix(old) + new
        return name

    def class_of(self, heads: tuple[str, ...]) -> str:
        """The class whose weights are an encoder with exactly these heads."""
        for name, its_heads in self.classes.items():
            beside = self.beside.get(name, ())
            if its_heads == heads or (its_heads and set(heads) == {*its_heads, *beside}):
                return name
        raise UserError(f'no published {self.model_type} model has just the heads {heads}')

    def read_config(self, config: Mapping) -> Architecture:
        """Raises UserError for a key we do not know and a value we cannot compute."""
        self._check_keys(config)
        fields = {key.field: _read(config, name, key) for name, key in self.keys.items()}
        return self.complete(architectures.build(self.architectures[0], **fields), config)

    def write_config(self, architecture: Architecture) -> dict:
        """The inverse of `read_config`. Raises UserError if there is none."""
        config = self.more_keys(architecture)
        for name, key in self.keys.items():
            if name not in config:
                config[name] = _write(getattr(architecture, key.field), key)
        read = self.read_config(config)
        # Of these the class and the weights speak.
        told = {name: getattr(architecture, name) for name in ('pooler', 'mask_decoder')}
        if dataclasses.replace(read, **told) != architecture:
            raise UserError(f'a {self.model_type} config cannot express {architecture}')
        return config

    def _check_keys(self, config: Mapping):
        for name, value in (FIXED | dict(self.fixed)).items():
            if name in config and config[name] != value:
                raise UserError(f'{name} is {config[name]!r}; only {value!r} can be computed')
        known = {*_HARMLESS.split(), *self.harmless, *FIXED, *self.fixed, *self.keys}
        unknown = sorted(config.keys() - known)
        if unknown:
            raise UserError(
                f'{", ".join(unknown)}: not known for a {self.model_type} model; it may change '
                'what is computed. If not, remove it'
            )


def _read(config: Mapping, name: str, key: Key):
    """The value of one of our fields."""
    value = config.get(name, key.default)
    if key.values:
        if value not in key.values:
            known = ', '.join(map(str, key.values))
            raise UserError(f'{name} is {value!r}; known: {known}')
        return key.values[value]
    if isinstance(key.default, int):
        kind = int
    else:
        kind = float
        value = float(value) if type(value) is int else value
    if type(value) is not kind and not (value is None and key.default is None):
        raise UserError(f'{name} is {value!r}, which is no {kind.__name__}')
    return value


def _write(value, key: Key):
    """The inverse of `_read`; a value without translation stays, to be refused when read."""
    return next((theirs for theirs, ours in key.values.items() if ours == value), value)


def bert_like(prefix: str, layer: str, names: Mapping[str, str] | None = None) -> dict[str, str]:
    """The embeddings and layers that most families have inherited from BERT.

    layer: the name of a layer; names: what is called otherwise in it.
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
    return {
        f'encoder/embeddings/{ours}': f'{prefix}.embeddings.{name}'
        for ours, name in embeddings.items()
    } | {f'encoder/layers_#/{ours}': f'{layer}.{name}' for ours, name in parts.items()}
