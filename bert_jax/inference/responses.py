"""Answers of instruction-tuned models, written from left to right or by unmasking."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import cast

import numpy as np

from bert_jax.errors import UserError
from bert_jax.inference.causal_options import CausalOptions
from bert_jax.inference.generate_options import GENERATORS, GenerateOptions, Writer, find_stop
from bert_jax.inference.generation import write_after
from bert_jax.inference.unmasking import UnmaskingOptions, fill
from bert_jax.inference.watch import Shown
from bert_jax.labels.examples import ConversationExample
from bert_jax.problems.instructions.encoding import InstructionEncoding

_LEAST_SHARE = 4  # a prompt leaves 1 / _LEAST_SHARE of the sequence for the answer


@dataclasses.dataclass(frozen=True, eq=False)
class Responder:
    """Writes the next answer of conversations.

    Attributes:
        model: the model.
        encoding: how conversations were encoded in training.
        options: how tokens are chosen.
    """

    model: Writer
    encoding: InstructionEncoding
    options: GenerateOptions

    @classmethod
    def of(
        cls, model: Writer, encoding: InstructionEncoding, options: Mapping[str, object]
    ) -> 'Responder':
        """Read options of generation; by default the most probable tokens are written.

        Raises:
            UserError: an option that this kind of model does not have, or with a wrong value.
        """
        defaults: dict[str, object] = {'temperature': 0.0}
        longest = encoding.layout.max_length
        if encoding.is_causal:
            defaults['new_tokens'] = encoding.settings.answer_tokens or longest // 2
        read = GENERATORS['clm' if encoding.is_causal else 'mlm'].read({**defaults, **options})
        if read.new_tokens >= longest:
            raise UserError(
                f'new_tokens is {read.new_tokens}, but the model was trained on sequences of '
                f'{longest} tokens, prompts included; set fewer'
            )
        return cls(model, encoding, read)

    @property
    def _room(self) -> int:
        """The number of tokens that a prompt must leave for the answer."""
        longest = self.encoding.layout.max_length
        size = self.options.new_tokens or self.encoding.settings.answer_tokens
        return int(size or -(-longest // _LEAST_SHARE))

    def prompt(self, example: ConversationExample) -> tuple[np.ndarray, int]:
        """Return the tokens before the next answer, and how many old turns were left out.

        Raises:
            UserError: the last turn leaves no room for an answer.
        """
        return self.encoding.prompt(example, self._room)

    def respond(self, prompts: Sequence[np.ndarray]) -> list[str]:
        """Return the answers to prompts of token ids, int32 [T] each."""
        if not prompts:
            return []
        if isinstance(self.options, CausalOptions):
            results = write_after(self.model, prompts, self.options, self._answer_after)
            written = [result['ids'][: int(result['length'])] for result in results]
        else:
            rows = [self._hidden(prompt) for prompt in prompts]
            filled = fill(self.model, rows, self._unmasking, (self.encoding.end_id,))
            written = [
                result['ids'][: len(positions)]
                for result, (_, positions) in zip(filled, rows, strict=True)
            ]
        return list(map(self._text, written))

    def stream(self, prompt: np.ndarray, show: Callable[[str], object]) -> str:
        """Return the answer to a prompt; show its pieces while it is written.

        Unmasking shows the answer block by block (`block`), and ends after a block with the end.
        """
        if isinstance(self.options, CausalOptions):
            options = dataclasses.replace(self.options, stream=show)
            (result,) = write_after(self.model, [prompt], options, self._answer_after)
            return self._text(result['ids'][: int(result['length'])])
        shown = Shown(show, self.options.stop)
        ids, positions = self._hidden(prompt)
        size, steps = self._unmasking.block or len(positions), self._unmasking.steps
        steps = steps and -(-steps * size // len(positions))
        of_block = dataclasses.replace(self._unmasking, block=None, steps=steps)
        for first in range(0, len(positions), size):
            block = positions[first : first + size]
            (result,) = fill(self.model, [(ids, block)], of_block, (self.encoding.end_id,))
            ids[block] = result['ids'][: len(block)]
            written = ids[positions[: first + size]]
            if self.encoding.end_id in written:
                break
            shown.update(self._decode(written), is_final=False)
        text = self._text(written)
        shown.update(text, is_final=True)
        return text

    @property
    def _unmasking(self) -> UnmaskingOptions:
        return cast(UnmaskingOptions, self.options)

    def _hidden(self, prompt: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The row of a prompt with a place of [MASK] for its answer, and the positions of these."""
        size = self.options.new_tokens or self.encoding.place_size(prompt)
        mask_id = self.encoding.tokenizer.mask_id
        ids = np.append(prompt, np.full(size, mask_id, np.int32))
        return ids, np.arange(len(prompt), len(ids), dtype=np.int32)

    def _text(self, written: np.ndarray) -> str:
        """The text of written tokens before the first end and the first stop string."""
        text = self._decode(written)
        found = find_stop(text, self.options.stop, self.model.counts)
        is_open = self.encoding.end_id not in written and found is None
        self.model.counts['answers that did not end within the tokens that they had'] += is_open
        return text[:found]

    def _decode(self, written: np.ndarray) -> str:
        """The text of written tokens before the first end."""
        (ends,) = np.nonzero(written == self.encoding.end_id)
        return self.encoding.template.decode(written[: ends[0]] if len(ends) else written)

    def _answer_after(self, prompt: np.ndarray, written: np.ndarray) -> str:
        return self._decode(written)
