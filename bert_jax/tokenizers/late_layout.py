"""The tokens of queries and documents for late interaction, and which of them have a vector."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from bert_jax.errors import UserError
from bert_jax.models.late_interaction import LateInteraction
from bert_jax.tokenizers import Tokenizer
from bert_jax.tokenizers.special_token_layout import SpecialTokenLayout


class LateText(NamedTuple):
    """The tokens of a text, special tokens included.

    Attributes:
        ids: int32 [T].
        token_type_ids: int32 [T].
        num_attended: how many of the first tokens other tokens attend to.
        has_vector: bool [T].
        is_truncated: whether tokens were left out.
    """

    ids: np.ndarray
    token_type_ids: np.ndarray
    num_attended: int
    has_vector: np.ndarray
    is_truncated: bool


class LateLayout:
    """Lays out queries and documents (Khattab and Zaharia 2020, section 3.2).

    Documents: [CLS] prompt text [SEP]; tokens of `skip_words` have no vector. Queries that are
    shorter than `expansion` are filled up with [MASK], whose states are compared although, unless
    `attends`, no token attends to them.
    """

    def __init__(self, settings: LateInteraction, layout: SpecialTokenLayout):
        """Prepare the layout.

        Args:
            settings: which tokens have a vector.
            layout: special tokens around a text, and the length of the model.

        Raises:
            UserError: `query_length` is below `expansion`, the tokenizer lacks the token that fills
                up queries, or there is no room for a token of text.
        """
        check_lengths(settings)
        self._settings, self._layout, tokenizer = settings, layout, layout.tokenizer
        self._skipped = token_ids(tokenizer, settings.skip_words)[0]
        self._filler = _filler(tokenizer, settings.expansion_token) if settings.expansion else 0
        self._around = layout.max_length - layout.max_text_tokens(1)
        for is_query, name in ((True, 'query_length'), (False, 'document_length')):
            if (longest := self.longest(is_query)) <= self._around:
                raise UserError(
                    f'{name} is {longest}, but a text has {self._around} special tokens; set it to '
                    f'at least {self._around + 1}'
                )

    def longest(self, is_query: bool) -> int:
        """Return the tokens of the longest query or document."""
        return self._settings.longest(is_query, self._layout.max_length)

    def lay_out(self, ids: np.ndarray, is_query: bool) -> LateText:
        """Lay out a text, given as the ids of its prompt and its tokens."""
        room = self.longest(is_query) - self._around
        laid_out = self._layout.lay_out(ids[:room])
        number = len(laid_out.ids)
        missing = max(self._settings.expansion - number, 0) if is_query else 0
        row = np.pad(laid_out.ids, (0, missing), constant_values=self._filler)
        types = np.pad(laid_out.token_type_ids, (0, missing))
        has_vector = np.ones(len(row), bool)
        if not is_query or self._settings.skips_in_queries:
            has_vector = ~np.isin(row, self._skipped)
        attended = len(row) if self._settings.attends else number
        return LateText(row, types, attended, has_vector, len(ids) > room)


def check_lengths(settings: LateInteraction) -> None:
    """Raise UserError if queries are filled up beyond the length to which they are truncated."""
    length, expansion = settings.query_length, settings.expansion
    if length is not None and length < expansion:
        raise UserError(
            f'query_length is {length}, but queries are filled up to {expansion} tokens '
            f'(expansion); set query_length to at least {expansion}, or a smaller expansion'
        )


def token_ids(tokenizer: Tokenizer, words: Sequence[str]) -> tuple[np.ndarray, list[str]]:
    """Return the ids of those words that are tokens, int32, and the other words."""
    numbers = {token: number for number, token in enumerate(tokenizer.vocab)}
    known = [numbers[word] for word in words if word in numbers]
    return np.array(known, np.int32), [word for word in words if word not in numbers]


def _filler(tokenizer: Tokenizer, token: str) -> int:
    """Return the id of the token that fills up queries. Raises UserError if there is none."""
    if not token:
        return tokenizer.role_ids.get('mask', tokenizer.sep_id)
    found, unknown = token_ids(tokenizer, [token])
    if unknown:
        raise UserError(
            f'expansion_token is {token!r}, which is no token of the vocabulary; name one that is, '
            "such as '[MASK]'"
        )
    return int(found[0])
