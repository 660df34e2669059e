"""Published model families by model_type; a new family is a file here and a line in FAMILIES."""

from bert_jax.errors import UserError, look_up
from bert_jax.interop.families import (
    albert,
    bart,
    bert,
    deberta,
    distilbert,
    electra,
    encoder_pairs,
    esm,
    gpt2,
    llama_like,
    modernbert,
    mpnet,
    prenorm,
    rembert,
    remote,
    roberta,
    roformer,
    rotary_bert,
    t5,
    wrapped,
    xlnet,
)
from bert_jax.interop.families.family import Family
from bert_jax.types import JsonView, RecordView

FAMILIES: dict[str, Family] = {
    'albert': albert.FAMILY,
    'bart': bart.FAMILY,
    'bert': bert.FAMILY,
    'deberta': deberta.V1,
    'deberta-v2': deberta.V2,
    'distilbert': distilbert.FAMILY,
    'electra': electra.FAMILY,
    'esm': esm.FAMILY,
    'eurobert': llama_like.EUROBERT,
    'gemma3_text': llama_like.EMBEDDING_GEMMA,
    'gpt2': gpt2.FAMILY,
    'gte': rotary_bert.GTE,
    'jina_embeddings_v3': rotary_bert.JINA_V3,
    'modernbert': modernbert.FAMILY,
    'modernbert-decoder': modernbert.DECODER,
    'megatron-bert': prenorm.MEGATRON,
    'mpnet': mpnet.FAMILY,
    'nomic_bert': rotary_bert.NOMIC,
    'rembert': rembert.FAMILY,
    'roformer': roformer.FAMILY,
    'roberta': roberta.ROBERTA,
    'roberta-prelayernorm': prenorm.ROBERTA,
    'xlm-roberta': roberta.XLM_R,
    'xlm-roberta-xl': prenorm.XLM_R_XL,
    'camembert': roberta.CAMEMBERT,
    'data2vec-text': roberta.DATA2VEC,
    'ernie': bert.ERNIE,
    'mbart': bart.MBART,
    'mt5': t5.MT5,
    't5': t5.FAMILY,
    'xlnet': xlnet.FAMILY,
}

# Other model_types, whose folders are written under one of FAMILIES or not at all.
_OTHER_NAMES = {
    'dpr': wrapped.DPR,
    'luke': wrapped.LUKE,
    'neobert': remote.NEOBERT,
    'new': rotary_bert.NEW,
}

# model_type that is not read → the nearest that is.
_NEAREST = {
    **dict.fromkeys(('big_bird', 'longformer', 'nystromformer', 'yoso'), 'modernbert (long texts)'),
    **dict.fromkeys(('convbert', 'funnel'), 'electra'),
    **dict.fromkeys(('mobilebert', 'squeezebert'), 'distilbert'),
    **dict.fromkeys(('bert-generation', 'canine', 'fnet', 'mra', 'nezha', 'splinter'), 'bert'),
    **dict.fromkeys(('layoutlm', 'layoutlmv2', 'lxmert', 'visual_bert'), 'bert (text alone)'),
    **dict.fromkeys(('layoutlmv3', 'lilt', 'markuplm'), 'roberta (text alone)'),
    **dict.fromkeys(('ernie_m', 'xlm', 'xmod'), 'xlm-roberta'),
    **dict.fromkeys(('ibert', 'mega'), 'roberta'),
    'esmc': 'esm',
    'flaubert': 'camembert',
    **dict.fromkeys(('blenderbot', 'led', 'mvp', 'pegasus', 'plbart', 'prophetnet'), 'bart'),
    **dict.fromkeys(('longt5', 'switch_transformers', 't5gemma'), 't5'),
    **dict.fromkeys(('m2m_100', 'marian'), 'mbart'),
    'umt5': 'mt5',
    **dict.fromkeys(('codegen', 'gpt_neo', 'gpt_neox', 'gptj', 'openai-gpt', 'opt'), 'gpt2'),
    **dict.fromkeys(
        (
            'gemma',
            'gemma2',
            'gemma3',
            'llama',
            'mistral',
            'phi',
            'phi3',
            'qwen2',
            'qwen3',
            'smollm3',
        ),
        'modernbert-decoder, or eurobert for vectors',
    ),
}


def by_model_type(model_type: str | None) -> Family:
    """The family of a model_type. Raises UserError if it is unknown or None."""
    if model_type is None:
        raise UserError(
            'the architecture belongs to no published family, so the model cannot be exported'
        )
    pairs = {family.model_type: family for family in encoder_pairs.PAIRS.values()}
    if near := _NEAREST.get(model_type):
        known = ', '.join((*FAMILIES, *_OTHER_NAMES))
        raise UserError(
            f'model_type {model_type!r} is not supported; the nearest that is: {near}; known: '
            f'{known}'
        )
    return look_up('model_type', model_type, {**FAMILIES, **_OTHER_NAMES, **pairs})


def of_config(config: JsonView) -> Family:
    """The family of a config.json, by its model_type or, without one, by its published class.

    Raises:
        UserError: an unknown model_type, or neither a model_type nor a known class.
    """
    if config.get('model_type') == encoder_pairs.MODEL_TYPE:
        return encoder_pairs.of_encoder(config)
    if config.get('model_type') == 'bert':
        if config.get('position_embedding_type') == 'alibi':
            return remote.JINA_V2
        if config.get('alibi_starting_size') is not None:
            return remote.MOSAIC
    if isinstance(config.get('model_type'), str):
        return _as_configured(by_model_type(config['model_type']), config)
    published = published_class(config)
    for family in FAMILIES.values():
        if published in (*family.classes, family.causal_class):
            return _as_configured(family, config)
    raise UserError(
        f'no model_type, and architectures names no known class; add "model_type": one of '
        f'{", ".join(FAMILIES)}'
    )


def _as_configured(family: Family, config: RecordView) -> Family:
    """The family; its left-to-right variant if the config sets is_decoder and one exists."""
    return family.as_decoder() if config.get('is_decoder') and family.causal_class else family


def published_class(config: RecordView) -> str | None:
    """The class that a config.json names under `architectures`; None if it names none."""
    named = config.get('architectures')
    return named[0] if isinstance(named, list) and named and isinstance(named[0], str) else None
