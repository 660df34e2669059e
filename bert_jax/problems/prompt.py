"""Classification by cloze prompts: a class is scored by the words that stand for it at [MASK]."""

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from ml_collections import ConfigDict

from bert_jax.averages import Terms, weighted_sum
from bert_jax.errors import UserError
from bert_jax.examples.finetune_batches import Item, TokenSequence
from bert_jax.labels.examples import PromptExample
from bert_jax.metrics import scores
from bert_jax.metrics.intervals import RowScore
from bert_jax.metrics.scores import Scores
from bert_jax.models.model import HeadOptions
from bert_jax.models.rows import Rows, Targets
from bert_jax.objectives.mlm import cross_entropy
from bert_jax.problems import base
from bert_jax.problems.classification import Probabilities, most_probable, scoring_arguments
from bert_jax.problems.prompting import auxiliary, templates
from bert_jax.problems.prompting.answers import Answers
from bert_jax.problems.prompting.calibration import CALIBRATIONS
from bert_jax.problems.prompting.decoding import DECODINGS, PartialScore
from bert_jax.tokenizers.special_token_layout import SpecialTokenLayout
from bert_jax.types import Array, Batch, JsonObject, JsonView, Tree

_MAX_SHOWN = 64  # maximum number of training examples per class that are kept as demonstrations


class PromptPrediction(NamedTuple):
    """The prediction for a prompt.

    Attributes:
        classes: class → probability among the classes.
        answers: probability of each answer among everything that the model could put at the masks.
    """

    classes: Probabilities
    answers: tuple[float, ...]


class Prompt(base.Problem[PromptExample, PromptPrediction]):
    """The class whose words best fill the [MASK] of a template.

    The score of a class is the mean over its words of log p(word) (Schick & Schütze 2021, PET;
    Gao et al. 2021, LM-BFF); the loss is the cross-entropy of the softmax over the classes. For
    words of one piece (subword), this softmax equals the softmax over their raw logits. A word of k
    pieces is scored on a prompt with k masks: in training all at once, in predictions in the order
    of the setting `decoding`.

    The first item of an example has one sequence for each distinct number of pieces. Further items
    have one sequence each: an answer with some of its masks filled. With demonstrations (LM-BFF,
    section 6), an example has a first item for each set of demonstrations, one training example per
    class; scores are averaged over the sets.
    """

    weights = {'classification': 1.0}
    pretrained_heads = required_heads = ('mlm',)
    min_labels = 2
    has_probabilities = True
    long_texts = ('truncate',)

    def __init__(self, settings: ConfigDict, layout: SpecialTokenLayout, labels: Sequence[str]):
        super().__init__(settings, layout, labels)
        if not settings.template:
            raise UserError("problem.template is empty; set it, such as '{text} It was [MASK].'")
        base.check_choice(settings, 'decoding', tuple(DECODINGS))
        base.check_choice(settings, 'calibration', tuple(CALIBRATIONS))
        self.template = templates.Template(settings.template)
        self.answers = Answers(settings.answers, labels, layout.tokenizer, self.template.is_spaced)
        self._vocabulary = auxiliary.masking_vocabulary(layout.tokenizer)
        if settings.mlm_weight:
            (main,) = type(self).weights
            share = settings.mlm_weight
            self.weights = {main: 1 - share, 'mlm': share}  # type: ignore[misc]
        self._calibration = CALIBRATIONS[settings.calibration]
        self._reference_AE: np.ndarray | None = None

    @classmethod
    def count_labels(cls, train: Sequence[PromptExample]) -> Counter[str]:
        return Counter(str(example.label) for example in train)

    def prepare(self, train: Sequence[PromptExample]) -> None:
        super().prepare(train)
        fields = train[0].names if train else self.template.fields
        if unknown := [name for name in self.template.fields if name not in fields]:
            raise UserError(
                f'problem.template has the field {{{unknown[0]}}}, but the data has '
                f'{", ".join(fields)}; set data.columns.text2 or data.columns.fields'
            )
        if self.settings.demonstrations:
            self.kept['shown'] = self._choose_shown(train)

    def _choose_shown(self, train: Sequence[PromptExample]) -> dict[str, list[PromptExample]]:
        """Choose the training examples of each class that may become demonstrations."""
        shown: dict[str, list[PromptExample]] = {label: [] for label in self.labels}
        for example in train:
            if len(shown[str(example.label)]) < _MAX_SHOWN:
                shown[str(example.label)].append(example)
        if missing := [label for label, examples in shown.items() if not examples]:
            raise UserError(
                f'problem.demonstrations needs a training example of each class, but there is none '
                f'of {missing[0]!r}'
            )
        return shown

    def training_examples(
        self, train: Sequence[PromptExample], unlabeled: Sequence[PromptExample]
    ) -> Sequence[PromptExample]:
        if bool(unlabeled) != bool(self.settings.mlm_weight):
            raise UserError(
                f'problem.mlm_weight is {self.settings.mlm_weight:g}, but there are '
                f'{len(unlabeled)} unlabeled examples; set it and data.unlabeled, or neither'
            )
        return auxiliary.mix(train, unlabeled) if unlabeled else train

    def corrupt(self, rows: Rows, dropout_seeds_R: base.Seeds) -> Rows:
        """Make targets of the masks; in training with `mlm_weight`, mask unlabeled prompts too."""
        slot_RT = jnp.asarray(rows.labels['mask_slot'])
        positions_RT = jnp.argsort(slot_RT == 0, axis=1, stable=True)
        targets = Targets.at(positions_RT[:, : self._num_masks(rows)])
        if self.settings.mlm_weight and dropout_seeds_R is not None:
            masked = auxiliary.mask_unlabeled(self._vocabulary, rows, dropout_seeds_R)
            pairs = zip(targets, masked.chosen, strict=True)
            targets = Targets(*(jnp.concatenate(pair, axis=1) for pair in pairs))
            rows = rows.replace(input_ids_BT=masked.input_ids_BT)
        return rows.replace(targets=targets)

    def _num_masks(self, rows: Rows) -> int:
        """Return the maximum number of masks in a row."""
        sequences = 1 if rows.first_positions_BS is None else rows.first_positions_BS.shape[1]
        return int(min(sequences * self.answers.lengths[-1], rows.input_ids_BT.shape[1]))

    def blind_guess(self, train: Sequence[PromptExample]) -> PromptPrediction:
        """Return the share of every class in the train split."""
        counts = self.count_labels(train)
        return PromptPrediction({label: counts[label] / len(train) for label in self.labels}, ())

    def parse_input(self, name: str, record: JsonView) -> PromptExample:
        fields = self.template.fields
        texts = tuple(base.require_text(record, name, field) for field in fields)
        return PromptExample(name, fields, texts, None)

    def encode(self, example: PromptExample) -> list[Item]:
        """Return an item for each set of demonstrations, or one item without demonstrations."""
        targets = self._targets(example)
        return [
            tuple(self._sequence(prompt, targets) for prompt in self._prompts(example, draw))
            for draw in range(self._num_draws)
        ]

    def _targets(self, example: PromptExample) -> dict[str, np.number]:
        """Return the fields of a sequence that hold its target."""
        if example.label is None:
            return {'label': np.int32(0)}
        return {'label': np.int32(self.label_number(str(example.label), example.id) + 1)}

    def _sequence(
        self, prompt: templates.FilledTemplate, targets: Mapping[str, np.number]
    ) -> TokenSequence:
        tokens = {'mask_slot': prompt.mask_slots}
        if self.settings.mlm_weight:
            known = targets.get('label', targets.get('known'))
            tokens['is_unlabeled'] = np.full(len(prompt.ids), not known, np.int32)
        return TokenSequence(prompt.ids, prompt.token_type_ids, tokens, dict(targets))

    @property
    def _num_draws(self) -> int:
        """Number of sets of demonstrations whose scores are averaged; 1 without demonstrations."""
        return int(max(1, self.settings.demonstrations))

    def _prompts(self, example: PromptExample, draw: int) -> list[templates.FilledTemplate]:
        """Fill the template with each number of masks in `answers.lengths`."""
        shown = [self._demonstrate(example, label, draw) for label in self.kept.get('shown', ())]
        lengths, counts = self.answers.lengths, self.counts
        return self.template.fill(_fields(example), self.layout, lengths, counts, shown)

    def _demonstrate(
        self, example: PromptExample, label: str, draw: int
    ) -> templates.Demonstration:
        """Draw a training example of a class, if possible another than the example itself."""
        shown = [PromptExample(*values) for values in self.kept['shown'][label]]
        others = [other for other in shown if list(other.fields) != list(example.fields)] or shown
        chosen = random.Random(f'{draw}/{label}/{example.fields}').choice(others)
        pieces = next(answer.pieces for answer in self.answers.all if answer.label == label)
        return templates.Demonstration(_fields(chosen), pieces)

    def _partial_scores(self, parts: base.ExampleOutputs) -> list[list[PartialScore]]:
        """Return the score of each answer, as far as known, for each set of demonstrations."""
        answers, length_index = self.answers.all, self.answers.lengths.index
        first, later = parts[: self._num_draws], iter(parts[self._num_draws :])
        # For each set of demonstrations and answer, log p of the pieces in successive rounds.
        rounds = [
            [
                [by_length[length_index(len(answer.pieces))]['log_p'][number]]
                for number, answer in enumerate(answers)
            ]
            for by_length in first
        ]
        for num_rounds in range(1, self.answers.lengths[-1]):
            for by_answer in rounds:
                for number, answer in enumerate(answers):
                    is_longer = len(answer.pieces) > num_rounds
                    if is_longer and (part := next(later, None)):
                        by_answer[number].append(part[0]['log_p'][number])
        return [
            [
                PartialScore(len(answer.pieces)).fill(self.settings.decoding, log_ps)
                for answer, log_ps in zip(answers, by_answer, strict=True)
            ]
            for by_answer in rounds
        ]

    def further_items(self, example: PromptExample, parts: base.ExampleOutputs) -> list[Item]:
        """Return, for each answer with open masks, its prompt with the other masks filled."""
        targets = self._targets(example._replace(label=None))
        items: list[Item] = []
        for draw, partial_scores in enumerate(self._partial_scores(parts)):
            if not any(score.masks for score in partial_scores):
                continue
            prompts = dict(zip(self.answers.lengths, self._prompts(example, draw), strict=True))
            for answer, score in zip(self.answers.all, partial_scores, strict=True):
                if score.masks:
                    filled = sorted(set(range(len(answer.pieces))) - set(score.masks))
                    prompt = prompts[len(answer.pieces)].with_pieces(answer.pieces, filled)
                    items.append((self._sequence(prompt, targets),))
        return items

    def _log_p(self, parts: base.ExampleOutputs) -> np.ndarray:
        """Return the mean log p of each answer over the sets of demonstrations, float64 [A]."""
        log_p_XA = [[score.log_p for score in scores] for scores in self._partial_scores(parts)]
        return np.asarray(np.mean(log_p_XA, axis=0))

    def references(self) -> Sequence[PromptExample]:
        names = self.template.fields
        return [
            PromptExample(f'content-free {text!r}', names, (text,) * len(names), None)
            for text in self._calibration.texts
        ]

    def calibrate(self, parts: Sequence[base.ExampleOutputs]) -> None:
        self._reference_AE = np.stack(list(map(self._log_p, parts)), axis=1)

    def describe_targets(
        self, tokens: Sequence[str], fields: Mapping[str, np.ndarray]
    ) -> JsonObject:
        return {'label': self.stored_label(fields['label'])}

    def heads(self) -> Mapping[str, HeadOptions]:
        return {'mlm': {}}

    def outputs(self, heads: Mapping[str, Tree], rows: Rows) -> base.Outputs:
        """Return 'log_p' of the pieces of all answers, fp32 [R, S, A, K].

        Entry [r, s, a, k] is log p of piece k of answer a at mask k of sequence s; it is not valid
        where the sequence has no such mask or the answer no such piece. In training with
        `mlm_weight`, also returns 'masked': logits, labels and weights of masked tokens.
        """
        number, longest = self._num_masks(rows), self.answers.lengths[-1]
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
        pieces_AK = jnp.asarray(self.answers.pieces_AK)

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
        lengths = self.answers.lengths
        rows, sequences, *rest = log_p_RSAK.shape
        examples = sequences // len(lengths)
        log_p_RSAK = log_p_RSAK[:, : examples * len(lengths)]
        log_p_RELAK = log_p_RSAK.reshape(rows, examples, len(lengths), *rest)
        index_A = np.searchsorted(lengths, self.answers.length_A)
        log_p_REAK = log_p_RELAK[:, :, index_A, np.arange(len(index_A))]
        score_REA = jnp.sum(jnp.where(self.answers.is_piece_AK, log_p_REAK, 0), axis=-1)
        return jnp.einsum('REA,CA->REC', score_REA, self.answers.share_CA, precision='highest')

    def terms(self, outputs: base.Outputs, batch: Batch) -> Terms:
        """Return 'classification', the cross-entropy of the class scores, and 'accuracy'."""
        class_REC = self._class_scores(outputs['log_p'])
        label_RE = self._of_examples(batch['label'], class_REC)
        return self.class_terms('classification', class_REC, label_RE) | mlm_terms(outputs)

    def _of_examples(self, values_RS: Array, class_REC: jax.Array) -> jax.Array:
        """Return the value of the first sequence of each example, [R, E]."""
        values_RE = jnp.asarray(values_RS)[:, :: len(self.answers.lengths)]
        return values_RE[:, : class_REC.shape[1]]

    def host_outputs(self, outputs: base.Outputs, batch: Batch) -> base.HostOutputs:
        return base.HostOutputs({'log_p': outputs['log_p']}, {})

    def decode(self, example: PromptExample, parts: base.ExampleOutputs) -> PromptPrediction:
        """Return the probabilities of the classes, calibrated, and of the answers."""
        log_p_A = self._log_p(parts)
        p_A = np.exp(log_p_A)
        is_single = self.answers.lengths[0] == self._num_draws == 1
        if is_single and 'p' in parts[0][0]:  # exactly the probabilities of fill_mask
            first_A = parts[0][0]['p'][:, 0]
            p_A = np.where(self.answers.length_A == 1, first_A, p_A)
        p_C = self._calibration.apply(log_p_A, self._reference_AE, self.answers.share_CA)
        classes = dict(zip(self.labels, p_C.tolist(), strict=True))
        return PromptPrediction(classes, tuple(p_A.tolist()))

    def score(
        self, examples: Sequence[PromptExample], predictions: Sequence[PromptPrediction]
    ) -> Scores:
        return scores.classification(*self._classes(examples, predictions))

    def score_rows(
        self, examples: Sequence[PromptExample], predictions: Sequence[PromptPrediction]
    ) -> RowScore:
        return scores.classification_rows(*self._classes(examples, predictions))

    def _classes(
        self, examples: Sequence[PromptExample], predictions: Sequence[PromptPrediction]
    ) -> tuple[Any, ...]:
        guesses = [most_probable(prediction.classes) for prediction in predictions]
        return scoring_arguments(self.settings, self.labels, examples, guesses)

    def to_record(self, example: PromptExample, prediction: PromptPrediction) -> JsonObject:
        best = most_probable(prediction.classes)
        record = {
            'id': example.id,
            'texts': list(example.fields),
            'gold': example.label,
            'predicted': best,
            'probability': prediction.classes[best],
        }
        if not self.all_probabilities:
            return record
        answers = [
            {'label': answer.label, 'answer': answer.word, 'probability': probability}
            for answer, probability in zip(self.answers.all, prediction.answers, strict=True)
        ]
        return record | {'probabilities': prediction.classes, 'answers': answers}


def _fields(example: PromptExample) -> dict[str, str]:
    return dict(zip(example.names, example.fields, strict=True))


def mlm_terms(outputs: base.Outputs) -> Terms:
    """Return the term 'mlm', nats per masked token; empty unless training with `mlm_weight`."""
    if 'masked' not in outputs:
        return {}
    logits_RMV, labels_RM, weights_RM = outputs['masked']
    return {'mlm': weighted_sum(cross_entropy(logits_RMV, labels_RM), weights_RM)}
