"""RoBERTa (Liu et al. 2019, 1907.11692) and XLM-R (Conneau et al. 2020, 1911.02116).

As in fairseq, the first token has position pad_token_id + 1, so sequences have at most
max_position_embeddings − pad_token_id − 1 tokens. Padding is read from the attention mask. The
models were trained without a pooler, although some published files have one.
"""

from bert_jax.models.architectures.builder import Builder

ROBERTA = Builder(
    sizes=dict(
        vocab_size=50265,
        max_position_embeddings=514,
        type_vocab_size=1,
        layer_norm_eps=1e-5,
        pad_token_id=1,
        pooler=False,
    ),
    fixed=dict(
        positions='offset_by_padding',
        prediction_act='gelu',
        pooling='first',
        classifier='dropout_dense',
        classifier_act='tanh',
    ),
    derive=lambda pad_token_id, **_: dict(first_position=pad_token_id + 1),
)
_LARGE = dict(num_layers=24, hidden_size=1024)

BUILDERS = {
    'roberta': ROBERTA,
    'roberta_base': ROBERTA,
    'roberta_large': ROBERTA.resized(**_LARGE),
    'xlmr_base': ROBERTA.resized(vocab_size=250_002),
    'xlmr_large': ROBERTA.resized(vocab_size=250_002, **_LARGE),
}
