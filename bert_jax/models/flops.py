"""Floating-point operations of a training step, counted from the architecture."""

from bert_jax.models.architecture import Architecture


def training_flops_per_token(
    architecture: Architecture, sequence_length: int, num_predictions: int
) -> float:
    """Operations of the matrix products of forward and backward pass, per position of the batch.

    F = 3 · [L (8 D² + 4 D F + 4 T D) + (P / T) (2 D² + 2 D V)]

    with L layers, hidden size D, feed-forward size F, sequence length T, P predictions per sequence
    and vocabulary V (the published one). A multiplication with its addition counts as two, the
    backward pass as twice the forward pass; recomputation, embeddings and the pooler do not count.
    """
    size, vocabulary = architecture.hidden_size, architecture.vocab_size
    layer = 8 * size**2 + 4 * size * architecture.intermediate_size + 4 * sequence_length * size
    prediction = 2 * size**2 + 2 * size * vocabulary
    share = num_predictions / sequence_length
    return 3 * (architecture.num_layers * layer + share * prediction)
