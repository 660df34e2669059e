"""Inference with a loaded model: masked tokens, embeddings, likelihoods, fine-tuned predictions."""

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from bert_jax import objectives
from bert_jax.data import sliding_windows
from bert_jax.errors import UserError, unknown
from bert_jax.inference import computation, finetuned
from bert_jax.inference.batching import TokenizedText, run
from bert_jax.inference.computation import LAST_FOUR
from bert_jax.interop.pretrained import Pretrained
from bert_jax.models.architecture import Compute

POOLINGS = ('mean', 'cls', 'tokens')

Record = dict[str, Any]


class Guess(NamedTuple):
    """A token for a [MASK], and its probability."""

    token: str
    probability: float


class Likelihood(NamedTuple):
    """The tokens of a text and their log probabilities in nats, float32 [tokens]."""

    tokens: list[str]
    log_probabilities: np.ndarray

    @property
    def total(self) -> float:
        """The pseudo-log-likelihood of the text, in nats."""
        return float(sum(self.log_probabilities.tolist()))


class Predictor:
    """A loaded model; `bert_jax.load` makes one from a path.

    Every method but `attention` takes a list of texts of any length, the empty text included, and
    answers in the same order. Texts longer than the model's input are cut into overlapping windows.

    Attributes:
        tasks: names of the methods this model can answer; others raise UserError.
        tokenizer: its tokenizer.
        architecture: its sizes.
    """

    def __init__(
        self,
        model: Pretrained,
        *,
        name: str = 'the model',
        dtype: str = 'float32',
        max_length: int | None = None,
        overlap: float = 0.25,
        batch_tokens: int = 1024,
        advance: Callable[[int], object] | None = None,
    ) -> None:
        """Prepares inference; nothing is compiled until the first call.

        Args:
            name: how error messages call the model.
            dtype: 'float32' or 'bfloat16', for computation.
            max_length: tokens of a window, special tokens included; the model's maximum by default.
                Fine-tuned tasks use the length of the training instead.
            overlap: share of a window that the next window repeats, in [0, 1).
            batch_tokens: tokens of a batch, padding included.
            advance: called with the number of windows that are done.

        Raises:
            UserError: an invalid setting, or a model without a tokenizer.
        """
        longest = model.architecture.max_length
        max_length = longest if max_length is None else max_length
        if not 3 <= max_length <= longest:
            raise UserError(
                f'max_length is {max_length}, must be from 3 to {longest}, the length of {name}'
            )
        if not 0 <= overlap < 1:
            raise UserError(f'overlap is {overlap}, must be in [0, 1)')
        if model.tokenizer is None:
            raise UserError(f'{name} has no tokenizer; add its tokenizer.json or vocab.txt')
        self.tokenizer, self.architecture = model.tokenizer, model.architecture
        self._name, self._compute = name, Compute(dtype)
        self._advance = advance or (lambda number: None)
        self._causal = _is_causal(model)
        kind = finetuned.problem_kind(model)
        self._finetuned = kind and finetuned.FineTuned(
            model, kind, self.tokenizer, self._compute, batch_tokens
        )
        tasks = ['fill_mask', 'embed', 'pseudo_likelihood'] if 'mlm' in model.heads else ['embed']
        if self._finetuned:
            tasks.append(self._finetuned.task)
        self.tasks = tuple(tasks)
        heads = model.params | (model.other_parts if self._finetuned else {})
        self._params = jax.tree.map(jnp.asarray, heads)
        self._size = max_length - 2
        self._overlap = min(int(overlap * self._size), self._size - 1)
        self._run = functools.partial(
            run,
            batch_tokens=batch_tokens,
            max_length=max_length,
            pad_id=self.tokenizer.pad_id,
            advance=self._advance,
        )

    def require(self, task: str) -> None:
        """Raises UserError unless the model can answer a task."""
        if task not in self.tasks:
            raise UserError(
                f'{self._name} has no head for {task}; it can answer {", ".join(self.tasks)}'
            )

    def fill_mask(self, texts: Sequence[str], top_k: int = 5) -> list[list[list[Guess]]]:
        """For each text, for each [MASK] in it, the most probable tokens, best first."""
        self.require('fill_mask')
        _check_list(texts)
        rows, owners = [], []
        for owner, ids in enumerate(self.tokenizer.encode_batch(texts, special=True).ids):
            for window in self._cut(ids):
                masks = np.flatnonzero(ids[window.first : window.last] == self.tokenizer.mask_id)
                if len(masks):
                    positions = masks + window.first - window.start + 1
                    rows.append(self._row(ids, window, positions=positions))
                    owners.append(owner)
        top_k = min(top_k, self.architecture.vocab_size)
        answers = self._run(
            lambda batch: computation.guesses(
                self.architecture, self._compute, top_k, self._params, batch
            ),
            rows,
        )
        found: list[list[list[Guess]]] = [[] for _ in texts]
        for row, owner, (probabilities_PK, ids_PK) in zip(rows, owners, answers, strict=True):
            for slot in range(len(row.extras['positions'])):
                pairs = zip(ids_PK[slot], probabilities_PK[slot], strict=True)
                found[owner].append([Guess(self._token(i), float(p)) for i, p in pairs])
        return found

    def embed(
        self, texts: Sequence[str], pooling: str = 'mean', layer: int | str = -1
    ) -> list[np.ndarray]:
        """A vector for each text, float32 [D], or for each of its tokens, float32 [T, D].

        Args:
            pooling: 'mean' over all tokens, [CLS] and [SEP] included; 'cls', the state of [CLS]
                (averaged over windows); 'tokens', one vector for each token, [CLS] and [SEP]
                included.
            layer: 0 (embeddings) to the number of layers, or negative from the last; or
                'sum_last_4', 'mean_last_4' or 'concat_last_4', which combine the last four layers.
        """
        if pooling not in POOLINGS:
            raise unknown('pooling', pooling, POOLINGS)
        self._check_layer(layer)
        _check_list(texts)
        rows, owners = [], []
        for owner, ids in enumerate(self._encode(texts)):
            for window in self._cut(ids):
                # Positions in the row: [CLS] belongs to the first window, [SEP] to the last.
                first = window.first - window.start + (window.first > 0)
                last = window.last - window.start + 1 + (window.last == len(ids))
                span = np.array([0, 1] if pooling == 'cls' else [first, last])
                rows.append(self._row(ids, window, span=span))
                owners.append(owner)
        function = computation.states if pooling == 'tokens' else computation.sums
        answers = self._run(
            lambda batch: function(
                self.architecture, self._compute, layer, self._causal, self._params, batch
            ),
            rows,
        )
        parts: list[list[tuple]] = [[] for _ in texts]
        for row, owner, answer in zip(rows, owners, answers, strict=True):
            parts[owner].append((answer, *row.extras['span']))
        if pooling == 'tokens':
            return [np.concatenate([x[first:last] for x, first, last in own]) for own in parts]
        return [
            sum(x for x, _, _ in own) / np.float32(sum(last - first for _, first, last in own))
            for own in parts
        ]

    def attention(self, text: str) -> tuple[list[str], np.ndarray]:
        """The tokens of a text and how much each attends to each: float32 [L, H, T, T].

        Entry [l, h, t, u] is the weight of token u for token t in head h of layer l; each row sums
        to 1. [CLS] and [SEP] are included.

        Raises:
            UserError: the text is longer than the model's input.
        """
        (ids,) = self._encode([text])
        window, *others = self._cut(ids)
        if others:
            raise UserError(f'the text has {len(ids)} tokens; attention takes up to {self._size}')
        row = self._row(ids, window)
        compute = functools.partial(
            computation.attention, self.architecture, self._compute, self._causal, self._params
        )
        (weights_LHTT,) = self._run(compute, [row])
        length = len(row.ids)
        return [self._token(i) for i in row.ids], weights_LHTT[..., :length, :length]

    def pseudo_likelihood(self, texts: Sequence[str]) -> list[Likelihood]:
        """Log probability of each token when only that token is masked.

        Salazar et al. 2020, "Masked Language Model Scoring", section 2.
        """
        self.require('pseudo_likelihood')
        _check_list(texts)
        encoded = self._encode(texts)
        answers = iter(
            self._run(
                lambda batch: computation.log_probability(
                    self.architecture, self._compute, self._params, batch
                ),
                [row for ids in encoded for row in self._one_masked(ids)],
            )
        )
        return [
            Likelihood(
                [self._token(i) for i in ids],
                np.array([next(answers) for _ in ids], np.float32),
            )
            for ids in encoded
        ]

    def classify(self, texts: Sequence[str | Sequence[str] | Mapping[str, Any]]) -> list[Record]:
        """The class of each text, pair of texts or marked example; a number for regression.

        Args:
            texts: strings, (text, text2) pairs, or dictionaries: {'text': …, 'text2': …};
                {'premise': …, 'choices': […]} for multiple choice; {'text': …, 'marks':
                [[start, end], [start, end]]}, in characters, for relations.

        Returns:
            A dictionary for each text with 'predicted' and, except for regression, 'probability'.
        """
        _check_list(texts)
        return self.predict('classify', [finetuned.as_pair(text) for text in texts])

    def tag(self, texts: Sequence[str | Sequence[str] | Mapping[str, Any]]) -> list[Record]:
        """The tag of every word, and the entities if tags are BIO or BIOES.

        Args:
            texts: strings, lists of words, or dictionaries {'text': …} or {'words': […]}.

        Returns:
            A dictionary for each text: 'words', a list of {'start', 'end', 'text', 'predicted',
            'probability'}, and 'entities', a list of {'start', 'end', 'text', 'label',
            'probability'}; offsets in characters, end exclusive.
        """
        _check_list(texts)
        return self.predict('tag', [finetuned.as_words(text) for text in texts])

    def spans(self, texts: Sequence[str | Sequence[str] | Mapping[str, Any]]) -> list[Record]:
        """The labeled spans of each text, which may be nested.

        Args:
            texts: as for `tag`.

        Returns:
            A dictionary for each text; 'predicted' is a list of {'start', 'end', 'text', 'label',
            'probability'}.
        """
        _check_list(texts)
        return self.predict('spans', [finetuned.as_words(text) for text in texts])

    def answer(self, questions: Sequence[str], contexts: Sequence[str]) -> list[Record]:
        """The answer to each question in its context.

        Returns:
            A dictionary for each question: 'answer' ('' if unanswerable), 'start', 'end' (offsets
            in the context, in characters), 'probability', and 'n_best', a list of alternatives.
        """
        _check_list(questions)
        _check_list(contexts)
        if len(questions) != len(contexts):
            raise UserError(
                f'{len(questions)} questions need as many contexts, not {len(contexts)}'
            )
        pairs = zip(questions, contexts, strict=True)
        return self.predict(
            'answer', [{'question': question, 'context': context} for question, context in pairs]
        )

    def predict(self, task: str, inputs: Sequence[Mapping[str, Any]]) -> list[Record]:
        """Answers a fine-tuned task for dictionaries; what the methods of the same names call.

        Args:
            task: 'classify', 'tag', 'spans' or 'answer'.
            inputs: see these methods; 'id' names an input in errors and results.
        """
        self.require(task)
        if not self._finetuned or task != self._finetuned.task:
            raise UserError(f'{task} is not a task of fine-tuned models')
        return self._finetuned.predict(self._params, inputs, self._advance)

    def _encode(self, texts: Sequence[str]) -> list[np.ndarray]:
        ids, lengths = self.tokenizer.encode_ids(texts)
        return np.split(ids, np.cumsum(lengths))[:-1]

    def _one_masked(self, ids: np.ndarray) -> Iterator[TokenizedText]:
        for window in self._cut(ids):
            for token in range(window.first, window.last):
                position = token - window.start + 1
                row = self._row(
                    ids,
                    window,
                    positions=np.array([position]),
                    targets=np.array([ids[token]]),
                )
                row.ids[position] = self.tokenizer.mask_id
                yield row

    def _cut(self, ids: np.ndarray) -> list[sliding_windows.Window]:
        return sliding_windows.make_windows(len(ids), self._size, self._overlap)

    def _row(
        self, ids: np.ndarray, window: sliding_windows.Window, **extras: np.ndarray
    ) -> TokenizedText:
        cls_id, sep_id = [self.tokenizer.cls_id], [self.tokenizer.sep_id]
        row = np.concatenate([cls_id, ids[window.start : window.stop], sep_id]).astype(np.int32)
        return TokenizedText(row, extras)

    def _token(self, index: int) -> str:
        vocab = self.tokenizer.vocab
        # An embedding may have more rows than the vocabulary has tokens.
        return vocab[index] if index < len(vocab) else f'[{index}]'

    def _check_layer(self, layer: int | str) -> None:
        num_layers = self.architecture.num_layers
        if isinstance(layer, str):
            if layer not in LAST_FOUR:
                raise unknown('layer', layer, ('a number', *LAST_FOUR))
            if num_layers < 4:
                raise UserError(f'{layer} needs 4 layers, but {self._name} has {num_layers}')
        elif not -num_layers - 1 <= layer <= num_layers:
            raise UserError(f'layer is {layer}, must be from 0 (embeddings) to {num_layers}')


def _check_list(texts: Sequence[Any]) -> None:
    if isinstance(texts, str):
        raise UserError(f'expected a list of texts, not the string {texts[:40]!r}; put it in [ ]')


def _is_causal(model: Pretrained) -> bool:
    """Whether the model was trained with causal attention, and must be used so."""
    return objectives.is_causal(model.metadata.get('config', {}).get('objectives', {}))
