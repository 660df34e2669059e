"""Models and data of the Hugging Face Hub, from a stand-in on this machine."""

import json

import pytest
from huggingface_hub import constants

import bert_jax
from bert_jax import export, limits, main, tokenizers
from bert_jax.errors import UserError
from bert_jax.interop import huggingface_export, loading
from bert_jax.storage import hub
from bert_jax.text.sources import open_source
from tests.inference import small_runs
from tests.labels.reading import read, write_json_lines
from tests.storage import hub_server

ROWS = [{'text': 'one', 'label': 'a'}, {'text': 'two', 'label': 'b'}]


@pytest.fixture(scope='module')
def exported(tmp_path_factory):
    """A published model of classes."""
    folder = tmp_path_factory.mktemp('hub')
    run = small_runs.save_run(folder / 'run', 'classification')
    huggingface_export.save(loading.load_any(run), folder / 'exported')
    (folder / 'exported/onnx').mkdir()
    (folder / 'exported/onnx/model.onnx').write_bytes(b'large')
    (folder / 'exported/pytorch_model.bin').write_bytes(b'the same weights again')
    return folder / 'exported'


@pytest.fixture
def server(tmp_path, exported):
    with hub_server.started(tmp_path / 'cache') as server:
        server.commit = server.add('models', 'org/name', exported)
        yield server


@pytest.fixture
def offline(monkeypatch):
    monkeypatch.setattr(constants, 'HF_HUB_OFFLINE', True)


@pytest.mark.parametrize('name', ['org/name', 'hf://org/name', 'org/name@main'])
def test_a_model_is_loaded_by_its_name(name, server, exported):
    (expected,) = bert_jax.load(exported).classify(['the ship'])
    (found,) = bert_jax.load(name).classify(['the ship'])
    assert found == expected
    downloaded = {path.rpartition('/')[2] for path in server.requests}
    assert 'model.safetensors' in downloaded
    assert not downloaded & {'model.onnx', 'pytorch_model.bin'}


def test_a_revision_is_pinned_and_used_again_without_a_network(server, exported, tmp_path):
    server.repositories['models', 'org/name']['main'] = {'config.json': b'{}'}
    server.repositories['models', 'org/name']['0' * 40] = server.repositories['models', 'org/name'][
        'main'
    ]
    pinned = f'org/name@{server.commit}'
    (expected,) = bert_jax.load(exported).classify(['the ship'])
    assert bert_jax.load(pinned).classify(['the ship']) == [expected]
    with pytest.raises(UserError):
        bert_jax.load('org/name')
    hub.fetch.cache_clear()
    server.requests.clear()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(constants, 'HF_HUB_OFFLINE', True)
        assert bert_jax.load(pinned).classify(['the ship']) == [expected]
    assert not server.requests


@pytest.mark.parametrize(
    ('name', 'words'),
    [
        ('org/none', ['hf://org/none cannot be downloaded', 'Repository', 'hf download org/none']),
        ('org/name@none', ['hf://org/name@none cannot be downloaded', 'Revision']),
        ('hf://name', ["'hf://name' is not a name", 'hf://ORG/NAME']),
        ('hf://datasets/org/data', ['is not a name', 'hf://datasets/ORG/NAME/FILES']),
    ],
)
def test_what_cannot_be_found_is_one_line(name, words, server):
    with pytest.raises(UserError) as caught:
        bert_jax.load(name)
    assert '\n' not in str(caught.value)
    for word in words:
        assert word in str(caught.value)


@pytest.mark.parametrize(
    ('fault', 'words'),
    [
        ('redirect', 'TooManyRedirects|[Rr]edirect'),
        ('cut', 'try again, or check'),
        ('commit', "names '../../elsewhere' as a commit, which is not a hash"),
    ],
)
def test_a_failing_server_is_one_line(fault, words, server, monkeypatch):
    monkeypatch.setattr('time.sleep', lambda seconds: None)  # between the attempts of the client
    server.faults.add(fault)
    with pytest.raises(UserError, match=words) as caught:
        bert_jax.load('org/name')
    assert '\n' not in str(caught.value)
    assert str(caught.value).startswith('hf://org/name cannot be downloaded: ')


def test_a_download_that_points_outside_the_cache_is_refused(server, tmp_path):
    bert_jax.load('org/name')
    (snapshot,) = (tmp_path / 'cache').glob('*/snapshots/*')
    (tmp_path / 'secret.json').write_text('{}')
    (snapshot / 'modules.json').symlink_to(tmp_path / 'secret.json')
    hub.fetch.cache_clear()
    with pytest.raises(UserError, match=r'a file outside .*: modules\.json'):
        bert_jax.load('org/name')


def test_a_model_is_found_in_the_cache_by_its_name(server, exported, monkeypatch):
    expected = bert_jax.load('org/name').classify(['the ship'])
    hub.fetch.cache_clear()
    monkeypatch.setattr(constants, 'HF_HUB_OFFLINE', True)
    server.requests.clear()
    assert bert_jax.load('org/name').classify(['the ship']) == expected
    assert not server.requests


def test_a_repository_of_too_many_files_is_refused(server, exported, monkeypatch):
    monkeypatch.setattr(limits, 'LISTED_FILES', 1000)
    files = server.repositories['models', 'org/name']['main']
    files |= {f'{number}.md': b'' for number in range(1000)}
    with pytest.raises(UserError, match=r'it lists more than 1,000 files \(LISTED_FILES'):
        bert_jax.load('org/name')
    assert not [path for path in server.requests if 'resolve' in path]


@pytest.mark.parametrize('name', ['../../outside.json', '/outside.json', 'a\\..\\outside.json'])
def test_a_listed_name_that_leaves_the_cache_is_refused(name, server):
    server.repositories['models', 'org/name']['main'][name] = b'{}'
    with pytest.raises(UserError, match='is not of a file below its folder'):
        bert_jax.load('org/name')
    assert not [path for path in server.requests if 'resolve' in path]


def test_offline_is_one_line(server, offline):
    with pytest.raises(UserError, match='hf://org/name cannot be downloaded: .*hf download'):
        bert_jax.load('org/name')
    assert not server.requests


def test_a_mistyped_folder_is_not_asked_for(server, tmp_path, monkeypatch):
    (tmp_path / 'runs/tiny').mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match="no folder 'runs/tny'; did you mean 'runs/tiny'"):
        bert_jax.load('runs/tny')
    assert not server.requests


def test_files_of_a_data_set_are_labeled_data_and_text(server, tmp_path):
    (tmp_path / 'files/data').mkdir(parents=True)
    for split in ('train-0', 'train-1', 'test-0'):
        rows = [row | {'text': f'{row["text"]} {split}'} for row in ROWS]
        write_json_lines(tmp_path / f'files/data/{split}.jsonl', *rows)
    server.add('datasets', 'org/data', tmp_path / 'files', 'v1')
    pattern = 'hf://datasets/org/data@v1/data/train-*.jsonl'
    examples = read('classification', train=(pattern,), dev_fraction=0.0).train
    assert [one.label for one in examples] == ['a', 'b'] * 2
    assert examples[0].id == 'train-0.jsonl:1'
    assert not any('test-0' in path for path in server.requests)
    source = open_source(f'jsonl:{pattern}')
    assert [one.text for one in source.documents()] == [one.texts[0] for one in examples]


@pytest.mark.parametrize(
    'revision', ['refs/convert/parquet', 'refs%2Fconvert%2Fparquet', '~parquet']
)
def test_a_converted_data_set_is_at_a_revision_with_slashes(revision, server, tmp_path):
    (tmp_path / 'files').mkdir()
    write_json_lines(tmp_path / 'files/train.jsonl', *ROWS)
    server.add('datasets', 'org/converted', tmp_path / 'files', 'refs/convert/parquet')
    path = hub.fetch(f'hf://datasets/org/converted@{revision}/train.jsonl')
    assert path.read_text() == (tmp_path / 'files/train.jsonl').read_text()


def test_a_tokenizer_is_loaded_without_weights(server, exported):
    found = tokenizers.load('hf://org/name')
    assert found.fingerprint == tokenizers.load(str(exported)).fingerprint
    assert not any('safetensors' in path for path in server.requests)


def test_training_starts_from_a_model_of_the_hub(server, tmp_path):
    train = write_json_lines(tmp_path / 'train.jsonl', *ROWS * 8)
    main.main(
        [
            'main',
            '--config=configs/finetune.py:classification',
            '--model=org/name',
            f'--input={train[0]}',
            f'--output={tmp_path}/run',
            '--config.data.dev_fraction=0',
            '--config.training.epochs=0',
            '--config.training.steps=1',
        ]
    )
    assert json.loads((tmp_path / 'run/config.json').read_text())['init_from'] == 'hf://org/name'
    assert 'base_model: "org/name"' in (tmp_path / 'run/README.md').read_text()


def test_an_export_is_pushed_and_loaded_again(server, exported, tmp_path, capsys):
    export.main([f'--model={exported}', f'--output={tmp_path}/out', '--push=me/mine'])
    assert 'pushed: http://127.0.0.1' in capsys.readouterr().out
    (expected,) = bert_jax.load(exported).classify(['the ship'])
    assert bert_jax.load('me/mine').classify(['the ship']) == [expected]


@pytest.mark.parametrize(
    ('name', 'token', 'message'),
    [
        ('me/mine', '', '--push needs a token'),
        ('mine', 'hf_write', 'the name must be ORG/NAME'),
        ('me/mine', 'hf_read', 'cannot be uploaded to me/mine'),
    ],
)
def test_a_push_that_cannot_work_is_one_line(
    name, token, message, server, exported, tmp_path, monkeypatch, capsys
):
    monkeypatch.setenv('HF_TOKEN', token)
    monkeypatch.setattr(constants, 'HF_TOKEN_PATH', str(tmp_path / 'none'))
    with pytest.raises(SystemExit):
        export.main([f'--model={exported}', f'--output={tmp_path}/out', f'--push={name}'])
    (line,) = capsys.readouterr().err.splitlines()
    assert message in line
    assert (tmp_path / 'out').exists() == (token == 'hf_read')  # checked before the work


@pytest.mark.parametrize(
    'command',
    [
        lambda name: export.main(['--model=x', f'--output={name}']),
        lambda name: main.main(['main', '--config=configs/tiny.py', f'--output={name}']),
    ],
)
def test_nothing_is_written_to_a_name_of_the_hub(command, server, capsys):
    with pytest.raises(SystemExit):
        command('hf://org/name')
    assert 'upload a model with export --push' in capsys.readouterr().err
    assert not server.requests
