"""T5 1.0 and 1.1 and mT5 as transformers writes them (modeling_t5.py)."""

import dataclasses

from bert_jax.errors import UserError
from bert_jax.interop.families.family import Family, Key, with_defaults
from bert_jax.models.architecture import Architecture
from bert_jax.types import JsonRecord, JsonView, RecordView

# Value of feed_forward_proj → whether the layer is gated, and its activation.
_FEEDFORWARDS = {
    'relu': ('dense', 'relu'),
    'gelu': ('dense', 'gelu'),
    'gated-gelu': ('gated', 'gelu_tanh'),
    'gated-relu': ('gated', 'relu'),
    'gated-silu': ('gated', 'silu'),
}
# Keys of generation, and keys whose value follows from other keys.
_OTHERS = {
    'classifier_dropout': int | float,
    'decoder_start_token_id': int,
    'dense_act_fn': str,
    'initializer_factor': int | float,
    'is_gated_act': bool,
    'max_length': int,
    'num_beams': int,
    'output_past': bool,
    'task_specific_params': dict,
}


def _complete(architecture: Architecture, config: JsonView) -> Architecture:
    """Set the feed-forward layers, and all dropouts to the same rate."""
    published = config.get('feed_forward_proj', 'relu')
    if published not in _FEEDFORWARDS:
        known = ', '.join(_FEEDFORWARDS)
        raise UserError(f'feed_forward_proj is {published!r}; known: {known}')
    feedforward, activation = _FEEDFORWARDS[published]
    rate, is_tied = architecture.hidden_dropout, architecture.prediction.tied
    # transformers 5 writes tie_word_embeddings=True in any case, and then this key.
    is_tied &= config.get('scale_decoder_outputs', is_tied)
    changes = {
        'feedforward': feedforward,
        'hidden_act': activation,
        'attention_dropout': rate,
        'feedforward_dropout': rate,
        'prediction.tied': is_tied,
        'prediction.scaled': is_tied,
    }
    return architecture.changed(changes)


def _more_keys(architecture: Architecture) -> JsonRecord:
    chosen = (architecture.feedforward, architecture.hidden_act)
    names = [name for name, value in _FEEDFORWARDS.items() if value == chosen]
    if not names:
        raise UserError(f'transformers has no T5 with {chosen[0]} feed-forward and {chosen[1]}')
    return {
        'is_encoder_decoder': True,
        'feed_forward_proj': names[0],
        'd_kv': architecture.head_size,
        'decoder_start_token_id': 0,
        'pad_token_id': 0,
        'eos_token_id': 1,
        'scale_decoder_outputs': architecture.prediction.tied,
    }


def _stack(stack: str, sublayers: dict[str, str]) -> dict[str, str]:
    ours, theirs = f'{stack}/layers_#', f'{stack}.block.#.layer'
    first = f'{stack}.block.0.layer.0.SelfAttention'
    last = len(sublayers)
    table = {
        f'{stack}/relative_positions/table': f'{first}.relative_attention_bias.weight',
        f'{ours}/feedforward/input': f'{theirs}.{last}.DenseReluDense.wi',
        f'{ours}/feedforward/output': f'{theirs}.{last}.DenseReluDense.wo',
        f'{ours}/feedforward_norm': f'{theirs}.{last}.layer_norm',
        f'{stack}/final_norm': f'{stack}.final_layer_norm',
    }
    projections = {'query': 'q', 'key': 'k', 'value': 'v', 'output': 'o'}
    for number, (name, published) in enumerate(sublayers.items()):
        table[f'{ours}/{name}_norm'] = f'{theirs}.{number}.layer_norm'
        for part, projection in projections.items():
            table[f'{ours}/{name}/{part}'] = f'{theirs}.{number}.{published}.{projection}'
    return table


FAMILY = Family(
    model_type='t5',
    architecture='t5_1_0',
    keys={
        'vocab_size': Key('vocab_size', 32128),
        'd_model': Key('hidden_size', 512),
        'd_kv': Key('size_per_head', 64),
        'd_ff': Key('intermediate_size', 2048),
        'num_layers': Key('num_layers', 6),
        'num_decoder_layers': Key('decoder.num_layers', 6),
        'num_heads': Key('num_heads', 8),
        'n_positions': Key('max_position_embeddings', 512),
        'relative_attention_num_buckets': Key('attention.buckets', 32),
        'relative_attention_max_distance': Key('attention.max_distance', 128),
        'dropout_rate': Key('hidden_dropout', 0.1),
        'layer_norm_epsilon': Key('layer_norm_eps', 1e-6),
    },
    complete=_complete,
    read_by_complete={'feed_forward_proj': str, 'scale_decoder_outputs': bool, **_OTHERS},
    more_keys=_more_keys,
    fixed={'is_encoder_decoder': True},
    table={
        'encoder/embeddings/token': 'shared.weight',
        **_stack('encoder', {'attention': 'SelfAttention'}),
        **_stack('decoder', {'attention': 'SelfAttention', 'cross_attention': 'EncDecAttention'}),
        'seq2seq/head/decoder': 'lm_head.weight',
    },
    prefix='',
    # A T5Model has the same weights, if they are tied.
    classes={'T5ForConditionalGeneration': ('seq2seq',)},
    token_keys={
        'pad_token_id': 'pad_id',
        'eos_token_id': 'sep_id',
        'decoder_start_token_id': 'pad_id',
    },
    decoder='lm_head',
    saves_decoder_once=True,
    copies=('encoder.embed_tokens.weight', 'decoder.embed_tokens.weight'),
    joined={
        'DenseReluDense.wi.weight': ('DenseReluDense.wi_0.weight', 'DenseReluDense.wi_1.weight'),
    },
    # A table of the first version, which nothing reads.
    training_only=('decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight',),
)


_MT5_DEFAULTS = {'feed_forward_proj': 'gated-gelu'}


def _complete_mt5(architecture: Architecture, config: RecordView) -> Architecture:
    """As `_complete`; mT5 predicts with a matrix of its own, whatever the config says."""
    untied = {'prediction.tied': False, 'prediction.scaled': False}
    return _complete(architecture, {**_MT5_DEFAULTS, **config}).changed(untied)


def _more_keys_mt5(architecture: Architecture) -> JsonRecord:
    config = _more_keys(architecture)
    del config['scale_decoder_outputs']
    return config


MT5 = dataclasses.replace(
    FAMILY,
    model_type='mt5',
    keys=with_defaults(
        FAMILY.keys,
        vocab_size=250112,
        num_layers=8,
        num_decoder_layers=8,
        num_heads=6,
        d_ff=1024,
    ),
    complete=_complete_mt5,
    more_keys=_more_keys_mt5,
    classes={'MT5Model': (), 'MT5ForConditionalGeneration': ('seq2seq',)},
)
