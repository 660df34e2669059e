"""BERT (Devlin et al. 2019, 1810.04805) and its small sizes (Turc et al. 2019, 1908.08962).

As in all published sizes, num_heads defaults to hidden_size / 64 and intermediate_size to
4 · hidden_size, so the 24 small models are num_layers in {2, 4, 6, 8, 10, 12} × hidden_size in
{128, 256, 512, 768}. Hugging Face runs the published weights with hidden_act 'gelu' (exact); the
original code uses 'gelu_tanh'.
"""

from bert_jax.models.architectures.builder import Builder

BERT = Builder()

BUILDERS = {
    'bert': BERT,
    'bert_tiny': BERT.resized(num_layers=2, hidden_size=128),
    'bert_mini': BERT.resized(num_layers=4, hidden_size=256),
    'bert_small': BERT.resized(num_layers=4, hidden_size=512),
    'bert_medium': BERT.resized(num_layers=8, hidden_size=512),
    'bert_base': BERT,
    'bert_large': BERT.resized(num_layers=24, hidden_size=1024),
}
