"""Arrays in buckets against NumPy: their values, what is read, and how much is kept."""

import gc

import numpy as np
import pytest

from bert_jax.storage import block_cache
from bert_jax.storage.paths import CacheSettings, open_arrays


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    monkeypatch.setattr(block_cache, 'BLOCK_BYTES', 1000)


@pytest.fixture
def values(root, tmp_path):
    """Sorted values, and their file in a bucket."""
    values = np.sort(np.random.default_rng(0).integers(0, 10**6, 2_345))
    np.save(tmp_path / 'values.npy', values)
    (root / 'values.npy').upload(tmp_path / 'values.npy')
    return values


def opened(root, folder, max_bytes=10**9):
    """The array, with a cache as of another process."""
    block_cache.open_cache.cache_clear()
    gc.collect()  # the cache before, which has locked the folder
    return open_arrays({root / 'values.npy': 'digest'}, CacheSettings(str(folder), max_bytes))[0]


def reads(server):
    return sum('values.npy' in request and 'GET' in request for request in server.requests)


def test_values_are_those_of_numpy(values, root, tmp_path):
    array = opened(root, tmp_path / 'cache')
    rng = np.random.default_rng(1)
    index = rng.integers(0, len(values), (7, 31))
    assert (len(array), array.dtype) == (len(values), values.dtype)
    np.testing.assert_array_equal(array.take(index), values.take(index))
    np.testing.assert_array_equal(array[index], values[index])
    np.testing.assert_array_equal(array[:-1], values[:-1])
    np.testing.assert_array_equal(array[::7], values[::7])
    np.testing.assert_array_equal(np.asarray(array), values)
    assert (array[-1], array[5]) == (values[-1], values[5])
    wanted = np.concatenate([values, values + 1, [-1, 10**7], rng.integers(0, 10**6, 500)])
    np.testing.assert_array_equal(array.searchsorted(wanted), values.searchsorted(wanted))
    assert len(array.take(np.zeros(0, int))) == 0


def test_a_block_is_read_once_also_by_later_processes(values, root, server, tmp_path):
    np.asarray(opened(root, tmp_path / 'cache'))
    array = opened(root, tmp_path / 'cache')  # reads the header
    before = reads(server)
    np.testing.assert_array_equal(np.asarray(array), values)
    assert reads(server) == before


def test_a_damaged_block_is_read_again(values, root, server, tmp_path):
    np.asarray(opened(root, tmp_path / 'cache'))
    (block,) = (tmp_path / 'cache').glob('*/3.block')
    block.write_bytes(block.read_bytes()[:-10] + bytes(10))
    array = opened(root, tmp_path / 'cache')
    before = reads(server)
    np.testing.assert_array_equal(np.asarray(array), values)
    assert reads(server) == before + 1


def test_a_cache_keeps_its_size_and_what_was_used_last(values, root, server, tmp_path):
    folder = tmp_path / 'cache'
    array = opened(root, folder, max_bytes=5_000)
    for _ in range(2):
        np.testing.assert_array_equal(np.asarray(array), values)
        assert sum(file.stat().st_size for file in folder.rglob('*.block')) <= 5_000
    array[-100:]
    before = reads(server)
    np.testing.assert_array_equal(array[-100:], values[-100:])
    assert reads(server) == before


def test_a_second_process_has_a_folder_of_its_own(values, root, tmp_path):
    first = opened(root, tmp_path / 'cache')
    block_cache.open_cache.cache_clear()
    settings = CacheSettings(str(tmp_path / 'cache'), 2_000)
    second = open_arrays({root / 'values.npy': 'digest'}, settings)[0]
    np.testing.assert_array_equal(np.asarray(second), values)
    np.testing.assert_array_equal(np.asarray(first), values)


def test_a_full_disk_costs_only_time(values, root, tmp_path, monkeypatch):
    def fail(*_):
        raise OSError(28, 'No space left on device')

    monkeypatch.setattr(block_cache.BlockCache, '_write', fail)
    array = opened(root, tmp_path / 'cache')
    np.testing.assert_array_equal(np.asarray(array), values)
