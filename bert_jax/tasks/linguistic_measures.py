"""What linguistic evaluation measures: minimal pairs, parts of speech, isotropy.

Each measure runs one compiled program on batches of one shape, on any mesh.
"""

import copy
import dataclasses
import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import PartitionSpec
from ml_collections import ConfigDict

from bert_jax.data import minimal_pairs
from bert_jax.data.corpus import Corpus
from bert_jax.data.labeled.examples import TaggedExample
from bert_jax.data.labeled.loader import DEFAULTS
from bert_jax.data.tokenizers import Tokenizer
from bert_jax.errors import UserError
from bert_jax.evaluation import isotropy, preferences, ridge_probe
from bert_jax.evaluation.scored_rows import RowMaker
from bert_jax.models.packed_rows import gather_positions
from bert_jax.objectives.model import PretrainingModel
from bert_jax.tasks import problems
from bert_jax.training import batches
from bert_jax.types import Batch, Config, Params

Metrics = dict[str, float]
_TEST_EVERY = 3  # every third sentence of the treebank tests the probe


class RowBatches:
    """Arrays of rows as batches of one shape; the last one is filled up with the first rows."""

    def __init__(self, arrays: dict[str, np.ndarray], batch_size: int) -> None:
        self.batch_size, self._arrays = batch_size, arrays
        self.num_examples = len(arrays['input_ids'])

    def batch(
        self, step: int | np.ndarray, rows: slice | np.ndarray = slice(None)
    ) -> dict[str, np.ndarray]:
        """Return rows of a batch; see `BatchSource.batch`."""
        first = np.multiply(step, self.batch_size)[..., None]
        numbers = (first + np.arange(self.batch_size)[rows]) % self.num_examples
        return {name: array[numbers] for name, array in self._arrays.items()}


@dataclasses.dataclass(frozen=True)
class Setting:
    """What all measures need.

    Attributes:
        config: `config.evaluation.linguistic`.
        model: the model.
        corpus: has the tokenizer and the frequencies of tokens.
        text: a clean held-out batch; batches of all measures have about as many tokens.
        threads: number of threads that read batches.
        is_special: whether ids are special tokens, for arrays of any shape.
    """

    config: Config
    model: PretrainingModel
    corpus: Corpus
    text: Batch
    threads: int
    is_special: Callable[[jax.Array], jax.Array]

    def flops(self, rows: int, length: int) -> float:
        """Operations of a forward pass; a training step takes three times as many."""
        return rows * length * self.model.flops_per_token(length, 1) / 3

    def batches(self, arrays: dict[str, np.ndarray]) -> RowBatches:
        """Batches of rows of the same length."""
        rows, longest = self.text['input_ids'].shape
        length = arrays['input_ids'].shape[1]
        return RowBatches(arrays, rows * max(1, longest // length))

    def run(self, program: Callable[..., Any], params: Params, source: RowBatches) -> np.ndarray:
        """Run a program on all rows; return what it computes for each, [rows, …]."""
        num_batches = -(-source.num_examples // source.batch_size)
        read = batches.read(source, 0, num_batches, self.threads)
        return np.concatenate([jax.device_get(program(params, batch)) for batch in read])[
            : source.num_examples
        ]


class Pairs:
    """Accuracy on minimal pairs: 'pairs', the mean of all paradigms, and 'pairs/PHENOMENON'.

    Attributes:
        flops: operations of one evaluation.
        unigram: the same metrics of token frequencies.
    """

    def __init__(self, setting: Setting, budget: float) -> None:
        """Make the rows of as many pairs of each paradigm as `budget` operations allow."""
        config, tokenizer = setting.config, setting.corpus.tokenizer
        if setting.model.token_predictor() is None:
            raise UserError(
                'evaluation.linguistic.pairs needs an objective by which the encoder predicts '
                'tokens: mlm without rtd, or clm'
            )
        maker = RowMaker.of(tokenizer, is_causal=setting.model.is_causal())
        every = minimal_pairs.read(config.pairs)
        for number in range(config.pairs_per_paradigm, 0, -1):
            self._pairs = minimal_pairs.sample(every, number)
            ids = _encode(tokenizer, (text for pair in self._pairs for text in pair[:2]))
            length = _padded_length(map(len, ids), setting)
            rows = [maker.rows(own, np.arange(1, len(own) - 1)) for own in ids]
            self.flops = setting.flops(sum(map(len, rows)), length)
            if self.flops <= budget:
                break
        flat = [row for own in rows for row in own]
        self._first_rows = np.cumsum([0, *map(len, rows[:-1])])
        self._counts = np.array([len(row.targets) for row in flat])
        arrays = _inputs([row.ids for row in flat], length, tokenizer.pad_id)
        for name in ('positions', 'targets'):
            arrays[name] = _pad([getattr(row, name) for row in flat], self._counts.max())
        self._setting, self._source = setting, setting.batches(arrays)
        self._program = _replicated(functools.partial(_log_probabilities, setting.model))
        counts_V = setting.corpus.unigram_counts('train')
        unigram = preferences.unigram_scores([own[1:-1] for own in ids], counts_V)
        self.unigram = self._accuracies(unigram)
        self.line = (
            f'{len(self._pairs):,} minimal pairs, up to {number} of a paradigm, as {len(flat):,} '
            f'rows of {length} tokens'
        )

    def __call__(self, params: Params) -> Metrics:
        """Return the metrics of parameters."""
        log_p_NP = self._setting.run(self._program, params, self._source).astype(np.float64)
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

    A word is represented by its first subword. Sentences that are longer than the held-out batch's
    rows are left out.

    Attributes:
        flops: operations of one evaluation.
    """

    def __init__(self, setting: Setting) -> None:
        """Make the rows of the sentences and the class of each word."""
        tokenizer, longest = setting.corpus.tokenizer, setting.text['input_ids'].shape[1]
        read = _sample(_read_tagged(setting.config.treebank), setting.config.sentences)
        encoded = tokenizer.encode_batch([sentence.text for sentence in read])
        ends = [offsets[:, 1] for offsets in encoded.offsets]
        fits = [0 < len(ids) <= longest - 2 for ids in encoded.ids]
        sentences, self._words, rows = [], [], []
        for sentence, ids, end, does_fit in zip(read, encoded.ids, ends, fits, strict=True):
            if does_fit:
                first = np.searchsorted(end, np.array(sentence.words)[:, 0], side='right')
                sentences.append(sentence)
                self._words.append(first.clip(max=len(ids) - 1) + 1)  # after [CLS]
                rows.append(np.concatenate([[tokenizer.cls_id], ids, [tokenizer.sep_id]]))
        if len(rows) < 2 * _TEST_EVERY:
            raise UserError(
                f'evaluation.linguistic.treebank has {len(rows)} sentences of up to {longest} '
                f'tokens; the probe needs at least {2 * _TEST_EVERY}'
            )
        tags = [tag for sentence in sentences for tag in sentence.tags or ()]
        names, self._tags = np.unique(tags, return_inverse=True)
        self._num_tags = len(names)
        is_test = np.arange(len(rows)) % _TEST_EVERY == 0
        self._is_test = np.repeat(is_test, list(map(len, self._words)))
        length = _padded_length(map(len, rows), setting)
        arrays = _inputs(rows, length, tokenizer.pad_id)
        arrays['positions'] = _pad(self._words, max(map(len, self._words)))
        self._setting, self._source = setting, setting.batches(arrays)
        self._program = _replicated(functools.partial(_word_states, setting.model))
        self.flops = setting.flops(len(rows), length)
        test_tags = self._tags[self._is_test]
        self.line = (
            f'part-of-speech probe, {len(rows):,} sentences, every third for testing; the most '
            f'frequent tag has {np.bincount(test_tags).max() / len(test_tags):.3f}'
        )

    def __call__(self, params: Params) -> Metrics:
        """Return the metric of parameters."""
        states_NWD = self._setting.run(self._program, params, self._source)
        features = [own[: len(words)] for own, words in zip(states_NWD, self._words, strict=True)]
        return {
            'pos_accuracy': ridge_probe.accuracy(
                np.concatenate(features), self._tags, self._is_test, self._num_tags
            )
        }


class Isotropy:
    """Mean cosine of two held-out tokens in each layer: 'mean_cosine/LAYER'.

    Attributes:
        flops: operations of one evaluation.
    """

    def __init__(self, setting: Setting) -> None:
        self._setting = setting
        self._source = RowBatches(dict(setting.text), len(setting.text['input_ids']))
        sums = functools.partial(_unit_sums, setting.model, setting.is_special)
        self._program = _replicated(sums)
        self.flops = setting.flops(*setting.text['input_ids'].shape)
        self.line = f'mean cosine of {setting.text["attention_mask"].sum():,} held-out tokens'

    def __call__(self, params: Params) -> Metrics:
        """Return the metrics of parameters."""
        (batch,) = batches.read(self._source, 0, 1, self._setting.threads)
        sums_LD, squares_LD, count = jax.device_get(self._program(params, batch))
        found = {}
        for layer, arrays in enumerate(zip(sums_LD, squares_LD, strict=True)):
            sums_1D, squares_1D = (array[None].astype(np.float64) for array in arrays)
            unit = isotropy.UnitSums(sums_1D, squares_1D, np.array([float(count)]))
            found[f'mean_cosine/{layer}'] = float(unit.contributions().sum())
        return found


def _replicated(program: Callable[..., Any]) -> Callable[..., Any]:
    """Compile a program whose results every host has."""
    return jax.jit(program, out_shardings=PartitionSpec())


def _log_probabilities(model: PretrainingModel, params: Params, batch: Batch) -> Any:
    return model.apply({'params': params}, batch, method=PretrainingModel.log_probabilities)


def _word_states(model: PretrainingModel, params: Params, batch: Batch) -> jax.Array:
    states_LBTD: Any = model.apply({'params': params}, batch, method=PretrainingModel.states)
    return gather_positions(states_LBTD[-1], batch['positions']).astype(jnp.float32)


def _unit_sums(
    model: PretrainingModel,
    is_special: Callable[[jax.Array], jax.Array],
    params: Params,
    batch: Batch,
) -> tuple[jax.Array, ...]:
    """Sums over the unit vectors of all tokens that are not special, and of their squares."""
    states_LBTD: Any = model.apply({'params': params}, batch, method=PretrainingModel.states)
    states_LBTD = states_LBTD.astype(jnp.float32)
    is_token_BT = (batch['attention_mask'] > 0) & ~is_special(batch['input_ids'])
    norms_LBT1 = jnp.linalg.norm(states_LBTD, axis=-1, keepdims=True)
    unit_LBTD = jnp.where(is_token_BT[:, :, None], states_LBTD / norms_LBT1, 0)
    return unit_LBTD.sum((1, 2)), jnp.square(unit_LBTD).sum((1, 2)), is_token_BT.sum()


def _read_tagged(patterns: Sequence[str]) -> list[TaggedExample]:
    """Sentences of CoNLL-U files with universal part-of-speech tags."""
    data = ConfigDict(copy.deepcopy(DEFAULTS))
    data.train, data.dev_fraction, data.format = tuple(patterns), 0.0, 'conllu'
    data.scheme, data.columns.tag = 'none', 'upos'
    sentences: Any = problems.read(data, 'tagging').train
    return sentences


def _sample(sentences: list[TaggedExample], number: int) -> list[TaggedExample]:
    """Evenly spaced sentences, so that every genre is represented."""
    chosen = np.linspace(0, len(sentences) - 1, min(number, len(sentences))).round().astype(int)
    return [sentences[index] for index in chosen]


def _encode(tokenizer: Tokenizer, texts: Iterable[str]) -> list[np.ndarray]:
    """The ids of each text between [CLS] and [SEP]."""
    ids, lengths = tokenizer.encode_ids(list(texts))
    return [
        np.concatenate([[tokenizer.cls_id], own, [tokenizer.sep_id]]).astype(np.int32)
        for own in np.split(ids, np.cumsum(lengths))[:-1]
    ]


def _padded_length(lengths: Iterable[int], setting: Setting) -> int:
    """The longest length, up to a multiple of 8. Raises UserError above the model's input."""
    longest, limit = max(lengths), setting.model.architecture.max_length
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
    for row, own in zip(padded, rows, strict=True):
        row[: len(own)] = own
    return padded
