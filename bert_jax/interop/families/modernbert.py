"""ModernBERT, and its causal variant, as transformers writes them.

modeling_modernbert.py, modeling_modernbert_decoder.py; Ettin's decoders (Weller et al. 2025, arXiv
2507.11412) belong to the causal variant.
"""

import dataclasses

from bert_jax.errors import UserError
from bert_jax.interop.families.family import ACTIVATIONS, Family, Key, common_classes
from bert_jax.models.architecture import Architecture
from bert_jax.models.architecture_parts import Rotary
from bert_jax.types import JsonRecord, JsonView

_GLOBAL, _LOCAL = 'full_attention', 'sliding_attention'
_THETAS = {_GLOBAL: ('global_rope_theta', 160_000.0), _LOCAL: ('local_rope_theta', 10_000.0)}
_WINDOW, _GLOBAL_EVERY, _PADDING = 128, 3, 50283  # defaults


def _complete(architecture: Architecture, config: JsonView) -> Architecture:
    """Add the attention windows and RoPE frequencies of the layers.

    Current configs list the layers; older ones give a rule (global_attn_every_n_layers).
    """
    every = config.get('global_attn_every_n_layers', _GLOBAL_EVERY)
    if every < 1:
        raise UserError(f'global_attn_every_n_layers is {every}, must be at least 1')
    layer_types = config.get('layer_types') or [
        _LOCAL if number % every else _GLOBAL for number in range(architecture.num_layers)
    ]
    is_known = all(layer_type in (_GLOBAL, _LOCAL) for layer_type in layer_types)
    if not is_known or len(layer_types) != architecture.num_layers:
        raise UserError(
            f'layer_types is {layer_types!r}; expected {_GLOBAL} or {_LOCAL} for each layer'
        )
    window = config.get('local_attention', _WINDOW) // 2
    thetas = {layer_type: _theta(config, layer_type) for layer_type in _THETAS}
    if config.get('mlp_dropout', 0.0) != architecture.hidden_dropout:
        raise UserError('mlp_dropout and embedding_dropout differ; only equal rates are supported')
    return architecture.changed(
        {
            'windows': tuple(None if name == _GLOBAL else window for name in layer_types),
            'attention': Rotary(thetas[_GLOBAL], thetas[_LOCAL]),
            'prediction.activation': architecture.classifier.activation,
        }
    )


def _theta(config: JsonView, layer_type: str) -> float:
    """The RoPE base of a type of layers, under its current or its old key."""
    old_key, default = _THETAS[layer_type]
    rope = config.get('rope_parameters', {}).get(layer_type) or {}
    if not isinstance(rope, dict):
        raise UserError(f'rope_parameters.{layer_type} is {rope!r}, expected an object')
    rope = dict(rope)
    theta = rope.pop('rope_theta', config.get(old_key, default))
    if rope.pop('rope_type', 'default') != 'default' or rope or not isinstance(theta, int | float):
        raise UserError(
            f'rope_parameters.{layer_type}: only rope_type default with a rope_theta is supported'
        )
    return float(theta)


def _more_keys(architecture: Architecture) -> JsonRecord:
    windows, attention = architecture.layer_windows, architecture.attention
    if attention.kind != 'rotary':
        return {}
    thetas = {_GLOBAL: attention.theta, _LOCAL: attention.local_theta}
    return {
        'layer_types': [_GLOBAL if window is None else _LOCAL for window in windows],
        'local_attention': next((2 * window for window in windows if window), _WINDOW),
        'rope_parameters': {
            name: {'rope_type': 'default', 'rope_theta': theta} for name, theta in thetas.items()
        },
        'mlp_dropout': architecture.hidden_dropout,
    }


_CLASSES = common_classes('ModernBert')
_HEADS = tuple(head for heads in _CLASSES.values() for head in heads)

_ENCODER = Family(
    model_type='modernbert',
    architecture='modernbert',
    keys={
        'vocab_size': Key('vocab_size', 50368),
        'hidden_size': Key('hidden_size', 768),
        'num_hidden_layers': Key('num_layers', 22),
        'num_attention_heads': Key('num_heads', 12),
        'intermediate_size': Key('intermediate_size', 1152),
        'max_position_embeddings': Key('max_position_embeddings', 8192),
        'hidden_activation': Key('hidden_act', 'gelu', ACTIVATIONS),
        'norm_eps': Key('layer_norm_eps', 1e-5),
        'embedding_dropout': Key('hidden_dropout', 0.0),
        'attention_dropout': Key('attention_dropout', 0.0),
        'initializer_range': Key('initializer_range', 0.02),
        'classifier_pooling': Key('classifier.pooling', 'cls', {'cls': 'first', 'mean': 'mean'}),
        'classifier_activation': Key('classifier.activation', 'gelu', ACTIVATIONS),
        'classifier_dropout': Key('classifier.dropout', 0.0),
        'attention_bias': Key('biases.attention', False, {False: 'none', True: 'all'}),
        'mlp_bias': Key('biases.feed_forward', False, {False: 'none', True: 'all'}),
        'norm_bias': Key(
            'norms.function', False, {False: 'unbiased_layer_norm', True: 'layer_norm'}
        ),
        'decoder_bias': Key('prediction.bias', True),
    },
    complete=_complete,
    read_by_complete={
        'global_attn_every_n_layers': int,
        'global_rope_theta': int | float,
        'layer_types': list,
        'local_attention': int,
        'local_rope_theta': int | float,
        'mlp_dropout': int | float,
        'rope_parameters': dict,
    },
    more_keys=_more_keys,
    fixed={
        'classifier_bias': False,
        'rope_scaling': None,
        'sparse_prediction': False,  # True drops logits
    },
    table={
        'encoder/embeddings/token': 'model.embeddings.tok_embeddings.weight',
        'encoder/embeddings/norm': 'model.embeddings.norm',
        'encoder/layers_#/attention/query': 'model.layers.#.attn.Wqkv|0/3',
        'encoder/layers_#/attention/key': 'model.layers.#.attn.Wqkv|1/3',
        'encoder/layers_#/attention/value': 'model.layers.#.attn.Wqkv|2/3',
        'encoder/layers_#/attention/output': 'model.layers.#.attn.Wo',
        'encoder/layers_#/attention_norm': 'model.layers.#.attn_norm',
        'encoder/layers_#/feedforward/input': 'model.layers.#.mlp.Wi',
        'encoder/layers_#/feedforward/output': 'model.layers.#.mlp.Wo',
        'encoder/layers_#/feedforward_norm': 'model.layers.#.mlp_norm',
        'encoder/final_norm': 'model.final_norm',
        'mlm/head/bias': 'decoder.bias',
        'mlm/head/decoder': 'decoder.weight',
    }
    | {f'{head}/head/transform': 'head.dense' for head in _HEADS}
    | {f'{head}/head/norm': 'head.norm' for head in _HEADS}
    | {f'{head}/head/output': 'classifier' for head in _HEADS if head != 'mlm'},
    prefix='model.',
    classes=_CLASSES,
    token_keys={
        'pad_token_id': 'pad_id',
        'bos_token_id': 'cls_id',
        'cls_token_id': 'cls_id',
        'eos_token_id': 'sep_id',
        'sep_token_id': 'sep_id',
    },
    decoder='decoder',
)


def _complete_causal(architecture: Architecture, config: JsonView) -> Architecture:
    """As for the encoder, with other windows, and with a padding token that is never the last one.

    A local layer sees distances below `sliding_window`, which is half of `local_attention`; in the
    encoder it sees this distance, too.
    """
    complete = _complete(architecture, config)
    distance = config.get('sliding_window', config.get('local_attention', _WINDOW) // 2)
    windows = [None if window is None else distance - 1 for window in complete.windows]
    skipped_id = config.get('pad_token_id', _PADDING)
    return complete.changed({'windows': tuple(windows), 'classifier.skipped_id': skipped_id})


def _more_keys_causal(architecture: Architecture) -> JsonRecord:
    windows = architecture.layer_windows
    distance = next((window + 1 for window in windows if window), _WINDOW // 2)
    sizes = {'local_attention': 2 * distance, 'sliding_window': distance}
    skipped_id = architecture.classifier.skipped_id
    padding = {} if skipped_id is None else {'pad_token_id': skipped_id}
    return _more_keys(architecture) | sizes | padding


DECODER = dataclasses.replace(
    _ENCODER,
    model_type='modernbert-decoder',
    architecture='modernbert_decoder',
    keys={name: key for name, key in _ENCODER.keys.items() if name != 'classifier_pooling'},
    complete=_complete_causal,
    read_by_complete={**_ENCODER.read_by_complete, 'sliding_window': int, 'pad_token_id': int},
    more_keys=_more_keys_causal,
    table={ours: name for ours, name in _ENCODER.table.items() if ours.startswith('encoder/')}
    | {
        'encoder/layers_#/attention/query': 'model.layers.#.attn.q_proj',
        'encoder/layers_#/attention/key': 'model.layers.#.attn.k_proj',
        'encoder/layers_#/attention/value': 'model.layers.#.attn.v_proj',
        'clm/head/transform': 'lm_head.dense',
        'clm/head/norm': 'lm_head.norm',
        'clm/head/bias': 'decoder.bias',
        'clm/head/decoder': 'decoder.weight',
        'sequence_classification/head/transform': 'head.dense',
        'sequence_classification/head/norm': 'head.norm',
        'sequence_classification/head/output': 'classifier',
    },
    classes={
        'ModernBertDecoderModel': (),
        'ModernBertDecoderForCausalLM': ('clm',),
        'ModernBertDecoderForSequenceClassification': ('sequence_classification',),
    },
    pad_token_id=0,  # the class takes no null
    is_causal=True,
)
FAMILY = dataclasses.replace(_ENCODER, causal_family=DECODER)
