"""Files in buckets, on real servers, also if requests fail."""

import io
import random
import sys

import pytest
from fsspec.registry import _registry

from bert_jax.errors import UserError
from bert_jax.storage import bucket, paths

KINDS = ('503', 'drop', 'lose', 'cut')


def random_faults(seed: int, share: float):
    """Fail this share of the requests in all ways."""
    rng = random.Random(seed)
    return lambda request: rng.choice(KINDS) if rng.random() < share else ''


def test_what_is_written_is_read_and_listed(root, tmp_path):
    (root / 'a/b.txt').write_text('häl\udcfflo', errors='surrogateescape')
    data = random.Random(0).randbytes(299_999) + b'\r'
    (tmp_path / 'data').write_bytes(data)
    (root / 'a/c/data').upload(tmp_path / 'data')
    (tmp_path / 'none').write_bytes(b'')
    (root / 'empty').upload(tmp_path / 'none')
    assert (root / 'a/b.txt').read_bytes() == b'h\xc3\xa4l\xfflo'
    assert (root / 'a/c/data').read_range(1000, 2000) == data[1000:2000]
    (root / 'a/c/data').download(tmp_path / 'copy')
    assert (tmp_path / 'copy').read_bytes() == data
    sizes = {str(path.relative_to(root)): status.st_size for path, status in root.files().items()}
    assert sizes == {'a/b.txt': 7, 'a/c/data': 300_000, 'empty': 0}
    assert sorted(path.name for path in (root / 'a').iterdir()) == ['b.txt', 'c']
    assert [path.name for path in root.glob('a/*/d*')] == ['data']
    assert paths.glob(f'{root}/**/*.txt') == [f'{root}/a/b.txt']
    assert (root / 'a').is_dir()
    assert not (root / 'a').is_file()
    assert (root / 'empty').is_file()
    assert not (root / 'b').exists()
    with pytest.raises(FileNotFoundError, match='No such file'):
        (root / 'b').read_bytes()
    root.rmtree()
    assert root.files() == {}


def test_a_stream_reads_as_a_file(root):
    data = random.Random(1).randbytes(100_000)
    (root / 'data').write_bytes(data)
    ours, theirs = (root / 'data').open(), io.BytesIO(data)
    for position, length in ((50, 1000), (99_990, 100), (0, 7), (40_000, 60_000)):
        assert ours.seek(position) == theirs.seek(position)
        assert ours.read(length) == theirs.read(length)
    assert ours.seek(-5, 2) == len(data) - 5
    assert ours.read() == data[-5:]


def test_only_one_of_two_creates_a_file(root, server):
    (root / 'new').create(b'ours')
    with pytest.raises(FileExistsError):
        (root / 'new').create(b'theirs')
    assert (root / 'new').read_bytes() == b'ours'


def test_a_creation_whose_answer_is_lost_succeeds(root, server, no_waiting):
    lost = iter(['lose'])
    with server.failing(lambda request: next(lost, '') if 'ours' in request else ''):
        (root / 'new').create(b'ours')
    assert (root / 'new').read_bytes() == b'ours'


def test_passing_faults_go_unnoticed(root, server, tmp_path, no_waiting):
    data = random.Random(2).randbytes(12_000_000)  # sent in several parts
    (tmp_path / 'data').write_bytes(data)
    with server.failing(random_faults(3, share=0.3)):
        for number in range(8):
            (root / f'{number}').write_bytes(data[: number * 100])
            assert (root / f'{number}').read_bytes() == data[: number * 100]
        (root / 'data').upload(tmp_path / 'data')
        (root / 'data').download(tmp_path / 'copy')
        with (root / 'data').open() as file:
            assert file.read() == data
        assert len(root.files()) == 9
    assert (tmp_path / 'copy').read_bytes() == data


def test_a_lasting_fault_is_one_line(root, server, no_waiting, capfd):
    with (
        server.failing(lambda request: '503'),
        pytest.raises(UserError, match=f'^{root}/x cannot be read or written: .') as found,
    ):
        (root / 'x').read_bytes()
    assert isinstance(found.value, OSError)
    assert '\n' not in str(found.value)
    assert capfd.readouterr() == ('', '')


def test_a_missing_package_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, 's3fs', None)
    monkeypatch.delitem(_registry, 's3', raising=False)
    bucket._file_system.cache_clear()
    with pytest.raises(UserError, match='^s3:// needs s3fs .*: pip install s3fs$'):
        paths.path('s3://bucket/x').exists()


@pytest.mark.parametrize(
    ('name', 'message'),
    [
        ('az://bucket/x', "'az'; known: gs, s3"),
        ('http://host/x', "'http'; known"),
        ('gs://', 'names no bucket'),
    ],
)
def test_other_urls_are_refused_instead_of_becoming_folders(name, message):
    with pytest.raises(UserError, match=message):
        paths.path(name)
