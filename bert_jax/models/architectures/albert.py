"""ALBERT version 2 (Lan et al. 2020, arXiv 1909.11942; google-research/albert).

Small embeddings are projected to the hidden size, all layers share parameters, and there is no
dropout.
"""

from bert_jax.models.architectures.builder import Builder

ALBERT = Builder(
    sizes=dict(
        vocab_size=30000,
        embedding_size=128,
        hidden_act='gelu_tanh',
        hidden_dropout=0.0,
        attention_dropout=0.0,
        classifier_dropout=0.1,
    ),
    fixed=dict(shared_layers=True),
)

BUILDERS = {
    'albert': ALBERT,
    'albert_base': ALBERT,
    'albert_large': ALBERT.resized(num_layers=24, hidden_size=1024),
    'albert_xlarge': ALBERT.resized(num_layers=24, hidden_size=2048, num_heads=16),
    'albert_xxlarge': ALBERT.resized(hidden_size=4096),
}
