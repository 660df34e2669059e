"""The fine-tuning problems in transformers and torch."""

import abc
import itertools

import numpy as np
import torch
from torch import nn
from transformers import (
    AutoModelForQuestionAnswering,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
)

from bert_jax.metrics import entities, scores, squad
from bert_jax.problems.spans import best_threshold
from experiments.finetuning.torch_spans import SpanModel

IGNORED = -100  # label of positions without a loss


class TorchProblem(abc.ABC):
    """A fine-tuning problem."""

    def __init__(self, tokenizer, config, train):
        self.tokenizer, self.max_length = tokenizer, config.training.sequence_length

    @abc.abstractmethod
    def model(self, weights):
        """Return the torch model; its output has a loss."""

    @abc.abstractmethod
    def features(self, example):
        """Return the tokenized example and its labels."""

    @abc.abstractmethod
    def targets(self, features, length):
        """Return the inputs of the model other than the ids, padded to `length`."""

    def logits(self, outputs):
        """Return an array with a row for each example."""
        return outputs.logits

    @abc.abstractmethod
    def decode(self, example, feature, row):
        """Return the prediction."""

    @abc.abstractmethod
    def score(self, examples, decoded):
        """Return the metrics, computed by the functions of bert_jax."""


class Texts(TorchProblem):
    """Classification and regression of texts and pairs."""

    def __init__(self, tokenizer, config, train):
        super().__init__(tokenizer, config, train)
        self.is_regression = config.task == 'regression'
        self.labels = [] if self.is_regression else sorted({example.label for example in train})

    def model(self, weights):
        return AutoModelForSequenceClassification.from_pretrained(
            weights,
            num_labels=len(self.labels) or 1,
            problem_type='regression' if self.is_regression else 'single_label_classification',
        )

    def features(self, example):
        encoding = self.tokenizer(*example.texts, truncation=True, max_length=self.max_length)
        label = example.label if self.is_regression else self.labels.index(example.label)
        return dict(encoding) | {'label': label}

    def targets(self, features, length):
        dtype = torch.float32 if self.is_regression else torch.int64
        return {'labels': torch.tensor([feature['label'] for feature in features], dtype=dtype)}

    def decode(self, example, feature, row):
        return float(row[0]) if self.is_regression else self.labels[int(row.argmax())]

    def score(self, examples, decoded):
        gold = [example.label for example in examples]
        if self.is_regression:
            return scores.regression(gold, decoded).metrics
        return scores.classification(gold, decoded, self.labels).metrics


class _WordProblem(TorchProblem):
    """Base of the problems on words."""

    def encode(self, example):
        """Return the output of the tokenizer, and word → its first and last subword.

        Words beyond the maximum length are missing.
        """
        words = [example.text[start:end] for start, end in example.words]
        encoding = self.tokenizer(
            words, is_split_into_words=True, truncation=True, max_length=self.max_length
        )
        pieces = {}
        for position, word in enumerate(encoding.word_ids()):
            if word is not None:
                pieces[word] = (pieces.get(word, (position,))[0], position)
        return dict(encoding), pieces


class Tags(_WordProblem):
    """Tagging; the tag of a word is predicted at its first subword."""

    def __init__(self, tokenizer, config, train):
        super().__init__(tokenizer, config, train)
        self.labels = sorted({tag for example in train for tag in example.tags})
        self.has_entities = config.data.scheme != 'none'

    def model(self, weights):
        return AutoModelForTokenClassification.from_pretrained(weights, num_labels=len(self.labels))

    def features(self, example):
        encoding, pieces = self.encode(example)
        labels = [IGNORED] * len(encoding['input_ids'])
        for word, (first, _) in pieces.items():
            labels[first] = self.labels.index(example.tags[word])
        return encoding | {'labels': labels, 'pieces': pieces}

    def targets(self, features, length):
        rows = [
            feature['labels'] + [IGNORED] * (length - len(feature['labels']))
            for feature in features
        ]
        return {'labels': torch.tensor(rows)}

    def decode(self, example, feature, row):
        """Truncated words get the tag O, which is wrong for parts of speech."""
        best, pieces = row.argmax(-1), feature['pieces']
        return [
            self.labels[best[pieces[word][0]]] if word in pieces else entities.OUTSIDE
            for word in range(len(example.words))
        ]

    def score(self, examples, decoded):
        gold = [example.tags for example in examples]
        if self.has_entities:
            spans = [list(map(entities.entities_from_tags, tags)) for tags in (gold, decoded)]
            return scores.spans(*spans).metrics
        flat = [list(itertools.chain.from_iterable(tags)) for tags in (gold, decoded)]
        return scores.classification(*flat, [*self.labels, entities.OUTSIDE]).metrics


class Spans(_WordProblem):
    """Nested spans: every span of up to max_span_words words is classified.

    The probability threshold is the best threshold on dev, as in bert_jax.
    """

    def __init__(self, tokenizer, config, train):
        super().__init__(tokenizer, config, train)
        self.settings = config.problem
        self.labels = sorted({span.label for example in train for span in example.spans})

    def model(self, weights):
        return SpanModel(weights, 1 + len(self.labels), self.settings.width)

    def features(self, example):
        """'spans': (first subword, last subword, class or 0 for none); 'characters': offsets."""
        encoding, pieces = self.encode(example)
        gold = {(start, end): self.labels.index(label) + 1 for start, end, label in example.spans}
        spans, characters = [], []
        for first in pieces:
            for last in range(first, first + self.settings.max_span_words):
                if last in pieces:
                    offsets = example.words[first][0], example.words[last][1]
                    spans.append((pieces[first][0], pieces[last][1], gold.get(offsets, 0)))
                    characters.append(offsets)
        return encoding | {'spans': spans, 'characters': characters}

    def targets(self, features, length):
        most = max(len(feature['spans']) for feature in features)
        rows = [
            feature['spans'] + [(0, 0, IGNORED)] * (most - len(feature['spans']))
            for feature in features
        ]
        first, last, labels = torch.tensor(rows).unbind(-1)
        return {'first': first, 'last': last, 'labels': labels}

    def decode(self, example, feature, row):
        """Return (start, end, most probable label, its probability) of every span."""
        probabilities = torch.tensor(row).softmax(-1)[: len(feature['spans']), 1:]
        best, numbers = probabilities.max(-1)
        return [
            (*offsets, self.labels[number], probability)
            for offsets, number, probability in zip(
                feature['characters'], numbers.tolist(), best.tolist(), strict=True
            )
        ]

    def score(self, examples, decoded):
        gold = [set(map(tuple, example.spans)) for example in examples]
        pairs = zip(decoded, gold, strict=True)
        is_correct = np.array([span[:3] in correct for spans, correct in pairs for span in spans])
        probabilities = np.array([span[3] for spans in decoded for span in spans])
        threshold = best_threshold(is_correct, probabilities, sum(map(len, gold)))
        guesses = [[span[:3] for span in spans if span[3] > threshold] for spans in decoded]
        return scores.spans(gold, guesses).metrics


class Questions(TorchProblem):
    """Question answering; contexts that are too long are truncated."""

    def __init__(self, tokenizer, config, train):
        super().__init__(tokenizer, config, train)
        self.settings = config.problem

    def model(self, weights):
        return AutoModelForQuestionAnswering.from_pretrained(weights)

    def features(self, example):
        """'answer': first and last subword of the first answer, (0, 0) if it was truncated.

        'offsets': the characters of each subword of the context, None for others.
        """
        encoding = self.tokenizer(
            example.question,
            example.context,
            truncation='only_second',
            max_length=self.max_length,
            return_offsets_mapping=True,
        )
        pairs = zip(encoding.pop('offset_mapping'), encoding.sequence_ids(), strict=True)
        offsets = [place if sequence == 1 else None for place, sequence in pairs]
        answer = (0, 0)
        if example.answers:
            start = example.answers[0].start
            end = start + len(example.answers[0].text)
            inside = [
                position
                for position, place in enumerate(offsets)
                if place is not None and place[0] < end and place[1] > start
            ]
            if inside and offsets[inside[-1]][1] >= end:
                answer = inside[0], inside[-1]
        return dict(encoding) | {'answer': answer, 'offsets': offsets}

    def targets(self, features, length):
        starts, ends = torch.tensor([feature['answer'] for feature in features]).unbind(-1)
        return {'start_positions': starts, 'end_positions': ends}

    def logits(self, outputs):
        return torch.stack([outputs.start_logits, outputs.end_logits], dim=-1)

    def decode(self, example, feature, row):
        """Return the text between the best pair of the n_best starts and the n_best ends."""
        offsets, best = feature['offsets'], (-np.inf, '')
        inside = np.array([i for i, place in enumerate(offsets) if place is not None], int)
        starts, ends = (
            inside[np.argsort(-row[inside, side], kind='stable')[: self.settings.n_best]]
            for side in (0, 1)
        )
        for first, last in itertools.product(starts, ends):
            if first <= last < first + self.settings.answer_tokens:
                text = example.context[offsets[first][0] : offsets[last][1]]
                best = max(best, (row[first, 0] + row[last, 1], text))
        return best[1]

    def score(self, examples, decoded):
        golds = [[answer.text for answer in example.answers] for example in examples]
        return squad.score(golds, decoded)


PROBLEMS: dict[str, type[TorchProblem]] = {
    'classification': Texts,
    'regression': Texts,
    'tagging': Tags,
    'spans': Spans,
    'question_answering': Questions,
}


def parameter_groups(model: nn.Module, weight_decay: float) -> list[dict]:
    """Parameter groups for AdamW, without weight decay for biases and LayerNorms."""
    decayed, undecayed = [], []
    for name, parameter in model.named_parameters():
        is_undecayed = name.endswith('bias') or 'LayerNorm' in name
        (undecayed if is_undecayed else decayed).append(parameter)
    return [
        {'params': decayed, 'weight_decay': weight_decay},
        {'params': undecayed, 'weight_decay': 0.0},
    ]
