"""GPT-2, ELMo and XLNet, which predict tokens in one direction, two, or in random order."""

import dataclasses

from bert_jax.models.architecture_parts import (
    Biases,
    Characters,
    Classifier,
    NoPositions,
    Norms,
    Prediction,
    Recurrence,
    Relative,
)
from bert_jax.models.architectures.builder import Builder

# ELMo (Peters et al. 2018, arXiv 1802.05365), a bidirectional language model of LSTM layers.
#
# Two layers with cells of 4,096 values, projected to 512 in each direction. The published model
# reads the characters of words; 'elmo' has a table of tokens. transformers has no such class.
ELMO = Builder(
    sizes=dict(num_layers=2, hidden_size=1024),
    fixed=dict(
        encoder='recurrent',
        recurrence=Recurrence(),
        num_heads=1,
        attention_dropout=0.0,
        type_vocab_size=0,
        positions=NoPositions(),
        norms=Norms(embeddings=False),
        pooler=False,
        classifier=Classifier(pooling='mean'),
    ),
)


ELMO_CHARACTERS = dataclasses.replace(
    ELMO, fixed={**ELMO.fixed, 'characters': Characters(), 'prediction': Prediction(tied=False)}
)


# XLNet (Yang et al. 2019, arXiv 1906.08237; zihangdai/xlnet), without its memory.
#
# Two streams with relative positions. Token types are 0 and 1 for two texts and 2 for the [CLS] at
# the end; attention sees whether they are equal. The original code uses 'gelu_tanh', Hugging Face
# runs the published weights with 'gelu'. Positions have no table: max_position_embeddings is only a
# limit, the length of rows in pretraining.
XLNET = Builder(
    family='xlnet',
    sizes=dict(vocab_size=32000, hidden_act='gelu_tanh', type_vocab_size=3),
    fixed=dict(
        encoder='two_stream',
        attention=Relative(),
        positions=NoPositions(),
        norms=Norms(embeddings=False),
        biases=Biases(attention='none'),
        pooler=False,
        prediction=Prediction(transform=False),
        classifier=Classifier('dropout_dense', pooling='last'),
    ),
)

# GPT-2 (Radford et al. 2019; openai/gpt-2, src/model.py).
#
# Norms before the layers, none after the embeddings; tokens are predicted by the token embeddings
# alone. Kernels that write to the residual stream are initialized smaller, by 1/√(2 num_layers).
GPT2 = Builder(
    family='gpt2',
    sizes=dict(
        vocab_size=50257,
        max_position_embeddings=1024,
        hidden_act='gelu_tanh',
        layer_norm_eps=1e-5,
    ),
    fixed=dict(
        type_vocab_size=0,
        norms=Norms('layer_norm', 'pre', embeddings=False),
        scaled_output_init=True,
        pooler=False,
        prediction=Prediction(transform=False, bias=False),
        classifier=Classifier(pooling='mean'),
    ),
)

BUILDERS = {
    'elmo': ELMO,
    'elmo_characters': ELMO_CHARACTERS,
    'xlnet': XLNET,
    'xlnet_base': XLNET,
    'xlnet_large': XLNET.resized(num_layers=24, hidden_size=1024),
    'gpt2': GPT2,
    'gpt2_small': GPT2,
    'gpt2_medium': GPT2.resized(num_layers=24, hidden_size=1024),
    'gpt2_large': GPT2.resized(num_layers=36, hidden_size=1280),
    'gpt2_xl': GPT2.resized(num_layers=48, hidden_size=1600),
}
