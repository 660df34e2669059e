"""The training loop and its parts, independent of objectives, tasks, models and data."""
