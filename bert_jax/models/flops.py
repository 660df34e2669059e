"""Floating-point operations of a training step, counted from the architecture."""

from bert_jax.models.architecture import Architecture


def training_flops_per_token(
    architecture: Architecture,
    sequence_length: int,
    vocabulary_products: int,
    head_flops: float = 0.0,
) -> float:
    """Count the operations of the matrix products of a training step, per position of the batch.

    F = 3 · [Σ_layers (8 D² + 2 M D F + 4 T' D + 2 N R D) + (P / T) (2 D E + 2 E V)
             + 2 E D if E ≠ D + 2 W D² with a convolution + H / T]

    with hidden size D, M feed-forward matrices of width F (2, or 3 if gated), sequence length T, T'
    visible positions (T, or the width of the layer's attention window if smaller), P projections
    onto the vocabulary per sequence, embedding width E and vocabulary size V (without padding
    rows). With disentangled attention, contents are multiplied by R relative positions in N terms.
    A convolution covers W positions. A mask decoder adds two layers. Heads take H operations per
    sequence besides the projection onto the vocabulary.

    A multiplication and its addition count as two operations, and the backward pass as twice the
    forward pass. Not counted: masked products, recomputation, embedding lookups, and a pooler that
    no objective reads.

    Args:
        architecture: Sizes of the encoder.
        sequence_length: Tokens per sequence.
        vocabulary_products: States per sequence that are projected onto the vocabulary.
        head_flops: Forward operations per sequence of the other matrix products of heads.
    """
    size, width = architecture.hidden_size, architecture.embedding_width
    matrices = {'dense': 2, 'gated': 3}[architecture.feedforward]
    attention = architecture.attention
    visible = sum(
        sequence_length if window is None else min(sequence_length, 2 * window + 1)
        for window in architecture.layer_windows
    )
    layer = 8 * size**2 + 2 * matrices * size * architecture.intermediate_size
    if attention.kind == 'disentangled':
        distances = min(
            2 * sequence_length - 1, 2 * attention.span(architecture.max_position_embeddings)
        )
        layer += 2 * len(attention.terms) * distances * size
    prediction = 2 * size * width + 2 * width * architecture.vocab_size
    projection = 2 * width * size if architecture.embedding_size is not None else 0
    width_of_convolution = architecture.convolution.width if architecture.convolution else 0
    convolution = 2 * width_of_convolution * size**2
    share = vocabulary_products / sequence_length
    layers = architecture.num_layers * layer + 4 * visible * size
    if architecture.positions.kind == 'mask_decoder':
        layers += 2 * (layer + 4 * sequence_length * size)
    heads = share * prediction + head_flops / sequence_length
    return 3 * (layers + heads + projection + convolution)
