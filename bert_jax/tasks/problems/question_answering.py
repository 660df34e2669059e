"""Answers to questions, as stretches of a text (SQuAD 1.1 and 2.0): Devlin et al. 2019, sections
4.2 and 4.3, and google-research/bert run_squad.py."""

import functools
from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from bert_jax.averages import Term, Terms
from bert_jax.data import sliding_windows
from bert_jax.data.finetune_batches import Item, TokenSequence
from bert_jax.data.labeled.examples import QuestionExample
from bert_jax.data.special_token_layout import LaidOutSequence
from bert_jax.errors import UserError
from bert_jax.evaluation import squad
from bert_jax.evaluation.scores import Scores, Table
from bert_jax.models.architecture import Architecture, Compute
from bert_jax.models.encoders import EncoderOutput
from bert_jax.models.heads import QuestionAnsweringHead
from bert_jax.tasks.problems.base import ExampleOutputs, HostOutputs, Problem, require

_NEVER = -1e30  # the logit of what is no candidate
_THRESHOLD = 'no_answer_threshold'


class Context(NamedTuple):
    """A question's context in pieces: int [N, 2], see `_characters`; the windows it is cut in and
    the sequence of each; whether the question is cut short."""

    offsets: np.ndarray
    windows: list[sliding_windows.Window]
    laid_out: list[LaidOutSequence]
    is_cut: bool


class Candidates(NamedTuple):
    """Possible answers, best first: characters int [K, 2] and scores fp [K], the sum of the logits
    of both ends; `nothing`: the score of there being none."""

    spans: np.ndarray
    scores: np.ndarray
    nothing: float


class QuestionAnswering(Problem):
    """The first and the last piece of the answer are found among the pieces of [CLS] question [SEP]
    window [SEP]; a window without the answer points at [CLS].

    settings:
      doc_stride: tokens from one window of a context to the next, at most half a window.
      question_tokens: of a longer question the end is cut off, as it is where it would take more
        than half of a sequence.
      answer_tokens: of an answer at most.
      n_best: candidates for either end in each window, and answers that are given.
      no_answer: whether a question may have no answer (SQuAD 2.0): one is left unanswered if the
        score for that exceeds the best answer's by more than a threshold found on dev.
    """

    weights = {'answer': 1.0}
    pretrained_heads = ('question_answering',)

    def encode(self, example: QuestionExample) -> list[Item]:
        """A sequence for each window; 'answer_ends' int32 [n, 2] is 1 at the first and the last
        piece of the first answer, 'is_context' int32 [n] tells the context's pieces.

        Raises UserError for a question without answer unless no_answer is set.
        """
        if example.answers == () and not self.settings.no_answer:
            raise UserError(
                f'example {example.id}: the question has no answer; for questions that have '
                'none set problem.no_answer=True'
            )
        context = self._context(example)
        if context.is_cut:
            self.counts['questions_cut_short'] += 1
        span = self._gold(example, context.offsets) if example.answers else None
        is_known = bool(span) or example.answers == ()
        found = [
            _sequence(laid_out, window, span, is_known)
            for window, laid_out in zip(context.windows, context.laid_out, strict=True)
        ]
        if span and all(own.tokens['answer_ends'][0].any() for own in found):
            self.counts['answers_longer_than_a_window'] += 1
        return [(own,) for own in found]

    def make_heads(self, architecture: Architecture, compute: Compute) -> dict[str, Callable]:
        return {
            'question_answering': functools.partial(QuestionAnsweringHead, architecture, compute)
        }

    def apply_heads(
        self, heads: dict[str, Callable], encoded: EncoderOutput, batch, dropout_seeds_R
    ) -> dict[str, jax.Array]:
        """logits_RT2: of each position being the first and the last of the answer."""
        logits_RT2 = heads['question_answering'](encoded, batch['attention_mask'], dropout_seeds_R)
        return {'logits_RT2': logits_RT2}

    def terms(self, outputs: dict[str, jax.Array], batch) -> Terms:
        """'answer': cross-entropy of both ends over the positions of a sequence, their mean, over
        the sequences whose answer is known."""
        ends_RT2 = batch['answer_ends']
        is_in_RST1 = _sequences(batch)[..., None]
        logits_RST2 = jnp.where(is_in_RST1, outputs['logits_RT2'][:, None], _NEVER)
        target_RS2 = jnp.where(is_in_RST1, ends_RT2[:, None] * logits_RST2, 0).sum(2)
        loss_RS = (jax.nn.logsumexp(logits_RST2, axis=2) - target_RS2).mean(-1)
        is_known_RS = (is_in_RST1[..., 0] & (ends_RT2[:, None, :, 0] > 0)).any(2)
        return {'answer': Term(jnp.where(is_known_RS, loss_RS, 0).sum(), is_known_RS.sum() * 1.0)}

    def host_outputs(self, outputs: dict[str, jax.Array], batch) -> HostOutputs:
        """For every sequence 'logits' fp32 [R, S, 2, K] and 'positions' int32 [R, S, 2, K] of the
        best first and last pieces in the context, positions in the sequence, and 'nothing' fp32
        [R, S], the score of [CLS] for both."""
        logits_R2T = outputs['logits_RT2'].swapaxes(1, 2)
        first_RS = jnp.maximum(batch['first_positions'], 0)
        may_end_RST = _sequences(batch) & (batch['is_context'][:, None] > 0)
        logits_RS2T = jnp.where(may_end_RST[:, :, None], logits_R2T[:, None], _NEVER)
        number = min(self.settings.n_best, logits_RS2T.shape[-1])
        logits_RS2K, positions_RS2K = jax.lax.top_k(logits_RS2T, number)
        nothing_RS = jnp.take_along_axis(logits_R2T.sum(1), first_RS, axis=1)
        positions_RS2K -= first_RS[:, :, None, None]
        return HostOutputs(
            {'logits': logits_RS2K, 'positions': positions_RS2K, 'nothing': nothing_RS}, {}
        )

    def decode(self, example: QuestionExample, parts: ExampleOutputs) -> dict:
        """The best answer {'text', 'start', 'end', 'probability'} and, in the same form, 'n_best';
        text is context[start:end]. With no_answer also 'no_answer_score', and for no answer '' and
        None.

        The probabilities are the softmax of the scores of what is listed, no answer included.
        """
        found = self._candidates(example, parts)
        scores = found.scores
        if self.settings.no_answer or not len(scores):
            scores = np.append(scores, found.nothing)
        shares = np.exp(scores - scores.max())
        shares = (shares / shares.sum()).tolist()
        n_best = [
            {'text': example.context[start:end], 'start': start, 'end': end, 'probability': share}
            for (start, end), share in zip(found.spans.tolist(), shares, strict=False)
        ]
        nothing = {'text': '', 'start': None, 'end': None, 'probability': shares[-1]}
        if not self.settings.no_answer:
            return (n_best or [nothing])[0] | {'n_best': n_best}
        score = _no_answer_score(found)
        answered = score <= self.thresholds.get(_THRESHOLD, 0.0)
        best = (n_best or [nothing])[0] if answered else nothing
        return best | {'no_answer_score': score, 'n_best': n_best}

    def tune_thresholds(
        self, examples: Sequence[QuestionExample], parts: Sequence[ExampleOutputs]
    ) -> dict[str, float]:
        """With no_answer the threshold of the no-answer score that is best for F1."""
        if not self.settings.no_answer:
            return {}
        found = [self._candidates(*pair) for pair in zip(examples, parts, strict=True)]
        guesses = [
            _first(example.context, own.spans) for example, own in zip(examples, found, strict=True)
        ]
        golds = list(map(_gold_texts, examples))
        scores = list(map(_no_answer_score, found))
        return {_THRESHOLD: squad.best_threshold(golds, guesses, scores).threshold}

    def score(self, examples: Sequence[QuestionExample], predictions: Sequence[dict]) -> Scores:
        """F1 and exact match by SQuAD's rules, those of 2.0 with no_answer; then also for questions
        with and without answer, and the F1 the best threshold on these examples would reach."""
        golds = list(map(_gold_texts, examples))
        guesses = [prediction['text'] for prediction in predictions]
        metrics = squad.score(golds, guesses, self.settings.no_answer)
        if self.settings.no_answer:
            answered = [own['n_best'][0]['text'] if own['n_best'] else '' for own in predictions]
            scores = [own['no_answer_score'] for own in predictions]
            metrics['best_f1'] = squad.best_threshold(golds, answered, scores).best
        return Scores(metrics, {'Questions': _table(metrics, golds)})

    def parse_input(self, name: str, given: dict) -> QuestionExample:
        """From 'question' and 'context'."""
        question, context = (require(given, name, key) for key in ('question', 'context'))
        return QuestionExample(name, question, context, None)

    def to_record(self, example: QuestionExample, prediction: dict) -> dict:
        return {
            'id': example.id,
            'question': example.question,
            'gold': None if example.answers is None else _gold_texts(example),
            'answer': prediction['text'],
            **{name: value for name, value in prediction.items() if name != 'text'},
        }

    def _context(self, example: QuestionExample) -> Context:
        encoded = self.tokenizer.encode_batch([example.question, example.context])
        question, context = encoded.ids
        room = self.layout.max_text_tokens(2)
        question = question[: min(self.settings.question_tokens, room // 2)]
        size = room - len(question)
        overlap = max(size - self.settings.doc_stride, size // 2)
        cut = sliding_windows.make_windows(len(context), size, min(overlap, size - 1))
        laid_out = [self.layout.lay_out(question, context[own.start : own.stop]) for own in cut]
        offsets = _characters(example.context, encoded.offsets[1])
        return Context(offsets, cut, laid_out, len(question) < len(encoded.ids[0]))

    def _gold(self, example: QuestionExample, offsets: np.ndarray) -> tuple[int, int] | None:
        """The first and the last piece of the first answer; None, counted, if it has no piece."""
        text, start = example.answers[0]
        end = start + len(text.rstrip())
        start += len(text) - len(text.lstrip())
        first = int(np.searchsorted(offsets[:, 1], start, side='right'))
        last = int(np.searchsorted(offsets[:, 0], end)) - 1
        if first > last:
            self.counts['answers_without_a_piece'] += 1
            return None
        if last - first >= self.settings.answer_tokens:
            self.counts['answers_longer_than_problem.answer_tokens'] += 1
        if (offsets[first, 0], offsets[last, 1]) != (start, end):
            self.counts['answers_that_begin_or_end_inside_a_piece'] += 1
        return first, last

    def _candidates(self, example: QuestionExample, parts: ExampleOutputs) -> Candidates:
        """Every answer is taken from the one window that has the most context around it."""
        context = self._context(example)
        found = {}
        for number, (window, laid_out, (part,)) in enumerate(
            zip(context.windows, context.laid_out, parts, strict=True)
        ):
            starts_K, ends_K = part['positions'] - laid_out.starts[1] + window.start
            start_KK, end_KK = np.broadcast_arrays(starts_K[:, None], ends_K[None])
            score_KK = part['logits'][0][:, None] + part['logits'][1][None]
            legal_KK = (start_KK <= end_KK) & (end_KK - start_KK < self.settings.answer_tokens)
            legal_KK &= score_KK > _NEVER / 2
            legal_KK &= _best_window(start_KK, end_KK, context.windows) == number
            pieces = zip(start_KK[legal_KK], end_KK[legal_KK], strict=True)
            for (first, last), score in zip(pieces, score_KK[legal_KK].tolist(), strict=True):
                span = (int(context.offsets[first, 0]), int(context.offsets[last, 1]))
                if span[0] < span[1]:  # several pieces may stand for one character, or for none
                    found[span] = max(score, found.get(span, _NEVER))
        best = sorted(found, key=lambda span: (-found[span], span))[: self.settings.n_best]
        nothing = min(float(part['nothing']) for (part,) in parts)
        return Candidates(
            np.array(best, np.int64).reshape(-1, 2), np.array([found[own] for own in best]), nothing
        )


def _sequence(
    laid_out: LaidOutSequence,
    window: sliding_windows.Window,
    span: tuple[int, int] | None,
    is_known: bool,
) -> TokenSequence:
    """span: the first and the last piece of the answer in the context, None for no answer; is_known
    tells whether to learn it."""
    ends = np.zeros((len(laid_out.ids), 2), np.int32)
    is_context = np.zeros(len(laid_out.ids), np.int32)
    first = laid_out.starts[1]
    is_context[first : first + window.stop - window.start] = 1
    if span and window.start <= span[0] and span[1] < window.stop:
        ends[np.array(span) - window.start + first, [0, 1]] = 1
    elif is_known:
        ends[0] = 1
    tokens = {'answer_ends': ends, 'is_context': is_context}
    return TokenSequence(laid_out.ids, laid_out.token_type_ids, tokens, {})


def _sequences(batch) -> jax.Array:
    """bool [R, S, T]: the positions of each sequence of a row."""
    slots_S = jnp.arange(batch['first_positions'].shape[1])
    return batch['segment_ids'][:, None] == slots_S[None, :, None] + 1


def _best_window(start_X, end_X, cut: Sequence[sliding_windows.Window]) -> np.ndarray:
    """The number of the window in which the smaller of the contexts before and after pieces
    start … end is largest (run_squad.py, _check_is_max_context, for whole answers)."""
    context_WX = [np.minimum(start_X - own.start, own.stop - 1 - end_X) for own in cut]
    return np.argmax(context_WX, axis=0)


def _no_answer_score(found: Candidates) -> float:
    """How much more likely no answer is than the best one."""
    return found.nothing - float(found.scores[0]) if len(found.scores) else -_NEVER


def _characters(text: str, offsets: np.ndarray) -> np.ndarray:
    """The characters of pieces, [N, 2], less the white space at their ends, and with those of the
    same word beside them that no piece stands for, as zero-width ones."""
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


def _gold_texts(example: QuestionExample) -> list[str]:
    return [answer.text for answer in example.answers]


def _first(text: str, spans: np.ndarray) -> str:
    return text[slice(*spans[0])] if len(spans) else ''


def _table(metrics: dict[str, float], golds: Sequence[Sequence[str]]) -> Table:
    """Figures of all questions and of those with and without answer."""
    answerable = sum(bool(own) for own in golds)
    groups = [('all', '', len(golds)), ('with answer', 'has_answer_', answerable)]
    groups.append(('without answer', 'no_answer_', len(golds) - answerable))
    rows = [
        (name, metrics[f'{prefix}f1'], metrics[f'{prefix}exact_match'], number)
        for name, prefix, number in groups
        if f'{prefix}f1' in metrics
    ]
    return Table(('questions', 'f1', 'exact match', 'number'), rows)
