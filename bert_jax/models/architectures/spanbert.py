"""SpanBERT (Joshi et al. 2020, arXiv 1907.10529): BERT with the cased vocabulary."""

from bert_jax.models.architectures.builder import Builder

SPANBERT = Builder(sizes=dict(vocab_size=28996))

BUILDERS = {
    'spanbert_base': SPANBERT,
    'spanbert_large': SPANBERT.resized(num_layers=24, hidden_size=1024),
}
