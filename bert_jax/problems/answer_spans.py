"""Answers as character spans of a context: windows of tokens and ranked candidates.

After google-research/bert run_squad.py.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from bert_jax.problems.base import ExampleOutputs
from bert_jax.tokenizers.sliding_windows import Window
from bert_jax.tokenizers.special_token_layout import LaidOutSequence

NEVER = -1e30  # logit of a position that cannot be an end of the answer


class WindowedContext(NamedTuple):
    """A question and the windows of its context.

    Attributes:
        offsets: characters of each token of the context, int [N, 2]; see `token_characters`.
        windows: ranges of tokens of the context.
        sequences: question and window with special tokens, one for each window.
        is_question_truncated: whether the end of the question is missing.
    """

    offsets: np.ndarray
    windows: list[Window]
    sequences: list[LaidOutSequence]
    is_question_truncated: bool


class AnswerCandidates(NamedTuple):
    """Possible answers to a question, best first.

    Attributes:
        spans: start and end characters, int64 [K, 2].
        scores: sums of the logits of both ends, fp64 [K].
        null_score: the score of no answer.
    """

    spans: np.ndarray
    scores: np.ndarray
    null_score: float

    @property
    def no_answer_score(self) -> float:
        """The score of no answer minus the score of the best answer."""
        return self.null_score - float(self.scores[0]) if len(self.scores) else -NEVER


def rank_candidates(
    context: WindowedContext, parts: ExampleOutputs, max_tokens: int, n_best: int
) -> AnswerCandidates:
    """Combine the best starts and ends of every window into the n_best answers.

    Args:
        parts: for each window, 'logits' and 'positions' [2, K] of the best starts and ends, and
            'null_score'.
        max_tokens: maximum length of an answer in tokens.
    """
    score_by_span: dict[tuple[int, int], float] = {}
    for number, (window, sequence, (part,)) in enumerate(
        zip(context.windows, context.sequences, parts, strict=True)
    ):
        starts_K, ends_K = part['positions'] - sequence.starts[1] + window.start
        start_KK, end_KK = np.broadcast_arrays(starts_K[:, None], ends_K[None])
        score_KK = part['logits'][0][:, None] + part['logits'][1][None]
        is_legal_KK = (start_KK <= end_KK) & (end_KK - start_KK < max_tokens)
        is_legal_KK &= score_KK > NEVER / 2
        is_legal_KK &= best_window(start_KK, end_KK, context.windows) == number
        tokens = zip(start_KK[is_legal_KK], end_KK[is_legal_KK], strict=True)
        for (first, last), score in zip(tokens, score_KK[is_legal_KK].tolist(), strict=True):
            span = (int(context.offsets[first, 0]), int(context.offsets[last, 1]))
            # Several tokens may stand for the same character, and a token for no character.
            if span[0] < span[1]:
                score_by_span[span] = max(score, score_by_span.get(span, NEVER))
    best = sorted(score_by_span, key=lambda span: (-score_by_span[span], span))[:n_best]
    return AnswerCandidates(
        np.array(best, np.int64).reshape(-1, 2),
        np.array([score_by_span[span] for span in best]),
        min(float(part['null_score']) for (part,) in parts),
    )


def best_window(start_X: np.ndarray, end_X: np.ndarray, windows: Sequence[Window]) -> np.ndarray:
    """Return the number of the window with the most context around tokens start … end.

    The context is the smaller number of tokens before and after the answer (run_squad.py,
    _check_is_max_context, but for whole answers instead of single tokens).
    """
    context_WX = [np.minimum(start_X - w.start, w.stop - 1 - end_X) for w in windows]
    return np.asarray(np.argmax(context_WX, axis=0))


def token_characters(text: str, offsets: np.ndarray) -> np.ndarray:
    """Return the start and end characters that each token stands for, int [N, 2].

    White space at the ends of a token is left out. Characters of the same word that belong to no
    token (zero-width characters) are added to the neighboring token.
    """
    is_space = np.array([character.isspace() for character in text], bool)
    if is_space.all():
        return offsets
    solid, spaces = np.flatnonzero(~is_space), np.flatnonzero(is_space)
    start_N, end_N = offsets.T
    first_N = np.minimum(np.searchsorted(solid, start_N), len(solid) - 1)
    start_N = np.maximum(start_N, solid[first_N])
    end_N = np.append(-1, solid)[np.searchsorted(solid, end_N)] + 1
    word_end_N = np.append(spaces, len(text))[np.searchsorted(spaces, end_N)]
    end_N = np.maximum(end_N, np.minimum(word_end_N, np.append(start_N[1:], len(text))))
    word_start_N = np.append(-1, spaces)[np.searchsorted(spaces, start_N)] + 1
    start_N = np.minimum(start_N, np.maximum(word_start_N, np.append(0, end_N[:-1])))
    return np.stack([start_N, end_N], axis=1)
