"""Sequence labeling: a tag for every word, such as parts of speech or entities as BIO or BIOES."""

import itertools
from collections import Counter
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from bert_jax.averages import Term, weighted_sum
from bert_jax.data.alignment import Alignment, align
from bert_jax.data.finetune_batches import TokenSequence
from bert_jax.data.labeled.examples import TaggedExample
from bert_jax.data.sliding_windows import Window
from bert_jax.errors import UserError
from bert_jax.evaluation import entities, scores
from bert_jax.evaluation.scores import Scores
from bert_jax.models import crf
from bert_jax.models.heads import TokenClassificationHead
from bert_jax.tasks.problems.base import (
    HostOutputs,
    Problem,
    check_choice,
    check_labels,
    class_weights,
    label_ids,
    require_words,
    window_overlap,
)

# What a token is, in the field `word`: nothing of a word, a further piece of one, the first piece
# of a word that a neighboring window answers for, and of one that is answered for here.
_FURTHER, _CONTEXT, _ANSWERED = 1, 2, 3
_STARTS, _ENDS = 1, 2  # bits of the field `edge`: the first and the last word of a text


class Tagging(Problem):
    """A tag for every word of a text.

    settings: label_pieces: 'first': the tag is learned at the first piece of a word, 'all': at every
    piece. decode_pieces: 'first': a word has the distribution of its first piece, 'mean': the
    normalized geometric mean of those of its pieces. label_smoothing, class_weights: as for classes
    of texts, by frequencies among words. crf: a chain over the words of a sequence, in which, if
    tags are BIO or BIOES, only legal ones are possible; decode_pieces then says what the chain
    sees, in training too. crf_rate: see LinearChain. overlap: share of a window of a long text that
    its neighbor sees as well.

    Every word is learned and answered for in one window. What cannot be (see alignment.Alignment)
    is counted in `counts`.
    """

    weights = {'tagging': 1.0}
    pretrained_heads = ('token_classification',)

    def __init__(self, settings, layout, labels):
        super().__init__(settings, layout, labels)
        check_choice(settings, 'label_pieces', ('first', 'all'))
        check_choice(settings, 'decode_pieces', ('first', 'mean'))
        shaped = settings.label_smoothing or settings.class_weights != 'none'
        if settings.crf and (settings.label_pieces == 'all' or shaped):
            raise UserError(
                'problem.crf learns one tag a word, unsmoothed and unweighted: label_pieces=first, '
                'label_smoothing=0, class_weights=none'
            )
        self._overlap = window_overlap(settings, layout.max_text_tokens(1))
        self._numbers = label_ids(self.labels)
        self._legal = crf.allowed_tags(self.labels)

    @classmethod
    def collect_labels(cls, examples, settings) -> tuple[str, ...]:
        return tuple(sorted({tag for example in examples for tag in example.tags}))

    def prepare(self, train):
        """The weight of each tag."""
        counts = Counter(tag for example in train for tag in example.tags)
        counts_C = [counts[label] for label in self.labels]
        self._class_weights_C = class_weights(self.settings.class_weights, counts_C)

    @property
    def has_entities(self) -> bool:
        """Whether the tags are O and B-…, I-…, E-…, S-…, so that entities are what counts."""
        kinds = [label.partition('-')[0] for label in self.labels if label != entities.OUTSIDE]
        return all(kind in ('B', 'I', 'E', 'S') for kind in kinds) and 'B' in kinds

    def parse_input(self, name, given):
        """From 'words' or 'text' (see require_words)."""
        return TaggedExample(name, *require_words(given, name), None)

    def encode(self, example: TaggedExample):
        aligned = align(self.tokenizer, example.text, example.words)
        room = self.layout.max_text_tokens(1)
        windows = aligned.windows(room, self._overlap)
        self.counts['texts_cut_into_windows'] += len(windows) > 1
        self.counts['words_longer_than_a_window'] += int((aligned.count > room).sum())
        self.counts['words_tokenized_apart'] += aligned.num_splits
        self.counts['words_seen_as_an_unknown_token'] += aligned.num_dropped
        label_W = self._label_numbers(example)
        return [(self._sequence(aligned, window, label_W),) for window in windows]

    def _label_numbers(self, example: TaggedExample) -> np.ndarray:
        """int32 [W]: the number of each word's tag, + 1; 0 where there is none."""
        if example.tags is None:
            return np.zeros(len(example.words), np.int32)
        where = f'example {example.id}'
        if len(example.tags) != len(example.words):
            raise UserError(f'{where}: {len(example.tags)} tags for {len(example.words)} words')
        check_labels(dict.fromkeys(example.tags, where), self.labels)
        numbers = [self._numbers[tag] for tag in example.tags]
        if self.settings.crf:
            self._check_legal(numbers, where)
        return np.array(numbers, np.int32) + 1

    def _check_legal(self, numbers: list[int], where: str):
        legal = self._legal
        fine = [legal.start_C[number] for number in numbers[:1]]
        fine += [legal.transition_CC[pair] for pair in itertools.pairwise(numbers)]
        fine += [legal.end_C[number] for number in numbers[-1:]]
        if not all(fine):
            place = fine.index(False)
            around = numbers[max(0, place - 1) : place + 1]
            around = ', '.join(self.labels[number] for number in around)
            raise UserError(
                f'{where}: the tags {around} at word {place} are not legal in their scheme; mend '
                'them or set problem.crf=False'
            )

    def _sequence(self, aligned: Alignment, window: Window, label_W) -> TokenSequence:
        laid_out = self.layout.lay_out(aligned.ids[window.start : window.stop])
        here = slice(laid_out.starts[0], laid_out.starts[0] + window.stop - window.start)
        words_N = aligned.words[window.start : window.stop]
        position_N = np.arange(window.start, window.stop)
        first_N = np.where(words_N >= 0, np.append(aligned.first, 0)[words_N], -1)
        is_first_N = first_N == position_N
        answered_N = (first_N >= window.first) & (first_N < window.last)
        learned_N = answered_N if self.settings.label_pieces == 'all' else answered_N & is_first_N
        # Of a word longer than a window, pieces without its first say nothing.
        word_N = np.where(first_N >= window.start, _FURTHER, 0)
        word_N = np.where(is_first_N, np.where(answered_N, _ANSWERED, _CONTEXT), word_N)
        label_N = np.where(learned_N, np.append(label_W, 0)[words_N], 0)
        fields = {'word': word_N, 'label': label_N}
        if self.settings.crf:
            last = len(aligned.first) - 1
            edge_N = _STARTS * (words_N == 0) + _ENDS * (words_N == last)
            fields['edge'] = edge_N * is_first_N
        tokens = {name: np.zeros(len(laid_out.ids), np.int32) for name in fields}
        for name, values in fields.items():
            tokens[name][here] = values
        return TokenSequence(laid_out.ids, laid_out.token_type_ids, tokens, {})

    def make_heads(self, architecture, compute):
        number = len(self.labels)
        head = partial(TokenClassificationHead, architecture, compute, num_labels=number)
        if not self.settings.crf:
            return {'token_classification': head}
        return {
            'token_classification': head,
            'crf': partial(crf.LinearChain, self.labels, self.settings.crf_rate),
        }

    def apply_heads(self, heads, encoded, batch, dropout_seeds_R):
        """logits fp32 [R, T, C]; with a chain its Scores."""
        logits_RTC = heads['token_classification'](
            encoded, batch['attention_mask'], dropout_seeds_R
        )
        chain = {'crf': heads['crf']()} if self.settings.crf else {}
        return {'logits': logits_RTC} | chain

    def terms(self, outputs, batch):
        """tagging: −log p of the tags, a word (label_pieces 'all': a piece)."""
        label_RT, known_RT = jnp.maximum(batch['label'] - 1, 0), batch['label'] > 0
        if self.settings.crf:
            chains = _chains(batch, known_RT)
            emissions_RTC = self._of_words(outputs['logits'], batch)
            log_R = crf.log_likelihood(outputs['crf'], emissions_RTC, label_RT, chains)
            return {'tagging': Term(-log_R.sum(), known_RT.sum().astype(jnp.float32))}
        smoothing, number = self.settings.label_smoothing, len(self.labels)
        weights_C = jnp.asarray(self._class_weights_C)
        target_RTC = jax.nn.one_hot(label_RT, number) * (1 - smoothing) + smoothing / number
        loss_RT = -jnp.sum(target_RTC * jax.nn.log_softmax(outputs['logits']), axis=-1)
        right_RT = outputs['logits'].argmax(-1) == label_RT
        return {
            'tagging': weighted_sum(loss_RT, weights_C[label_RT] * known_RT),
            'accuracy': weighted_sum(right_RT, known_RT),
        }

    def host_outputs(self, outputs, batch):
        """At the first piece of each word its tag and the tag's probability; with a chain the tag
        of the likeliest sequence, and the tag's own probability."""
        logits_RTC = self._of_words(outputs['logits'], batch)
        if self.settings.crf:
            chains = _chains(batch, batch['word'] >= _CONTEXT)
            tag_RT = crf.viterbi(outputs['crf'], logits_RTC, chains)
            share_RTC = crf.marginals(outputs['crf'], logits_RTC, chains)
        else:
            tag_RT, share_RTC = logits_RTC.argmax(-1), jax.nn.softmax(logits_RTC)
        share_RT = jnp.take_along_axis(share_RTC, tag_RT[:, :, None], axis=2)[:, :, 0]
        return HostOutputs({}, {'word': batch['word'], 'tag': tag_RT, 'probability': share_RT})

    def _of_words(self, logits_RTC, batch):
        """fp32 [R, T, C]: what is said of a word, at its first piece; elsewhere anything."""
        if self.settings.decode_pieces == 'first':
            return logits_RTC
        return mean_of_pieces(jax.nn.log_softmax(logits_RTC), batch['word'])

    def decode(self, example, parts) -> dict[str, list]:
        """{'tags': a tag a word, 'probabilities': of the tags}."""
        found = {'tags': [], 'probabilities': []}
        for (own,) in parts:
            here = own['word'] == _ANSWERED
            found['tags'] += [self.labels[number] for number in own['tag'][here]]
            found['probabilities'] += own['probability'][here].tolist()
        return found

    def score(self, examples, predictions) -> Scores:
        """Of entities strict F1 and with it the accuracy of tags; else what is said of classes."""
        gold = [example.tags for example in examples]
        guesses = [prediction['tags'] for prediction in predictions]
        flat = [list(itertools.chain.from_iterable(tags)) for tags in (gold, guesses)]
        of_tags = scores.classification(*flat, self.labels)
        if not self.has_entities:
            return of_tags
        found = scores.spans(
            *([entities.entities_from_tags(t) for t in tags] for tags in (gold, guesses))
        )
        return found._replace(metrics=found.metrics | {'accuracy': of_tags.metrics['accuracy']})

    def to_record(self, example, prediction) -> dict:
        """words: {start, end, text, gold (where known), predicted, probability}, characters, end
        exclusive; entities: {start, end, text, label, probability: the least of its words}."""
        words = []
        for number, (start, end) in enumerate(example.words):
            gold = {'gold': example.tags[number]} if example.tags is not None else {}
            words.append(
                {'start': start, 'end': end, 'text': example.text[start:end]}
                | gold
                | {
                    'predicted': prediction['tags'][number],
                    'probability': prediction['probabilities'][number],
                }
            )
        record = {'id': example.id, 'text': example.text, 'words': words}
        if self.has_entities:
            record['entities'] = self._entities(example, prediction)
        return record

    def _entities(self, example, prediction) -> list[dict]:
        found = []
        for first, last, label in entities.entities_from_tags(prediction['tags']):
            start, end = example.words[first][0], example.words[last - 1][1]
            share = min(prediction['probabilities'][first:last])
            found.append(
                {
                    'start': start,
                    'end': end,
                    'text': example.text[start:end],
                    'label': label,
                    'probability': share,
                }
            )
        return found


def mean_of_pieces(values_RTC, word_RT) -> jax.Array:
    """fp32 [R, T, C]: at every first piece the mean over the pieces of its word, which are the
    further ones up to the next first one."""
    number_RT = jnp.cumsum(word_RT >= _CONTEXT, axis=1)
    weight_RT1 = (word_RT > 0).astype(jnp.float32)[:, :, None]
    total = jax.vmap(partial(jax.ops.segment_sum, num_segments=word_RT.shape[1] + 1))
    sum_RTC, count_RT1 = total(values_RTC * weight_RT1, number_RT), total(weight_RT1, number_RT)
    mean_RTC = sum_RTC / jnp.maximum(count_RT1, 1)
    return jnp.take_along_axis(mean_RTC, number_RT[:, :, None], axis=1)


def _chains(batch, is_link_RT) -> crf.Chains:
    edge_RT = batch['edge']
    return crf.find_chains(
        is_link_RT,
        batch['segment_ids'],
        starts_BT=(edge_RT & _STARTS) > 0,
        ends_BT=(edge_RT & _ENDS) > 0,
    )
