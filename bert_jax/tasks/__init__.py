"""Tie data, objectives, models and evaluation together for the one training loop."""
