"""Rows of a source text and its target, for causal models and for models with a decoder.

A causal model reads [CLS] source [SEP] target [SEP] in one sequence and learns the tokens after the
first [SEP]; [CLS] is there if texts of its tokenizer start with one. A model with a decoder reads
[CLS] source [SEP] in its encoder and learns target [SEP] in its decoder, or [CLS] target [SEP] if
the decoder starts with [SEP], as in BART. With mBART, the encoder reads source </s> [en], and the
decoder starts with the language of the target and learns target </s>.
"""

import functools
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from bert_jax.errors import UserError, unknown
from bert_jax.examples.finetune_batches import Item, TokenSequence
from bert_jax.labels.examples import TargetExample
from bert_jax.metrics import written_texts
from bert_jax.problems import base, raw_input
from bert_jax.problems.generation import templates
from bert_jax.problems.prompting.templates import encode_segment, truncate_segments
from bert_jax.types import JsonRecord, RecordView

_MULTIPLE = 8  # the length of targets in a decoder is a multiple, so that few shapes are compiled


class TargetEncoding(base.Encoding[TargetExample]):
    """A source text, or a pair in a template, and the target to write."""

    def __post_init__(self) -> None:
        written_texts.check(self.settings.metrics)
        if self.settings.min_new_tokens > self.settings.target_tokens:
            raise UserError(
                f'problem.min_new_tokens is {self.settings.min_new_tokens}; it must be at most '
                f'problem.target_tokens, {self.settings.target_tokens}'
            )
        self._check_languages()
        if self.is_causal and self.max_source_tokens < 1:
            raise UserError(
                f'problem.target_tokens is {self.settings.target_tokens}, which leaves no room for '
                f'a source in the {self.layout.max_length} tokens of a sequence; lower it, or '
                'raise training.sequence_length'
            )
        _ = self.pattern

    def _check_languages(self) -> None:
        """Raise UserError if a language is missing, unknown, or has no effect."""
        known = self.tokenizer.language_ids
        for name in ('source_language', 'target_language'):
            language = self.settings[name]
            if self._start != 'language':
                if language:
                    raise UserError(
                        f'problem.{name} is {language!r}, but the texts of the model have no token '
                        'of a language, as those of mBART have; leave it out'
                    )
            elif not language and name == 'source_language' and self.tokenizer.suffix_ids:
                continue
            elif language not in known:
                raise unknown(f'problem.{name}', language, known)

    @property
    def is_causal(self) -> bool:
        """Whether source and target are one sequence, read from left to right."""
        return self.setup.is_causal

    @property
    def _start(self) -> str | None:
        """The role of the token that a decoder starts with; None: there is no decoder."""
        return None if self.is_causal else self.setup.kept.get('decoder_start')

    @property
    def start_id(self) -> int:
        """The token that a decoder reads before the first token of a target."""
        assert self._start is not None
        if self._start == 'language':
            return self.tokenizer.language_ids[self.settings.target_language]
        return self.tokenizer.role_ids[self._start]

    @property
    def first_ids(self) -> list[int]:
        """The tokens that every target of a decoder begins with: [CLS] in BART, else none."""
        is_bart = self._start == 'sep' and self.tokenizer.starts_texts
        return [self.tokenizer.cls_id] if is_bart else []

    @property
    def source_end(self) -> list[int]:
        """The tokens that end a source: [SEP], and in mBART a language."""
        if self._start != 'language':
            return [self.tokenizer.sep_id]
        language = self.settings.source_language
        after = [self.tokenizer.language_ids[language]] if language else self.tokenizer.suffix_ids
        return [self.tokenizer.sep_id, *after]

    @property
    def forces_end(self) -> bool:
        """Whether the last token of the longest text is always [SEP] (BART, mBART)."""
        return self._start in ('sep', 'language')

    @functools.cached_property
    def pattern(self) -> str:
        """The pattern of the source text."""
        return templates.pattern_of(self.settings.template)

    @property
    def target_slots(self) -> int:
        """Number of tokens of each target in a decoder: that of the longest one in training."""
        return int(self.setup.kept.get('target_slots', self.settings.target_tokens))

    @property
    def max_source_tokens(self) -> int:
        """Number of tokens of a source text that fit, without special tokens."""
        target = self.settings.target_tokens if self.is_causal else 0
        around = len(self.source_end) + self.tokenizer.starts_texts
        return int(self.layout.max_length - target - around)

    def keep(self, train: Sequence[TargetExample]) -> RecordView:
        """Keep the first token of a decoder, and the number of tokens of the longest target."""
        kept = {'decoder_start': self.setup.kept.get('decoder_start')}
        if self.is_causal or not train:
            return kept
        longest = max(len(self._target_ids(example)) for example in train)
        longest = min(longest, self.settings.target_tokens)
        return kept | {'target_slots': -(-longest // _MULTIPLE) * _MULTIPLE}

    def parse_input(self, name: str, record: RecordView) -> TargetExample:
        """Read 'text' and, for templates of pairs, 'text2'."""
        return TargetExample(name, raw_input.require_texts(record, name), None)

    def source_ids(self, example: TargetExample) -> np.ndarray:
        """Return the tokens that the model reads before it writes, int32 [n]."""
        values = templates.values_of(self.pattern, example.texts, example.id)
        text = templates.fill(self.pattern, values)
        counts, room = self.setup.counts, self.max_source_tokens
        (ids,) = self.tokenizer.encode_batch([text], special=True).ids
        if len(ids) > room:
            counts['truncated sources'] += 1
            ids = self._truncated(values, room)
        has_unknown = self.tokenizer.is_unknown(ids).any()
        counts['sources with characters unknown to the vocabulary'] += int(has_unknown)
        start = [self.tokenizer.cls_id] if self.tokenizer.starts_texts else []
        return np.array([*start, *ids, *self.source_end], np.int32)

    def _truncated(self, values: Mapping[str, str], room: int) -> np.ndarray:
        """The tokens of a source whose longest texts lose their ends, int32 [room]."""
        parts = templates.parse(self.pattern)
        segment = encode_segment(parts, values, self.tokenizer, special=True)
        (cut,) = truncate_segments([segment], room, self.layout.max_length, Counter())
        return cut.ids

    def target_text(self, text: str, example: object) -> str:
        """Return a target or reference as it is learned and scored."""
        step = self.settings.round_numbers
        return templates.round_number(text, step, example) if step else text

    def target_ids(self, example: TargetExample) -> np.ndarray:
        """Return the tokens of the first target with [SEP], int32 [n]; [] if it is unknown.

        Raises:
            UserError: the target has no token.
        """
        ids, counts = self._target_ids(example), self.setup.counts
        has_unknown = self.tokenizer.is_unknown(ids).any()
        counts['targets with characters unknown to the vocabulary'] += int(has_unknown)
        ends_early = self.tokenizer.sep_id in ids[:-1].tolist()
        counts['targets with the token that ends a text inside'] += ends_early
        longest = self.settings.target_tokens
        counts['truncated targets (problem.target_tokens)'] += len(ids) > longest
        if len(ids) > longest:
            ids = np.append(ids[: longest - 1], np.int32(self.tokenizer.sep_id))
        return ids

    def _target_ids(self, example: TargetExample) -> np.ndarray:
        """The tokens of the first target, however many they are; see `target_ids`."""
        if not example.targets:
            return np.zeros(0, np.int32)
        text = self.target_text(example.targets[0], example.id)
        (ids,) = self.tokenizer.encode_batch([text], special=True).ids
        end = self.tokenizer.sep_id
        if ids[-1:].tolist() == [end]:  # the target itself has written the end
            ids = ids[:-1]
        if not len(ids):
            raise UserError(
                f'example {example.id}: the target {text!r:.40} has no token; correct or remove it'
            )
        return np.array([*self.first_ids, *ids, end], np.int32)

    def encode(self, example: TargetExample) -> list[Item]:
        """Make one sequence.

        Causal: 'is_target', int32 [n], is 1 at the tokens to learn. With a decoder: 'target_ids',
        int32 [U], the tokens to learn and padding, and 'target_length'.
        """
        source, target = self.source_ids(example), self.target_ids(example)
        if self.is_causal:
            ids = np.concatenate([source, target]).astype(np.int32)
            is_target = (np.arange(len(ids)) >= len(source)).astype(np.int32)
            return [(TokenSequence(ids, np.zeros_like(ids), {'is_target': is_target}, {}),)]
        target = target[: self.target_slots]
        padded = np.full(self.target_slots, self.tokenizer.pad_id, np.int32)
        padded[: len(target)] = target
        values: dict[str, Any] = {
            'target_ids': padded,
            'target_length': np.int32(len(target)),
        }
        return [(TokenSequence(source, np.zeros_like(source), {}, values),)]

    def describe_targets(
        self, tokens: Sequence[str], fields: Mapping[str, np.ndarray]
    ) -> JsonRecord:
        """Return the tokens to write."""
        if self.is_causal:
            places = np.flatnonzero(fields['is_target']).tolist()
            return {'target': [tokens[place] for place in places]}
        ids = fields['target_ids'][: int(fields['target_length'])]
        return {'target': [self.tokenizer.vocab[index] for index in ids]}
