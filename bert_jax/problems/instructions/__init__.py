"""Fine-tuning on demonstrations: a model learns to answer, by the loss of the answers alone."""
