"""Encoders and heads in Flax Linen. Dimension letters: B batch, T length, P predictions, D hidden size,
H heads, K head size, F intermediate size, V vocabulary (padded), L layers."""
