"""Keys of buckets and paths in files, as a stranger would choose them."""

import errno
import json

import pytest

from bert_jax.corpus import corpus, source_files
from bert_jax.errors import UserError
from bert_jax.interop import loading, peft_folder, weights
from bert_jax.loaded.record import Base
from bert_jax.storage import block_cache, bucket, bucket_folder, names, paths, trust
from bert_jax.text import sources

BAD_NAMES = (
    '',
    '/etc/passwd',
    '..',
    '../x',
    'a/../../x',
    'a/..',
    './a',
    'a/./b',
    'a//b',
    'a/',
    'a\\..\\b',
    'a\0b',
    'a\nb',
    'a\x1b[2Jb',
    'a\x9bb',
    None,
    7,
)


class Keys:
    """A file system of s3:// with any keys, as S3 allows them: key → content."""

    def __init__(self, contents):
        self.contents, self.requests = contents, []

    def __getattr__(self, method):
        def call(path, *args, **options):
            name = path.removeprefix('s3://')
            self.requests.append((method, name))
            return getattr(self, f'_{method}')(name, *args, **options)

        return call

    def _find(self, name, detail):
        return {
            key: {'name': key, 'size': len(content)}
            for key, content in self.contents.items()
            if key == name or key.startswith(f'{name}/')
        }

    def _isfile(self, name):
        return name in self.contents

    def _isdir(self, name):
        return any(key.startswith(f'{name}/') for key in self.contents)

    def _exists(self, name):
        return self._isfile(name) or self._isdir(name)

    def _glob(self, name):
        return []

    def _info(self, name):
        if name not in self.contents:
            raise FileNotFoundError(errno.ENOENT, name)
        return {'name': name, 'size': len(self.contents[name])}

    def _get_file(self, name, target):
        with open(target, 'wb') as file:
            file.write(self.contents[name])


@pytest.fixture
def keys(monkeypatch):
    """The contents of the buckets of s3://."""
    system = Keys({})
    monkeypatch.setattr(bucket, '_file_system', lambda scheme: system)
    monkeypatch.delenv(trust.TRUSTED, raising=False)
    bucket_folder._copied.clear()
    return system


@pytest.mark.parametrize('name', BAD_NAMES)
def test_a_name_that_leaves_its_folder_is_refused(name):
    with pytest.raises(UserError, match='index.json: the name .* is not of a file below') as info:
        names.check(name, 'index.json')
    assert str(info.value).isprintable()


@pytest.mark.parametrize('name', ['a', 'a/b.txt', '..a', 'a..b/...', '.hidden', 'Größe 1/ä.npy'])
def test_other_names_are_kept(name):
    assert names.check(name, 'index.json') == name


@pytest.mark.parametrize('key', ['../../../../home/user/.profile', 'a/../../x', 'a//b', 'a\nb'])
def test_a_key_that_leaves_the_folder_is_not_downloaded(key, keys):
    keys.contents |= {f'bert/model/{key}': b'hostile', 'bert/model/config.json': b'{}'}
    with pytest.raises(UserError, match=r's3://bert/model: the name .* is not of a file below'):
        paths.fetch('s3://bert/model')
    assert not [request for request in keys.requests if request[0] == 'get_file']


def test_a_path_with_two_dots_has_no_local_copy(keys):
    with pytest.raises(UserError, match='is not of a file below'):
        paths.local('s3://bert/../../../x')


def test_a_key_that_is_a_file_and_a_folder_is_refused(keys):
    keys.contents |= {'bert/model/a': b'1', 'bert/model/a/b': b'2'}
    with pytest.raises(UserError, match=r"model/a' is a file, and 's3://bert/model/a/b' is in"):
        paths.fetch('s3://bert/model')


def test_keys_of_empty_folders_do_no_harm(keys):
    keys.contents |= {'bert/model/': b'', 'bert/model/a/': b'', 'bert/model/a/b': b'2'}
    folder = paths.fetch('s3://bert/model')
    assert [path.name for path in folder.rglob('*') if path.is_file()] == ['b']


def test_a_download_does_not_use_the_name_of_another_key(keys):
    keys.contents |= {'bert/m/x.partial': b'one', 'bert/m/x': b'two'}
    folder = paths.fetch('s3://bert/m')
    contents = {path.name: path.read_bytes() for path in folder.iterdir()}
    assert contents == {'x.partial': b'one', 'x': b'two'}


def peft(folder, base):
    folder.mkdir()
    config = {'peft_type': 'LORA', 'base_model_name_or_path': base}
    (folder / peft_folder.CONFIG).write_text(json.dumps(config))
    return folder


@pytest.mark.parametrize('base', ['s3://evil/base', 'S3://evil/base', ' gs://evil/base'])
def test_a_file_does_not_lead_to_a_bucket(base, keys, tmp_path):
    folder = peft(tmp_path / 'adapter', base)
    with pytest.raises(UserError, match=r'base_model_name_or_path is .* that you did not name'):
        loading.load_any(folder)
    described = Base(base, base, ('encoder',), '')
    with pytest.raises(UserError, match=f'{trust.TRUSTED}='):
        loading.find_base(described, folder)
    assert keys.requests == []


def test_a_file_leads_to_its_own_bucket_and_to_trusted_ones(keys, tmp_path, monkeypatch):
    keys.contents['team/base/config.json'] = b'{}'
    local = peft(tmp_path / 'adapter', 's3://team/base')
    monkeypatch.setenv(trust.TRUSTED, 'gs://other,s3://team')
    assert peft_folder.base_path(local) == 's3://team/base'
    monkeypatch.delenv(trust.TRUSTED)
    for base in ('s3://team/base', '../base'):
        content = json.dumps({'peft_type': 'LORA', 'base_model_name_or_path': base}).encode()
        keys.contents[f'team/adapter/{peft_folder.CONFIG}'] = content
        folder = paths.fetch('s3://team/adapter')
        assert peft_folder.base_path(folder) == 's3://team/base'
        bucket_folder._copied.clear()
    leaving = {'peft_type': 'LORA', 'base_model_name_or_path': '../../evil/base'}
    keys.contents[f'team/adapter/{peft_folder.CONFIG}'] = json.dumps(leaving).encode()
    with pytest.raises(UserError, match='s3://evil/base'):
        peft_folder.base_path(paths.fetch('s3://team/adapter'))


def test_a_model_that_is_its_own_base_is_refused(tmp_path):
    folder = peft(tmp_path / 'adapter', str(tmp_path / 'adapter'))
    with pytest.raises(UserError, match='adapter was tuned from .*adapter, which itself holds'):
        loading.load_any(folder)


@pytest.mark.parametrize('shard', ['../model-1.safetensors', '/model-1.safetensors', 3])
def test_an_index_names_only_files_beside_it(shard, tmp_path):
    (tmp_path / 'model.safetensors.index.json').write_text(
        json.dumps({'weight_map': {'weight': shard}})
    )
    with pytest.raises(UserError, match='index.json: the name .* is not of a file below'):
        weights.read(tmp_path)


def test_blocks_of_two_buckets_do_not_mix():
    paths_of_two = [paths.path(f's3://{name}/corpus/train/00000.tokens.npy') for name in 'ab']
    digest = 64 * '0'  # as the manifests of both claim
    cached = {block_cache._name(path, digest) for path in paths_of_two}
    assert len(cached) == 2
    assert all(map(names.is_digest, cached))


def write_manifest(folder, **changes):
    manifest = {
        'format': corpus.FORMAT,
        'made_from': corpus.settings(
            ['text:s3://evil/x.txt'], 's3://evil/tokenizer.json', False, 0.1
        ),
        'sources': [],
        'splits': {
            split: {'shards': []} | dict.fromkeys(corpus.COUNTS, 0) for split in corpus.SPLITS
        },
        'tokenizer': {'fingerprint': ''},
        'files': {'train/00000.tokens.npy': {'bytes': 1, 'sha256': 64 * '0'}},
    } | changes
    (folder / 'manifest.json').write_text(json.dumps(manifest))


@pytest.mark.parametrize(
    ('name', 'digest', 'error'),
    [
        ('../x.npy', 64 * '0', 'the name .* is not of a file below'),
        ('/home/user/x.npy', 64 * '0', 'the name .* is not of a file below'),
        ('train/x.npy', '../../x', 'is not a SHA-256'),
        ('train/x.npy', 64 * 'A', 'is not a SHA-256'),
        ('train/x.npy', None, 'is not a SHA-256'),
    ],
)
def test_a_manifest_names_only_files_of_its_corpus(name, digest, error, tmp_path):
    write_manifest(tmp_path, files={name: {'bytes': 1, 'sha256': digest}})
    with pytest.raises(UserError, match=f'manifest.json: .*{error}'):
        corpus.read_manifest(tmp_path)


def test_a_corpus_does_not_lead_to_the_bucket_of_its_sources(keys, tmp_path):
    keys.contents['evil/x.txt'] = b'x'
    write_manifest(tmp_path)
    source_files.write(tmp_path, [{'s3://evil/x.txt': [1, 0]}])
    assert source_files.changes(tmp_path) == []
    assert keys.requests == []


def test_a_dataset_on_disk_names_only_files_beside_its_state(tmp_path):
    (tmp_path / 'state.json').write_text(
        json.dumps({'_split': 'train', '_data_files': [{'filename': '../../secret.arrow'}]})
    )
    with pytest.raises(UserError, match='state.json: the name .* is not of a file below'):
        sources.open_source(f'hf:{tmp_path}')
