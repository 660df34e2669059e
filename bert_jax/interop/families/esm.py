"""ESM-1b and ESM-2, models of proteins, as transformers writes them (modeling_esm.py)."""

import dataclasses
from collections.abc import Mapping

import numpy as np

from bert_jax.errors import UserError
from bert_jax.interop.families import roberta
from bert_jax.interop.families.family import (
    BERT_KEYS,
    Family,
    bert_like,
    common_classes,
    with_defaults,
)
from bert_jax.models.architecture import Architecture
from bert_jax.models.architecture_parts import (
    NoPositions,
    OffsetPositions,
    Rotary,
    Standard,
    TokenDropout,
)
from bert_jax.models.attention import rotation_frequencies
from bert_jax.types import JsonRecord, JsonView

_FREQUENCIES = 'rotary_embeddings.inv_freq'
_CLASSES = common_classes('Esm')
del _CLASSES['EsmForQuestionAnswering'], _CLASSES['EsmForMultipleChoice']
_KEYS = {
    name: key
    for name, key in BERT_KEYS.items()
    if name not in ('hidden_act', 'type_vocab_size', 'classifier_dropout')
}
_NORMS = {'attention_norm': 'attention.LayerNorm', 'feedforward_norm': 'LayerNorm'}


def _complete(architecture: Architecture, config: JsonView) -> Architecture:
    kind = config.get('position_embedding_type', 'absolute')
    if kind not in ('absolute', 'rotary'):
        raise UserError(f'position_embedding_type is {kind!r}; known: absolute, rotary')
    dropout = None
    if config.get('token_dropout', False):
        if 'mask_token_id' not in config:
            raise UserError('token_dropout is True, which needs mask_token_id')
        dropout = TokenDropout(config['mask_token_id'])
    is_rotary = kind == 'rotary'
    return dataclasses.replace(
        architecture,
        positions=NoPositions()
        if is_rotary
        else OffsetPositions(config.get('pad_token_id', 1) + 1),
        attention=Rotary(float(config.get('rope_theta', 10_000.0))) if is_rotary else Standard(),
        norms=dataclasses.replace(
            architecture.norms, embeddings=config.get('emb_layer_norm_before', False)
        ),
        token_dropout=dropout,
    )


def _more_keys(architecture: Architecture) -> JsonRecord:
    attention, dropout = architecture.attention, architecture.token_dropout
    keys: JsonRecord = {
        'position_embedding_type': 'absolute',
        'emb_layer_norm_before': architecture.norms.embeddings,
        'token_dropout': dropout is not None,
    }
    if attention.kind == 'rotary':
        keys |= {'position_embedding_type': 'rotary', 'rope_theta': attention.theta}
    else:
        keys['pad_token_id'] = architecture.first_position - 1
    return keys if dropout is None else keys | {'mask_token_id': dropout.mask_id}


def _constants(architecture: Architecture) -> dict[str, np.ndarray]:
    """The frequencies of the rotation, which files of the family hold."""
    attention = architecture.attention
    if attention.kind != 'rotary':
        return {}
    frequencies = rotation_frequencies(attention, architecture.head_size)
    return {f'esm.{_FREQUENCIES}': frequencies}


def _fit(architecture: Architecture, state: Mapping[str, np.ndarray]) -> Architecture:
    """See whether the frequencies of a file were rounded to float16, as those of training were."""
    attention = architecture.attention
    found = [array for name, array in state.items() if name.endswith(_FREQUENCIES)]
    if attention.kind != 'rotary' or not found:
        return architecture
    rounded = architecture.changed({'attention.precision': 'float16'})
    for candidate in (architecture, rounded):
        (expected,) = _constants(candidate).values()
        if all(
            array.shape == expected.shape and np.allclose(array, expected, rtol=1e-6, atol=0)
            for array in found
        ):
            return candidate
    raise UserError(f'{_FREQUENCIES} are not those of rope_theta {attention.theta:g}')


FAMILY = Family(
    model_type='esm',
    architecture='esm',
    keys=with_defaults(_KEYS, vocab_size=33, max_position_embeddings=1026),
    complete=_complete,
    read_by_complete={
        'emb_layer_norm_before': bool,
        'esmfold_config': dict,
        'mask_token_id': int,
        'pad_token_id': int,
        'position_embedding_type': str,
        'rope_theta': int | float,
        'token_dropout': bool,
        'vocab_list': list | tuple,
    },
    more_keys=_more_keys,
    fixed={'is_folding_model': False},
    constants=_constants,
    fit=_fit,
    token_keys={
        'pad_token_id': 'pad_id',
        'cls_token_id': 'cls_id',
        'eos_token_id': 'sep_id',
        'mask_token_id': 'mask_id',
    },
    table=bert_like('esm', 'esm.encoder.layer.#', _NORMS)
    | {
        ours: name
        for ours, name in roberta.ROBERTA.table.items()
        if ours.startswith(('mlm/', 'sequence_classification/', 'token_classification/'))
    }
    | {
        'encoder/embeddings/norm': 'esm.embeddings.layer_norm',
        'encoder/final_norm': 'esm.encoder.emb_layer_norm_after',
        'encoder/pooler': 'esm.pooler.dense',
    },
    prefix='esm.',
    classes=_CLASSES,
    without_pooler=tuple(name for name in _CLASSES if not name.endswith('Model')),
    old_names={'LayerNorm.gamma': 'LayerNorm.weight', 'LayerNorm.beta': 'LayerNorm.bias'},
    # Contacts of residues are predicted from attention.
    unused=r'(esm\.)?contact_head\.regression\.(weight|bias)',
    # transformers 5 writes a literal * (findings/transformers_esm_names.sh).
    buffers=rf'(esm\.)?(encoder\.layer\.(\d+|\*)\.attention\.self\.)?{_FREQUENCIES}',
    decoder='lm_head.decoder',
    pad_token_id=1,  # the class takes no null
)
