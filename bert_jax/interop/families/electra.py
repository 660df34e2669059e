"""ELECTRA, discriminators and generators, as transformers writes it (modeling_electra.py)."""

from bert_jax.interop.families.family import (
    BERT_FIXED,
    BERT_KEYS,
    Family,
    Key,
    bert_like,
    common_classes,
    with_defaults,
)

FAMILY = Family(
    model_type='electra',
    architecture='electra',
    keys=with_defaults(BERT_KEYS, hidden_size=256, num_attention_heads=4, intermediate_size=1024)
    | {'embedding_size': Key('embedding_size', 128)},
    more_keys=lambda architecture: {'embedding_size': architecture.embedding_width},
    fixed=BERT_FIXED
    | {'summary_type': 'first', 'summary_use_proj': True, 'summary_activation': 'gelu'},
    table=bert_like('electra', 'electra.encoder.layer.#')
    | {
        'encoder/embeddings/projection': 'electra.embeddings_project',
        'rtd/head/transform': 'discriminator_predictions.dense',
        'rtd/head/output': 'discriminator_predictions.dense_prediction',
        'mlm/head/transform': 'generator_predictions.dense',
        'mlm/head/norm': 'generator_predictions.LayerNorm',
        'mlm/head/bias': 'generator_lm_head.bias',
        'mlm/head/decoder': 'generator_lm_head.weight',
        'sequence_classification/head/transform': 'classifier.dense',
        'sequence_classification/head/output': 'classifier.out_proj',
        'multiple_choice/head/transform': 'sequence_summary.summary',
    },
    prefix='electra.',
    classes=common_classes('Electra') | {'ElectraForPreTraining': ('rtd',)},
    causal_class='ElectraForCausalLM',
    decoder='generator_lm_head',
)
