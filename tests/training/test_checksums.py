"""Manifests find every changed bit, and nothing is committed before it is on disk."""

import os
import pathlib

import pytest

from bert_jax.loaded import checksums
from bert_jax.training.checkpoints import Checkpoints
from tests.training.checkpoint_states import make_state, save_all


@pytest.fixture
def checkpoint(tmp_path):
    save_all(tmp_path, [1])
    return tmp_path / '1'


@pytest.mark.parametrize('name', [checksums.NAME, 'metadata.json'])
def test_every_flipped_bit_is_found(checkpoint, name):
    path = checkpoint / name
    data = path.read_bytes()
    for position in range(0, len(data) * 8, 31):
        changed = bytearray(data)
        changed[position // 8] ^= 1 << position % 8
        path.write_bytes(changed)
        assert checksums.find_damage(checkpoint), position
        if name == 'metadata.json':
            assert checksums.find_damage(checkpoint, [name]), position
    path.write_bytes(data)
    assert checksums.find_damage(checkpoint) is None


def test_every_flipped_bit_of_added_metadata_is_found(checkpoint):
    made = Checkpoints.open(checkpoint.parent, 1)
    assert made.metadata()['step'] == 1
    made.replace_metadata(1, {'step': 1, 'best': {'step': 1}})
    assert made.metadata() == {'step': 1, 'best': {'step': 1}}
    path = checkpoint / checksums.ADDED / 'metadata.json'
    data = path.read_bytes()
    for position in range(0, len(data) * 8, 31):
        changed = bytearray(data)
        changed[position // 8] ^= 1 << position % 8
        path.write_bytes(changed)
        assert 'added/metadata.json' in checksums.find_damage(checkpoint), position
        assert checksums.find_damage(checkpoint, ['metadata.json']), position
    path.write_bytes(data)
    assert checksums.find_damage(checkpoint) is None


def test_a_kill_while_metadata_are_added_leaves_the_first(checkpoint, monkeypatch):
    def kill(folder):
        raise ZeroDivisionError

    made = Checkpoints.open(checkpoint.parent, 1)
    monkeypatch.setattr(checksums, 'write', kill)
    with pytest.raises(ZeroDivisionError):
        made.replace_metadata(1, {'step': 2})
    monkeypatch.undo()
    assert checksums.find_damage(checkpoint) is None
    made = Checkpoints.open(checkpoint.parent, 1)
    assert made.metadata()['step'] == 1
    made.replace_metadata(1, {'step': 3})
    assert made.metadata() == {'step': 3}


def test_an_additional_file_is_reported(checkpoint):
    (checkpoint / 'arrays' / 'd' / 'stray').write_text('')
    assert checksums.find_damage(checkpoint) == f'arrays/d/stray is not in {checksums.NAME}'


def test_the_manifest_is_in_the_format_of_sha256sum(tmp_path):
    (tmp_path / 'folder').mkdir()
    (tmp_path / 'folder' / 'file').write_text('abc')
    checksums.write(tmp_path)
    digest = 'ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad'
    assert (tmp_path / checksums.NAME).read_text() == f'{digest}  folder/file\n'


def test_files_are_synced_before_the_manifest_and_the_manifest_before_the_rename(
    tmp_path, monkeypatch
):
    """After a power failure a committed checkpoint must be complete."""
    events = []
    fsync, rename = os.fsync, pathlib.Path.rename

    def record_fsync(descriptor):
        path = pathlib.Path(os.readlink(f'/proc/self/fd/{descriptor}'))
        events.append(('fsync', path, (path.parent / checksums.NAME).exists()))
        fsync(descriptor)

    def record_rename(path, target):
        events.append(('rename', path, target))
        return rename(path, target)

    monkeypatch.setattr(os, 'fsync', record_fsync)
    monkeypatch.setattr(pathlib.Path, 'rename', record_rename)
    made = Checkpoints.open(tmp_path, 1)
    made.save(1, make_state(1), {})
    made.close()

    written, final = tmp_path / '1.unfinished', tmp_path / '1'
    *before, renamed, synced_directory = events
    assert renamed == ('rename', written, final)
    assert synced_directory[:2] == ('fsync', tmp_path)
    assert before[-1] == ('fsync', written / checksums.NAME, True)
    synced = {path for kind, path, has_manifest in before[:-1] if not has_manifest}
    stored = {written / path.relative_to(final) for path in [final, *final.rglob('*')]}
    assert synced == stored - {written / checksums.NAME}
