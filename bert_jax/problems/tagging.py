"""Sequence labeling: a tag for every word, such as parts of speech or BIO(ES) entities."""

import functools
import itertools
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from bert_jax.averages import Term, Terms
from bert_jax.errors import UserError
from bert_jax.examples.finetune_batches import Item, TokenSequence
from bert_jax.labels import tag_schemes
from bert_jax.labels.examples import ExampleId, TaggedExample
from bert_jax.metrics import entities, scores
from bert_jax.metrics.intervals import RowScore
from bert_jax.metrics.scores import Scores
from bert_jax.models import crf
from bert_jax.models.linear import product
from bert_jax.models.model import HeadOptions
from bert_jax.models.rows import Rows
from bert_jax.problems import base, raw_input
from bert_jax.problems.words import WordEncoding
from bert_jax.tokenizers.alignment import Alignment
from bert_jax.tokenizers.sliding_windows import Window
from bert_jax.types import Array, Batch, JsonObject, JsonRecord, RecordView, Tree

# Values of the field `word` of a token; 0: not part of a word. A word of a long text may be in
# several windows, but is learned and predicted in only one window.
_CONTINUATION = 1  # a token after the first token of a word
_CONTEXT = 2  # the first token of a word that a neighboring window predicts
_PREDICTED = 3  # the first token of a word that is predicted here
_TEXT_START, _TEXT_END = 1, 2  # bits of the field `edge`: the first and the last word of a text

Prediction = dict[str, list[Any]]  # see TagDecoder.decode; one value for each word


class TagEncoding(WordEncoding[TaggedExample]):
    """A tag for every word of a text."""

    @classmethod
    def count_labels(cls, train: Sequence[TaggedExample]) -> Counter[str]:
        """Count the tags; tags that are added to complete a BIO or BIOES tag set have count 0."""
        counts = Counter(tag for example in train for tag in example.tags or ())
        counts.update(dict.fromkeys(tag_schemes.complete(counts), 0))
        return counts

    def parse_input(self, name: str, record: RecordView) -> TaggedExample:
        """Read 'words', 'tokens' or 'text' (see `require_words`)."""
        return TaggedExample(
            name, *raw_input.require_words(record, name, self.setup.splitter), None
        )

    def encode(self, example: TaggedExample) -> list[Item]:
        aligned, windows = self.windows(example)
        self.count_unusual(aligned, windows)
        self.setup.counts['words longer than a window'] += int((aligned.count > self.room).sum())
        label_W = self._stored_labels(example)
        return [(self._sequence(aligned, window, label_W),) for window in windows]

    def _stored_labels(self, example: TaggedExample) -> np.ndarray:
        """Return the number of the tag of each word + 1, int32 [W]; 0 without a tag."""
        if example.tags is None:
            return np.zeros(len(example.words), np.int32)
        if len(example.tags) != len(example.words):
            raise UserError(
                f'example {example.id}: {len(example.tags)} tags for {len(example.words)} words'
            )
        numbers = [self.setup.label_number(tag, example.id) for tag in example.tags]
        if self.settings.crf:
            self._check_legal(numbers, example.id)
        return np.array(numbers, np.int32) + 1

    @functools.cached_property
    def _legal(self) -> crf.AllowedTags:
        return crf.allowed_tags(self.labels)

    def _check_legal(self, numbers: list[int], example_id: ExampleId) -> None:
        """Raise UserError for a sequence of tags that the CRF cannot produce."""
        legal = self._legal
        is_legal = [legal.start_C[number] for number in numbers[:1]]
        is_legal += [legal.transition_CC[pair] for pair in itertools.pairwise(numbers)]
        is_legal += [legal.end_C[number] for number in numbers[-1:]]
        if not all(is_legal):
            place = is_legal.index(False)
            around = numbers[max(0, place - 1) : place + 1]
            tags = ', '.join(self.labels[number] for number in around)
            raise UserError(
                f'example {example_id}: the tags {tags} at word {place} are not legal in their '
                'scheme; fix them or set problem.crf=False'
            )

    def _sequence(self, aligned: Alignment, window: Window, label_W: np.ndarray) -> TokenSequence:
        """Make the sequence of a window, with the fields 'word', 'label' and, for a CRF, 'edge'."""
        laid_out = self.layout.lay_out(aligned.ids[window.start : window.stop])
        words_N = aligned.words[window.start : window.stop]
        position_N = np.arange(window.start, window.stop)
        first_N = np.where(words_N >= 0, np.append(aligned.first, 0)[words_N], -1)
        is_first_N = first_N == position_N
        is_predicted_N = (first_N >= window.first) & (first_N < window.last)
        is_learned_N = is_predicted_N
        if self.settings.label_pieces == 'first':
            is_learned_N = is_predicted_N & is_first_N
        # If a word is longer than a window, its tokens in windows without its first token are not
        # used.
        word_N = np.where(first_N >= window.start, _CONTINUATION, 0)
        word_N = np.where(is_first_N, np.where(is_predicted_N, _PREDICTED, _CONTEXT), word_N)
        label_N = np.where(is_learned_N, np.append(label_W, 0)[words_N], 0)
        fields = {'word': word_N, 'label': label_N}
        if self.settings.crf:
            last = len(aligned.first) - 1
            edge_N = _TEXT_START * (words_N == 0) + _TEXT_END * (words_N == last)
            fields['edge'] = edge_N * is_first_N
        start = laid_out.starts[0]
        tokens = {name: np.zeros(len(laid_out.ids), np.int32) for name in fields}
        for name, values_N in fields.items():
            tokens[name][start : start + len(values_N)] = values_N
        return TokenSequence(laid_out.ids, laid_out.token_type_ids, tokens, {})

    def describe_targets(
        self, tokens: Sequence[str], fields: Mapping[str, np.ndarray]
    ) -> JsonRecord:
        """Return 'tags', the tag that each token learns, or None."""
        return {'tags': [self.setup.stored_label(stored) for stored in fields['label']]}


class TagLoss(base.Loss):
    """Cross-entropy of the tags, or the likelihood of a sequence of tags.

    With `decode_pieces='mean'`, the distribution of a word is the normalized geometric mean of the
    distributions of its tokens. With `crf`, these word logits are the input of a linear-chain CRF
    over the words of a sequence, also in training; for BIO or BIOES tags the CRF allows only legal
    sequences.
    """

    weights = {'tagging': 1.0}

    def __post_init__(self) -> None:
        settings = self.settings
        modifies_loss = settings.label_smoothing or settings.class_weights != 'none'
        if settings.crf and (settings.label_pieces == 'all' or modifies_loss):
            raise UserError(
                'problem.crf learns one tag per word, unsmoothed and unweighted; set '
                'problem.label_pieces=first, problem.label_smoothing=0, problem.class_weights=none'
            )

    def heads(self) -> Mapping[str, HeadOptions]:
        heads: dict[str, HeadOptions]
        heads = {'token_classification': {'num_labels': len(self.labels)}}
        if self.settings.crf:
            heads['crf'] = {'labels': self.labels, 'rate': self.settings.crf_rate}
        return heads

    def outputs(self, heads: Mapping[str, Tree], rows: Rows) -> base.Outputs:
        """Return 'logits', fp32 [R, T, C], and with a CRF 'crf', its `crf.TransitionScores`."""
        return {'logits': heads['token_classification'], 'crf': heads.get('crf')}

    def terms(self, outputs: base.Outputs, batch: Batch) -> Terms:
        """Return 'tagging', −log p per word (per token with label_pieces='all'), and 'accuracy'."""
        if not self.settings.crf:
            return self.setup.class_terms('tagging', outputs['logits'], batch['label'])
        label_RT, is_known_RT = jnp.maximum(batch['label'] - 1, 0), batch['label'] > 0
        logits_RTC = self._word_logits(outputs['logits'], batch)
        chains = _chains(batch, is_known_RT)
        log_p_R = crf.log_likelihood(outputs['crf'], logits_RTC, label_RT, chains)
        return {'tagging': Term(-log_p_R.sum(), is_known_RT.sum().astype(jnp.float32))}

    def host_outputs(self, outputs: base.Outputs, batch: Batch) -> base.HostOutputs:
        """Return, at the first token of each word, its tag and the probability of this tag.

        With a CRF, tags are the most probable sequence and probabilities are marginals. With
        `all_probabilities`, also the probabilities of all tags.
        """
        tag_RT, p_RTC = self._tags(outputs, batch)
        p_RT = jnp.take_along_axis(p_RTC, tag_RT[:, :, None], axis=2)[:, :, 0]
        values = {'word': batch['word'], 'tag': tag_RT, 'probability': p_RT}
        return base.HostOutputs(
            {}, values | ({'all': p_RTC} if self.setup.all_probabilities else {})
        )

    def exported_outputs(self, outputs: base.Outputs, batch: Batch) -> base.HostOutputs:
        """Return 'logits' and 'probabilities' of all tags, fp32 [R, T, C].

        With a CRF also 'tags', int32 [R, T]. The probabilities and the tag of a word are at its
        first token.
        """
        tag_RT, p_RTC = self._tags(outputs, batch)
        tags = {'tags': tag_RT} if self.settings.crf else {}
        values = {'logits': outputs['logits'], 'probabilities': p_RTC} | tags
        return base.HostOutputs({}, values)

    def _tags(self, outputs: base.Outputs, batch: Batch) -> tuple[jax.Array, jax.Array]:
        """Return the predicted tag and the probability of every tag, [R, T] and [R, T, C]."""
        logits_RTC = self._word_logits(outputs['logits'], batch)
        if not self.settings.crf:
            return logits_RTC.argmax(-1), jax.nn.softmax(logits_RTC)
        chains = _chains(batch, batch['word'] >= _CONTEXT)
        tag_RT = crf.viterbi(outputs['crf'], logits_RTC, chains)
        return tag_RT, crf.marginals(outputs['crf'], logits_RTC, chains)

    def _word_logits(self, logits_RTC: jax.Array, batch: Batch) -> jax.Array:
        """Return the logits of words at their first tokens, fp32 [R, T, C]; not valid elsewhere."""
        if self.settings.decode_pieces == 'first':
            return logits_RTC
        return mean_over_words(jax.nn.log_softmax(logits_RTC), batch['word'])


class TagDecoder(base.Decoder[TaggedExample, Prediction]):
    """The tag of every word, and the entities that tags mark."""

    @functools.cached_property
    def entity_tags(self) -> entities.ParsedTags | None:
        """The parsed tags; None if they mark no entities, such as parts of speech."""
        return entities.parse_tags(self.labels)

    def decode(
        self, example: TaggedExample, parts: base.ExampleOutputs, calibration: base.Calibration
    ) -> Prediction:
        """Return {'tags', 'probabilities'}, lists with a value for each word.

        With `all_probabilities`, also 'all', tag → probability for each word.
        """
        prediction: Prediction = {'tags': [], 'probabilities': [], 'all': []}
        for (part,) in parts:
            is_predicted_N = part['word'] == _PREDICTED
            prediction['tags'] += [self.labels[number] for number in part['tag'][is_predicted_N]]
            prediction['probabilities'] += part['probability'][is_predicted_N].tolist()
            if self.setup.all_probabilities:
                p_WC = part['all'][is_predicted_N].tolist()
                prediction['all'] += [dict(zip(self.labels, p_C, strict=True)) for p_C in p_WC]
        return prediction

    def blind_guesses(
        self, train: Sequence[TaggedExample], examples: Sequence[TaggedExample]
    ) -> list[Prediction]:
        """Return the most frequent tag for every word."""
        ((tag, number),) = (counts := self.encoding.count_labels(examples)).most_common(1)
        share = number / max(counts.total(), 1)
        guesses: list[Prediction] = []
        for example in examples:
            words = len(example.words)
            guesses.append({'tags': [tag] * words, 'probabilities': [share] * words, 'all': []})
        return guesses

    def score(self, examples: Sequence[TaggedExample], predictions: Sequence[Prediction]) -> Scores:
        """Return entity F1 and tag accuracy; for tags without entities, classification metrics."""
        tags = _all_tags(examples, predictions)
        gold, guesses = map(_flatten, tags)
        tag_scores = scores.classification(gold, guesses, self.labels)
        if self.entity_tags is None:
            return tag_scores
        span_scores = scores.spans(*map(self._entities_of, tags))
        accuracy = {'accuracy': tag_scores.metrics['accuracy']}
        return span_scores._replace(metrics=span_scores.metrics | accuracy)

    def score_rows(
        self, examples: Sequence[TaggedExample], predictions: Sequence[Prediction]
    ) -> RowScore:
        tags = _all_tags(examples, predictions)
        gold, guesses = map(_flatten, tags)
        score_tags = scores.classification_rows(gold, guesses, self.labels)
        ends_N = np.cumsum([len(own) for own in tags[0]])
        words_N = [np.arange(end - len(own), end) for end, own in zip(ends_N, tags[0], strict=True)]

        def score_words(rows_M: np.ndarray) -> Mapping[str, float]:
            return score_tags(np.concatenate([words_N[row] for row in rows_M]))

        if self.entity_tags is None:
            return score_words
        score_spans = scores.span_rows(*map(self._entities_of, tags))
        return lambda rows_M: {
            **score_spans(rows_M),
            'accuracy': score_words(rows_M)['accuracy'],
        }

    def _entities_of(self, tags: Sequence[Sequence[str]]) -> list[list[entities.Entity]]:
        return [entities.entities_from_tags(own, self.entity_tags) for own in tags]

    def to_record(self, example: TaggedExample, prediction: Prediction) -> JsonObject:
        """Return {'id', 'text', 'words'} and, if tags mark them, 'entities' (see `_entities`).

        words: {'start', 'end', 'text', 'gold' (where known), 'predicted', 'probability'}, in
        characters, end exclusive.
        """
        words = []
        for number, (start, end) in enumerate(example.words):
            tags: JsonObject = {}
            if example.tags is not None:
                tags['gold'] = example.tags[number]
            tags['predicted'] = prediction['tags'][number]
            tags['probability'] = prediction['probabilities'][number]
            if self.setup.all_probabilities:
                tags['probabilities'] = prediction['all'][number]
            words.append(raw_input.describe_span(example.text, start, end, **tags))
        record = {'id': example.id, 'text': example.text, 'words': words}
        if self.entity_tags is None:
            return record
        return record | {'entities': _entities(example, prediction, self.entity_tags)}


TAGGING = base.Parts(TagEncoding, TagLoss, TagDecoder)


def mean_over_words(values_RTC: jax.Array, word_RT: Array) -> jax.Array:
    """Average values over the tokens of each word.

    Args:
        values_RTC: fp32.
        word_RT: the field 'word'; a word extends to the first token of the next word.
    Returns:
        fp32 [R, T, C]: the mean of a word at its first token.
    """
    number_RT = jnp.cumsum(word_RT >= _CONTEXT, axis=1)
    is_same_RTU = (number_RT[:, :, None] == number_RT[:, None, :]) & (word_RT > 0)[:, None, :]
    weight_RTU = is_same_RTU.astype(jnp.float32)
    sum_RTC = product('RTU,RUC->RTC', weight_RTU, values_RTC, jnp.dtype('float32'))
    return sum_RTC / jnp.maximum(weight_RTU.sum(2, keepdims=True), 1)


def _all_tags(
    examples: Sequence[TaggedExample], predictions: Sequence[Prediction]
) -> tuple[Sequence[Sequence[str]], Sequence[Sequence[str]]]:
    """Return the gold and the predicted tags of each example."""
    gold = [example.tags or () for example in examples]
    return gold, [prediction['tags'] for prediction in predictions]


def _flatten(tags: Sequence[Sequence[str]]) -> list[str]:
    return list(itertools.chain(*tags))


def _entities(
    example: TaggedExample, prediction: Prediction, parsed: entities.ParsedTags
) -> list[JsonRecord]:
    """Return {'start', 'end', 'text', 'label', 'probability': minimum over words} of entities."""
    return [
        raw_input.describe_span(
            example.text,
            example.words[first][0],
            example.words[last - 1][1],
            label=label,
            probability=min(prediction['probabilities'][first:last]),
        )
        for first, last, label in entities.entities_from_tags(prediction['tags'], parsed)
    ]


def _chains(batch: Batch, is_word_RT: Array) -> crf.Chains:
    """Return the chain of words of each sequence."""
    # Comparisons instead of bitwise operators, which export formats may lack.
    ends_RT = batch['edge'] >= _TEXT_END
    starts_RT = batch['edge'] - _TEXT_END * ends_RT == _TEXT_START
    return crf.find_chains(is_word_RT, batch['segment_ids'], starts_RT, ends_RT)
