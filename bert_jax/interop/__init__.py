"""Trading weights with others: published checkpoints in and out, strictly."""
