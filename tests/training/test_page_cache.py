"""What a save writes does not stay in the page cache: asked of the kernel, with mincore."""

import ctypes
import mmap
import os
import pathlib
import sys
import threading
import time

import jax.numpy as jnp
import pytest

from bert_jax.training import checksums, page_cache
from bert_jax.training.checkpoints import Checkpoints

pytestmark = pytest.mark.skipif(sys.platform != 'linux', reason='mincore as Linux has it')


def cached_pages(path: pathlib.Path) -> int:
    with open(path, 'r+b') as file, mmap.mmap(file.fileno(), 0) as mapped:
        pages = (ctypes.c_ubyte * -(-len(mapped) // mmap.PAGESIZE))()
        first = ctypes.c_char.from_buffer(mapped)
        size = ctypes.c_size_t(len(mapped))
        assert ctypes.CDLL(None).mincore(ctypes.byref(first), size, pages) == 0
        del first  # else the map cannot be closed
    return sum(page & 1 for page in pages)


def write(path: pathlib.Path) -> bytes:
    content = os.urandom(1 << 20)
    with open(path, 'wb') as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    return content


@pytest.fixture
def folder(tmp_path):
    """On a file system that has a page cache beside its disk."""
    probe = tmp_path / 'probe'
    write(probe)
    assert cached_pages(probe) == (1 << 20) // mmap.PAGESIZE
    page_cache._drop(tmp_path)
    if cached_pages(probe):
        pytest.skip('its files are in memory alone')
    probe.unlink()
    return tmp_path


def test_what_is_written_leaves_the_cache_meanwhile_and_stays_on_the_disk(folder):
    file = folder / 'below' / 'file'
    with page_cache.spared(folder):
        file.parent.mkdir()  # later than the first look
        content = write(file)
        deadline = time.monotonic() + 60
        while cached_pages(file):
            assert time.monotonic() < deadline
            time.sleep(0.01)
    assert file.read_bytes() == content


def test_what_was_last_written_leaves_it_at_the_end(folder, monkeypatch):
    monkeypatch.setattr(page_cache, '_PERIOD', 3600)
    with page_cache.spared(folder):
        write(folder / 'file')
        assert cached_pages(folder / 'file')
    assert not cached_pages(folder / 'file')


def test_other_files_stay(folder):
    (folder / 'spared').mkdir()
    write(folder / 'other')
    with page_cache.spared(folder / 'spared'):
        write(folder / 'spared' / 'file')
    assert cached_pages(folder / 'other') == (1 << 20) // mmap.PAGESIZE


def test_a_checkpoint_is_not_cached(folder):
    made = Checkpoints(folder, keep=1)
    made.save(1, {'a': jnp.arange(1 << 18)}, {})
    made.close()
    files = [file for file in (folder / '1').rglob('*') if file.is_file()]
    files.remove(folder / '1' / checksums.NAME)
    assert sum(file.stat().st_size for file in files) > 1 << 20
    assert not sum(map(cached_pages, files))


def test_the_arrays_of_a_checkpoint_leave_it_before_they_are_digested(folder, monkeypatch):
    cached = []

    def look(unfinished):
        files = (file for file in unfinished.rglob('*') if file.is_file())
        cached.extend(cached_pages(file) for file in files if file.stat().st_size > 1 << 20)

    monkeypatch.setattr(checksums, 'write', look)
    made = Checkpoints(folder, keep=1)
    made.save(1, {'a': jnp.arange(1 << 18)}, {})
    made.close()
    assert cached == [0]


def test_a_file_read_once_leaves_it_piece_by_piece(folder):
    content = write(folder / 'file')
    piece = bytearray(1 << 19)
    with page_cache.ReadOnce(folder / 'file') as file:
        assert file.readinto(piece) == 1 << 19
        assert piece == content[: 1 << 19]
        assert cached_pages(folder / 'file')
        assert file.readinto(piece) == 1 << 19
        assert piece == content[1 << 19 :]
        assert cached_pages(folder / 'file') <= (1 << 19) // mmap.PAGESIZE
        assert file.readinto(piece) == 0
    assert not cached_pages(folder / 'file')


def test_an_error_passes_and_leaves_no_thread(tmp_path):
    before = threading.active_count()
    with pytest.raises(ZeroDivisionError), page_cache.spared(tmp_path):
        raise ZeroDivisionError
    assert threading.active_count() == before


def test_files_that_go_while_they_are_looked_at_are_no_error(tmp_path, monkeypatch):
    looked, errors = [], []
    monkeypatch.setattr(os, 'walk', lambda top: looked.append(top) or [(top, [], ['gone'])])
    monkeypatch.setattr(threading, 'excepthook', errors.append)
    monkeypatch.setattr(page_cache, '_PERIOD', 3600)
    with page_cache.spared(tmp_path):
        assert not looked
    assert looked == [tmp_path]
    assert not errors


def test_a_system_that_cannot_saves_all_the_same(tmp_path, monkeypatch):
    monkeypatch.delattr(os, 'posix_fadvise')
    made = Checkpoints(tmp_path, keep=1)
    made.save(1, {'a': jnp.arange(9)}, {})
    made.close()
    assert made.steps() == [1]
