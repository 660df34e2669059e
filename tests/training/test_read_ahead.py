"""Reading ahead yields the batches and errors of the source, in order, from any step.

Every test runs twice: with TensorFlow, and as if it was not installed.
"""

import gc
import os
import pathlib
import subprocess
import sys
import threading
import time
import types
import weakref

import numpy as np
import pytest

from bert_jax.corpus import preparation
from bert_jax.errors import UserError
from bert_jax.examples import sentence_pairs
from bert_jax.examples.published_pairs import PublishedPairs
from bert_jax.examples.text_example_source import RowSettings
from bert_jax.training import batches
from tests import hidden_tensorflow

ROOT = pathlib.Path(__file__).parents[2]


@pytest.fixture(autouse=True, params=['tf.data', 'thread pool'])
def pipeline(request, monkeypatch):
    """Choose the pipeline of `read_ahead` as a machine with or without TensorFlow does."""
    if request.param == 'thread pool':
        hidden_tensorflow.hide(monkeypatch)


class Counter:
    """Batches that record what was requested; fails from a given step on."""

    def __init__(self, failing_step=10**9):
        self.failing_step = failing_step
        self.error = UserError('shard 3 is damaged')
        self.steps = []
        self.threads = set()

    def batch(self, step, rows):
        step = np.asarray(step)
        self.steps.extend(step.ravel().tolist())
        self.threads.add(threading.get_ident())
        if (step >= self.failing_step).any():
            raise self.error
        number = step[..., None] * 8 + np.arange(8)[rows]
        return {'z': number.astype(np.int32), 'a': np.stack([number, -number], -1) / 2}


def pairs_source():
    rng = np.random.default_rng(0)
    sentences = np.cumsum([0, *rng.integers(1, 9, size=300)])
    shard = types.SimpleNamespace(
        tokens=np.arange(10, 10 + sentences[-1], dtype=np.uint16),
        sentences=sentences,
        documents=np.arange(0, 301, 10),
        files=(),
    )
    tokenizer = types.SimpleNamespace(
        pad_id=0, first_id=1, sep_id=2, vocab_size=2**16, is_cls_last=False
    )
    split = types.SimpleNamespace(shards=[shard])
    return sentence_pairs.SentencePairs(RowSettings(split, tokenizer, 16, batch_size=8, seed=3))


@pytest.mark.parametrize('start', [0, 1, 3, 6, 16, 17])
@pytest.mark.parametrize('workers', [1, 3])
def test_batches_are_those_of_the_source_from_any_step(start, workers):
    source, rows = pairs_source(), slice(2, 6)
    found = list(batches.read_ahead(source, start, 17, rows, workers=workers))
    assert len(found) == 17 - start
    for step, batch in enumerate(found, start):
        expected = source.batch(step, rows)
        assert list(batch) == list(expected)
        for name, array in expected.items():
            assert isinstance(batch[name], np.ndarray)
            assert batch[name].dtype == array.dtype
            np.testing.assert_array_equal(batch[name], array)


def test_names_dtypes_and_rows_are_kept():
    (batch,) = batches.read_ahead(Counter(), 5, 6, np.array([7, 1]))
    assert {name: array.dtype for name, array in batch.items()} == {'z': np.int32, 'a': np.float64}
    assert batch['z'].tolist() == [47, 41]
    assert batch['a'].tolist() == [[23.5, -23.5], [20.5, -20.5]]


def test_an_empty_range_of_steps_yields_nothing():
    assert list(batches.read_ahead(Counter(), 5, 5)) == []


@pytest.mark.parametrize('failing_step', [0, 9, 21])
def test_an_exception_in_the_source_is_raised_unchanged(failing_step):
    source, seen = Counter(failing_step), []
    with pytest.raises(UserError, match='^shard 3 is damaged$') as caught:
        seen.extend(batch['z'][0] // 8 for batch in batches.read_ahead(source, 0, 100))
    assert caught.value is source.error
    assert seen == list(range(len(seen)))
    assert len(seen) <= failing_step < len(seen) + 4


def test_batches_are_prefetched_in_other_threads():
    source = Counter()
    iterator = batches.read_ahead(source, 0, 1000)
    next(iterator)
    deadline = time.monotonic() + 20
    while len(set(source.steps)) < 8 and time.monotonic() < deadline:
        time.sleep(0.01)
    made = set(source.steps)
    assert set(range(8)) <= made
    time.sleep(0.2)
    assert max(source.steps) < 64  # but not without bound
    assert source.threads - {threading.get_ident()}


@pytest.mark.parametrize('finished', [True, False])
def test_a_finished_pipeline_releases_its_source(finished):
    def use():
        source = Counter()
        iterator = batches.read_ahead(source, 0, 20)
        if finished:
            assert len(list(iterator)) == 20
        else:
            next(iterator)
            iterator.close()
        return weakref.ref(source)

    remaining = [use() for _ in range(5)]
    deadline = time.monotonic() + 20
    while any(source() for source in remaining) and time.monotonic() < deadline:
        gc.collect()
        time.sleep(0.05)
    assert not any(source() for source in remaining)


def test_stopping_waits_for_the_batches_in_progress():
    source = Counter()
    make = source.batch
    source.batch = lambda step, rows: time.sleep(0.05) or make(step, rows)
    for _ in range(5):
        iterator = batches.read_ahead(source, 0, 400)
        next(iterator)
        iterator.close()
    made = len(source.steps)
    time.sleep(0.3)
    assert len(source.steps) == made


def test_tensorflow_is_imported_with_the_first_batch():
    script = (
        'import sys\n'
        'from bert_jax.examples import sentence_pairs\nfrom bert_jax.training import batches\n'
        'assert "tensorflow" not in sys.modules\n'
    )
    subprocess.run([sys.executable, '-c', script], cwd=ROOT, check=True, timeout=60)


@pytest.mark.parametrize('faithful', [False, True])
def test_pairs_of_real_text(real_data, tmp_path, faithful):
    """Every segment is found in a document: B right after A, or in another document."""
    corpus = preparation.prepare(
        [f'text:{real_data}/wikitext2_valid/valid.txt;documents=title:^ = [^=].* = $'],
        tokenizer=str(real_data / 'vocab_bert_base_uncased'),
        output=tmp_path / 'articles',
        workers=0,
        shard_tokens=50_000,
        held_out_fraction=0.05,
    )
    split = corpus.split('train')
    assert len(split.shards) > 2
    texts = []
    for shard in split.shards:
        starts = np.asarray(shard.sentences)[shard.documents]
        texts += [bytes(text.astype('>u2')) for text in np.split(shard.tokens, starts[1:-1])]
    settings = RowSettings(split, corpus.tokenizer, 128, 64, seed=0)
    kind = PublishedPairs if faithful else sentence_pairs.SentencePairs
    source = kind(settings)
    labels = []
    for batch in batches.read_ahead(source, 0, 20):
        names = ('input_ids', 'token_type_ids', 'attention_mask', 'next_sentence_label')
        for ids, kinds, mask, label in zip(*(batch[name] for name in names), strict=True):
            a = bytes(ids[(kinds == 0) & (mask == 1)][1:-1].astype('>u2'))
            b = bytes(ids[kinds == 1][:-1].astype('>u2'))
            together = [a in text and b in text[text.index(a) + len(a) :] for text in texts]
            assert any(together) or label == 1
            assert any(b in text for text in texts)
            assert any(a in text for text in texts)
            # By chance, a short segment may also occur in the document of the other.
            assert not any(together) or label == 0 or min(len(a), len(b)) < 40 or faithful
            labels.append(label)
    assert np.mean(labels) == 0.5 or (faithful and 0.4 < np.mean(labels) < 0.7)


def test_an_error_of_a_source_leaves_no_log_of_tensorflow():
    """It wrote 150 lines before the error."""
    code = """
import numpy as np
from bert_jax.errors import UserError
from bert_jax.training import batches

class Failing:
    def batch(self, step, rows):
        if np.max(step) > 8:
            raise UserError('the corpus has changed')
        return {'a': np.zeros((*np.shape(step), 2))}

found = []
try:
    found.extend(batches.read_ahead(Failing(), 0, 20, workers=2))
except UserError as error:
    print(len(found), error)
"""
    environment = {name: value for name, value in os.environ.items() if 'TF_CPP' not in name}
    done = subprocess.run(
        [sys.executable, '-c', code], cwd=ROOT, env=environment, capture_output=True, text=True
    )
    assert done.stdout == '8 the corpus has changed\n', done.stderr
    assert 'Traceback' not in done.stderr
    assert 'op_kernel' not in done.stderr
