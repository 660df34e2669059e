"""The fine-tuning problem of sentence embeddings: texts, their vectors, and a loss on a batch."""

import functools
import hashlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

import jax
import jax.numpy as jnp
import numpy as np
from ml_collections import ConfigDict

from bert_jax import averages, lazy_table
from bert_jax.averages import Term, Terms
from bert_jax.errors import UserError, unknown, warn
from bert_jax.examples.batch_orders import BatchOrder, PairsOfClasses, Stratified, WithoutCopies
from bert_jax.examples.finetune_batches import Item
from bert_jax.labels.examples import TextGroup
from bert_jax.models.model import HeadOptions
from bert_jax.models.pooling import POOLINGS
from bert_jax.models.rows import Rows
from bert_jax.problems import base, raw_input
from bert_jax.problems.classification import sequence
from bert_jax.problems.embedding import LOSSES, in_batch, make
from bert_jax.problems.embedding.base import EmbeddingLoss, LossOptions, VectorBatch, normalize
from bert_jax.problems.embedding.decoder import EmbeddingDecoder
from bert_jax.types import Array, Batch, JsonRecord, RecordView, Tree


class EmbeddingEncoding(base.Encoding[TextGroup]):
    """Each text of an example is an item of its own, so it may be in any row of the batch."""

    @functools.cached_property
    def embedding_loss(self) -> LossOptions:
        """The loss of the settings."""
        return make(self.settings)

    @classmethod
    def count_labels(cls, train: Sequence[TextGroup]) -> Counter[str]:
        return Counter(example.label for example in train if example.label)

    def keep(self, train: Sequence[TextGroup]) -> RecordView:
        """Check that the loss can learn from the examples; return the sizes of their fields."""
        loss = self.embedding_loss
        num_texts = max((len(example.texts) for example in train), default=0)
        num_scores = max((len(example.scores) for example in train), default=0)
        vector_size = max((len(one) for example in train for one in example.vectors), default=0)
        for example in train:
            if reason := self._why_unusable(example, num_texts, vector_size):
                raise UserError(f'example {example.id}: {reason}')
        if reason := loss.why_refused(train, self.tokenizer):
            raise UserError(reason)
        copies = loss.copies if num_texts == 1 else 1
        return {
            'pooling': self._pooling(),
            'similarity': self._similarity(),
            'group_size': num_texts * copies,
            'num_scores': num_scores if 'scores' in loss.reads else 0,
            'vector_size': vector_size if 'vectors' in loss.reads else 0,
            'batch_size': self.setup.batch_size,
        }

    def compared_by(self) -> str:
        """Return what trained vectors are compared by: 'cosine', or 'dot', the dot product.

        Shortened vectors (`problem.dimensions`) are normalized in training, so a dot product of
        them is a cosine.
        """
        return 'cosine' if self.settings.dimensions else self.embedding_loss.compared_by()

    def _similarity(self) -> str:
        """Return `compared_by`; warn if the folder in init_from says otherwise."""
        own = self.compared_by()
        given = self.setup.kept.get('modules', {}).get('similarity', own)
        if given != own:
            warn(
                f'init_from compares vectors by {given!r}, but this run trains with {own!r}; see '
                'problem.similarity and problem.loss'
            )
        return own

    def _pooling(self) -> str:
        """Return `problem.text_pooling`, or that of the folder in init_from.

        Raises:
            UserError: the folder computes vectors in a way that cannot be trained.
        """
        folder, is_causal = self.setup.kept.get('modules', {}), self.setup.is_causal
        modes = folder.get('pooling', ('lasttoken' if is_causal else 'mean',))
        if is_causal and 'cls' in (self.settings.text_pooling or modes):
            raise UserError(
                "the pooling is 'cls', the state of the first token, which has seen no other token "
                'of a text, because the model at init_from is causal; set problem.text_pooling to '
                "'lasttoken', 'mean' or 'max', or set init_attention='both'"
            )
        if self.tokenizer.is_cls_last and 'cls' in (self.settings.text_pooling or modes):
            raise UserError(
                "the pooling is 'cls', the state of the first token, but [CLS] is the last token "
                "of this tokenizer; set problem.text_pooling to 'lasttoken'"
            )
        if self.settings.text_pooling:
            return str(self.settings.text_pooling)
        if unsupported := folder.get('unsupported') or (len(modes) > 1 and 'several poolings'):
            raise UserError(
                f'modules.json of init_from has {unsupported}, which cannot be trained; set '
                'problem.text_pooling to train without it'
            )
        if modes[0] not in POOLINGS:
            raise unknown('pooling in modules.json of init_from', modes[0], POOLINGS)
        has_prompts = any(folder.get('prompts', {}).values())
        if has_prompts and not (self.settings.query_prompt or self.settings.document_prompt):
            warn(
                f'init_from was trained with the prompts {dict(folder["prompts"])}, which are not '
                'used; set problem.query_prompt and problem.document_prompt'
            )
        return str(modes[0])

    def _why_unusable(self, example: TextGroup, num_texts: int, vector_size: int) -> str:
        """Say why the loss cannot learn from an example; '' if it can."""
        loss, name = self.embedding_loss, f'problem.loss={self.settings.loss}'
        number, fewest, most = len(example.texts), loss.min_texts, loss.max_texts
        if number < fewest or (most is not None and number > most):
            texts = f'{number} text' + 's' * (number != 1)
            wanted = f'{fewest}' if fewest == most else f'at least {fewest}'
            return (
                f'{texts}, but {name} needs {wanted}; set data.columns.texts to their columns, or '
                'another problem.loss'
            )
        if number != num_texts and not loss.may_lack_texts:
            return (
                f'{number} texts, but other examples have {num_texts}; {name} needs the same '
                'number in all'
            )
        if example.is_ranked and 'scores' not in loss.reads:
            return (
                f'{number - 1} documents in one column, and only their scores say which of them '
                f'answer the query, but {name} does not read scores; put the others into a third '
                'column of data.columns.texts'
            )
        for field in loss.reads:
            if not getattr(example, field):
                return f'no {field}, but {name} needs them; set data.columns.{field}'
        if 'vectors' in loss.reads and (
            len(example.vectors) != number or {*map(len, example.vectors)} != {vector_size}
        ):
            return (
                f'give each of the {number} texts a vector of {vector_size} numbers in '
                'data.columns.vectors'
            )
        reason = loss.why_unusable(example)
        return reason and f'{reason} ({name})'

    def is_usable(self, example: TextGroup) -> bool:
        """Whether the loss can learn from an example with the fields of the train split."""
        kept = self.setup.kept
        sizes = (kept.get('group_size', 0), kept.get('vector_size', 0))
        return (
            len(example.texts) <= self.group_size
            and len(example.scores) >= kept.get('num_scores', 0)
            and not self._why_unusable(example, *sizes)
        )

    def batch_of(self, examples: Sequence[TextGroup], vectors: Sequence[np.ndarray]) -> VectorBatch:
        """Return the vectors of examples, [N, D] each, as a batch."""
        places = range(self.group_size)
        values = [[self._values(example, place) for place in places] for example in examples]

        def stack(name: str) -> np.ndarray:
            nothing = np.zeros(0, np.float32)
            return np.stack([[one.get(name, nothing) for one in own] for own in values])

        missing = [self.group_size - len(own_ND) for own_ND in vectors]
        padded = [
            np.pad(own_ND, [(0, number), (0, 0)])
            for own_ND, number in zip(vectors, missing, strict=True)
        ]
        return VectorBatch(
            jnp.stack(padded),
            stack('is_present'),
            stack('text_number'),
            stack('scores')[:, 0],
            stack('class')[:, 0],
            stack('teacher'),
        )

    @property
    def group_size(self) -> int:
        return int(self.setup.kept.get('group_size', 1))

    def batch_order(
        self, examples: Sequence[TextGroup], length_N: np.ndarray, batch_size: int, seed: int
    ) -> BatchOrder:
        """Compose batches as `problem.batches` says; see `base.Encoding.batch_order`."""
        fewest = self.embedding_loss.min_examples
        if min(batch_size, len(examples)) < fewest:
            raise UserError(
                f'a batch has {min(batch_size, len(examples))} examples, but problem.loss='
                f'{self.settings.loss} compares at least {fewest}; set a larger '
                'training.batch_size or give more training examples'
            )
        name = self.settings.batches or self.embedding_loss.batches
        if name == 'without_copies':
            texts_NK = np.array([self._text_numbers(example) for example in examples])
            return WithoutCopies(length_N, batch_size, seed, texts_NK)
        if name == 'pairs_of_classes':
            numbers = self.setup.label_numbers
            class_N = np.array([numbers.get(str(example.label), -1) for example in examples])
            return PairsOfClasses(length_N, batch_size, seed, class_N)
        return Stratified(length_N, batch_size, seed)

    def _text_numbers(self, example: TextGroup) -> list[int]:
        """The numbers of the texts of an example; the last one repeats for texts that it lacks."""
        padded = [*example.texts, *example.texts[-1:] * (self.group_size - len(example.texts))]
        return [int.from_bytes(text_hash(text).tobytes(), 'little') for text in padded]

    def parse_input(self, name: str, record: RecordView) -> TextGroup:
        return TextGroup(name, raw_input.require_texts(record, name))

    def encode(self, example: TextGroup) -> list[Item]:
        number = max(len(self._texts(example)), self.group_size)
        return [self._item(example, place) for place in range(number)]

    def _texts(self, example: TextGroup) -> tuple[str, ...]:
        """The texts of an example that are encoded, with copies."""
        single = len(example.texts) == 1
        return example.texts * (self.embedding_loss.copies if single else 1)

    def _item(self, example: TextGroup, place: int) -> Item:
        """Tokenize a text with its prompt; a text that an example lacks is empty."""
        texts = self._texts(example)
        is_query = place == 0 and len(example.texts) > 1
        prompt = self.settings.query_prompt if is_query else self.settings.document_prompt
        text = prompt + texts[place] if place < len(texts) else ''
        ids = self.tokenizer.encode_batch([text], special=True).ids
        return (sequence(self, ids, self._values(example, place)),)

    def _values(self, example: TextGroup, place: int) -> dict[str, Tree]:
        """The fields of a text of an example; see `VectorBatch`."""
        kept, texts = self.setup.kept, self._texts(example)
        is_present = place < len(texts)
        values: dict[str, Tree] = {
            'text_number': text_hash(texts[place] if is_present else ''),
            'is_present': np.bool_(is_present),
            'class': np.int32(self.setup.label_numbers.get(str(example.label), -1) + 1),
        }
        if size := kept.get('num_scores'):
            values['scores'] = _fit(example.scores, size)
        if size := kept.get('vector_size'):
            values['teacher'] = _fit(example.vectors[place : place + 1], size)
        return values

    def describe_targets(
        self, tokens: Sequence[str], fields: Mapping[str, np.ndarray]
    ) -> JsonRecord:
        number = int(fields['item_number']) - 1
        example, place = divmod(number, self.group_size)
        target: JsonRecord = {'example': example, 'place': place}
        if 'scores' in fields:
            target['scores'] = fields['scores'].tolist()
        if fields['class']:
            target['label'] = self.setup.stored_label(fields['class'])
        return target


def text_hash(text: str) -> np.ndarray:
    """Return 64 bits of a hash of a text, int32 [2]."""
    digest = hashlib.blake2b(text.encode('utf-8', 'surrogatepass'), digest_size=8).digest()
    return np.frombuffer(digest, np.int32)


def _fit(values: Sequence[float] | Sequence[Sequence[float]], size: int) -> np.ndarray:
    """Return the first `size` values, float32, filled up with 0."""
    given = np.array(values, np.float32).ravel()[:size]
    return np.pad(given, (0, size - len(given)))


class EmbeddingTraining(base.Loss):
    """Pools each text into a vector and applies the loss to the vectors of the whole batch."""

    weights = {'embedding': 1.0}
    reads_whole_batch = True
    encoding: EmbeddingEncoding

    def __post_init__(self) -> None:
        """Raise UserError for Matryoshka sizes and weights that do not belong together."""
        sizes, weights = self.settings.dimensions, self.settings.dimension_weights
        if weights and len(weights) != len(sizes):
            raise UserError(
                f'problem.dimension_weights has {len(weights)} values, but problem.dimensions has '
                f'{len(sizes)}; give one weight for each size, or leave them out'
            )

    def heads(self) -> Mapping[str, HeadOptions]:
        return {'embedding': {'pooling': self.setup.kept.get('pooling', 'mean')}}

    def outputs(self, heads: Mapping[str, Tree], rows: Rows) -> base.Outputs:
        """Return 'vectors', the pooled states, float32 [R, S, D]; not normalized."""
        return {'vectors': heads['embedding']}

    def terms(self, outputs: base.Outputs, batch: Batch) -> Terms:
        """Return the term 'embedding' and, for queries with documents, 'accuracy'.

        'accuracy' is the share of queries whose own document is the nearest of the batch.
        """
        vectors = self.collect(outputs['vectors'], batch)
        number = jnp.float32(len(vectors.vectors_BND))
        terms = {'embedding': Term(number * self.of_sizes(vectors), number)}
        if vectors.vectors_BND.shape[1] > 1:
            near = in_batch.accuracy(vectors, self.encoding.compared_by())
            terms['accuracy'] = Term(number * near, number)
        return terms

    def collect(self, vectors_RSD: jax.Array, batch: Batch) -> VectorBatch:
        """Order the vectors of the rows of a batch by example and text."""
        in_order = functools.partial(self.in_order, batch=batch)
        nothing = jnp.zeros((*batch['item_number'].shape, 0))
        return VectorBatch(
            in_order(vectors_RSD),
            in_order(batch['is_present']),
            in_order(batch['text_number']),
            in_order(batch.get('scores', nothing))[:, 0],
            in_order(batch['class'])[:, 0],
            in_order(batch.get('teacher', nothing)),
        )

    def in_order(self, values_RSX: Array, batch: Batch) -> jax.Array:
        """Order a value of each text of a batch by example and text: [B, N, …]; 0 for no text."""
        number_RS = jnp.asarray(batch['item_number'])
        group_size = self.encoding.group_size
        num_items = self.setup.batch_size * group_size
        values_XX = jnp.asarray(values_RSX).reshape(number_RS.size, *values_RSX.shape[2:])
        flat = jnp.zeros((num_items + 1, *values_XX.shape[1:]), values_XX.dtype)
        flat = flat.at[number_RS.ravel()].set(values_XX)[1:]  # 0: empty slots
        return flat.reshape(self.setup.batch_size, group_size, *values_XX.shape[1:])

    def of_sizes(self, batch: VectorBatch) -> jax.Array:
        """Return the loss; with Matryoshka sizes, the weighted sum of that of each size.

        A size is the first numbers of each vector, normalized again (Kusupati et al. 2022, section
        3); the vectors of a teacher are shortened alike.

        Raises:
            UserError: a size is larger than the vectors.
        """
        loss, sizes = self.encoding.embedding_loss, self.settings.dimensions
        assert isinstance(loss, EmbeddingLoss)
        if not sizes:
            return loss(batch)
        if max(sizes) > (largest := batch.vectors_BND.shape[-1]):
            raise UserError(
                f'problem.dimensions has {max(sizes)}, but the vectors of the model have '
                f'{largest} numbers'
            )
        weights = self.settings.dimension_weights or (1.0,) * len(sizes)
        losses = [
            weight
            * loss(
                batch._replace(
                    vectors_BND=normalize(batch.vectors_BND[..., :size]),
                    teacher_BNV=jnp.asarray(batch.teacher_BNV)[..., :size],
                )
            )
            for size, weight in zip(sizes, weights, strict=True)
        ]
        return jnp.sum(jnp.stack(losses))

    def held_out_terms(
        self, examples: Sequence[TextGroup], predictions: Sequence[np.ndarray]
    ) -> Terms:
        """Return the terms of batches of the size of training, in the order of the examples.

        A last batch that is too small for the loss is left out. Nothing for examples that the loss
        cannot learn from, for SimCSE, whose two passes do not differ without dropout, and for a
        model that was trained elsewhere, whose batches are unknown.
        """
        loss, size = self.encoding.embedding_loss, self.setup.kept.get('batch_size', 0)
        if not size or loss.copies > 1 or not all(map(self.encoding.is_usable, examples)):
            return {}
        terms: Terms = {}
        for first in range(0, len(examples), size):
            part = slice(first, first + size)
            if (number := len(examples[part])) >= loss.min_examples:
                batch = self.encoding.batch_of(examples[part], predictions[part])
                means = self._of_held_out(batch)
                count = jnp.float32(number)
                own = {name: Term(count * mean, count) for name, mean in means.items()}
                terms = averages.add(terms, own)
        return terms

    def weighted_values(self, batch: VectorBatch) -> dict[str, jax.Array]:
        """Return the values of the terms with a weight, for examples that are not trained."""
        return {'embedding': self.of_sizes(batch)}

    @functools.cached_property
    def _of_held_out(self) -> Callable[[VectorBatch], dict[str, jax.Array]]:
        return jax.jit(self.weighted_values)

    def host_outputs(self, outputs: base.Outputs, batch: Batch) -> base.HostOutputs:
        return base.HostOutputs({'vector': outputs['vectors']}, {})

    exported_outputs = host_outputs


class EmbeddingParts(base.Parts):
    """The parts of the problem. A loss names the class that computes it."""

    def loss_of(self, settings: ConfigDict) -> type[base.Loss]:
        computed_by: type[base.Loss] = lazy_table.load(LOSSES[settings.loss].training)
        return computed_by


EMBEDDING = EmbeddingParts(EmbeddingEncoding, EmbeddingTraining, EmbeddingDecoder)
