"""BERT, and models that differ from it in sizes, embeddings, heads and training."""

import dataclasses

from bert_jax.models.architecture_parts import (
    Classifier,
    Norms,
    OffsetPositions,
    Prediction,
    RelativeBias,
    SharedLayers,
)
from bert_jax.models.architectures.builder import Builder

# BERT (Devlin et al. 2019, 1810.04805) and its small sizes (Turc et al. 2019, 1908.08962).
#
# As in all published sizes, num_heads defaults to hidden_size / 64 and intermediate_size to
# 4 · hidden_size, so the 24 small models are num_layers in {2, 4, 6, 8, 10, 12} × hidden_size in
# {128, 256, 512, 768}. Hugging Face runs the published weights with hidden_act 'gelu' (exact); the
# original code uses 'gelu_tanh'.
BERT = Builder(family='bert')


# SpanBERT (Joshi et al. 2020, arXiv 1907.10529): BERT with the cased vocabulary.
SPANBERT = Builder(family='bert', sizes=dict(vocab_size=28996))


# RoBERTa (Liu et al. 2019, 1907.11692) and XLM-R (Conneau et al. 2020, 1911.02116).
#
# As in fairseq, the first token has the position after the id of the padding token, so sequences
# have at most max_position_embeddings − pad id − 1 tokens. Padding is read from the attention mask.
# The models were trained without a pooler, although some published files have one.
ROBERTA = Builder(
    family='roberta',
    sizes=dict(
        vocab_size=50265,
        max_position_embeddings=514,
        type_vocab_size=1,
        layer_norm_eps=1e-5,
        pooler=False,
    ),
    fixed=dict(
        positions=OffsetPositions(),
        prediction=Prediction('gelu'),
        classifier=Classifier('dropout_dense', 'tanh', pooling='first'),
    ),
)
_ROBERTA_LARGE = dict(num_layers=24, hidden_size=1024)
XLMR = ROBERTA.resized('xlm-roberta', vocab_size=250_002)


# Models with norms before attention and feed-forward, and after the last layer: efficient MLM
# (Wettig et al. 2023, arXiv 2202.08005), XLM-R XL and XXL (Goyal et al. 2021, arXiv 2105.00572) and
# Megatron's BERT (Shoeybi et al. 2019, arXiv 1909.08053), the latter two without a norm of the
# embeddings.
_WITHOUT_FIRST = Norms(placement='pre', embeddings=False)
ROBERTA_PRELAYERNORM = dataclasses.replace(
    ROBERTA, family='roberta-prelayernorm', fixed={**ROBERTA.fixed, 'norms': Norms(placement='pre')}
)
XLMR_XL = dataclasses.replace(
    XLMR.resized('xlm-roberta-xl', vocab_size=250_880, num_layers=36, hidden_size=2560),
    fixed={**ROBERTA.fixed, 'norms': _WITHOUT_FIRST},
).resized(num_heads=32, intermediate_size=10_240)
MEGATRON_BERT = Builder(
    family='megatron-bert',
    sizes=dict(vocab_size=29056, num_layers=24, hidden_size=1024),
    fixed=dict(norms=_WITHOUT_FIRST),
)


# MPNet (Song et al. 2020, arXiv 2004.09297; microsoft/MPNet).
#
# RoBERTa without token types and with a bias of the distance, which all layers share, in the
# attention scores. Its masked and permuted pretraining is not an objective here.
MPNET = Builder(
    family='mpnet',
    sizes=dict(vocab_size=30527, max_position_embeddings=514, layer_norm_eps=1e-5, pooler=False),
    fixed=dict(
        type_vocab_size=0,
        positions=OffsetPositions(),
        attention=RelativeBias(scaled=True),
        prediction=Prediction('gelu'),
        classifier=Classifier('dropout_dense', 'tanh', pooling='first'),
    ),
)


# RemBERT (Chung et al. 2021, arXiv 2010.12821): small embeddings of the input, projected, and a
# wide matrix of its own that predicts tokens.
REMBERT = Builder(
    family='rembert',
    sizes=dict(
        vocab_size=250_300,
        embedding_size=256,
        hidden_size=1152,
        num_layers=32,
        hidden_dropout=0.0,
        attention_dropout=0.0,
        classifier=Classifier(dropout=0.1),
    ),
    fixed=dict(prediction=Prediction(tied=False, width=1664)),
    always_projects=True,
)


# DistilBERT (Sanh et al. 2019, arXiv 1910.01108): 6 layers, no token types, no pooler.
DISTILBERT = Builder(
    family='distilbert',
    sizes=dict(num_layers=6),
    fixed=dict(
        type_vocab_size=0,
        pooler=False,
        classifier=Classifier('dense', 'relu', pooling='first', dropout=0.2),
    ),
)


# ELECTRA (Clark et al. 2020, arXiv 2003.10555; google-research/electra).
#
# BERT without a pooler. Embeddings are projected if their size differs from hidden_size. Generators
# have a smaller hidden_size and fewer heads, but the discriminator's embeddings.
ELECTRA = Builder(
    family='electra',
    sizes=dict(embedding_size=768),
    fixed=dict(
        pooler=False,
        prediction=Prediction('gelu'),
        classifier=Classifier('dropout_dense', 'gelu', pooling='first'),
    ),
)
_ELECTRA_LARGE = dict(embedding_size=1024, num_layers=24)


# ALBERT version 2 (Lan et al. 2020, arXiv 1909.11942; google-research/albert).
#
# Small embeddings are projected to the hidden size, all layers share parameters, and there is no
# dropout.
ALBERT = Builder(
    family='albert',
    sizes=dict(
        vocab_size=30000,
        embedding_size=128,
        hidden_act='gelu_tanh',
        hidden_dropout=0.0,
        attention_dropout=0.0,
        classifier=Classifier(dropout=0.1),
    ),
    fixed=dict(sharing=SharedLayers()),
    always_projects=True,
)

BUILDERS = {
    'bert': BERT,
    'bert_tiny': BERT.resized(num_layers=2, hidden_size=128),
    'bert_mini': BERT.resized(num_layers=4, hidden_size=256),
    'bert_small': BERT.resized(num_layers=4, hidden_size=512),
    'bert_medium': BERT.resized(num_layers=8, hidden_size=512),
    'bert_base': BERT,
    'bert_large': BERT.resized(num_layers=24, hidden_size=1024),
    'spanbert_base': SPANBERT,
    'spanbert_large': SPANBERT.resized(num_layers=24, hidden_size=1024),
    'roberta': ROBERTA,
    'roberta_base': ROBERTA,
    'roberta_large': ROBERTA.resized(**_ROBERTA_LARGE),
    'xlmr_base': XLMR,
    'xlmr_large': XLMR.resized(**_ROBERTA_LARGE),
    'roberta_prelayernorm': ROBERTA_PRELAYERNORM,
    'xlmr_xl': XLMR_XL,
    'xlmr_xxl': XLMR_XL.resized(num_layers=48, hidden_size=4096, intermediate_size=16_384),
    'megatron_bert': MEGATRON_BERT,
    'rembert': REMBERT,
    'mpnet': MPNET,
    'mpnet_base': MPNET,
    'distilbert': DISTILBERT,
    'distilbert_base': DISTILBERT,
    'distilbert_base_cased': DISTILBERT.resized(vocab_size=28996),
    'distilbert_base_multilingual': DISTILBERT.resized(vocab_size=119_547),
    'electra': ELECTRA,
    'electra_small': ELECTRA.resized(embedding_size=128, hidden_size=256),
    'electra_small_generator': ELECTRA.resized(embedding_size=128, hidden_size=256),
    'electra_base': ELECTRA,
    'electra_base_generator': ELECTRA.resized(hidden_size=256),
    'electra_large': ELECTRA.resized(hidden_size=1024, **_ELECTRA_LARGE),
    'electra_large_generator': ELECTRA.resized(hidden_size=256, **_ELECTRA_LARGE),
    'albert': ALBERT,
    'albert_base': ALBERT,
    'albert_large': ALBERT.resized(num_layers=24, hidden_size=1024),
    'albert_xlarge': ALBERT.resized(num_layers=24, hidden_size=2048, num_heads=16),
    'albert_xxlarge': ALBERT.resized(hidden_size=4096),
}
