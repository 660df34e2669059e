"""The measures of linguistic evaluation: minimal pairs, parts of speech, isotropy.

Each measure runs one compiled program on batches of one shape, on any mesh.
"""

import functools
import itertools
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import PartitionSpec

from bert_jax import problems
from bert_jax.analyze.measures import isotropy, preferences, ridge_probe
from bert_jax.analyze.readers import minimal_pairs
from bert_jax.errors import UserError
from bert_jax.examples.example_source import ExampleSource, FirstExamples
from bert_jax.inference.computation import log_probabilities
from bert_jax.labels.data_keys import make_config
from bert_jax.labels.examples import TaggedExample
from bert_jax.metrics.scored_rows import RowMaker, add_special, encode_rows
from bert_jax.models.model import Model
from bert_jax.models.rows import Rows, gather_positions
from bert_jax.tasks.pretraining import EvaluatorInputs
from bert_jax.training import batches
from bert_jax.types import Batch, Params, Tree

Metrics = dict[str, float]
_TEST_EVERY = 3  # every third sentence of the treebank tests the probe


def find_predictor(model: Model) -> Model:
    """Return the encoder with the head that predicts tokens. Raises UserError without one."""
    for name in ('mlm', 'clm'):
        if name in model.heads:
            return model.with_heads(name)
    raise UserError(
        'evaluation.linguistic.pairs needs an objective with which the encoder predicts '
        'tokens: mlm without rtd, or clm'
    )


class ArrayRows(ExampleSource):
    """Examples from arrays of rows."""

    def __init__(self, arrays: dict[str, np.ndarray], batch_size: int) -> None:
        self.batch_size, self._arrays = batch_size, arrays
        self.num_examples = len(arrays['input_ids'])

    def examples(self, number_B: np.ndarray) -> dict[str, np.ndarray]:
        """Return the rows with these numbers."""
        return {name: array[number_B % self.num_examples] for name, array in self._arrays.items()}


class Measure(Protocol):
    """A measure of parameters.

    Attributes:
        flops: operations of one evaluation.
        line: what is measured, for the log.
    """

    flops: float
    line: str

    def __call__(self, params: Params) -> Metrics:
        """Return the metrics of parameters."""


def _flops(inputs: EvaluatorInputs, rows: int, length: int) -> float:
    """Return the operations of a forward pass, a third of the operations of a training step."""
    return rows * length * inputs.model.flops_per_token(length, 1) / 3


def _batches(inputs: EvaluatorInputs, arrays: dict[str, np.ndarray]) -> FirstExamples:
    """Batch rows of the same length."""
    longest, length = inputs.text['input_ids'].shape[1], arrays['input_ids'].shape[1]
    rows = ArrayRows(arrays, inputs.rows * max(1, longest // length))
    return FirstExamples(rows, rows.num_examples)


def _run(
    program: Callable[..., Tree], params: Params, source: FirstExamples, threads: int
) -> np.ndarray:
    """Run a program on all rows; return its result for each row, [rows, …]."""
    read = batches.read(source, 0, source.num_batches, threads)
    return np.concatenate([jax.device_get(program(params, batch)) for batch in read])[
        : source.num_examples
    ]


class MinimalPairAccuracy:
    """Accuracy on minimal pairs: 'pairs', the mean of all paradigms, and 'pairs/PHENOMENON'.

    Attributes:
        flops: operations of one evaluation.
        unigram: the metrics that token frequencies reach.
    """

    def __init__(self, inputs: EvaluatorInputs, budget: float) -> None:
        """Make the rows of as many pairs of each paradigm as `budget` operations allow."""
        settings, tokenizer = inputs.settings, inputs.corpus.tokenizer
        predictor = find_predictor(inputs.model)
        maker = RowMaker.of(tokenizer, is_causal=predictor.is_causal)
        every = minimal_pairs.read(settings.pairs)
        for number in range(settings.pairs_per_paradigm, 0, -1):
            self._pairs = minimal_pairs.sample(every, number)
            texts = encode_rows(tokenizer, [text for pair in self._pairs for text in pair[:2]])
            length = _padded_length(map(len, texts), inputs)
            rows_of_texts = [maker.rows(ids, np.arange(1, len(ids) - 1)) for ids in texts]
            rows = list(itertools.chain.from_iterable(rows_of_texts))
            self.flops = _flops(inputs, len(rows), length)
            if self.flops <= budget:
                break
        self._first_rows = np.cumsum([0, *map(len, rows_of_texts[:-1])])
        self._counts = np.array([len(row.targets) for row in rows])
        arrays = _inputs([row.ids for row in rows], length, tokenizer.pad_id)
        for name in ('positions', 'targets'):
            arrays[name] = _pad([getattr(row, name) for row in rows], self._counts.max())
        self._threads, self._source = inputs.threads, _batches(inputs, arrays)
        self._program = _replicated(functools.partial(log_probabilities, predictor))
        counts_V = inputs.corpus.unigram_counts('train')
        unigram = preferences.unigram_scores([ids[1:-1] for ids in texts], counts_V)
        self.unigram = self._accuracies(unigram)
        self.line = (
            f'{len(self._pairs):,} minimal pairs, up to {number} of a paradigm, as {len(rows):,} '
            f'rows of {length} tokens'
        )

    def __call__(self, params: Params) -> Metrics:
        """Return the metrics of parameters."""
        log_p_NP = _run(self._program, params, self._source, self._threads).astype(np.float64)
        is_used_NP = np.arange(log_p_NP.shape[1]) < self._counts[:, None]
        sums_N = np.where(is_used_NP, log_p_NP, 0).sum(1)
        return self._accuracies(np.add.reduceat(sums_N, self._first_rows))

    def _accuracies(self, scores: np.ndarray) -> Metrics:
        hits = preferences.prefers_first(scores.reshape(-1, 2))
        paradigms = preferences.groups([pair.paradigm for pair in self._pairs])
        phenomena = preferences.groups([pair.phenomenon for pair in self._pairs])
        return {'pairs': float(np.mean([hits[chosen].mean() for _, chosen in paradigms]))} | {
            f'pairs/{name}': float(hits[chosen].mean()) for name, chosen in phenomena
        }


class Probe:
    """Accuracy of a linear part-of-speech probe of the last layer: 'pos_accuracy'.

    A word is represented by its first subword. Sentences longer than the rows of the held-out batch
    are left out.

    Attributes:
        flops: operations of one evaluation.
    """

    def __init__(self, inputs: EvaluatorInputs) -> None:
        """Make the rows of the sentences and the class of each word."""
        tokenizer, longest = inputs.corpus.tokenizer, inputs.text['input_ids'].shape[1]
        sentences = _sample(read_tagged(inputs.settings.treebank), inputs.settings.sentences)
        encoded = tokenizer.encode_batch([s.text for s in sentences], special=True)
        tags: list[str] = []
        self._words, rows = [], []
        for sentence, ids, offsets in zip(sentences, encoded.ids, encoded.offsets, strict=True):
            if 0 < len(ids) <= longest - 2:
                starts = np.array(sentence.words)[:, 0]
                first = np.searchsorted(offsets[:, 1], starts, side='right')
                tags += sentence.tags or ()
                self._words.append(first.clip(max=len(ids) - 1) + tokenizer.text_start)
                rows.append(add_special(tokenizer, ids))
        if len(rows) < 2 * _TEST_EVERY:
            raise UserError(
                f'evaluation.linguistic.treebank has {len(rows)} sentences of up to {longest} '
                f'tokens; the probe needs at least {2 * _TEST_EVERY}'
            )
        names, self._tags = np.unique(tags, return_inverse=True)
        self._num_tags = len(names)
        is_test = np.arange(len(rows)) % _TEST_EVERY == 0
        self._is_test = np.repeat(is_test, list(map(len, self._words)))
        length = _padded_length(map(len, rows), inputs)
        arrays = _inputs(rows, length, tokenizer.pad_id)
        arrays['positions'] = _pad(self._words, max(map(len, self._words)))
        self._threads, self._source = inputs.threads, _batches(inputs, arrays)
        self._program = _replicated(functools.partial(_word_states, inputs.model))
        self.flops = _flops(inputs, len(rows), length)
        test_tags = self._tags[self._is_test]
        self.line = (
            f'part-of-speech probe, {len(rows):,} sentences, every third for testing; the most '
            f'frequent tag has {np.bincount(test_tags).max() / len(test_tags):.3f}'
        )

    def __call__(self, params: Params) -> Metrics:
        """Return the metric of parameters."""
        states_NWD = _run(self._program, params, self._source, self._threads)
        pairs = zip(states_NWD, self._words, strict=True)
        features = np.concatenate([states_WD[: len(words)] for states_WD, words in pairs])
        accuracy = ridge_probe.accuracy(features, self._tags, self._is_test, self._num_tags)
        return {'pos_accuracy': accuracy}


class MeanCosine:
    """Mean cosine similarity of two held-out tokens in each layer: 'mean_cosine/LAYER'.

    Attributes:
        flops: operations of one evaluation.
    """

    def __init__(self, inputs: EvaluatorInputs) -> None:
        self._threads = inputs.threads
        arrays = {name: np.asarray(array) for name, array in inputs.text.items()}
        self._source = _batches(inputs, arrays)
        sums = functools.partial(_unit_sums, inputs.model, inputs.is_special)
        self._program = _replicated(sums)
        self.flops = _flops(inputs, *inputs.text['input_ids'].shape)
        self.line = f'mean cosine of {inputs.text["attention_mask"].sum():,} held-out tokens'

    def __call__(self, params: Params) -> Metrics:
        """Return the metrics of parameters."""
        read = batches.read(self._source, 0, self._source.num_batches, self._threads)
        parts = [jax.device_get(self._program(params, batch)) for batch in read]
        sums_LD, squares_LD, count = (
            np.asarray(np.stack(part).sum(axis=0, dtype=np.float64))
            for part in zip(*parts, strict=True)
        )
        metrics = {}
        for layer, (sums_D, squares_D) in enumerate(zip(sums_LD, squares_LD, strict=True)):
            unit = isotropy.UnitSums(sums_D[None], squares_D[None], count[None])
            metrics[f'mean_cosine/{layer}'] = float(unit.contributions().sum())
        return metrics


def _replicated(program: Callable[..., Tree]) -> Callable[..., Tree]:
    """Jit a program whose results are replicated on every host."""
    return jax.jit(program, out_shardings=PartitionSpec())


def _states(model: Model, params: Params, batch: Batch) -> jax.Array:
    """Return the embeddings and the states of every layer, [L + 1, B, T, D]."""
    output: Tree = model.with_heads().apply({'params': params}, Rows.of(batch), all_hidden=True)
    states_LBTD: jax.Array = output.states.all_hidden_LBTD
    return states_LBTD


def _word_states(model: Model, params: Params, batch: Batch) -> jax.Array:
    states_BTD = _states(model, params, batch)[-1]
    return gather_positions(states_BTD, batch['positions']).astype(jnp.float32)


def _unit_sums(
    model: Model,
    is_special: Callable[[jax.Array], jax.Array],
    params: Params,
    batch: Batch,
) -> tuple[jax.Array, ...]:
    """Sum the unit vectors, and their squares, of all tokens that are not special; count them."""
    states_LBTD = _states(model, params, batch).astype(jnp.float32)
    is_token_BT = (batch['attention_mask'] > 0) & ~is_special(jnp.asarray(batch['input_ids']))
    norms_LBT1 = jnp.linalg.norm(states_LBTD, axis=-1, keepdims=True)
    unit_LBTD = jnp.where(is_token_BT[:, :, None], states_LBTD / norms_LBT1, 0)
    return unit_LBTD.sum((1, 2)), jnp.square(unit_LBTD).sum((1, 2)), is_token_BT.sum()


def read_tagged(patterns: Sequence[str]) -> list[TaggedExample]:
    """Read the sentences of CoNLL-U files with universal part-of-speech tags."""
    data = make_config()
    data.train, data.dev_fraction, data.format = tuple(patterns), 0.0, 'conllu'
    data.scheme, data.columns.tag = 'none', 'upos'
    examples = problems.read(data, 'tagging').train
    return [example for example in examples if isinstance(example, TaggedExample)]


def _sample(sentences: list[TaggedExample], number: int) -> list[TaggedExample]:
    """Choose evenly spaced sentences, so that every genre is represented."""
    chosen = np.linspace(0, len(sentences) - 1, min(number, len(sentences))).round().astype(int)
    return [sentences[index] for index in chosen]


def _padded_length(lengths: Iterable[int], inputs: EvaluatorInputs) -> int:
    """Round the longest length up to a multiple of 8. Raises UserError above the model's limit."""
    longest, limit = max(lengths), inputs.model.architecture.max_length
    if longest > limit:
        raise UserError(
            f'evaluation.linguistic: a sentence has {longest} tokens; the model takes {limit}'
        )
    return min(-(-longest // 8) * 8, limit)


def _inputs(rows: Sequence[np.ndarray], length: int, pad_id: int) -> dict[str, np.ndarray]:
    return {
        'input_ids': _pad(rows, length, pad_id),
        'attention_mask': _pad([np.ones(len(row)) for row in rows], length),
        'token_type_ids': np.zeros((len(rows), length), np.int32),
    }


def _pad(rows: Sequence[np.ndarray], length: int, value: int = 0) -> np.ndarray:
    padded = np.full((len(rows), length), value, np.int32)
    for padded_row, row in zip(padded, rows, strict=True):
        padded_row[: len(row)] = row
    return padded
