"""SpanBERT (Joshi et al. 2020, arXiv 1907.10529): BERT with the cased vocabulary."""

import functools

from bert_jax.models.architectures import bert

VOCAB_SIZE = 28996

BUILDERS = {
    'spanbert_base': functools.partial(bert.bert, vocab_size=VOCAB_SIZE),
    'spanbert_large': functools.partial(
        bert.bert, vocab_size=VOCAB_SIZE, num_layers=24, hidden_size=1024
    ),
}
