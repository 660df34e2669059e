"""DistilBERT as transformers writes it (modeling_distilbert.py)."""

from bert_jax.interop.families.family import ACTIVATIONS, Family, Key, bert_like, common_classes

FAMILY = Family(
    model_type='distilbert',
    architecture='distilbert',
    keys={
        'vocab_size': Key('vocab_size', 30522),
        'dim': Key('hidden_size', 768),
        'n_layers': Key('num_layers', 6),
        'n_heads': Key('num_heads', 12),
        'hidden_dim': Key('intermediate_size', 3072),
        'max_position_embeddings': Key('max_position_embeddings', 512),
        'activation': Key('hidden_act', 'gelu', ACTIVATIONS),
        'dropout': Key('hidden_dropout', 0.1),
        'attention_dropout': Key('attention_dropout', 0.1),
        'initializer_range': Key('initializer_range', 0.02),
        'seq_classif_dropout': Key('classifier.dropout', 0.2),
    },
    fixed={'tie_weights_': True},
    table=bert_like(
        'distilbert',
        'distilbert.transformer.layer.#',
        {
            'attention/query': 'attention.q_lin',
            'attention/key': 'attention.k_lin',
            'attention/value': 'attention.v_lin',
            'attention/output': 'attention.out_lin',
            'attention_norm': 'sa_layer_norm',
            'feedforward/input': 'ffn.lin1',
            'feedforward/output': 'ffn.lin2',
            'feedforward_norm': 'output_layer_norm',
        },
    )
    | {
        'mlm/head/transform': 'vocab_transform',
        'mlm/head/norm': 'vocab_layer_norm',
        'mlm/head/bias': 'vocab_projector.bias',
        'mlm/head/decoder': 'vocab_projector.weight',
        'sequence_classification/head/transform': 'pre_classifier',
        'multiple_choice/head/transform': 'pre_classifier',
    },
    prefix='distilbert.',
    classes=common_classes('DistilBert'),
    decoder='vocab_projector',
)
