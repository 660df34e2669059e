"""With and without TensorFlow the same batches are read, bit for bit, for every kind of run."""

import numpy as np
import pytest

from bert_jax.examples.batch_orders import Stratified
from bert_jax.examples.example_source import FirstExamples
from bert_jax.examples.finetune_batches import Items, TokenSequence, TrainBatches
from bert_jax.examples.full_sentences import FullSentences
from bert_jax.examples.language_mixture import Mixture
from bert_jax.examples.packing import PackedRows
from bert_jax.examples.published_pairs import PublishedPairs
from bert_jax.examples.sentence_pairs import SentencePairs
from bert_jax.examples.text_example_source import RowSettings
from bert_jax.training import batches
from tests import hidden_tensorflow
from tests.examples.texts import Tokenizer, make_split, some_documents

BATCH = 8


def settings(seed=0):
    return RowSettings(make_split(some_documents(seed=seed), 2), Tokenizer, 32, BATCH, seed)


def finetuning():
    rng = np.random.default_rng(0)
    items = []
    for number, length in enumerate(rng.integers(3, 30, size=50)):
        ids = rng.integers(0, 100, size=length).astype(np.int32)
        fields = {'states': rng.normal(size=(length, 2)).astype(np.float32)}
        values = {'label': np.float32(number / 7)}
        items.append((TokenSequence(ids, np.zeros_like(ids), fields, values),))
    stored = Items(items, 0)
    return TrainBatches.plan(stored, Stratified(stored.length_N, BATCH, 3), 32, 60, multiple=4)


SOURCES = {
    'sentence pairs': lambda: SentencePairs(settings()),
    'published pairs': lambda: PublishedPairs(settings()),
    'packed': lambda: PackedRows(FullSentences(settings(), within_documents=True), 7),
    'languages': lambda: Mixture(
        {name: SentencePairs(settings(seed)) for seed, name in enumerate('ab')}, 0.5, BATCH, 0
    ),
    'held out': lambda: FirstExamples(SentencePairs(settings()), 19),
    'fine-tuning': finetuning,
}


@pytest.mark.parametrize('kind', SOURCES)
def test_all_hosts_read_the_same_batches_from_any_step(kind, monkeypatch):
    source = SOURCES[kind]()
    num_rows = len(source.batch(0)['input_ids'])
    shares = [slice(None), slice(0, num_rows // 2), np.arange(num_rows)[::-2]]
    # From the start, and resumed inside and at the end of the batches that are read at once.
    ranges = [(0, 2)] if kind == 'held out' else [(0, 10), (3, 10), (7, 8), (8, 13)]
    runs = [(start, stop, share) for start, stop in ranges for share in shares]
    with_tensorflow = [list(batches.read_ahead(source, *run, workers=2)) for run in runs]
    hidden_tensorflow.hide(monkeypatch)
    again = SOURCES[kind]()
    for run, expected in zip(runs, with_tensorflow, strict=True):
        found = list(batches.read_ahead(again, *run, workers=2))
        assert [raw(batch) for batch in found] == [raw(batch) for batch in expected]
        assert len(found) == run[1] - run[0]


def raw(batch):
    """The names, dtypes, shapes and bytes of a batch."""
    return [(name, a.dtype, a.shape, a.tobytes()) for name, a in batch.items()]
