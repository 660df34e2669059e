"""Pretraining as a task of the training loop: its text, stages, objectives and evaluation."""
