"""The fine-tuning problem of late interaction (ColBERT): a vector for each token of a text."""

import functools
import string
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from bert_jax import schema
from bert_jax.averages import Term, Terms
from bert_jax.errors import UserError
from bert_jax.examples.finetune_batches import Item, TokenSequence
from bert_jax.labels.examples import TextGroup
from bert_jax.models.late_interaction import LateInteraction, TokenVectors
from bert_jax.models.model import HeadOptions
from bert_jax.models.rows import Rows
from bert_jax.problems import base, late_interaction
from bert_jax.problems.embedding.problem import EmbeddingEncoding, EmbeddingTraining
from bert_jax.problems.late_interaction.decoder import LateDecoder
from bert_jax.problems.late_interaction.losses import LateBatch, LateLoss
from bert_jax.tokenizers.late_layout import LateLayout, token_ids
from bert_jax.types import Array, Batch, JsonView, Tree

_SIZE = 128  # of vectors, as in ColBERT
# Keys of `problem` that are fields of LateInteraction; unset, they are as in the folder.
_FIELDS = ('query_length', 'document_length', 'expansion', 'attends', 'pool_factor')


class LateEncoding(EmbeddingEncoding):
    """Each text of an example is an item of its own, with its prompt and the tokens of its side."""

    @functools.cached_property
    def embedding_loss(self) -> LateLoss:
        return late_interaction.make(self.settings)

    @functools.cached_property
    def late(self) -> LateInteraction:
        """Which tokens have a vector."""
        kept = schema.convert(LateInteraction, self.setup.kept['late'], 'kept.late')
        assert isinstance(kept, LateInteraction)
        return kept

    @functools.cached_property
    def late_layout(self) -> LateLayout:
        """Lays out queries and documents."""
        return LateLayout(self.late, self.layout)

    def keep(self, train: Sequence[TextGroup]) -> JsonView:
        """Also keep which tokens have a vector: `problem`, or as the folder in init_from says."""
        folder, late = self.setup.kept.get('modules', {}), self._resolve()
        LateLayout(late, self.layout)  # raises for lengths that do not fit
        return {
            **super().keep(train),
            'late': late._asdict(),
            'prompts': self._prompts(),
            'token_vector_size': self._size(folder),
        }

    def compared_by(self) -> str:
        return self.embedding_loss.compared_by()

    def _pooling(self) -> str:
        return 'tokens'  # of EmbeddingEncoding.keep; nothing is pooled

    def _size(self, folder: Mapping[str, Any]) -> int:
        """Return the numbers of a vector, which a trained projection has already."""
        wanted, found = self.settings.vector_size, folder.get('token_vector_size')
        if folder.get('late') and (reason := folder.get('unsupported')):
            raise UserError(f'modules.json of init_from has {reason}, which cannot be trained')
        if found is not None and wanted not in (0, found):
            raise UserError(
                f'problem.vector_size is {wanted}, but vectors of init_from have {found} numbers; '
                'leave problem.vector_size out'
            )
        return int(found if found is not None else wanted or _SIZE)

    def _resolve(self) -> LateInteraction:
        """Return `problem`, completed from the folder in init_from.

        Raises:
            UserError: a word to skip is no token of the vocabulary.
        """
        settings = self.settings
        folder = LateInteraction(**self.setup.kept.get('modules', {}).get('late', {}))
        given = {name: settings[name] for name in _FIELDS if settings[name] is not None}
        words = folder.skip_words if settings.skip_punctuation is None else ()
        if settings.skip_punctuation:
            punctuation = [*string.punctuation]
            unknown = token_ids(self.tokenizer, punctuation)[1]
            words = tuple(word for word in punctuation if word not in unknown)
        if unknown := token_ids(self.tokenizer, settings.skip_words)[1]:
            raise UserError(
                f'problem.skip_words has {unknown[0]!r}, which is not a token of the vocabulary; '
                'leave it out, or write it as the tokenizer does'
            )
        words = tuple(dict.fromkeys((*words, *settings.skip_words)))
        return folder._replace(**given, skip_words=words)

    def _prompts(self) -> dict[str, str]:
        """Return the prompts of queries and documents: `problem`, or those of the folder."""
        folder = self.setup.kept.get('modules', {}).get('prompts', {})
        given = {name: self.settings[f'{name}_prompt'] for name in ('query', 'document')}
        return {
            name: folder.get(name, '') if prompt is None else prompt
            for name, prompt in given.items()
        }

    def _item(self, example: TextGroup, place: int) -> Item:
        """Lay out a text with its prompt; a text that an example lacks is empty."""
        texts, is_query = self._texts(example), place == 0
        is_present = place < len(texts)
        prompt = self.setup.kept['prompts']['query' if is_query else 'document']
        (ids,) = self.tokenizer.encode_batch(
            [prompt + texts[place] if is_present else ''], special=True
        ).ids
        text = self.late_layout.lay_out(ids, is_query)
        longest = self.late_layout.longest(is_query)
        self.setup.counts[f'texts truncated to {longest} tokens'] += text.is_truncated
        is_attended = np.arange(len(text.ids)) < text.num_attended
        tokens = {
            'attention_mask': is_attended.astype(np.int32),
            'has_vector': text.has_vector & is_present,
        }
        values = self._values(example, place) | {'num_tokens': np.int32(len(text.ids))}
        return (TokenSequence(text.ids, text.token_type_ids, tokens, values),)

    def batch_of(  # type: ignore[override]
        self, examples: Sequence[TextGroup], vectors: Sequence[Sequence[np.ndarray]]
    ) -> LateBatch:
        """Return the vectors of the tokens of examples, [T, E] for each text, as a batch."""
        places = range(self.group_size)
        values = [[self._values(example, place) for place in places] for example in examples]

        def stack(name: str) -> np.ndarray:
            nothing = np.zeros(0, np.float32)
            return np.stack([[one.get(name, nothing) for one in own] for own in values])

        def pad(texts: Sequence[np.ndarray], is_query: bool) -> TokenVectors:
            number = self.late_layout.longest(is_query)
            size = vectors[0][0].shape[-1]
            padded = np.zeros((len(texts), number, size), np.float32)
            has_vector = np.zeros(padded.shape[:2], bool)
            for row, own_TE in enumerate(texts):
                padded[row, : len(own_TE)], has_vector[row, : len(own_TE)] = own_TE, True
            return TokenVectors(jnp.asarray(padded), jnp.asarray(has_vector))

        nothing = np.zeros((0, vectors[0][0].shape[-1]), np.float32)
        missing = [[nothing] * (self.group_size - len(own)) for own in vectors]
        rest = [
            one for own, fill in zip(vectors, missing, strict=True) for one in (*own[1:], *fill)
        ]
        flat = pad(rest, False)
        shape = (len(examples), self.group_size - 1)
        documents = TokenVectors(*(one.reshape(*shape, *one.shape[1:]) for one in flat))
        return LateBatch(
            pad([own[0] for own in vectors], True),
            documents,
            stack('is_present'),
            stack('text_number'),
            stack('scores')[:, 0],
        )


class LateTraining(EmbeddingTraining):
    """A loss on the vectors of the tokens of the whole batch."""

    encoding: LateEncoding
    weights = {'late_interaction': 1.0}

    def __post_init__(self) -> None:
        """Take any settings; those of `EmbeddingTraining` are not keys of this problem."""

    def heads(self) -> Mapping[str, HeadOptions]:
        return {'late_interaction': {'size': self.setup.kept.get('token_vector_size', _SIZE)}}

    def outputs(self, heads: Mapping[str, Tree], rows: Rows) -> base.Outputs:
        """Return 'vectors' of all positions, float32 [R, T, E], with the norm 1."""
        return {'vectors': heads['late_interaction']}

    def terms(self, outputs: base.Outputs, batch: Batch) -> Terms:
        """Return the term 'late_interaction', and 'accuracy', as for dense vectors."""
        collected = self.collect_tokens(outputs['vectors'], batch)
        number = jnp.float32(len(collected.is_present_BN))
        loss = self.encoding.embedding_loss
        return {
            'late_interaction': Term(number * loss(collected), number),
            'accuracy': Term(number * jax.lax.stop_gradient(loss.accuracy(collected)), number),
        }

    def collect_tokens(self, vectors_RTE: jax.Array, batch: Batch) -> LateBatch:
        """Order the vectors of the tokens of the rows of a batch by example and text."""
        num_rows, length = vectors_RTE.shape[:2]
        first_RS = jnp.maximum(jnp.asarray(batch['first_positions']), 0)
        first_RS = first_RS + length * jnp.arange(num_rows)[:, None]
        flat_XE = vectors_RTE.reshape(num_rows * length, -1)
        has_vector_X = jnp.asarray(batch['has_vector']).ravel()
        order = functools.partial(self.in_order, batch=batch)
        first_BN, count_BN = order(first_RS), order(batch['num_tokens'])

        def of(first_X: jax.Array, count_X: jax.Array, is_query: bool) -> TokenVectors:
            number_T = jnp.arange(min(self.encoding.late_layout.longest(is_query), length))
            is_inside_XT = number_T < count_X[..., None]
            place_XT = jnp.where(is_inside_XT, first_X[..., None] + number_T, 0)
            has_vector_XT = has_vector_X[place_XT] & is_inside_XT
            vectors_XTE = jnp.where(has_vector_XT[..., None], flat_XE[place_XT], 0)
            return TokenVectors(vectors_XTE, has_vector_XT)

        nothing: Array = jnp.zeros((*first_RS.shape, 0))
        return LateBatch(
            of(first_BN[:, 0], count_BN[:, 0], True),
            of(first_BN[:, 1:], count_BN[:, 1:], False),
            order(batch['is_present']),
            order(batch['text_number']),
            order(batch.get('scores', nothing))[:, 0],
        )

    def weighted_values(self, batch: LateBatch) -> dict[str, jax.Array]:  # type: ignore[override]
        """Return the values of the terms with a weight, for examples that are not trained."""
        return {'late_interaction': self.encoding.embedding_loss(batch)}

    def host_outputs(self, outputs: base.Outputs, batch: Batch) -> base.HostOutputs:
        return base.HostOutputs(
            {}, {'vectors': outputs['vectors'], 'has_vector': batch['has_vector']}
        )

    def compact(self, values: Mapping[str, np.ndarray]) -> Mapping[str, np.ndarray]:
        """Keep the vectors of the tokens that have one."""
        return {'vectors': values['vectors'][values['has_vector'].astype(bool)]}

    def exported_outputs(self, outputs: base.Outputs, batch: Batch) -> base.HostOutputs:
        """Return the vectors of all positions, [R, T, E]."""
        return base.HostOutputs({}, {'vectors': outputs['vectors']})


LATE_INTERACTION = base.Parts(LateEncoding, LateTraining, LateDecoder)
