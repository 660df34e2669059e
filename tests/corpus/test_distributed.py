"""A corpus that many workers make is that of a local run, byte for byte, whatever fails."""

import concurrent.futures
import gzip
import io
import json
import pickle
import random
import shutil
import sys
import time

import numpy as np
import pyarrow
import pytest
from pyarrow import parquet

from bert_jax import prepare
from bert_jax.corpus import (
    corpus,
    distributed,
    manifest,
    parts,
    preparation,
    shard_plan,
    stages,
    workers,
)
from bert_jax.corpus.workers import Amounts
from bert_jax.errors import UserError
from tests.end_to_end.preparation import contents, make_text

TOKENIZER = 'train:wordpiece:200'


class Threads:
    """An engine of threads in this process, which does everything twice and in any order."""

    def __init__(self, times=1):
        self.times = times
        self.calls = []

    def run(self, function, items):
        items = [item for item in items for _ in range(self.times)]
        random.Random(0).shuffle(items)
        with concurrent.futures.ThreadPoolExecutor(3) as pool:
            list(pool.map(lambda item: self.perform(pickle.dumps((function, item))), items))

    def perform(self, pickled):
        function, item = pickle.loads(pickled)
        self.calls.append((function.args[1].name, item.name))
        function(item)


@pytest.fixture(scope='module')
def sources(tmp_path_factory):
    """Specs of every kind of source, with problems."""
    tmp_path = tmp_path_factory.mktemp('sources')
    rng = random.Random(0)
    folder = tmp_path / 'texts'
    folder.mkdir()
    for number in range(9):
        (folder / f'{number}.txt').write_text(make_text(rng))
    (folder / '9.txt.gz').write_bytes(gzip.compress(make_text(rng, 90).encode()))
    (folder / '91.txt').write_bytes(b'%PDF-1.7')
    (folder / '92.txt').write_text('\u200b')  # no tokens
    lines = [json.dumps({'text': make_text(rng, 5), 'mail': 'a@b.org'}) for _ in range(70)]
    lines[50] = '{malformed'
    lines[60] = json.dumps({'text': 'Write to somebody@example.org or +44 20 7946 0958.'})
    (tmp_path / 'a.jsonl').write_text('\n'.join(lines))
    rows = [make_text(rng, 3) if i % 7 else None for i in range(90)]
    parquet.write_table(pyarrow.table({'text': rows}), tmp_path / 'a.parquet', row_group_size=9)
    (tmp_path / 'one.txt').write_text('Ein einziges Dokument. Es ist kurz.')
    return [
        f'text:{folder}/*;language=en',
        f'text:{folder}/*.txt;documents=blank_line;language=fr;held_out_by=file',
        f'text:{folder}/[3-7].txt;documents=blank_line;language=fr',
        f'jsonl:{tmp_path}/a.jsonl;language=en',
        f'parquet:{tmp_path}/a.parquet',
        f'text:{tmp_path}/one.txt;language=de',
    ]


def settings(**changed):
    return {
        'held_out_fraction': 0.2, 'max_bad_share': 0.2, 'shard_tokens': 700, 'canaries': 2,
    } | changed  # fmt: skip


@pytest.mark.parametrize(
    ('tokenizer', 'options', 'sizes'),
    [
        (TOKENIZER, {}, (10**9, 10**9)),
        (TOKENIZER, {'tokenizer_characters': 3000}, (10**4, 500)),
        (TOKENIZER, {'language_alpha': 0.3}, (1000, 100)),
        ('train:bytebpe:300', {'language_alpha': 0.0, 'tokenizer_characters': 9000}, (10**4, 50)),
    ],
)
def test_the_corpus_is_that_of_a_local_run(tokenizer, options, sizes, sources, tmp_path):
    preparation.prepare(sources, tokenizer, tmp_path / 'local', workers=0, **settings(**options))
    engine, amounts = Threads(2), Amounts(400, *sizes)
    options = settings(**options, amounts=amounts)
    made = preparation.prepare(sources, tokenizer, tmp_path / 'far', engine=engine, **options)
    made.verify()
    assert contents(tmp_path / 'far') == contents(tmp_path / 'local')
    assert sorted(path.name for path in tmp_path.glob('far*')) == ['far']
    calls = {name for name, _ in engine.calls}
    assert calls == {'count', 'draw', 'encode', 'assemble'}
    report = made.manifest['sources'][0]['report']
    assert (report['bad_files'], 'documents_without_tokens' in report) == (1, True)


def test_a_small_corpus_has_the_same_exceptions_of_the_held_out_rule(tmp_path):
    (tmp_path / 'a.jsonl').write_text('\n'.join(json.dumps({'text': f'{i}.'}) for i in range(5)))
    for name, engine in {'local': None, 'far': Threads()}.items():
        preparation.prepare(
            [f'jsonl:{tmp_path}/a.jsonl'], TOKENIZER, tmp_path / name, workers=0,
            held_out_fraction=1e-9, engine=engine,
        )  # fmt: skip
    assert contents(tmp_path / 'far') == contents(tmp_path / 'local')
    assert corpus.Corpus.open(tmp_path / 'far').split('held_out').num_documents == 2


@pytest.fixture(scope='module')
def local(sources, tmp_path_factory):
    """The files of the corpus of a local run."""
    output = tmp_path_factory.mktemp('local') / 'out'
    preparation.prepare(sources, TOKENIZER, output, workers=0, **settings())
    return contents(output)


@pytest.fixture
def many_units(sources, local):
    """The arguments of a preparation with many units, and the files it makes."""
    amounts = Amounts(unit_bytes=3000)
    return {'sources': sources, 'tokenizer': TOKENIZER, **settings(amounts=amounts)}, local


@pytest.mark.parametrize('stage', ['count', 'draw', 'encode', 'assemble'])
def test_what_is_finished_is_kept_after_a_failure(stage, many_units, tmp_path, monkeypatch):
    arguments, expected = many_units

    class Dying(Threads):
        def perform(self, pickled):
            if sum(name == stage for name, _ in self.calls) == 5:
                raise UserError('Dask failed: all workers are gone')
            super().perform(pickled)

    with pytest.raises(UserError, match='all workers are gone'):
        preparation.prepare(**arguments, output=tmp_path / 'out', engine=Dying(1))
    done = []
    tokenize = parts.tokenize_block
    monkeypatch.setattr(parts, 'tokenize_block', lambda *own: done.append(1) or tokenize(*own))
    with pytest.raises(UserError, match="runner was 'an engine' and is 'local'"):
        preparation.prepare(**arguments, output=tmp_path / 'out', workers=0)
    preparation.prepare(**arguments, output=tmp_path / 'out', engine=Threads(1))
    assert contents(tmp_path / 'out') == expected
    units = len(list(done))
    done.clear()
    preparation.prepare(**arguments, output=tmp_path / 'whole', engine=Threads(1))
    # One of the five encoded units has no text.
    assert len(done) - units == {'count': 0, 'draw': 0, 'encode': 4, 'assemble': len(done)}[stage]


def test_damaged_parts_and_shards_are_made_again(many_units, tmp_path):
    arguments, expected = many_units

    class Interrupted(Threads):
        def run(self, function, items):
            super().run(function, items)
            if function.args[1] == shard_plan.ASSEMBLE:
                raise UserError('Beam failed: no reason')

    with pytest.raises(UserError, match='no reason'):
        preparation.prepare(**arguments, output=tmp_path / 'out', engine=Interrupted())
    encoded = tmp_path / 'out.partial/parts/encode'
    damaged = sorted(encoded.glob('*.tokens.npy'))
    damaged[0].write_bytes(damaged[0].read_bytes()[:-2] + b'xx')
    damaged[1].unlink()
    records = sorted(encoded.glob('*.json'))
    records[-1].write_text('{')
    shards = sorted((tmp_path / 'out.partial/train').glob('*.tokens.npy'))
    shards[0].write_bytes(b'x' * shards[0].stat().st_size)
    shards[1].unlink()
    (tmp_path / 'out.partial/parts/.scratch-of-a-killed-worker').mkdir()
    preparation.prepare(**arguments, output=tmp_path / 'out', engine=Threads())
    assert contents(tmp_path / 'out') == expected


def test_too_many_bad_files_are_an_error_and_cost_nothing(many_units, tmp_path, monkeypatch):
    arguments, expected = many_units
    with pytest.raises(UserError, match='1 of 12 files .*91.txt is a PDF file'):
        preparation.prepare(
            **arguments | {'max_bad_share': 0.01}, output=tmp_path / 'out', engine=Threads()
        )
    done = []
    tokenize = workers.tokenize_block
    monkeypatch.setattr(parts, 'tokenize_block', lambda *own: done.append(1) or tokenize(*own))
    preparation.prepare(**arguments, output=tmp_path / 'out', engine=Threads(1))
    assert contents(tmp_path / 'out') == expected
    assert len(done) < 5  # the unit with a malformed line


def test_a_worker_that_sees_other_files_is_an_error(tmp_path):
    path = tmp_path / 'one.txt'
    path.write_text('Ein einziges Dokument. Es ist kurz.')

    class Elsewhere(Threads):
        def perform(self, pickled):
            path.write_text('Ein anderes Dokument.')
            super().perform(pickled)

    with pytest.raises(UserError, match='one.txt has 21 bytes instead of 35 on .*same files'):
        preparation.prepare([f'text:{path}'], TOKENIZER, tmp_path / 'out', engine=Elsewhere())

    class Nowhere(Threads):
        def run(self, function, items):
            shutil.rmtree(tmp_path / 'other.partial/parts')
            super().run(function, items)

    with pytest.raises(UserError, match='does not see .*other.partial/parts/count: all machines'):
        preparation.prepare([f'text:{path}'], TOKENIZER, tmp_path / 'other', engine=Nowhere())


def test_a_worker_with_other_versions_is_an_error(many_units, tmp_path, monkeypatch):
    arguments, _ = many_units
    monkeypatch.setattr(distributed, 'versions', lambda: manifest.versions() | {'numpy': '1'})
    with pytest.raises(UserError, match='has numpy .* but the machine that runs .* has 1: install'):
        preparation.prepare(**arguments, output=tmp_path / 'out', engine=Threads())


def test_relative_paths_are_an_error(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / 'a.txt').write_text('One.')
    with pytest.raises(UserError, match='a.txt is a relative path'):
        preparation.prepare(['text:*.txt'], TOKENIZER, tmp_path / 'out', engine=Threads())
    assert not list(tmp_path.glob('out*'))


def test_a_lost_record_is_an_error(many_units, tmp_path):
    arguments, _ = many_units

    class Lazy(Threads):
        def run(self, function, items):
            super().run(function, items[1:])

    with pytest.raises(UserError, match='0000000.json is missing though the engine has ended'):
        preparation.prepare(**arguments, output=tmp_path / 'out', engine=Lazy())


@pytest.mark.parametrize(
    ('flags', 'message'),
    [
        (['--runner=dask', '--workers=2'], '--workers has no effect with --runner=dask'),
        (
            ['--', '--scheduler=x'],
            '-- options has no effect with --runner=local, only with beam or dask',
        ),
    ],
)
def test_flags_that_do_not_fit_are_an_error(flags, message, capsys, tmp_path):
    with pytest.raises(SystemExit):
        prepare.main(['--input=sample', f'--output={tmp_path}/out', *flags])
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(('runner', 'package'), [('beam', 'apache_beam'), ('dask', 'distributed')])
def test_the_error_without_a_package_says_what_to_install(
    runner, package, capsys, tmp_path, monkeypatch
):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(SystemExit):
        prepare.main(['--input=sample', f'--output={tmp_path}/out', f'--runner={runner}'])
    assert f'--runner={runner} needs' in capsys.readouterr().err


def test_one_thread_at_a_time_parses_an_array(monkeypatch):
    """CPython's ast raises a SystemError now and then in several threads."""
    content, array, parsing = io.BytesIO(), np.arange(5), []

    def load(file):
        parsing.append(file)
        time.sleep(0.01)
        assert parsing == [file]
        parsing.remove(file)
        return array

    np.save(content, array)
    np.testing.assert_array_equal(stages.read_array(content.getvalue()), array)
    monkeypatch.setattr(np, 'load', load)
    with concurrent.futures.ThreadPoolExecutor(3) as pool:
        assert len(list(pool.map(stages.read_array, [content.getvalue()] * 3))) == 3
