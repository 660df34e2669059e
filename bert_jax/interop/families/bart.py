"""BART and mBART as transformers writes them (modeling_bart.py, modeling_mbart.py)."""

import dataclasses

from bert_jax.errors import UserError
from bert_jax.interop.families.family import ACTIVATIONS, Family, Key
from bert_jax.models.architecture import Architecture
from bert_jax.types import JsonRecord, RecordView

# Keys of generation, and keys whose value follows from other keys.
_OTHERS = {
    'add_bias_logits': bool,
    'classif_dropout': int | float,
    'decoder_start_token_id': int,
    'do_blenderbot_90_layernorm': bool,
    'early_stopping': bool,
    'force_bos_token_to_be_generated': bool,
    'forced_bos_token_id': int,
    'forced_eos_token_id': int,
    'length_penalty': int | float,
    'max_length': int,
    'min_length': int,
    'no_repeat_ngram_size': int,
    'num_beams': int,
    'num_hidden_layers': int,
    'output_past': bool,
    'prefix': str,
    'save_step': int,
    'task_specific_params': dict,
}
_SAME = {'attention_heads': 'num_heads', 'ffn_dim': 'intermediate_size'}
_UNUSED_POSITIONS = 2  # rows at the start of the position tables


def _complete(architecture: Architecture, config: RecordView) -> Architecture:
    """Add the unused positions; the decoder must have the sizes of the encoder."""
    for name, field in _SAME.items():
        size = getattr(architecture, field)
        if config.get(f'decoder_{name}', size) != size:
            raise UserError(
                f'decoder_{name} is {config[f"decoder_{name}"]}, but encoder_{name} is {size}; '
                'only equal sizes are supported'
            )
    positions = architecture.max_position_embeddings + _UNUSED_POSITIONS
    return architecture.changed({'max_position_embeddings': positions})


def _more_keys(architecture: Architecture) -> JsonRecord:
    decoder = {f'decoder_{name}': getattr(architecture, field) for name, field in _SAME.items()}
    return decoder | {
        'is_encoder_decoder': True,
        'max_position_embeddings': architecture.max_position_embeddings - _UNUSED_POSITIONS,
        'num_hidden_layers': architecture.num_layers,
        'decoder_start_token_id': 2,
        'bos_token_id': 0,
        'pad_token_id': 1,
        'eos_token_id': 2,
    }


def _stack(stack: str, attentions: dict[str, str]) -> dict[str, str]:
    ours, theirs = f'{stack}/layers_#', f'model.{stack}.layers.#'
    table = {
        f'{stack}/embeddings/position': f'model.{stack}.embed_positions.weight',
        f'{stack}/embeddings/norm': f'model.{stack}.layernorm_embedding',
        f'{ours}/feedforward/input': f'{theirs}.fc1',
        f'{ours}/feedforward/output': f'{theirs}.fc2',
        f'{ours}/feedforward_norm': f'{theirs}.final_layer_norm',
        f'{stack}/final_norm': f'model.{stack}.layer_norm',
    }
    projections = {'query': 'q_proj', 'key': 'k_proj', 'value': 'v_proj', 'output': 'out_proj'}
    for name, published in attentions.items():
        table[f'{ours}/{name}_norm'] = f'{theirs}.{published}_layer_norm'
        for part, projection in projections.items():
            table[f'{ours}/{name}/{part}'] = f'{theirs}.{published}.{projection}'
    return table


FAMILY = Family(
    model_type='bart',
    architecture='bart',
    keys={
        'vocab_size': Key('vocab_size', 50265),
        'd_model': Key('hidden_size', 1024),
        'encoder_layers': Key('num_layers', 12),
        'decoder_layers': Key('decoder.num_layers', 12),
        'encoder_attention_heads': Key('num_heads', 16),
        'encoder_ffn_dim': Key('intermediate_size', 4096),
        'max_position_embeddings': Key('max_position_embeddings', 1024),
        'activation_function': Key('hidden_act', 'gelu', ACTIVATIONS),
        'dropout': Key('hidden_dropout', 0.1),
        'attention_dropout': Key('attention_dropout', 0.0),
        'activation_dropout': Key('feedforward_dropout', 0.0),
        'init_std': Key('initializer_range', 0.02),
        'classifier_dropout': Key('classifier.dropout', 0.0),
        'scale_embedding': Key('scaled_embeddings', False, {False: False, True: True}),
    },
    complete=_complete,
    read_by_complete={'decoder_attention_heads': int, 'decoder_ffn_dim': int, **_OTHERS},
    more_keys=_more_keys,
    fixed={
        'is_encoder_decoder': True,
        'add_final_layer_norm': False,
        'decoder_layerdrop': 0.0,
        'encoder_layerdrop': 0.0,
        'extra_pos_embeddings': _UNUSED_POSITIONS,
        'normalize_before': False,
        'normalize_embedding': True,
        'static_position_embeddings': False,
    },
    table={
        'encoder/embeddings/token': 'model.shared.weight',
        **_stack('encoder', {'attention': 'self_attn'}),
        **_stack('decoder', {'attention': 'self_attn', 'cross_attention': 'encoder_attn'}),
        'seq2seq/head/bias': 'final_logits_bias|0/1 as row',
        'seq2seq/head/decoder': 'lm_head.weight',
        'sequence_classification/head/transform': 'classification_head.dense',
        'sequence_classification/head/output': 'classification_head.out_proj',
        'question_answering/head/output': 'qa_outputs',
    },
    prefix='model.',
    classes={
        'BartModel': (),
        'BartForConditionalGeneration': ('seq2seq',),
        'BartForSequenceClassification': ('sequence_classification',),
        'BartForQuestionAnswering': ('question_answering',),
    },
    token_keys={
        'pad_token_id': 'pad_id',
        'bos_token_id': 'first_id',
        'eos_token_id': 'sep_id',
        'decoder_start_token_id': 'sep_id',
    },
    decoder='lm_head',
    copies=('model.encoder.embed_tokens.weight', 'model.decoder.embed_tokens.weight'),
    buffers=r'(model\.)?(encoder|decoder)\.(version|embed_positions\._float_tensor)',
)
MBART = dataclasses.replace(
    FAMILY,
    model_type='mbart',
    architecture='mbart',
    fixed={**FAMILY.fixed, 'normalize_before': True, 'add_final_layer_norm': True},
    classes={'MBartModel': (), 'MBartForConditionalGeneration': ('seq2seq',)},
    token_keys={'pad_token_id': 'pad_id', 'bos_token_id': 'first_id', 'eos_token_id': 'sep_id'},
)
