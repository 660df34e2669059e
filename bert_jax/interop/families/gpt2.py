"""GPT-2 as transformers writes it (modeling_gpt2.py)."""

from bert_jax.errors import UserError
from bert_jax.interop.families.family import ACTIVATIONS, Family, Key
from bert_jax.models.architecture import Architecture
from bert_jax.types import JsonRecord, RecordView

# Keys that have no effect on the encoder and the heads, and the padding token.
_OTHERS = {
    'n_ctx': int,
    'pad_token_id': int,
    'summary_activation': str,
    'summary_first_dropout': int | float,
    'summary_proj_to_labels': bool,
    'summary_type': str,
    'summary_use_proj': bool,
    'task_specific_params': dict,
}


def _complete(architecture: Architecture, config: RecordView) -> Architecture:
    """Set the width of the feed-forward layers, and which token is not the last of a text.

    The width is by default four times that of the states. Classification reads the last token that
    does not have the id of the padding token.
    """
    if config.get('embd_pdrop', 0.1) != architecture.hidden_dropout:
        raise UserError('resid_pdrop and embd_pdrop differ; only equal rates are supported')
    width = config.get('n_inner', 4 * architecture.hidden_size)
    skipped_id = config.get('pad_token_id')
    return architecture.changed({'intermediate_size': width, 'classifier.skipped_id': skipped_id})


def _more_keys(architecture: Architecture) -> JsonRecord:
    width = architecture.intermediate_size
    return {
        'embd_pdrop': architecture.hidden_dropout,
        'n_inner': None if width == 4 * architecture.hidden_size else width,
        'pad_token_id': architecture.classifier.skipped_id,
    }


FAMILY = Family(
    model_type='gpt2',
    architecture='gpt2',
    keys={
        'vocab_size': Key('vocab_size', 50257),
        'n_embd': Key('hidden_size', 768),
        'n_layer': Key('num_layers', 12),
        'n_head': Key('num_heads', 12),
        'n_positions': Key('max_position_embeddings', 1024),
        'activation_function': Key('hidden_act', 'gelu_new', ACTIVATIONS),
        'layer_norm_epsilon': Key('layer_norm_eps', 1e-5),
        'resid_pdrop': Key('hidden_dropout', 0.1),
        'attn_pdrop': Key('attention_dropout', 0.1),
        'initializer_range': Key('initializer_range', 0.02),
        'classifier_dropout': Key('classifier.dropout', None),
    },
    complete=_complete,
    read_by_complete={'embd_pdrop': int | float, 'n_inner': int, **_OTHERS},
    more_keys=_more_keys,
    fixed={
        'reorder_and_upcast_attn': False,
        'scale_attn_by_inverse_layer_idx': False,
        'scale_attn_weights': True,
    },
    table={
        'encoder/embeddings/token': 'transformer.wte.weight',
        'encoder/embeddings/position': 'transformer.wpe.weight',
        'encoder/layers_#/attention_norm': 'transformer.h.#.ln_1',
        'encoder/layers_#/attention/query': 'transformer.h.#.attn.c_attn|0/3 transposed',
        'encoder/layers_#/attention/key': 'transformer.h.#.attn.c_attn|1/3 transposed',
        'encoder/layers_#/attention/value': 'transformer.h.#.attn.c_attn|2/3 transposed',
        'encoder/layers_#/attention/output': 'transformer.h.#.attn.c_proj|0/1 transposed',
        'encoder/layers_#/feedforward_norm': 'transformer.h.#.ln_2',
        'encoder/layers_#/feedforward/input': 'transformer.h.#.mlp.c_fc|0/1 transposed',
        'encoder/layers_#/feedforward/output': 'transformer.h.#.mlp.c_proj|0/1 transposed',
        'encoder/final_norm': 'transformer.ln_f',
        'clm/head/decoder': 'lm_head.weight',
        'sequence_classification/head/output': 'score',
        'token_classification/head/output': 'classifier',
        'question_answering/head/output': 'qa_outputs',
    },
    prefix='transformer.',
    classes={
        'GPT2Model': (),
        'GPT2LMHeadModel': ('clm',),
        'GPT2ForSequenceClassification': ('sequence_classification',),
        'GPT2ForTokenClassification': ('token_classification',),
        'GPT2ForQuestionAnswering': ('question_answering',),
    },
    token_keys={'bos_token_id': 'cls_id', 'eos_token_id': 'sep_id', 'pad_token_id': 'pad_id'},
    decoder='lm_head',
    buffers=r'(transformer\.)?h\.\d+\.attn\.(masked_)?bias',
    is_causal=True,
)
