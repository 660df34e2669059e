"""Filled templates: rows of cloze prompts, and the scores of answers from their outputs."""

import functools
import random
from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np

from bert_jax.errors import UserError
from bert_jax.examples.finetune_batches import Item, TokenSequence
from bert_jax.labels.examples import PromptExample
from bert_jax.problems import base, raw_input
from bert_jax.problems.prompting import auxiliary, templates
from bert_jax.problems.prompting.answers import Answers
from bert_jax.problems.prompting.calibration import CALIBRATIONS
from bert_jax.problems.prompting.decoding import PartialScore
from bert_jax.problems.prompting.prefix import PrefixTemplate
from bert_jax.types import JsonRecord, RecordView

_MAX_SHOWN = 64  # maximum number of training examples per class that are kept as demonstrations


class PromptEncoding(base.Encoding[PromptExample]):
    """A template with a text and [MASK] in place of the answer.

    The first item of an example has one sequence for each distinct number of pieces. Further items
    have one sequence each: an answer with some of its masks filled. With demonstrations (LM-BFF,
    section 6), an example has a first item for each set of demonstrations, one training example per
    class; scores are averaged over the sets.
    """

    def __post_init__(self) -> None:
        _ = self.answers

    @functools.cached_property
    def template(self) -> templates.Template:
        """The parsed template."""
        if not self.settings.template:
            raise UserError("problem.template is empty; set it, such as '{text} It was [MASK].'")
        kind = PrefixTemplate if self.is_causal else templates.Template
        return kind(self.settings.template)

    @property
    def is_causal(self) -> bool:
        """Whether a causal model answers, which sees only what is before the answer."""
        return self.setup.is_causal

    @functools.cached_property
    def answers(self) -> Answers:
        """The words that stand for each class."""
        is_spaced = self.template.is_spaced
        return Answers(self.settings.answers, self.labels, self.tokenizer, is_spaced)

    @classmethod
    def count_labels(cls, train: Sequence[PromptExample]) -> Counter[str]:
        return Counter(str(example.label) for example in train)

    def keep(self, train: Sequence[PromptExample]) -> RecordView:
        """Check the fields of the examples, and choose demonstrations."""
        fields = train[0].names if train else self.template.fields
        if unknown := [name for name in self.template.fields if name not in fields]:
            raise UserError(
                f'problem.template has the field {{{unknown[0]}}}, but the data has '
                f'{", ".join(fields)}; set data.columns.text2 or data.columns.fields'
            )
        return {'shown': self._choose_shown(train)} if self.settings.demonstrations else {}

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

    def parse_input(self, name: str, record: RecordView) -> PromptExample:
        fields = self.template.fields
        texts = tuple(raw_input.require_text(record, name, field) for field in fields)
        return PromptExample(name, fields, texts, None)

    def encode(self, example: PromptExample) -> list[Item]:
        """Return an item for each set of demonstrations, or one item without demonstrations."""
        targets = self._targets(example)
        return [
            tuple(self._sequence(prompt, targets) for prompt in self._prompts(example, draw))
            for draw in range(self.num_draws)
        ]

    def _targets(self, example: PromptExample) -> dict[str, np.number]:
        """Return the fields of a sequence that hold its target."""
        if example.label is None:
            return {'label': np.int32(0)}
        return {'label': np.int32(self.setup.label_number(str(example.label), example.id) + 1)}

    def _sequence(
        self, prompt: templates.FilledTemplate, targets: Mapping[str, np.number]
    ) -> TokenSequence:
        tokens = {'mask_slot': prompt.mask_slots}
        if self.settings.mlm_weight:
            known = targets.get('label', targets.get('known'))
            tokens['is_unlabeled'] = np.full(len(prompt.ids), not known, np.int32)
        return TokenSequence(prompt.ids, prompt.token_type_ids, tokens, dict(targets))

    @property
    def num_draws(self) -> int:
        """Number of sets of demonstrations whose scores are averaged; 1 without demonstrations."""
        return int(max(1, self.settings.demonstrations))

    def _prompts(self, example: PromptExample, draw: int) -> list[templates.FilledTemplate]:
        """Fill the template with each number of masks in `answers.lengths`."""
        shown = [
            self._demonstrate(example, label, draw) for label in self.setup.kept.get('shown', ())
        ]
        shown += [self._shot(shot) for shot in self.setup.kept.get('shots', ())]
        lengths, counts = self.answers.lengths, self.setup.counts
        return self.template.fill(_fields(example), self.layout, lengths, counts, shown)

    def _demonstrate(
        self, example: PromptExample, label: str, draw: int
    ) -> templates.Demonstration:
        """Draw a training example of a class, if possible another than the example itself."""
        shown = [PromptExample(*values) for values in self.setup.kept['shown'][label]]
        others = [other for other in shown if list(other.fields) != list(example.fields)] or shown
        chosen = random.Random(f'{draw}/{label}/{example.fields}').choice(others)
        pieces = next(answer.pieces for answer in self.answers.all if answer.label == label)
        return templates.Demonstration(_fields(chosen), pieces)

    def _shot(self, shot: Mapping[str, str]) -> templates.Demonstration:
        """An answered example that every prompt shows."""
        pieces = next(one.pieces for one in self.answers.all if one.label == shot['label'])
        return templates.Demonstration(shot, pieces)

    def partial_scores(self, parts: base.ExampleOutputs) -> list[list[PartialScore]]:
        """Return the score of each answer, as far as known, for each set of demonstrations."""
        answers, length_index = self.answers.all, self.answers.lengths.index
        first, later = parts[: self.num_draws], iter(parts[self.num_draws :])
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
        for draw, partial_scores in enumerate(self.partial_scores(parts)):
            if not any(score.masks for score in partial_scores):
                continue
            prompts = dict(zip(self.answers.lengths, self._prompts(example, draw), strict=True))
            for answer, score in zip(self.answers.all, partial_scores, strict=True):
                if score.masks:
                    filled = sorted(set(range(len(answer.pieces))) - set(score.masks))
                    prompt = prompts[len(answer.pieces)].with_pieces(answer.pieces, filled)
                    items.append((self._sequence(prompt, targets),))
        return items

    def references(self) -> Sequence[PromptExample]:
        names = self.template.fields
        return [
            PromptExample(f'content-free {text!r}', names, (text,) * len(names), None)
            for text in CALIBRATIONS[self.settings.calibration].texts
        ]

    def describe_targets(
        self, tokens: Sequence[str], fields: Mapping[str, np.ndarray]
    ) -> JsonRecord:
        return {'label': self.setup.stored_label(fields['label'])}


def _fields(example: PromptExample) -> dict[str, str]:
    return dict(zip(example.names, example.fields, strict=True))
