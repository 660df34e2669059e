"""Fine-tuning as a task of the training loop: its examples, problem, evaluation and report."""
