"""Floating-point operations of a training step, counted from the architecture."""

from bert_jax.models.architecture import Architecture


def training_flops_per_token(
    architecture: Architecture, sequence_length: int, num_predictions: int
) -> float:
    """Operations of the matrix products of forward and backward pass, per position of the batch.

    F = 3 · [Σ_layers (8 D² + 2 M D F + 4 T' D + 2 N R D) + (P / T) (2 D E + 2 E V)
             + 2 E D if E ≠ D + 2 W D² with a convolution]

    with layers, hidden size D, feed-forward size F of M matrices (2, gated 3), sequence length T,
    of which T' are attended to, P predictions per sequence, embeddings of width E and vocabulary V
    (the published one). A multiplication with its addition counts as two, the backward pass as
    twice the forward pass; recomputation, embeddings and the pooler do not count. T' is T, or
    the width of the layer's window where that is less: masked products are not counted as work.
    With disentangled attention contents meet R distances in N terms. A convolution sees W
    positions; a mask decoder runs two layers more.
    """
    size, width = architecture.hidden_size, architecture.embedding_width
    matrices = {'dense': 2, 'gated': 3}[architecture.feedforward]
    windows = architecture.attention_windows or (None,) * architecture.num_layers
    attended = sum(
        sequence_length if window is None else min(sequence_length, 2 * window + 1)
        for window in windows
    )
    layer = 8 * size**2 + 2 * matrices * size * architecture.intermediate_size
    if architecture.position_terms is not None:
        distances = min(2 * sequence_length - 1, 2 * architecture.relative_span)
        layer += 2 * len(architecture.position_terms) * distances * size
    prediction = 2 * size * width + 2 * width * architecture.vocab_size
    projection = 2 * width * size if architecture.embedding_size is not None else 0
    convolution = 2 * (architecture.convolution_width or 0) * size**2
    share = num_predictions / sequence_length
    layers = architecture.num_layers * layer + 4 * attended * size
    if architecture.mask_decoder:
        layers += 2 * (layer + 4 * sequence_length * size)
    return 3 * (layers + share * prediction + projection + convolution)
