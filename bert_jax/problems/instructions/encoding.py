"""Conversations as rows of tokens: prompts, and answers that are learned."""

import functools
import zlib
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from bert_jax.errors import UserError
from bert_jax.examples.finetune_batches import Item, TokenSequence
from bert_jax.labels import conversations
from bert_jax.labels.conversations import Message
from bert_jax.labels.examples import ConversationExample
from bert_jax.labels.records import InvalidRecord
from bert_jax.problems import base, raw_input
from bert_jax.problems.instructions.turns import Turn, TurnTemplate
from bert_jax.types import JsonRecord, RecordView


class AnswerRow(NamedTuple):
    """A prompt and its answer.

    Attributes:
        prompt: int32, all tokens before the answer.
        answer: int32, with its end token unless it was cut.
        size: number of tokens that are learned: the answer and the end tokens that fill its place.
    """

    prompt: np.ndarray
    answer: np.ndarray
    size: int


class InstructionEncoding(base.Encoding[ConversationExample]):
    """Answers after their prompts.

    A causal model learns the answers of a conversation in one sequence. Masked diffusion has a
    sequence for each answer, because an answer sees everything in its row: the turns after it are
    not in its row, and those before it are given. With `problem.prefix_lm` a causal model has a
    sequence for each answer too.

    Fields of tokens: `is_answer`, 1 for the answer and its end. Of masked diffusion also `size`,
    the number of tokens in the place of the answer, 0 outside; and two random numbers, `draw` of
    each token and `level` of each sequence, which depend on its tokens alone.
    """

    def __post_init__(self) -> None:
        _ = self.template

    @functools.cached_property
    def template(self) -> TurnTemplate:
        """How turns are written."""
        return TurnTemplate(self.settings, self.tokenizer)

    @property
    def is_causal(self) -> bool:
        """Whether the model writes from left to right; else it unmasks."""
        return self.setup.is_causal

    @property
    def end_id(self) -> int:
        """The token that ends an answer."""
        return self.tokenizer.sep_id

    @property
    def _start(self) -> np.ndarray:
        """The tokens before the first turn: [CLS], if the model has one; int32 [0 or 1]."""
        return np.array([self.tokenizer.cls_id] * self.tokenizer.starts_texts, np.int32)

    def keep(self, train: Sequence[ConversationExample]) -> RecordView:
        if not self.is_causal and self.settings.prefix_lm:
            raise UserError(
                'problem.prefix_lm is for causal models; the model at init_from sees all positions '
                'anyway, so leave it out'
            )
        return {}

    def parse_input(self, name: str, record: RecordView) -> ConversationExample:
        """Read 'messages' or 'conversations', or 'prompt' (or 'text'); and 'system'."""
        try:
            if column := next((one for one in conversations.COLUMNS if one in record), ''):
                turns = conversations.read_messages(record[column], repr(column))
            else:
                key = 'text' if 'text' in record and 'prompt' not in record else 'prompt'
                turns = [Message('user', raw_input.require_text(record, name, key))]
            if 'system' in record:
                text = raw_input.require_text(record, name, 'system')
                turns = conversations.with_system(turns, text)
            return conversations.make_conversation(turns, name)
        except InvalidRecord as error:
            raise UserError(f'{name}: {error}') from None

    def encode(self, example: ConversationExample) -> list[Item]:
        turns = self._encode_turns(example)
        if self.is_causal and not self.settings.prefix_lm:
            ids, is_answer = self._tokens(turns)
            if len(ids) <= self.layout.max_length:
                return [(TokenSequence(ids, np.zeros_like(ids), {'is_answer': is_answer}, {}),)]
        places = [number for number, turn in enumerate(turns) if turn.is_learned]
        rows = [self._row(example, turns[: place + 1]) for place in places]
        if not rows:
            rows = [AnswerRow(self._prompt(example, turns, 0), np.zeros(0, np.int32), 0)]
        return [(self._sequence(row),) for row in rows]

    def prompt(self, example: ConversationExample, room: int) -> tuple[np.ndarray, int]:
        """Return the tokens before the next answer, and how many old turns were left out.

        Args:
            example: a conversation whose last turn is the user's.
            room: number of tokens for the answer.

        Raises:
            UserError: the last turn, with the system's, leaves no such room.
        """
        turns = self._encode_turns(example)
        kept, dropped = self._fit(example.roles, turns, self.layout.max_length - room)
        prompt = self._join(kept)
        if len(prompt) + room > self.layout.max_length:
            raise UserError(
                f'{example.id}: the prompt has {len(prompt)} tokens; with {room} for the answer it '
                f'exceeds the {self.layout.max_length} tokens of the training; shorten it, or set '
                'fewer new_tokens'
            )
        return prompt, dropped

    def place_size(self, prompt: np.ndarray) -> int:
        """Return the number of tokens that masked diffusion has for an answer after a prompt."""
        return min(self.settings.answer_tokens or 2**30, self.layout.max_length - len(prompt))

    def _encode_turns(self, example: ConversationExample) -> list[Turn]:
        turns = list(map(self.template.encode, example.roles, example.contents, example.is_learned))
        texts = (turn.before if turn.answer is None else turn.answer for turn in turns)
        has_unknown = any(self.tokenizer.is_unknown(ids).any() for ids in texts)
        self.setup.counts['conversations with tokens unknown to the vocabulary'] += has_unknown
        return turns

    def _tokens(self, turns: Sequence[Turn]) -> tuple[np.ndarray, np.ndarray]:
        """The tokens of turns, and 1 for those of learned answers and their ends; int32 [n]."""
        parts = [(self._start, 0)]
        for turn in turns:
            parts.append((turn.before, 0))
            if turn.answer is not None:
                parts.append((np.append(turn.answer, self.end_id), int(turn.is_learned)))
        ids = np.concatenate([part for part, _ in parts]).astype(np.int32)
        flags = [np.full(len(part), is_answer, np.int32) for part, is_answer in parts]
        return ids, np.concatenate(flags)

    def _join(self, turns: Sequence[Turn]) -> np.ndarray:
        """The tokens of turns and the marker of the next answer."""
        return np.concatenate([self._tokens(turns)[0], self.template.marker]).astype(np.int32)

    def _fit(
        self, roles: Sequence[str], turns: Sequence[Turn], room: int
    ) -> tuple[list[Turn], int]:
        """Leave out the turns before the next user's until the prompt fits, if it can."""
        first, kept, dropped = int(roles[0] == 'system'), list(turns), 0
        starts = [place for place in range(first + 1, len(turns)) if roles[place] == 'user']
        for start in starts:
            if len(self._join(kept)) <= room:
                break
            kept, dropped = [*turns[:first], *turns[start:]], start - first
        return kept, dropped

    def _prompt(
        self, example: ConversationExample, turns: Sequence[Turn], answer_size: int
    ) -> np.ndarray:
        """The tokens before an answer; a prompt that is too long is cut, which is counted."""
        longest, counts = self.layout.max_length, self.setup.counts
        room = longest - min(answer_size, longest // 2)
        kept, dropped = self._fit(example.roles, turns, longest - answer_size)
        counts['answers without the oldest turns before them, which do not fit'] += dropped > 0
        prompt = self._join(kept)
        if len(prompt) > room:
            counts[f'prompts cut to their last {room} tokens'] += 1
            prompt = np.concatenate([self._start, prompt[len(self._start) - room :]])
        return prompt

    def _row(self, example: ConversationExample, turns: Sequence[Turn]) -> AnswerRow:
        """The last answer of some turns; one that is too long is cut, which is counted."""
        answer = turns[-1].answer
        assert answer is not None
        answer = np.append(answer, np.int32(self.end_id))
        wanted = len(answer)
        if not self.is_causal:
            wanted = max(wanted, self.settings.answer_tokens)
        prompt = self._prompt(example, turns[:-1], wanted)
        room = self.layout.max_length - len(prompt)
        if not self.is_causal:
            room = self.place_size(prompt)
        if len(answer) > room:
            self.setup.counts['answers cut to fewer tokens, which do not end'] += 1
            answer = answer[:room]
        return AnswerRow(prompt, answer, len(answer) if self.is_causal else room)

    def _sequence(self, row: AnswerRow) -> TokenSequence:
        """The row with its fields, end tokens in the rest of the place of its answer."""
        rest = np.full(row.size - len(row.answer), self.end_id, np.int32)
        ids = np.concatenate([row.prompt, row.answer, rest]).astype(np.int32)
        place = np.arange(len(ids))
        is_inside = place >= len(row.prompt)
        is_answer = is_inside & (place < len(row.prompt) + len(row.answer))
        fields = {'is_answer': is_answer.astype(np.int32)}
        if not self.is_causal:
            level = np.uint32(zlib.crc32(ids.tobytes()))
            fields['size'] = np.where(is_inside, row.size, 0).astype(np.int32)
            fields['level'] = np.full(len(ids), level).view(np.int32)
            fields['draw'] = (level + np.arange(1, len(ids) + 1, dtype=np.uint32)).view(np.int32)
        return TokenSequence(ids, np.zeros_like(ids), fields, {})

    def describe_targets(
        self, tokens: Sequence[str], fields: Mapping[str, np.ndarray]
    ) -> JsonRecord:
        pairs = zip(tokens, fields['is_answer'].tolist(), strict=True)
        return {'answer': ' '.join(token for token, is_answer in pairs if is_answer)}
