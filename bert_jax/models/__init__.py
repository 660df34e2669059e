"""Encoders and heads in Flax Linen; they know nothing of data, objectives or training.

Dimension letters: B batch, T length (S when a second one is needed), P predictions per sequence,
D hidden size, H heads, K head size, F intermediate size, V vocabulary (padded), L layers.
"""
