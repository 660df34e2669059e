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
    for name in ('mlm', 'clm'):
        if f'{name}_loss' in means:
            metrics |= {
                f'{name}_perplexity': math.exp(min(means[f'{name}_loss'], 700)),
                'unigram_entropy': entropy(counts_V),
                f'{name}_majority': float(counts_V.max() / counts_V.sum()),
            }
    for name, share in means.items():
        objective, _, kind = name.rpartition('_')
        if kind in ('negatives', 'share'):  # of two classes
            metrics[f'{objective}_majority'] = max(share, 1 - share)
    return metrics
