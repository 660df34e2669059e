"""Writing a target text for a source text, by causal models and by models with a decoder."""

from ml_collections import ConfigDict


def unused_with_one_beam(config: ConfigDict, name: str) -> str:
    """Why a key of beam search has no effect."""
    return 'problem.beams is 1' if config.problem.beams == 1 else ''
