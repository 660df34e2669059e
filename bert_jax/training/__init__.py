"""The training loop and its parts; knows no objective, task, model or data source by name."""
