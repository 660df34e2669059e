"""Calibration: corrects answers for the model's preference without the text."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np


class AnswerCalibration(NamedTuple):
    """How class probabilities are computed from the scores of answers.

    Attributes:
        texts: content-free texts; a reference example for each has the text in all fields.
        apply: maps the log p of the answers, float [A], their log p in the E references, [A, E]
            (None without references), and the share of each answer in each class, [C, A], to class
            probabilities, [C].
    """

    texts: tuple[str, ...]
    apply: Callable[[np.ndarray, np.ndarray | None, np.ndarray], np.ndarray]


def _log_softmax(score_C: np.ndarray) -> np.ndarray:
    shifted_C = score_C - score_C.max(0)
    return np.asarray(shifted_C - np.log(np.exp(shifted_C).sum(0)))


def _none(log_p_A: np.ndarray, log_p_AE: np.ndarray | None, share_CA: np.ndarray) -> np.ndarray:
    return np.asarray(np.exp(_log_softmax(share_CA @ log_p_A)))


def _contextual(
    log_p_A: np.ndarray, log_p_AE: np.ndarray | None, share_CA: np.ndarray
) -> np.ndarray:
    """Return p / p(content-free text), renormalized."""
    assert log_p_AE is not None
    content_free_C = np.exp(_log_softmax(share_CA @ log_p_AE)).mean(1)
    return np.asarray(
        np.exp(_log_softmax(_log_softmax(share_CA @ log_p_A) - np.log(content_free_C)))
    )


def _pmi(log_p_A: np.ndarray, log_p_AE: np.ndarray | None, share_CA: np.ndarray) -> np.ndarray:
    """Return the softmax of log p(answer | text, template) − log p(answer | template)."""
    assert log_p_AE is not None
    return np.asarray(np.exp(_log_softmax(share_CA @ (log_p_A - log_p_AE[:, 0]))))


CALIBRATIONS = {
    'none': AnswerCalibration((), _none),
    # Zhao et al. 2021, "Calibrate Before Use", section 5.
    'contextual': AnswerCalibration(('N/A', '[MASK]', ''), _contextual),
    # Holtzman et al. 2021, "Surface Form Competition", section 3, with the template as the domain.
    'pmi': AnswerCalibration(('',), _pmi),
}
