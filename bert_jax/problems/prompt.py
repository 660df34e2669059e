"""Classification by cloze prompts: a class is scored by the words that stand for it at [MASK]."""

from collections.abc import Mapping
from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from bert_jax.averages import Terms, weighted_sum
from bert_jax.labels.examples import PromptExample
from bert_jax.models.model import HeadOptions
from bert_jax.models.rows import Rows, Targets
from bert_jax.objectives.mlm import cross_entropy
from bert_jax.problems import base
from bert_jax.problems.classification import (
    ClassDecoder,
    Probabilities,
    most_probable,
)
from bert_jax.problems.prompting import auxiliary
from bert_jax.problems.prompting.calibration import CALIBRATIONS
from bert_jax.problems.prompting.encoding import PromptEncoding
from bert_jax.types import Array, Batch, JsonObject, Tree


class PromptPrediction(NamedTuple):
    """The prediction for a prompt.

    Attributes:
        classes: class → probability among the classes.
        answers: probability of each answer among everything that the model could put at the masks.
    """

    classes: Probabilities
    answers: tuple[float, ...]


class PromptLoss(base.Loss):
    """Cross-entropy of the classes, and the loss of masked tokens in unlabeled prompts.

    The score of a class is the mean over its words of log p(word) (Schick & Schütze 2021, PET;
    Gao et al. 2021, LM-BFF); the loss is the cross-entropy of the softmax over the classes. For
    words of one piece (subword), this softmax equals the softmax over their raw logits. A word of k
    pieces is scored on a prompt with k masks, all filled at once.
    """

    encoding: PromptEncoding
    main: ClassVar[str] = 'classification'  # the loss term of labeled prompts

    @property
    def weights(self) -> Mapping[str, float]:
        share = self.settings.mlm_weight
        return {self.main: 1 - share, 'mlm': share} if share else {self.main: 1.0}

    def heads(self) -> Mapping[str, HeadOptions]:
        return {'clm' if self.encoding.is_causal else 'mlm': {}}

    def corrupt(self, rows: Rows, dropout_seeds_R: base.Seeds) -> Rows:
        """Make targets of the masks; in training with `mlm_weight`, mask unlabeled prompts too."""
        slot_RT = jnp.asarray(rows.labels['mask_slot'])
        positions_RT = jnp.argsort(slot_RT == 0, axis=1, stable=True)
        targets = Targets.at(positions_RT[:, : self._num_masks(rows)])
        if self.settings.mlm_weight and dropout_seeds_R is not None:
            masked = auxiliary.mask_unlabeled(
                auxiliary.masking_vocabulary(self.encoding.tokenizer), rows, dropout_seeds_R
            )
            pairs = zip(targets, masked.chosen, strict=True)
            targets = Targets(*(jnp.concatenate(pair, axis=1) for pair in pairs))
            rows = rows.replace(input_ids_BT=masked.input_ids_BT)
        return rows.replace(targets=targets)

    def _num_masks(self, rows: Rows) -> int:
        """Return the maximum number of masks in a row."""
        sequences = 1 if rows.first_positions_BS is None else rows.first_positions_BS.shape[1]
        return int(min(sequences * self.encoding.answers.lengths[-1], rows.input_ids_BT.shape[1]))

    def outputs(self, heads: Mapping[str, Tree], rows: Rows) -> base.Outputs:
        """Return 'log_p' of the pieces of all answers, fp32 [R, S, A, K].

        Entry [r, s, a, k] is log p of piece k of answer a at mask k of sequence s; it is not valid
        where the sequence has no such mask or the answer no such piece. In training with
        `mlm_weight`, also returns 'masked': logits, labels and weights of masked tokens.
        """
        number, longest = self._num_masks(rows), self.encoding.answers.lengths[-1]
        positions_RP = rows.chosen.positions_BP[:, :number]
        slot_RT, segment_RT = jnp.asarray(rows.labels['mask_slot']), rows.segment_ids_BT
        segment_RT = jnp.ones_like(slot_RT) if segment_RT is None else jnp.asarray(segment_RT)
        first_RS = rows.first_positions_BS
        sequences = 1 if first_RS is None else first_RS.shape[1]

        slot_RP = jnp.take_along_axis(slot_RT, positions_RP, axis=1)
        segment_RP = jnp.take_along_axis(segment_RT, positions_RP, axis=1)
        segment_S1 = jnp.arange(1, sequences + 1)[:, None]
        slot_K1, slot_K = jnp.arange(1, longest + 1)[:, None], jnp.arange(longest)
        is_in_segment_RSP = segment_RP[:, None] == segment_S1
        is_in_slot_RKP = slot_RP[:, None] == slot_K1
        index_RSK = (is_in_segment_RSP[:, :, None] & is_in_slot_RKP[:, None]).argmax(-1)
        pieces_AK = jnp.asarray(self.encoding.answers.pieces_AK)

        def pick(values_PV: jax.Array, index_SK: jax.Array) -> jax.Array:
            values_PAK = values_PV[:, pieces_AK]
            return values_PAK[index_SK, :, slot_K].swapaxes(-1, -2)

        log_p_RPV = jax.nn.log_softmax(heads['mlm'][:, :number])
        outputs: dict[str, Tree] = {'log_p': jax.vmap(pick)(log_p_RPV, index_RSK)}
        _, ids_RM, weights_RM = (array[:, number:] for array in rows.chosen)
        if ids_RM.shape[1]:
            outputs['masked'] = heads['mlm'][:, number:], ids_RM, weights_RM
        return outputs

    def _class_scores(self, log_p_RSAK: jax.Array) -> jax.Array:
        """Score each class with parallel decoding, fp32 [R, S / number of lengths, C]."""
        lengths = self.encoding.answers.lengths
        rows, sequences, *rest = log_p_RSAK.shape
        examples = sequences // len(lengths)
        log_p_RSAK = log_p_RSAK[:, : examples * len(lengths)]
        log_p_RELAK = log_p_RSAK.reshape(rows, examples, len(lengths), *rest)
        index_A = np.searchsorted(lengths, self.encoding.answers.length_A)
        log_p_REAK = log_p_RELAK[:, :, index_A, np.arange(len(index_A))]
        score_REA = jnp.sum(jnp.where(self.encoding.answers.is_piece_AK, log_p_REAK, 0), axis=-1)
        return jnp.einsum(
            'REA,CA->REC', score_REA, self.encoding.answers.share_CA, precision='highest'
        )

    def terms(self, outputs: base.Outputs, batch: Batch) -> Terms:
        """Return 'classification', the cross-entropy of the class scores, and 'accuracy'."""
        class_REC = self._class_scores(outputs['log_p'])
        label_RE = self._of_examples(batch['label'], class_REC)
        return self.setup.class_terms('classification', class_REC, label_RE) | mlm_terms(outputs)

    def _of_examples(self, values_RS: Array, class_REC: jax.Array) -> jax.Array:
        """Return the value of the first sequence of each example, [R, E]."""
        values_RE = jnp.asarray(values_RS)[:, :: len(self.encoding.answers.lengths)]
        return values_RE[:, : class_REC.shape[1]]

    def host_outputs(self, outputs: base.Outputs, batch: Batch) -> base.HostOutputs:
        return base.HostOutputs({'log_p': outputs['log_p']}, {})


class PromptDecoder(ClassDecoder[PromptExample, PromptPrediction]):
    """The class whose words best fill the [MASK] of a template.

    The masks of a word of several pieces are filled in the order of the setting `decoding`.
    """

    encoding: PromptEncoding

    def _log_p(self, parts: base.ExampleOutputs) -> np.ndarray:
        """Return the mean log p of each answer over the sets of demonstrations, float64 [A]."""
        log_p_XA = [
            [score.log_p for score in scores] for scores in self.encoding.partial_scores(parts)
        ]
        return np.asarray(np.mean(log_p_XA, axis=0))

    def decode(
        self, example: PromptExample, parts: base.ExampleOutputs, calibration: base.Calibration
    ) -> PromptPrediction:
        """Return the probabilities of the classes, calibrated, and of the answers."""
        log_p_A = self._log_p(parts)
        p_A = np.exp(log_p_A)
        is_single = self.encoding.answers.lengths[0] == self.encoding.num_draws == 1
        if is_single and 'p' in parts[0][0]:  # exactly the probabilities of fill_mask
            first_A = parts[0][0]['p'][:, 0]
            p_A = np.where(self.encoding.answers.length_A == 1, first_A, p_A)
        calibrate = CALIBRATIONS[self.settings.calibration].apply
        references = [self._log_p(reference) for reference in calibration.references]
        reference_AE = np.stack(references, axis=1) if references else None
        p_C = calibrate(log_p_A, reference_AE, self.encoding.answers.share_CA)
        classes = dict(zip(self.labels, p_C.tolist(), strict=True))
        return PromptPrediction(classes, tuple(p_A.tolist()))

    def guess(self, prediction: PromptPrediction) -> str:
        return most_probable(prediction.classes)

    def to_record(self, example: PromptExample, prediction: PromptPrediction) -> JsonObject:
        best = most_probable(prediction.classes)
        record = {
            'id': example.id,
            'texts': list(example.fields),
            'gold': example.label,
            'predicted': best,
            'probability': prediction.classes[best],
        }
        if not self.setup.all_probabilities:
            return record
        answers = [
            {'label': answer.label, 'answer': answer.word, 'probability': probability}
            for answer, probability in zip(
                self.encoding.answers.all, prediction.answers, strict=True
            )
        ]
        return record | {'probabilities': prediction.classes, 'answers': answers}


PROMPT = base.Parts(PromptEncoding, PromptLoss, PromptDecoder)


def mlm_terms(outputs: base.Outputs) -> Terms:
    """Return the term 'mlm', nats per masked token; empty unless training with `mlm_weight`."""
    if 'masked' not in outputs:
        return {}
    logits_RMV, labels_RM, weights_RM = outputs['masked']
    return {'mlm': weighted_sum(cross_entropy(logits_RMV, labels_RM), weights_RM)}
