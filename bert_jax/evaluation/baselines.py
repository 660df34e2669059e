"""What can be reached without seeing any context: the figures a loss must be read beside."""

import math

import numpy as np


def entropy(counts_V: np.ndarray) -> float:
    """Entropy of the unigram distribution of a text in nats: −Σ p ln p over its own frequencies."""
    p = counts_V[counts_V > 0] / counts_V.sum()
    return float(-(p * np.log(p)).sum())


def beside(means: dict[str, float], counts_V: np.ndarray) -> dict[str, float]:
    """Held-out means with perplexity, unigram entropy and the accuracy of always naming the most
    frequent.
    """
    metrics = dict(means)
    if 'mlm_loss' in means:
        metrics |= {
            'mlm_perplexity': math.exp(min(means['mlm_loss'], 700)),
            'unigram_entropy': entropy(counts_V),
            'mlm_majority': float(counts_V.max() / counts_V.sum()),
        }
    if 'nsp_negatives' in means:
        share = means['nsp_negatives']
        metrics['nsp_majority'] = max(share, 1 - share)
    return metrics
