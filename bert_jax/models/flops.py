"""Numbers of operations of training steps, counted from the sizes of a model."""

from bert_jax.models.architecture import Architecture


def training_flops_per_token(
    architecture: Architecture,
    sequence_length: int,
    vocabulary_products: int,
    head_flops: float = 0.0,
) -> float:
    """Count the operations of the matrix products of a training step, per position of the batch.

    C = 3 · [Σ_layers (8 D² + 2 M D F + 4 T' D + 2 N R D) + (P / T) (2 D E + 2 E V)
             + 2 E D if E ≠ D + 2 W D² with a convolution + A with characters + H / T]

    with hidden size D (in 8 D² and 4 T' D, half of the first and the second D are num_heads ·
    head_size; with kv_heads, 4 D² are smaller by num_heads / kv_heads), M feed-forward matrices of
    width F (2, or 3 if gated), sequence length T, T' visible positions (T, or the width of the
    layer's attention window if smaller), P projections onto the vocabulary per sequence, embedding
    width E and vocabulary size V (without padding rows); 2 D E counts if predictions have a dense
    layer. With disentangled attention, contents are multiplied by R relative positions in N terms.
    Relative attention projects 2 T distances and
    multiplies contents by them and by two types, 4 D² + 4 T D + 4 D operations. A convolution
    covers W positions. A mask decoder adds two layers. A layer of the recurrent encoder takes
    36 E F instead, in two directions with cells of width F. Heads take H operations per sequence
    besides the projection onto the vocabulary. A is `Characters.flops`.

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
    attention = architecture.attention
    visible = sum(
        sequence_length if window is None else min(sequence_length, 2 * window + 1)
        for window in architecture.layer_windows
    )
    inner = architecture.num_heads * architecture.head_size
    shared = architecture.num_kv_heads * architecture.head_size
    layer = 4 * size * (inner + shared) + feedforward_flops(architecture)
    if attention.kind == 'disentangled':
        distances = min(
            2 * sequence_length - 1, 2 * attention.span(architecture.max_position_embeddings)
        )
        layer += 2 * len(attention.terms) * distances * size
    if attention.kind == 'relative':  # projections of, and products with, twice as many distances
        layer += 4 * size**2 + 4 * sequence_length * size + 4 * size
    characters = 0 if architecture.characters is None else architecture.characters.flops(width)
    projection = 2 * width * size if architecture.embedding_size is not None else 0
    width_of_convolution = architecture.convolution.width if architecture.convolution else 0
    convolution = 2 * width_of_convolution * size**2
    share = vocabulary_products / sequence_length
    layers = architecture.num_layers * layer + 4 * visible * inner
    if architecture.recurrence is not None:
        layers = architecture.num_layers * 36 * width * architecture.intermediate_size
    if architecture.positions.kind == 'mask_decoder':
        layers += 2 * (layer + 4 * sequence_length * size)
    heads = share * prediction_flops(architecture) + head_flops / sequence_length
    return 3 * (layers + heads + projection + convolution + characters)


def feedforward_flops(architecture: Architecture) -> int:
    """Count the forward operations of a feed-forward layer for one position, 2 M D F."""
    matrices = {'dense': 2, 'gated': 3}[architecture.feedforward]
    return 2 * matrices * architecture.hidden_size * architecture.intermediate_size


def prediction_flops(architecture: Architecture) -> int:
    """Count the forward operations of predicting one token."""
    size, width = architecture.hidden_size, architecture.prediction_width
    transform = 2 * size * width * architecture.prediction.transform
    return transform + 2 * width * architecture.vocab_size


def decoder_flops(architecture: Architecture, source_length: int, target_length: int) -> int:
    """Count the forward operations of the decoder's layers for one row.

    Σ_layers U (12 D I + 4 (U + S) I + 2 M D F) + S · 4 D I

    with U positions of the target, S of the source, and heads of I features together; see
    `training_flops_per_token`.
    """
    assert architecture.decoder is not None
    size, inner = architecture.hidden_size, architecture.num_heads * architecture.head_size
    position = 12 * size * inner + feedforward_flops(architecture)
    position += 4 * (target_length + source_length) * inner
    layer = target_length * position + source_length * 4 * size * inner
    return architecture.decoder.num_layers * layer
