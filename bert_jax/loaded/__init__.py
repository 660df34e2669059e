"""Models in memory, and our own checkpoints: what a run records, and how it is read."""
