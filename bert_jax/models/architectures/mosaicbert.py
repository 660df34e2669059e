"""After MosaicBERT (Portes et al. 2023, arXiv 2312.17482).

BERT with ALiBi and a gated feed-forward. No parameter depends on max_position_embeddings.
"""

from bert_jax.models.architectures.builder import Builder

MOSAICBERT = Builder(
    sizes=dict(vocab_size=30528, attention_dropout=0.0),
    fixed=dict(positions='none', attention='alibi', feedforward='gated'),
)

BUILDERS = {
    'mosaicbert': MOSAICBERT,
    'mosaicbert_base': MOSAICBERT,
    'mosaicbert_large': MOSAICBERT.resized(num_layers=24, hidden_size=1024),
}
