"""XLNet as transformers writes it (modeling_xlnet.py), without its memory."""

from bert_jax.errors import UserError
from bert_jax.interop.families.family import ACTIVATIONS, Family, Key
from bert_jax.models.architecture import Architecture
from bert_jax.types import JsonRecord, JsonView

# Keys of the memory, of beam search in question answering and of generation, which have no effect
# on rows without memory.
_OTHERS = {
    'end_n_top': int,
    'mem_len': int,
    'reuse_len': int,
    'same_length': bool,
    'start_n_top': int,
    'task_specific_params': dict,
    'use_mems_eval': bool,
    'use_mems_train': bool,
}


def _complete(architecture: Architecture, config: JsonView) -> Architecture:
    """Set the rates of dropout: one in the encoder, and another before logits of sequences."""
    if config.get('d_head', architecture.head_size) != architecture.head_size:
        raise UserError(
            f'd_head is {config["d_head"]}; only d_model / n_head, {architecture.head_size}, is '
            'supported'
        )
    rate = float(config.get('summary_last_dropout', 0.1))
    changes = {
        'attention_dropout': architecture.hidden_dropout,
        'classifier.dropout': None if rate == architecture.hidden_dropout else rate,
    }
    return architecture.changed(changes)


def _more_keys(architecture: Architecture) -> JsonRecord:
    rate = architecture.classifier.dropout
    return {
        'attn_type': 'bi',
        'd_head': architecture.head_size,
        'mem_len': None,
        'summary_last_dropout': architecture.hidden_dropout if rate is None else rate,
    }


_ATTENTION = 'transformer.layer.#.rel_attn'

FAMILY = Family(
    model_type='xlnet',
    architecture='xlnet',
    keys={
        'vocab_size': Key('vocab_size', 32000),
        'd_model': Key('hidden_size', 1024),
        'n_layer': Key('num_layers', 24),
        'n_head': Key('num_heads', 16),
        'd_inner': Key('intermediate_size', 4096),
        'ff_activation': Key('hidden_act', 'gelu', ACTIVATIONS),
        'layer_norm_eps': Key('layer_norm_eps', 1e-12),
        'dropout': Key('hidden_dropout', 0.1),
        'initializer_range': Key('initializer_range', 0.02),
    },
    complete=_complete,
    read_by_complete={'d_head': int, 'summary_last_dropout': int | float, **_OTHERS},
    more_keys=_more_keys,
    fixed={
        'attn_type': 'bi',
        'bi_data': False,
        'clamp_len': -1,
        'summary_activation': 'tanh',
        'summary_type': 'last',
        'summary_use_proj': True,
        'untie_r': True,
    },
    table={
        'encoder/embeddings/token': 'transformer.word_embedding.weight',
        'encoder/query_start': 'transformer.mask_emb',
        'encoder/layers_#/attention/query/kernel': f'{_ATTENTION}.q|0/1 transposed with heads',
        'encoder/layers_#/attention/key/kernel': f'{_ATTENTION}.k|0/1 transposed with heads',
        'encoder/layers_#/attention/value/kernel': f'{_ATTENTION}.v|0/1 transposed with heads',
        'encoder/layers_#/attention/position/kernel': f'{_ATTENTION}.r|0/1 transposed with heads',
        'encoder/layers_#/attention/output/kernel': f'{_ATTENTION}.o|0/1 with heads',
        'encoder/layers_#/attention/content_bias': f'{_ATTENTION}.r_w_bias',
        'encoder/layers_#/attention/position_bias': f'{_ATTENTION}.r_r_bias',
        'encoder/layers_#/attention/type_bias': f'{_ATTENTION}.r_s_bias',
        'encoder/layers_#/attention/type_vectors': f'{_ATTENTION}.seg_embed',
        'encoder/layers_#/attention_norm': f'{_ATTENTION}.layer_norm',
        'encoder/layers_#/feedforward/input': 'transformer.layer.#.ff.layer_1',
        'encoder/layers_#/feedforward/output': 'transformer.layer.#.ff.layer_2',
        'encoder/layers_#/feedforward_norm': 'transformer.layer.#.ff.layer_norm',
        'plm/head/bias': 'lm_loss.bias',
        'plm/head/decoder': 'lm_loss.weight',
        'sequence_classification/head/transform': 'sequence_summary.summary',
        'sequence_classification/head/output': 'logits_proj',
        'multiple_choice/head/transform': 'sequence_summary.summary',
        'multiple_choice/head/output': 'logits_proj',
        'token_classification/head/output': 'classifier',
        'question_answering/head/output': 'qa_outputs',
    },
    prefix='transformer.',
    classes={
        'XLNetModel': (),
        'XLNetLMHeadModel': ('plm',),
        'XLNetForSequenceClassification': ('sequence_classification',),
        'XLNetForTokenClassification': ('token_classification',),
        'XLNetForQuestionAnsweringSimple': ('question_answering',),
        'XLNetForMultipleChoice': ('multiple_choice',),
    },
    decoder='lm_loss',
    pad_token_id=5,
)
