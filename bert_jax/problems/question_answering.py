"""Extractive question answering (SQuAD 1.1 and 2.0).

Devlin et al. 2019, sections 4.2 and 4.3, and google-research/bert run_squad.py.
"""

from collections.abc import Mapping, Sequence

import jax
import jax.numpy as jnp
import numpy as np

from bert_jax.averages import Term, Terms
from bert_jax.errors import UserError
from bert_jax.examples.finetune_batches import Item, TokenSequence
from bert_jax.labels.examples import Answer, QuestionExample
from bert_jax.metrics import squad
from bert_jax.metrics.scores import Scores, Table
from bert_jax.models.model import HeadOptions
from bert_jax.problems import answer_spans, base, raw_input
from bert_jax.tokenizers import sliding_windows
from bert_jax.tokenizers.sliding_windows import Window
from bert_jax.tokenizers.special_token_layout import LaidOutSequence
from bert_jax.types import Batch, JsonObject, JsonRecord, RecordView

_THRESHOLD = 'no_answer_threshold'

Prediction = JsonObject  # see AnswerDecoder.decode


class QuestionEncoding(base.Encoding[QuestionExample]):
    """[CLS] question [SEP] window of the context [SEP].

    A window without the answer points at [CLS], that of a causal model at the last [SEP].
    """

    def parse_input(self, name: str, record: RecordView) -> QuestionExample:
        """Read 'question' and 'context'."""
        keys = ('question', 'context')
        question, context = (raw_input.require_text(record, name, key) for key in keys)
        return QuestionExample(name, question, context, None)

    def encode(self, example: QuestionExample) -> list[Item]:
        """Make one sequence for each window.

        'answer_ends', int32 [n, 2], is 1 at the first and last token of the first gold answer;
        'is_context', int32 [n], is 1 at the tokens of the context.

        Raises:
            UserError: the question has no answer, but the setting `no_answer` is False.
        """
        if example.answers == () and not self.settings.no_answer:
            raise UserError(
                f'example {example.id}: the question has no answer; set problem.no_answer=True if '
                'some questions have none'
            )
        context = self.windowed_context(example)
        if context.is_question_truncated:
            self.setup.counts['truncated questions'] += 1
        tokens = self._gold_tokens(example.answers[0], context.offsets) if example.answers else None
        is_known = bool(tokens) or example.answers == ()
        sequences = [
            _sequence(laid_out, window, tokens, is_known, self._null_position(laid_out))
            for window, laid_out in zip(context.windows, context.sequences, strict=True)
        ]
        if tokens and all(sequence.tokens['answer_ends'][0].any() for sequence in sequences):
            self.setup.counts['answers longer than a window'] += 1
        return [(sequence,) for sequence in sequences]

    @property
    def is_null_last(self) -> bool:
        """Whether the last token stands for no answer: [CLS] of XLNet, or [SEP] if causal.

        The first token of a causal model has seen neither the question nor the context.
        """
        return self.setup.is_causal or self.tokenizer.is_cls_last

    def _null_position(self, laid_out: LaidOutSequence) -> int:
        return len(laid_out.ids) - 1 if self.is_null_last else laid_out.cls_position

    def windowed_context(self, example: QuestionExample) -> answer_spans.WindowedContext:
        """Tokenize a question and the windows of its context."""
        encoded = self.tokenizer.encode_batch([example.question, example.context], special=True)
        question, context = encoded.ids
        room = self.layout.max_text_tokens(2)
        question = question[: min(self.settings.question_tokens, room // 2)]
        size = room - len(question)
        overlap = max(size - self.settings.doc_stride, size // 2)
        windows = sliding_windows.make_windows(len(context), size, min(overlap, size - 1))
        sequences = [self.layout.lay_out(question, context[w.start : w.stop]) for w in windows]
        offsets = answer_spans.token_characters(example.context, encoded.offsets[1])
        is_truncated = len(question) < len(encoded.ids[0])
        return answer_spans.WindowedContext(offsets, windows, sequences, is_truncated)

    def _gold_tokens(self, answer: Answer, offsets: np.ndarray) -> tuple[int, int] | None:
        """Return the first and last token of a gold answer; None, counted, if it has no token."""
        text, start = answer
        end = start + len(text.rstrip())
        start += len(text) - len(text.lstrip())
        first = int(np.searchsorted(offsets[:, 1], start, side='right'))
        last = int(np.searchsorted(offsets[:, 0], end)) - 1
        if first > last:
            self.setup.counts['answers without a token'] += 1
            return None
        if last - first >= self.settings.answer_tokens:
            self.setup.counts['answers longer than problem.answer_tokens'] += 1
        if (offsets[first, 0], offsets[last, 1]) != (start, end):
            self.setup.counts['answers that start or end inside a token'] += 1
        return first, last

    def describe_targets(
        self, tokens: Sequence[str], fields: Mapping[str, np.ndarray]
    ) -> JsonRecord:
        """Return the tokens of 'answer': [CLS] or the last [SEP] without an answer, else None."""
        if not fields['answer_ends'].any():
            return {'answer': None}
        first, last = fields['answer_ends'].argmax(0)
        return {'answer': tokens[first : last + 1]}


class AnswerLoss(base.Loss):
    """Cross-entropy of the first and the last token of the answer."""

    weights = {'answer': 1.0}

    def heads(self) -> Mapping[str, HeadOptions]:
        return {'question_answering': {}}

    def terms(self, outputs: base.Outputs, batch: Batch) -> Terms:
        """Return 'answer', the mean cross-entropy of both ends over the positions of a sequence."""
        ends_RT2 = batch['answer_ends']
        is_inside_RST1 = _sequence_positions(batch)[..., None]
        logits_RST2 = jnp.where(is_inside_RST1, outputs['logits'][:, None], answer_spans.NEVER)
        target_RS2 = jnp.where(is_inside_RST1, ends_RT2[:, None] * logits_RST2, 0).sum(2)
        loss_RS = (jax.nn.logsumexp(logits_RST2, axis=2) - target_RS2).mean(-1)
        is_known_RS = (is_inside_RST1[..., 0] & (ends_RT2[:, None, :, 0] > 0)).any(2)
        return {'answer': Term(jnp.where(is_known_RS, loss_RS, 0).sum(), is_known_RS.sum() * 1.0)}

    def host_outputs(self, outputs: base.Outputs, batch: Batch) -> base.HostOutputs:
        """Return the n_best starts and ends of every sequence, and the score of no answer.

        'logits', fp32 [R, S, 2, K]; 'positions', int32 [R, S, 2, K], counted from the start of the
        sequence; 'null_score', fp32 [R, S], the sum of both logits of the token for no answer.
        """
        logits_R2T = outputs['logits'].swapaxes(1, 2)
        first_RS = jnp.maximum(batch['first_positions'], 0)
        may_be_end_RST = _sequence_positions(batch) & (batch['is_context'][:, None] > 0)
        logits_RS2T = jnp.where(may_be_end_RST[:, :, None], logits_R2T[:, None], answer_spans.NEVER)
        number = min(self.settings.n_best, logits_RS2T.shape[-1])
        logits_RS2K, positions_RS2K = jax.lax.top_k(logits_RS2T, number)
        null_RS = first_RS
        if self.encoding.is_null_last:
            null_RS = first_RS + _sequence_positions(batch).sum(2) - 1
        null_RS = jnp.take_along_axis(logits_R2T.sum(1), null_RS, axis=1)
        positions_RS2K -= first_RS[:, :, None, None]
        values = {'logits': logits_RS2K, 'positions': positions_RS2K, 'null_score': null_RS}
        return base.HostOutputs(values, {})

    def exported_outputs(self, outputs: base.Outputs, batch: Batch) -> base.HostOutputs:
        """Return 'start_logits' and 'end_logits' of each token, fp32 [R, T]."""
        start_RT, end_RT = jnp.moveaxis(outputs['logits'], -1, 0)
        return base.HostOutputs({}, {'start_logits': start_RT, 'end_logits': end_RT})


class AnswerDecoder(base.Decoder[QuestionExample, Prediction]):
    """The best answers over all windows.

    With the setting `no_answer` (SQuAD 2.0), a question is left unanswered if the score of no
    answer exceeds the score of the best answer by more than a threshold, which is tuned on the dev
    split.
    """

    def decode(
        self, example: QuestionExample, parts: base.ExampleOutputs, calibration: base.Calibration
    ) -> Prediction:
        """Return the best answer and 'n_best', a list of answers.

        An answer is {'text', 'start', 'end', 'probability'} with text = context[start:end]; for no
        answer, text is '' and start and end are None. Probabilities are the softmax of the scores
        of the listed answers and, with the setting `no_answer`, of no answer. This setting also
        adds 'no_answer_score'.
        """
        candidates = self._candidates(example, parts)
        scores = candidates.scores
        if self.settings.no_answer or not len(scores):
            scores = np.append(scores, candidates.null_score)
        weights = np.exp(scores - scores.max())
        probabilities = (weights / weights.sum()).tolist()
        n_best = [
            {'text': example.context[start:end], 'start': start, 'end': end, 'probability': p}
            for (start, end), p in zip(candidates.spans.tolist(), probabilities, strict=False)
        ]
        no_answer = {'text': '', 'start': None, 'end': None, 'probability': probabilities[-1]}
        best = (n_best or [no_answer])[0]
        if not self.settings.no_answer:
            return best | {'n_best': n_best}
        score = candidates.no_answer_score
        best = best if score <= calibration.thresholds.get(_THRESHOLD, 0.0) else no_answer
        return best | {'no_answer_score': score, 'n_best': n_best}

    def _candidates(
        self, example: QuestionExample, parts: base.ExampleOutputs
    ) -> answer_spans.AnswerCandidates:
        settings = self.settings
        context = self.encoding.windowed_context(example)
        return answer_spans.rank_candidates(context, parts, settings.answer_tokens, settings.n_best)

    def tune_thresholds(
        self, examples: Sequence[QuestionExample], parts: Sequence[base.ExampleOutputs]
    ) -> dict[str, float]:
        """With `no_answer`, find the threshold of the no-answer score with the best F1."""
        if not self.settings.no_answer:
            return {}
        guesses, scores = [], []
        for example, example_parts in zip(examples, parts, strict=True):
            candidates = self._candidates(example, example_parts)
            spans = candidates.spans
            guesses.append(example.context[slice(*spans[0])] if len(spans) else '')
            scores.append(candidates.no_answer_score)
        golds = list(map(_gold_texts, examples))
        return {_THRESHOLD: squad.best_threshold(golds, guesses, scores).threshold}

    def score(
        self, examples: Sequence[QuestionExample], predictions: Sequence[Prediction]
    ) -> Scores:
        """Return F1 and exact match by the rules of SQuAD 1.1, with `no_answer` of SQuAD 2.0.

        SQuAD 2.0 adds both metrics for questions with and without answer, and 'best_f1', the F1 of
        the best threshold on these examples.
        """
        golds = list(map(_gold_texts, examples))
        guesses = [prediction['text'] for prediction in predictions]
        metrics = squad.score(golds, guesses, self.settings.no_answer)
        if self.settings.no_answer:
            n_bests = [prediction['n_best'] for prediction in predictions]
            answers = [n_best[0]['text'] if n_best else '' for n_best in n_bests]
            scores = [prediction['no_answer_score'] for prediction in predictions]
            metrics['best_f1'] = squad.best_threshold(golds, answers, scores).best
        return Scores(metrics, {'Questions': _table(metrics, golds)})

    def blind_guesses(
        self, train: Sequence[QuestionExample], examples: Sequence[QuestionExample]
    ) -> list[Prediction]:
        """Return no answer, which is correct for questions without an answer."""
        return [{'text': '', 'n_best': [], 'no_answer_score': 0.0}] * len(examples)

    def to_record(self, example: QuestionExample, prediction: Prediction) -> JsonRecord:
        return {
            'id': example.id,
            'question': example.question,
            'gold': None if example.answers is None else _gold_texts(example),
            'answer': prediction['text'],
            **{name: value for name, value in prediction.items() if name != 'text'},
        }


QUESTION_ANSWERING = base.Parts(QuestionEncoding, AnswerLoss, AnswerDecoder)


def _sequence(
    laid_out: LaidOutSequence,
    window: Window,
    answer: tuple[int, int] | None,
    is_known: bool,
    null_position: int,
) -> TokenSequence:
    """Add the labels of a window.

    Args:
        answer: first and last token of the answer in the context; None for no answer.
        is_known: whether to learn the answer or its absence.
        null_position: position that stands for no answer.
    """
    ends = np.zeros((len(laid_out.ids), 2), np.int32)
    is_context = np.zeros(len(laid_out.ids), np.int32)
    first = laid_out.starts[1]
    is_context[first : first + window.stop - window.start] = 1
    if answer and window.start <= answer[0] and answer[1] < window.stop:
        ends[np.array(answer) - window.start + first, [0, 1]] = 1
    elif is_known:
        ends[null_position] = 1
    tokens = {'answer_ends': ends, 'is_context': is_context}
    return TokenSequence(laid_out.ids, laid_out.token_type_ids, tokens, {})


def _sequence_positions(batch: Batch) -> jax.Array:
    """Return the positions of each sequence of a row, bool [R, S, T]."""
    slots_S = jnp.arange(batch['first_positions'].shape[1])
    is_own: jax.Array = batch['segment_ids'][:, None] == slots_S[None, :, None] + 1
    return is_own


def _gold_texts(example: QuestionExample) -> list[str]:
    return [answer.text for answer in example.answers or ()]


def _table(metrics: Mapping[str, float], golds: Sequence[Sequence[str]]) -> Table:
    """Tabulate the metrics of all questions, and of questions with and without answer."""
    answerable = sum(map(bool, golds))
    groups = [('all', '', len(golds)), ('with answer', 'has_answer_', answerable)]
    groups.append(('without answer', 'no_answer_', len(golds) - answerable))
    rows = [
        (name, metrics[f'{prefix}f1'], metrics[f'{prefix}exact_match'], number)
        for name, prefix, number in groups
        if f'{prefix}f1' in metrics
    ]
    return Table(('questions', 'f1', 'exact match', 'number'), rows)
