"""Prefix prompts: templates whose answer follows the text, for causal models.

'{text} It was [MASK]' has the answer at its end. Whitespace after [MASK] is what separates answered
examples that come before the text (Brown et al. 2020, arXiv 2005.14165, section 2), by default a
line feed.
"""

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np

from bert_jax.errors import UserError
from bert_jax.problems.prompting.templates import (
    MASK,
    SEPARATOR,
    Demonstration,
    FilledTemplate,
    Template,
    encode_segment,
    truncate_segments,
)
from bert_jax.tokenizers.special_token_layout import SpecialTokenLayout


class PrefixTemplate(Template):
    """A template that ends with its answer; see `Template`."""

    def __init__(self, source: str, name: str = 'problem.template') -> None:
        """Parse a template.

        Raises:
            UserError: as for `Template`, text after [MASK], or a [SEP].
        """
        super().__init__(source, name)
        before, _, after = source.partition(MASK)
        if after.strip() or SEPARATOR in source:
            what = f'{SEPARATOR}' if SEPARATOR in source else f'{after.strip()!r} after {MASK}'
            raise UserError(
                f'{name} is {source!r}, which has {what}; a causal model writes the answer, so end '
                f'the template with {MASK}'
            )
        self._before = self.parse(before.rstrip() if self.is_spaced else before)
        self._between = after or '\n'

    def fill(
        self,
        values: Mapping[str, str],
        layout: SpecialTokenLayout,
        num_masks: Sequence[int],
        counts: Counter[str],
        demonstrations: Sequence[Demonstration] = (),
    ) -> list[FilledTemplate]:
        """Return the prompt with each number of tokens for its answer; see `Template.fill`.

        The answered examples come before the prompt. An answer has padding tokens as its masks.
        """
        tokenizer, segments = layout.tokenizer, []
        for shown, pieces in demonstrations:
            segment = encode_segment(self._before, shown, tokenizer)
            segments += [
                segment.followed_by(pieces),
                encode_segment([self._between], {}, tokenizer),
            ]
        segments.append(encode_segment(self._before, values, tokenizer))
        start = [tokenizer.cls_id] if tokenizer.starts_texts else []
        room = layout.max_length - len(start) - num_masks[-1]
        segments = truncate_segments(segments, room, layout.max_length, counts)
        prompt = np.concatenate([start, *(segment.ids for segment in segments)]).astype(np.int32)
        return [_with_answer(prompt, number, tokenizer.pad_id) for number in num_masks]


def _with_answer(prompt: np.ndarray, num_tokens: int, pad_id: int) -> FilledTemplate:
    slots = np.append(np.zeros(len(prompt), np.int32), np.arange(1, num_tokens + 1, dtype=np.int32))
    ids = np.append(prompt, np.full(num_tokens, pad_id, np.int32))
    return FilledTemplate(ids, np.zeros(len(ids), np.int32), slots)
