"""EuroBERT and EmbeddingGemma: layers of Llama and Gemma 3 that attend in both directions.

As transformers writes them (modeling_eurobert.py, modeling_gemma3.py).
"""

import dataclasses

from bert_jax.errors import UserError
from bert_jax.interop.families import rope
from bert_jax.interop.families.family import ACTIVATIONS, Family, Key, with_usual_heads
from bert_jax.models.architecture import Architecture
from bert_jax.models.architecture_parts import Rotary
from bert_jax.types import JsonObject, JsonView

_LAYER = 'model.layers.#'
_TABLE = {
    'encoder/embeddings/token': 'model.embed_tokens.weight',
    'encoder/layers_#/attention/query': f'{_LAYER}.self_attn.q_proj',
    'encoder/layers_#/attention/key': f'{_LAYER}.self_attn.k_proj',
    'encoder/layers_#/attention/value': f'{_LAYER}.self_attn.v_proj',
    'encoder/layers_#/attention/output': f'{_LAYER}.self_attn.o_proj',
    'encoder/layers_#/attention_norm': f'{_LAYER}.input_layernorm',
    'encoder/layers_#/feedforward/input': f'{_LAYER}.mlp.gated',  # see `joined`
    'encoder/layers_#/feedforward/output': f'{_LAYER}.mlp.down_proj',
    'encoder/final_norm': 'model.norm',
}
_JOINED = {'mlp.gated.weight': ('mlp.gate_proj.weight', 'mlp.up_proj.weight')}
_KEYS = {
    'attention_bias': Key('biases.attention', False, {False: 'none', True: 'all'}),
    'attention_dropout': Key('attention_dropout', 0.0),
    'initializer_range': Key('initializer_range', 0.02),
}


def _with_heads(architecture: Architecture, config: JsonView, kv_heads: int) -> Architecture:
    """Set how many heads of keys and values there are."""
    heads = config.get('num_key_value_heads', kv_heads)
    shared = None if heads == architecture.num_heads else heads
    return with_usual_heads(architecture.changed({'kv_heads': shared}))


def _head_keys(architecture: Architecture) -> JsonObject:
    return {'num_key_value_heads': architecture.num_kv_heads, 'head_dim': architecture.head_size}


def _complete_eurobert(architecture: Architecture, config: JsonView) -> Architecture:
    architecture = _with_heads(architecture, config, architecture.num_heads)
    rotary = rope.read(config, 10_000.0, architecture.head_size)
    return dataclasses.replace(architecture, attention=rotary)


def _more_keys_eurobert(architecture: Architecture) -> JsonObject:
    assert isinstance(architecture.attention, Rotary)
    return _head_keys(architecture) | {'rope_parameters': rope.write(architecture.attention)}


EUROBERT = Family(
    model_type='eurobert',
    architecture='eurobert',
    keys=_KEYS
    | {
        'vocab_size': Key('vocab_size', 128_256),
        'hidden_size': Key('hidden_size', 768),
        'num_hidden_layers': Key('num_layers', 12),
        'num_attention_heads': Key('num_heads', 12),
        'head_dim': Key('size_per_head', None, kind=int),
        'intermediate_size': Key('intermediate_size', 3072),
        'max_position_embeddings': Key('max_position_embeddings', 8192),
        'hidden_act': Key('hidden_act', 'silu', ACTIVATIONS),
        'rms_norm_eps': Key('layer_norm_eps', 1e-5),
        'tie_word_embeddings': Key('prediction.tied', False),
        'classifier_pooling': Key(
            'classifier.pooling', 'late', {'late': 'late', 'bos': 'first', 'mean': 'mean'}
        ),
    },
    complete=_complete_eurobert,
    read_by_complete={'num_key_value_heads': int, **rope.READ},
    more_keys=_more_keys_eurobert,
    fixed={'mlp_bias': False, 'pretraining_tp': 1},
    token_keys={
        'pad_token_id': 'pad_id',
        'bos_token_id': 'cls_id',
        'eos_token_id': 'sep_id',
        'mask_token_id': 'mask_id',
    },
    old_keys={'clf_pooling': 'classifier_pooling'},
    remote_code=r'(EuroBERT/EuroBERT-[\w.]+--)?(modeling|configuration)_eurobert\.\w+',
    table=_TABLE
    | {
        'encoder/layers_#/feedforward_norm': f'{_LAYER}.post_attention_layernorm',
        'mlm/head/decoder': 'lm_head.weight',
        'sequence_classification/head/transform': 'dense',
        'sequence_classification/head/output': 'classifier',
        'token_classification/head/output': 'classifier',
    },
    prefix='model.',
    classes={
        'EuroBertModel': (),
        'EuroBertForMaskedLM': ('mlm',),
        'EuroBertForSequenceClassification': ('sequence_classification',),
        'EuroBertForTokenClassification': ('token_classification',),
    },
    decoder='lm_head',
    joined=_JOINED,
)

_GLOBAL, _LOCAL = 'full_attention', 'sliding_attention'
_WINDOW, _PATTERN, _HEAD_SIZE = 4096, 6, 256  # defaults


def _complete_gemma(architecture: Architecture, config: JsonView) -> Architecture:
    """Add the heads, the windows and the rotations; `sliding_window` is the width of both sides."""
    architecture = _with_heads(architecture, config, 4)
    scalar = config.get('query_pre_attn_scalar', _HEAD_SIZE)
    if scalar != architecture.head_size:
        raise UserError(
            f'query_pre_attn_scalar is {scalar!r}; only head_dim, which is '
            f'{architecture.head_size}, is supported'
        )
    every = config.get('_sliding_window_pattern', config.get('sliding_window_pattern', _PATTERN))
    if every < 1:
        raise UserError(f'sliding_window_pattern is {every}, must be at least 1')
    layer_types = config.get('layer_types') or [
        _LOCAL if number % every else _GLOBAL for number in range(1, architecture.num_layers + 1)
    ]
    is_known = all(layer_type in (_GLOBAL, _LOCAL) for layer_type in layer_types)
    if not is_known or len(layer_types) != architecture.num_layers:
        raise UserError(
            f'layer_types is {layer_types!r}; expected {_GLOBAL} or {_LOCAL} for each layer'
        )
    window = config.get('sliding_window', _WINDOW) // 2  # ours is the largest distance, one side
    of_all = rope.read(config, 1_000_000.0, architecture.head_size, _GLOBAL)
    local = {'rope_theta': config.get('rope_local_base_freq', 10_000.0)}
    local['rope_parameters'] = config.get('rope_parameters') or {}
    of_local = rope.read(local, 10_000.0, architecture.head_size, _LOCAL)
    if of_local.factor != 1:
        raise UserError(f'rope_parameters.{_LOCAL}: only rope_type default is supported')
    rotary = dataclasses.replace(of_all, local_theta=of_local.theta, qk_norm=True)
    windows = tuple(None if name == _GLOBAL else window for name in layer_types)
    return dataclasses.replace(architecture, windows=windows, attention=rotary)


def _more_keys_gemma(architecture: Architecture) -> JsonObject:
    windows, attention = architecture.layer_windows, architecture.attention
    assert isinstance(attention, Rotary)
    local = Rotary(attention.theta if attention.local_theta is None else attention.local_theta)
    return _head_keys(architecture) | {
        'layer_types': [_GLOBAL if window is None else _LOCAL for window in windows],
        'query_pre_attn_scalar': architecture.head_size,
        'rope_parameters': {_GLOBAL: rope.write(attention), _LOCAL: rope.write(local)},
        'sliding_window': next((2 * window for window in windows if window), _WINDOW),
        'use_bidirectional_attention': True,
    }


EMBEDDING_GEMMA = Family(
    model_type='gemma3_text',
    architecture='embedding_gemma',
    keys=_KEYS
    | {
        'vocab_size': Key('vocab_size', 262_208),
        'hidden_size': Key('hidden_size', 2304),
        'num_hidden_layers': Key('num_layers', 26),
        'num_attention_heads': Key('num_heads', 8),
        'head_dim': Key('size_per_head', _HEAD_SIZE),
        'intermediate_size': Key('intermediate_size', 9216),
        'max_position_embeddings': Key('max_position_embeddings', 131_072),
        'hidden_activation': Key('hidden_act', 'gelu_pytorch_tanh', ACTIVATIONS),
        'rms_norm_eps': Key('layer_norm_eps', 1e-6),
    },
    complete=_complete_gemma,
    read_by_complete={
        '_sliding_window_pattern': int,
        'layer_types': list,
        'num_key_value_heads': int,
        'query_pre_attn_scalar': int,
        'rope_local_base_freq': int | float,
        'sliding_window': int,
        'sliding_window_pattern': int,
        **rope.READ,
    },
    more_keys=_more_keys_gemma,
    fixed=dict.fromkeys(('attn_logit_softcapping', 'final_logit_softcapping')),
    required={'use_bidirectional_attention': True},  # Gemma's language models are causal
    token_keys={'pad_token_id': 'pad_id', 'bos_token_id': 'cls_id', 'eos_token_id': 'sep_id'},
    table=_TABLE
    | {
        'encoder/layers_#/attention/query_norm': f'{_LAYER}.self_attn.q_norm',
        'encoder/layers_#/attention/key_norm': f'{_LAYER}.self_attn.k_norm',
        'encoder/layers_#/attention_output_norm': f'{_LAYER}.post_attention_layernorm',
        'encoder/layers_#/feedforward_norm': f'{_LAYER}.pre_feedforward_layernorm',
        'encoder/layers_#/feedforward_output_norm': f'{_LAYER}.post_feedforward_layernorm',
    },
    prefix='model.',
    classes={'Gemma3TextModel': ()},
    decoder='lm_head',
    joined=_JOINED,
)
