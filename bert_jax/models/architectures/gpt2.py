"""GPT-2, a causal model."""

from bert_jax.models.architecture_parts import Classifier, Norms, Prediction
from bert_jax.models.architectures.builder import Builder

# GPT-2 (Radford et al. 2019; openai/gpt-2, src/model.py).
#
# Norms before the layers, none after the embeddings; tokens are predicted by the token embeddings
# alone. Kernels that write to the residual stream are initialized smaller, by 1/√(2 num_layers).
# Texts are classified by the last token, without dropout and bias, as in transformers.
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
        classifier=Classifier('none', pooling='last', bias=False),
    ),
)

BUILDERS = {
    'gpt2': GPT2,
    'gpt2_small': GPT2,
    'gpt2_medium': GPT2.resized(num_layers=24, hidden_size=1024),
    'gpt2_large': GPT2.resized(num_layers=36, hidden_size=1280),
    'gpt2_xl': GPT2.resized(num_layers=48, hidden_size=1600),
}
