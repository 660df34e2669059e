"""Several runs in one command: their settings, their training and their comparison."""
