"""Import and export of published models: weights, configs and tokenizers, checked strictly."""
