"""Encoders and heads in Flax Linen, independent of data, objectives and training.

Arrays carry their shape as a suffix: `hidden_BTD` is [batch, positions, hidden size]. One letter
has one meaning across the project:

    B  batch: examples, or rows that pack several sequences
    T  positions of a row, as queries; U: as keys
    S  sequences packed into a row
    P  predicted positions of a row
    D  hidden size; E: another feature size, such as the width of the embeddings
    F  intermediate (feed-forward) size, or concatenated features
    G  the two halves of a gated feed-forward layer
    H  attention heads
    K  head size; J = K / 2: rotation frequencies
    L  layers; in heads and losses over spans, span lengths
    V  vocabulary, padded to a multiple of 128
    Y  token types
    R  relative distances
    C  classes
    W  positions that a convolution covers
    X  any leading dimensions

A digit is a dimension of that size: `bias_B11U` is [batch, 1, 1, keys]. Other letters are local to
a module or function, which explains them.
"""
