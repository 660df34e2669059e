"""Fine-tuning problem: answers to instructions, by causal models and by masked diffusion."""

import functools
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from bert_jax.averages import Term, Terms, weighted_sum
from bert_jax.labels.examples import ConversationExample
from bert_jax.metrics.scores import Scores
from bert_jax.models.model import HeadOptions
from bert_jax.models.rows import Rows
from bert_jax.objectives.mlm import cross_entropy, is_best
from bert_jax.problems import base
from bert_jax.problems.instructions.encoding import InstructionEncoding
from bert_jax.problems.instructions.kinds import Causal, Diffusion, Kind
from bert_jax.types import Batch, JsonRecord, Tree


class InstructionLoss(base.Loss):
    """Cross-entropy of the answers, in nats for each token of an answer, its end included.

    For a causal model it is the negative log likelihood. For masked diffusion it is an upper bound
    on it, drawn once: the end tokens after the first belong to the sum, but are not counted.
    """

    encoding: InstructionEncoding

    @functools.cached_property
    def kind(self) -> Kind:
        """How answers are learned."""
        return Causal(self.settings.prefix_lm) if self.setup.is_causal else Diffusion()

    @property
    def weights(self) -> Mapping[str, float]:
        return {'answer': 1.0}

    @property
    def has_prefix(self) -> bool:
        return self.setup.is_causal and bool(self.settings.prefix_lm)

    @property
    def is_generative(self) -> bool:
        return True

    def heads(self) -> Mapping[str, HeadOptions]:
        return {self.kind.head: {}}

    def corrupt(self, rows: Rows, dropout_seeds_R: base.Seeds) -> Rows:
        return self.kind.corrupt(self.encoding.tokenizer, rows, dropout_seeds_R)

    def outputs(self, heads: Mapping[str, Tree], rows: Rows) -> base.Outputs:
        """Return fp32 [R, P] of each target: 'nats', 'is_right', 'weight' and 'counted'."""
        (logits_RPV,) = heads.values()
        _, ids_RP, weights_RP = rows.chosen
        return {
            'nats': cross_entropy(logits_RPV, ids_RP),
            'is_right': is_best(logits_RPV, ids_RP),
            'weight': jnp.asarray(weights_RP),
            'counted': self.kind.counted(rows),
        }

    def terms(self, outputs: base.Outputs, batch: Batch) -> Terms:
        """Return 'answer', the loss, and 'accuracy' of the predicted tokens of answers."""
        weight_RP, counted_RP = outputs['weight'], outputs['counted']
        total = jnp.sum(outputs['nats'] * weight_RP)
        is_scored_RP = counted_RP * (weight_RP > 0)
        return {
            'answer': Term(total, jnp.sum(counted_RP)),
            'accuracy': weighted_sum(outputs['is_right'], is_scored_RP),
        }

    def host_outputs(self, outputs: base.Outputs, batch: Batch) -> base.HostOutputs:
        """Return values of tokens; those of the next token for a causal model."""
        length = batch['input_ids'].shape[1]
        is_scored_RP = outputs['counted'] * (outputs['weight'] > 0)
        values = {
            'nats': outputs['nats'] * outputs['weight'],
            'tokens': outputs['counted'],
            'scored': is_scored_RP,
            'right': outputs['is_right'] * is_scored_RP,
        }
        rest = [(0, 0), (0, length - outputs['nats'].shape[1])]
        return base.HostOutputs({}, {name: jnp.pad(v_RP, rest) for name, v_RP in values.items()})


class AnswerPrediction(NamedTuple):
    """How well a model predicts the answers of a conversation.

    Attributes:
        nats: negative log likelihood of all answers, or a bound on it.
        tokens: number of tokens of the answers, with their ends.
        scored: number of tokens that were predicted.
        right: number of these tokens that were the most probable.
        written: the answer that the model wrote itself; None if the conversation has no answer.
    """

    nats: float
    tokens: int
    scored: int
    right: float
    written: str | None = None


class InstructionDecoder(base.Decoder[ConversationExample, AnswerPrediction]):
    """Loss, perplexity and accuracy of answers, and how many the model writes itself."""

    encoding: InstructionEncoding

    def decode(
        self,
        example: ConversationExample,
        parts: base.ExampleOutputs,
        calibration: base.Calibration,
    ) -> AnswerPrediction:
        names = ('nats', 'tokens', 'scored', 'right')
        sums = {name: sum(float(part[name].sum()) for (part,) in parts) for name in names}
        nats, tokens, scored, right = sums.values()
        return AnswerPrediction(nats, int(tokens), int(scored), right)

    def complete(
        self,
        examples: Sequence[ConversationExample],
        predictions: Sequence[AnswerPrediction],
        writer: base.ExampleWriter,
    ) -> list[AnswerPrediction]:
        """Write the last answer of each conversation; '' if its prompt leaves no room."""
        asked = {n: one.before_answer() for n, one in enumerate(examples) if one.answer is not None}
        answers = writer.respond(self.encoding, list(asked.values()))
        written = dict(zip(asked, answers, strict=True))
        return [one._replace(written=written.get(n)) for n, one in enumerate(predictions)]

    def score(
        self, examples: Sequence[ConversationExample], predictions: Sequence[AnswerPrediction]
    ) -> Scores:
        """Return 'answer_loss' in nats per token of answers, 'perplexity', 'token_accuracy'.

        'exact_match' is the share of written answers that have the tokens of the last answer.
        """
        tokens = max(1, sum(one.tokens for one in predictions))
        loss = sum(one.nats for one in predictions) / tokens
        metrics = {
            'answer_loss': loss,
            'perplexity': float(np.exp(min(loss, 700.0))),
            'token_accuracy': sum(one.right for one in predictions)
            / max(1, sum(one.scored for one in predictions)),
        }
        pairs = zip(examples, predictions, strict=True)
        written = [(one, found.written) for one, found in pairs if found.written is not None]
        if written:
            hits = [text == self.normalized(one.answer or '') for one, text in written]
            metrics['exact_match'] = float(np.mean(hits))
        return Scores(metrics, {})

    def normalized(self, answer: str) -> str:
        """Return the text that the tokens of an answer stand for."""
        tokens = self.encoding.template.encode('assistant', answer).answer
        assert tokens is not None
        return self.encoding.template.decode(tokens)

    def blind_guesses(
        self, train: Sequence[ConversationExample], examples: Sequence[ConversationExample]
    ) -> Sequence[AnswerPrediction]:
        """Predict every token by its frequency in the answers of the train split, plus one."""
        counts_V = np.ones(self.encoding.tokenizer.vocab_size)
        for example in train:
            counts_V += np.bincount(self._answer_tokens(example), minlength=len(counts_V))
        log_p_V, best = np.log(counts_V / counts_V.sum()), counts_V.argmax()
        return [
            AnswerPrediction(
                float(-log_p_V[ids].sum()), len(ids), len(ids), float((ids == best).sum())
            )
            for ids in map(self._answer_tokens, examples)
        ]

    def _answer_tokens(self, example: ConversationExample) -> np.ndarray:
        """The tokens of the learned answers of a conversation, with their ends."""
        end, ids = np.array([self.encoding.end_id]), [np.zeros(0, np.int64)]
        for text, is_learned in zip(example.contents, example.is_learned, strict=True):
            if is_learned:
                answer = self.encoding.template.encode('assistant', text).answer
                assert answer is not None
                ids += [answer, end]
        return np.concatenate(ids).astype(np.int64)

    def to_record(self, example: ConversationExample, prediction: AnswerPrediction) -> JsonRecord:
        turns = list(zip(example.roles, example.contents, strict=True))
        given = turns[:-1] if example.answer is not None else turns
        record: JsonRecord = {
            'id': example.id,
            'messages': [{'role': role, 'content': text} for role, text in given],
            'gold': example.answer,
        }
        if prediction.tokens:
            record |= {'nats': prediction.nats, 'tokens': prediction.tokens}
        return record if prediction.written is None else record | {'answer': prediction.written}


INSTRUCTIONS = base.Parts(InstructionEncoding, InstructionLoss, InstructionDecoder)
