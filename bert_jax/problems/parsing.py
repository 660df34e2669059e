"""Dependency parsing: the head of every word and its relation, as a tree with one root."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from bert_jax.averages import Term, Terms, weighted_sum
from bert_jax.errors import UserError
from bert_jax.examples.finetune_batches import Item, TokenSequence
from bert_jax.labels import word_spans
from bert_jax.labels.examples import ParsedExample
from bert_jax.metrics import attachment
from bert_jax.metrics.intervals import RowScore
from bert_jax.metrics.scores import Scores
from bert_jax.models.heads.biaffine import WORD, ArcScores, is_root
from bert_jax.models.model import HeadOptions
from bert_jax.models.rows import Rows
from bert_jax.problems import base, raw_input
from bert_jax.problems.spanning_tree import best_tree
from bert_jax.tokenizers.alignment import align
from bert_jax.types import Batch, JsonRecord, RecordView, Tree

_CONTINUATION = 1  # value of the field `word` at a token after the first one of a word


class PredictedTree(NamedTuple):
    """The predicted tree of W words; None for words beyond the length of a sequence.

    Attributes:
        heads: number of each word's head, from 1; 0 for the root.
        relations: relation of each word to its head.
        probabilities: of the head and of the relation, given the head.
    """

    heads: list[int | None]
    relations: list[str | None]
    probabilities: list[tuple[float, float] | None]


class ParseEncoding(base.Encoding[ParsedExample]):
    """A tree over the words of a sentence."""

    @classmethod
    def count_labels(cls, train: Sequence[ParsedExample]) -> Counter[str]:
        return Counter(relation for example in train for relation in example.relations or ())

    def keep(self, train: Sequence[ParsedExample]) -> RecordView:
        """Choose how plain text is split into words, and keep which relations the root has."""
        pairs = [
            (head == 0, relation)
            for example in train
            for head, relation in zip(example.heads or (), example.relations or (), strict=True)
        ]
        return {
            'splitter': word_spans.closest_splitter(train),
            'of_root': sorted({relation for is_root, relation in pairs if is_root}),
            'of_words': sorted({relation for is_root, relation in pairs if not is_root}),
        }

    def parse_input(self, name: str, record: RecordView) -> ParsedExample:
        """Read 'words', 'tokens' or 'text' (see `require_words`), or 'text' and 'spans'."""
        if 'spans' not in record:
            text, words = raw_input.require_words(record, name, self.setup.splitter)
            return ParsedExample(name, text, words, None, None)
        text = raw_input.require_text(record, name, 'text')
        spans = raw_input.require(record, name, 'spans')
        is_pair = (isinstance(span, list) and len(span) == 2 for span in spans)
        if not isinstance(spans, list) or not all(is_pair):
            raise UserError(f"{name}: 'spans' is not a list of [start, end], in characters")
        return ParsedExample(name, text, tuple((int(a), int(b)) for a, b in spans), None, None)

    def encode(self, example: ParsedExample) -> list[Item]:
        """Make one sequence; words that do not fit have no prediction, and are counted.

        Fields of tokens: 'word' (WORD at the first token of a word), 'head_offset', from the
        first token of a word to that of its head ([CLS] for the root; 0: unknown), and 'relation',
        its number + 1 (0: unknown).
        """
        aligned = align(self.tokenizer, example.text, example.words)
        counts = self.setup.counts
        counts['words tokenized separately'] += aligned.num_splits
        counts['words encoded as unknown token'] += aligned.num_dropped
        points = [p for p in aligned.split_points(self.room) if p <= self.room]
        ids = aligned.ids[: max(points, default=0)]
        is_word_W = aligned.first < len(ids)
        counts['words beyond the sequence length'] += int((~is_word_W).sum())
        laid_out = self.layout.lay_out(ids)
        start, size = laid_out.starts[0], len(laid_out.ids)
        fields = {name: np.zeros(size, np.int32) for name in ('word', 'head_offset', 'relation')}
        inside_N = aligned.words[: len(ids)] >= 0
        fields['word'][start : start + len(ids)] = _CONTINUATION * inside_N
        first_W = aligned.first + start
        fields['word'][first_W[is_word_W]] = WORD
        for word, (head, relation) in enumerate(
            zip(example.heads or (), example.relations or (), strict=True)
        ):
            if is_word_W[word] and (head == 0 or is_word_W[head - 1]):
                place = first_W[word]
                fields['head_offset'][place] = (first_W[head - 1] if head else 0) - place
                number = self.setup.label_numbers.get(relation, -1)
                fields['relation'][place] = number + 1
                counts['relations that no label names'] += number < 0
        return [(TokenSequence(laid_out.ids, laid_out.token_type_ids, fields, {}),)]

    @property
    def room(self) -> int:
        """Number of tokens of a sentence."""
        return self.layout.max_text_tokens(1)

    def describe_targets(
        self, tokens: Sequence[str], fields: Mapping[str, np.ndarray]
    ) -> JsonRecord:
        """Return 'arcs', the token, the token of its head, and the relation of each word."""
        return {
            'arcs': [
                [tokens[place], tokens[place + offset], self.setup.stored_label(relation)]
                for place, (offset, relation) in enumerate(
                    zip(fields['head_offset'].tolist(), fields['relation'].tolist(), strict=True)
                )
                if offset
            ]
        }


class ParseLoss(base.Loss):
    """Cross-entropy of the head of each word, and of the relation to its gold head."""

    weights = {'arcs': 1.0, 'relations': 1.0}

    def heads(self) -> Mapping[str, HeadOptions]:
        widths = {name: self.settings[name] for name in ('arc_width', 'relation_width')}
        return {'biaffine': {'num_labels': len(self.labels), **widths}}

    def outputs(self, heads: Mapping[str, Tree], rows: Rows) -> base.Outputs:
        """Return 'scores', `ArcScores`, and 'is_root', bool [R, T, U]."""
        return {'scores': heads['biaffine'], 'is_root': is_root(rows)}

    def terms(self, outputs: base.Outputs, batch: Batch) -> Terms:
        """Return the losses 'arcs' and 'relations', and 'uas', without the search for a tree."""
        scores: ArcScores = outputs['scores']
        offset_RT, relation_RT = map(jnp.asarray, (batch['head_offset'], batch['relation']))
        has_head_RT = offset_RT != 0
        head_RT = jnp.arange(offset_RT.shape[1]) + offset_RT
        log_p_RTU = jax.nn.log_softmax(scores.arcs_BTU)
        arc_RT = jnp.take_along_axis(log_p_RTU, head_RT[:, :, None], axis=2)[:, :, 0]
        relations_RTC = jax.nn.log_softmax(scores.relations_of(head_RT))
        number_RT = jnp.maximum(relation_RT - 1, 0)
        label_RT = jnp.take_along_axis(relations_RTC, number_RT[:, :, None], axis=2)[:, :, 0]
        arcs = weighted_sum(-arc_RT, has_head_RT)
        return {
            'arcs': arcs,
            'relations': weighted_sum(-label_RT, relation_RT > 0),
            'uas': Term(_count(has_head_RT & (scores.arcs_BTU.argmax(-1) == head_RT)), arcs.count),
        }

    def host_outputs(self, outputs: base.Outputs, batch: Batch) -> base.HostOutputs:
        """Return what `_trees` returns, the words, and the position of each token in its row."""
        position_RT = jnp.broadcast_to(jnp.arange(batch['word'].shape[1]), batch['word'].shape)
        values = {'word': batch['word'], 'position': position_RT}
        return base.HostOutputs({}, values | self._trees(outputs))

    def exported_outputs(self, outputs: base.Outputs, batch: Batch) -> base.HostOutputs:
        """Return what `_trees` returns; relations to padding, which is no head, are 0."""
        is_token_R1U = (batch['segment_ids'] > 0)[:, None, :]
        trees = self._trees(outputs)
        relations = {n: jnp.where(is_token_R1U, trees[n], 0) for n in trees if n != 'arcs'}
        return base.HostOutputs({}, {'arcs': trees['arcs']} | relations)

    def _trees(self, outputs: base.Outputs) -> dict[str, jax.Array]:
        """Return the scores of all arcs.

        'arcs': log probability of each position as head of each position, fp32 [R, T, U].
        'relations', 'relation_log_p': number and log probability of the best relation of the arc.
        """
        scores: ArcScores = outputs['scores']
        kept = self.setup.kept
        at_root_C, elsewhere_C = (
            np.array([relation in kept.get(key, self.labels) for relation in self.labels])
            for key in ('of_root', 'of_words')
        )
        number_RTU, log_p_RTU = scores.best_relations(outputs['is_root'], at_root_C, elsewhere_C)
        return {
            'arcs': jax.nn.log_softmax(scores.arcs_BTU),
            'relations': number_RTU,
            'relation_log_p': log_p_RTU,
        }


class ParseDecoder(base.Decoder[ParsedExample, PredictedTree]):
    """The most probable tree, and its attachment scores."""

    def decode(
        self, example: ParsedExample, parts: base.ExampleOutputs, calibration: base.Calibration
    ) -> PredictedTree:
        ((part,),) = parts
        words = np.flatnonzero(part['word'] == WORD)  # positions in the sequence
        columns = np.append(0, words) + part['position'][0]  # in the row; the first one: the root
        arcs_WN = part['arcs'][np.ix_(words, columns)].astype(np.float64)
        heads_W = best_tree(arcs_WN)
        labels_WN = part['relations'][np.ix_(words, columns)]
        log_p_WN = part['relation_log_p'][np.ix_(words, columns)]
        missing = len(example.words) - len(words)
        row_W = np.arange(len(words))
        p_W2 = np.exp(np.stack([arcs_WN[row_W, heads_W], log_p_WN[row_W, heads_W]], axis=1))
        return PredictedTree(
            [*heads_W.tolist(), *[None] * missing],
            [*(self.labels[number] for number in labels_WN[row_W, heads_W]), *[None] * missing],
            [*((float(arc), float(label)) for arc, label in p_W2), *[None] * missing],
        )

    def score(
        self, examples: Sequence[ParsedExample], predictions: Sequence[PredictedTree]
    ) -> Scores:
        """Return 'las', 'uas' and 'las_subtypes', and a table of relations."""
        return attachment.score(*_trees(examples, predictions))

    def score_rows(
        self, examples: Sequence[ParsedExample], predictions: Sequence[PredictedTree]
    ) -> RowScore:
        return attachment.score_rows(*_trees(examples, predictions))

    def blind_guesses(
        self, train: Sequence[ParsedExample], examples: Sequence[ParsedExample]
    ) -> list[PredictedTree]:
        """Attach each word to the next or to the one before, whichever is more often right."""
        offsets, relations = Counter[int](), Counter[str]()
        for example in examples:
            relations.update(example.relations or ())
            offsets.update(head - word for word, head in enumerate(example.heads or (), 1))
        step = 1 if offsets[1] >= offsets[-1] else -1
        relation = relations.most_common(1)[0][0] if relations else None
        guesses = []
        for example in examples:
            number = len(example.words)
            heads = [(word + step) % (number + 1) for word in range(1, number + 1)]
            guesses.append(PredictedTree(list(heads), [relation] * number, [None] * number))
        return guesses

    def to_record(self, example: ParsedExample, prediction: PredictedTree) -> JsonRecord:
        """Return {'id', 'text', 'words'}.

        words: {'start', 'end', 'text', 'gold' (where known), 'head', 'relation', 'probability'};
        gold is [head, relation], probability that of head and relation.
        """
        words = []
        for number, (start, end) in enumerate(example.words):
            known: JsonRecord = {}
            if example.heads is not None and example.relations is not None:
                known['gold'] = [example.heads[number], example.relations[number]]
            p = prediction.probabilities[number]
            known |= {
                'head': prediction.heads[number],
                'relation': prediction.relations[number],
                'probability': None if p is None else p[0] * p[1],
            }
            words.append(raw_input.describe_span(example.text, start, end, **known))
        return {'id': example.id, 'text': example.text, 'words': words}


PARSING = base.Parts(ParseEncoding, ParseLoss, ParseDecoder)


def _count(is_true: jax.Array) -> jax.Array:
    return is_true.sum().astype(jnp.float32)


def _trees(
    examples: Sequence[ParsedExample], predictions: Sequence[PredictedTree]
) -> tuple[list[attachment.DependencyTree], list[attachment.DependencyTree]]:
    gold = [attachment.DependencyTree(own.heads or (), own.relations or ()) for own in examples]
    return gold, [attachment.DependencyTree(own.heads, own.relations) for own in predictions]
