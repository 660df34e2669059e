"""Preparing corpora: nothing is lost, whatever kills the run, and errors are one line."""

import errno
import itertools
import json
import os
import pathlib
import random
import resource
import shutil
import signal
import subprocess
import sys
import time

import pytest

from bert_jax import errors, prepare
from bert_jax.data import corpus, corpus_builder, sentences, tokenizers
from bert_jax.tasks import pretraining_data
from configs import base
from tests import disks

ROOT = pathlib.Path(prepare.__file__).parents[1]
WORDS = ['the', 'old', 'man', 'and', 'a', 'dog', 'went', 'up', 'to', 'green', 'hill', 'where']
TOKENIZER = 'train:wordpiece:60'


def make_text(rng, num_sentences=20):
    """Paragraphs of five sentences."""
    made = [
        ' '.join(rng.choices(WORDS, k=rng.randint(3, 12))).capitalize() + '.'
        for _ in range(num_sentences)
    ]
    return '\n\n'.join(' '.join(made[i : i + 5]) for i in range(0, num_sentences, 5))


@pytest.fixture
def texts(tmp_path):
    """A folder of 30 documents."""
    folder = tmp_path / 'texts'
    folder.mkdir()
    for i in range(30):
        (folder / f'{i:02d}.txt').write_text(make_text(random.Random(i)))
    return folder


@pytest.fixture
def many_texts(tmp_path):
    """The spec of a JSON lines file that takes about a second to prepare."""
    path = tmp_path / 'many.jsonl'
    rng = random.Random(0)
    with open(path, 'w') as file:
        for _ in range(4_000):
            file.write(json.dumps({'text': make_text(rng)}) + '\n')
    return f'jsonl:{path}'


@pytest.fixture
def small_blocks(monkeypatch):
    """Blocks of a few documents, so that small corpora have many blocks."""
    monkeypatch.setattr(corpus_builder, 'BLOCK_CHARACTERS', 2000)


def command(source, output, *more):
    flags = [f'--source={source}', f'--tokenizer={TOKENIZER}', f'--output={output}', *more]
    return [sys.executable, '-m', 'bert_jax.prepare', *flags]


def run(arguments, **options):
    return subprocess.run(
        arguments, cwd=ROOT, capture_output=True, text=True, timeout=120, **options
    )


def contents(directory):
    """The bytes of every file of a corpus, without its creation time."""
    manifest = json.loads((directory / 'manifest.json').read_text())
    date = manifest['created'].encode()
    return {
        str(path.relative_to(directory)): path.read_bytes().replace(date, b'')
        for path in directory.rglob('*')
        if path.is_file()
    }


def stored_sentences(split, tokenizer):
    """Yield the decoded sentences of each document of a split."""
    for shard in split.shards:
        for first, end in itertools.pairwise(shard.documents):
            yield [
                tokenizer.decode(shard.tokens[start:stop])
                for start, stop in itertools.pairwise(shard.sentences[first : end + 1])
            ]


def test_every_sentence_is_stored_in_order(texts, tmp_path):
    made = prepare.prepare(
        [f'text:{texts}/*.txt'], TOKENIZER, tmp_path / 'out', held_out_fraction=0.2, workers=0
    )
    made.verify()
    expected = [
        [sentence.lower() for sentence in sentences.split_sentences(path.read_text())]
        for path in sorted(texts.iterdir())
    ]
    train, held_out = (
        list(stored_sentences(made.split(name), made.tokenizer)) for name in corpus.SPLITS
    )
    assert train == [document for document in expected if document in train]
    assert held_out == [document for document in expected if document in held_out]
    assert len(train) + len(held_out) == 30
    assert 1 <= len(held_out) <= 15
    assert not (tmp_path / 'out.partial').exists()


def test_the_corpus_does_not_depend_on_the_number_of_workers(texts, tmp_path, small_blocks):
    results = []
    for workers in (0, 1, 3):
        output = tmp_path / f'out{workers}'
        prepare.prepare(
            [f'text:{texts}/*.txt', f'text:{texts}/0*.txt;language=en'],
            TOKENIZER, output, held_out_fraction=0.1, workers=workers, shard_tokens=1000,
        )  # fmt: skip
        results.append(contents(output))
    assert results[0] == results[1] == results[2]
    assert len(results[0]) > 3 * 4


def test_the_manifest_has_spec_language_and_license_of_each_source(texts, tmp_path):
    specs = [
        f'text:{texts}/0*.txt;language=en;license=CC0',
        f'text:{texts}/1*.txt;language=de;license=MIT',
    ]
    made = prepare.prepare(specs, TOKENIZER, tmp_path / 'out', workers=0)
    for name in corpus.SPLITS:
        assert [(s.source, s.language) for s in made.split(name).shards] == [(0, 'en'), (1, 'de')]
    described = made.manifest['sources']
    assert [source['spec'] for source in described] == specs
    assert [source['license'] for source in described] == ['CC0', 'MIT']
    assert [source['report']['documents'] for source in described] == [10, 10]


def test_text_that_looks_like_special_tokens_is_ordinary_text(texts, tmp_path):
    for path in texts.iterdir():
        path.write_text(path.read_text() + '\n\nA [MASK] and [SEP], [CLS] too [PAD] now.')
    made = prepare.prepare([f'text:{texts}/*.txt'], TOKENIZER, tmp_path / 'out', workers=0)
    for name in corpus.SPLITS:
        split = made.split(name)
        for special in set(made.tokenizer.special_ids) - {made.tokenizer.unk_id}:
            assert made.unigram_counts(name)[special] == 0
            assert all(special not in shard.tokens for shard in split.shards)
    assert '[ mask ]' in next(stored_sentences(made.split('train'), made.tokenizer))[-1]


def test_sentences_and_documents_without_tokens_are_dropped_and_counted(tmp_path, capsys):
    documents = [make_text(random.Random(i)) for i in range(5)]
    documents += ['\u200b', 'One two three.\n\n\u200b\n\nFour five six.']
    path = tmp_path / 'a.jsonl'
    path.write_text('\n'.join(json.dumps({'text': text}) for text in documents) + '\n{bad')
    made = prepare.prepare([f'jsonl:{path}'], TOKENIZER, tmp_path / 'out', workers=0)
    report = made.manifest['sources'][0]['report']
    assert report['documents_without_tokens'] == 1
    assert report['sentences_without_tokens'] == 2
    assert report['malformed_lines'] == 1
    assert sum(made.split(name).num_documents for name in corpus.SPLITS) == 6
    for shown in (capsys.readouterr().out, (tmp_path / 'out' / 'DATASHEET.md').read_text()):
        assert 'documents without tokens' in shown
        assert 'malformed lines' in shown


def test_bad_and_shared_files_are_listed(texts, tmp_path, capsys):
    (texts / '05.txt').write_bytes(b'\x89PNG\r\n\x1a\n' + bytes(100))
    specs = [f'text:{texts}/*.txt', f'text:{texts}/2*.txt']
    made = prepare.prepare(specs, TOKENIZER, tmp_path / 'out', workers=0)
    assert [source['report'].get('bad_files') for source in made.manifest['sources']] == [1, None]
    for shown in (capsys.readouterr().out, (tmp_path / 'out' / 'DATASHEET.md').read_text()):
        assert f'bad file: {texts}/05.txt is not utf-8 text' in shown
        assert shown.count('files also in another source') == 2
    with pytest.raises(errors.UserError, match='1 of 30 files .* cannot be used'):
        prepare.prepare(specs, TOKENIZER, tmp_path / 'no', max_bad_share=0.01, workers=0)


def test_a_finished_corpus_is_opened_but_not_overwritten(texts, tmp_path, capsys):
    source, output = f'text:{texts}/*.txt', tmp_path / 'out'
    first = prepare.prepare([source], TOKENIZER, output, workers=0)
    before = contents(output)
    again = prepare.prepare([source], TOKENIZER, output, workers=0)
    assert again.fingerprint == first.fingerprint
    assert 'already' in capsys.readouterr().out
    for changed in (
        {'sources': [f'text:{texts}/1*.txt']},
        {'tokenizer': 'train:wordpiece:70'},
        {'lowercase': False},
        {'held_out_fraction': 0.5},
    ):
        wanted = {'sources': [source], 'tokenizer': TOKENIZER} | changed
        with pytest.raises(errors.UserError, match=next(iter(changed))):
            prepare.prepare(output=output, workers=0, **wanted)
    assert contents(output) == before


def test_a_published_vocabulary_is_not_changed(texts, tmp_path):
    vocab = [*tokenizers.SPECIAL_TOKENS, 'the', 'dog', '.', *'abcdefghijklmnop']
    path = tmp_path / 'vocab.txt'
    path.write_text('\n'.join(vocab))
    made = prepare.prepare([f'text:{texts}/*.txt'], str(path), tmp_path / 'out', workers=0)
    assert made.tokenizer.vocab == tuple(vocab)
    unknown = sum(made.unigram_counts(name)[1] for name in corpus.SPLITS)
    assert unknown > 100
    assert f'[UNK]): {unknown:,}' in (tmp_path / 'out' / 'DATASHEET.md').read_text()


def test_held_out_documents_do_not_depend_on_the_other_documents(texts, tmp_path):
    def held_out(name, pattern):
        made = prepare.prepare(
            [f'text:{texts}/{pattern}'], TOKENIZER, tmp_path / name, held_out_fraction=0.4,
            workers=0,
        )  # fmt: skip
        return {str(d) for d in stored_sentences(made.split('held_out'), made.tokenizer)}

    everything, part = held_out('all', '*.txt'), held_out('part', '1*.txt')
    assert 1 < len(part) < 10
    assert part < everything


def test_sources_with_one_document_each_fill_both_splits(texts, tmp_path):
    specs = [f'text:{texts}/{i:02d}.txt' for i in range(3)]
    made = prepare.prepare(specs, TOKENIZER, tmp_path / 'out', workers=0)
    assert made.split('held_out').num_documents == 1
    assert made.split('train').num_documents == 2
    held_out = made.split('held_out').shards[0].source
    assert {shard.source for shard in made.split('train').shards} == {0, 1, 2} - {held_out}


def test_the_only_document_of_a_source_next_to_a_larger_source_is_for_training(texts, tmp_path):
    specs = [f'text:{texts}/00.txt', f'text:{texts}/1*.txt']
    made = prepare.prepare(specs, TOKENIZER, tmp_path / 'out', workers=0)
    assert [s.source for s in made.split('held_out').shards] == [1]
    assert {s.source for s in made.split('train').shards} == {0, 1}


@pytest.mark.parametrize('copies', [1, 3])
def test_a_corpus_of_a_single_document_is_an_error(copies, texts, tmp_path):
    for i in range(copies):
        shutil.copy(texts / '00.txt', tmp_path / f'copy{i}.txt')
    with pytest.raises(errors.UserError, match='at least two'):
        prepare.prepare([f'text:{tmp_path}/copy*.txt'], TOKENIZER, tmp_path / 'out', workers=0)
    assert not list(tmp_path.glob('out*'))


@pytest.mark.parametrize(
    ('changed', 'message'),
    [
        ({'sources': []}, 'no source given'),
        ({'sources': ['txet:a']}, "unknown source 'txet'"),
        ({'sources': ['text:/nowhere/*.txt']}, '/nowhere'),
        ({'sources': ['text:{empty}']}, 'no text'),
        ({'tokenizer': '/nowhere/vocab.txt'}, '/nowhere/vocab.txt'),
        ({'tokenizer': 'train:wordpeace:80'}, 'wordpeace'),
        ({'tokenizer': '{no_mask}'}, r'lacks \[MASK\]'),
        ({'held_out_fraction': 0.0}, 'held_out_fraction'),
        ({'held_out_fraction': 1.0}, 'held_out_fraction'),
        ({'workers': -1}, 'workers'),
        ({'output': '{texts}'}, 'is not a corpus'),
        ({'output': '{texts}/00.txt/out'}, 'cannot prepare'),
        ({'output': '{texts}/00.txt'}, 'is not a corpus'),
    ],
)
def test_errors_are_one_line_and_leave_no_files(changed, message, texts, tmp_path):
    (tmp_path / 'empty').write_text(' \n ')
    (tmp_path / 'no_mask').write_text('\n'.join(tokenizers.SPECIAL_TOKENS[:4]))
    places = {'empty': tmp_path / 'empty', 'no_mask': tmp_path / 'no_mask', 'texts': texts}
    wanted = {
        'sources': [f'text:{texts}/*.txt'],
        'tokenizer': TOKENIZER,
        'output': str(tmp_path / 'out'),
        'workers': 0,
    } | changed
    for key in ('tokenizer', 'output'):
        wanted[key] = wanted[key].format(**places)
    wanted['sources'] = [source.format(**places) for source in wanted['sources']]
    with pytest.raises(errors.UserError, match=message) as info:
        prepare.prepare(**wanted)
    assert '\n' not in str(info.value)
    assert not list(tmp_path.rglob('*.partial'))
    assert not (tmp_path / 'out').exists()


def test_a_file_size_limit_is_a_one_line_error_and_leaves_no_files(texts, tmp_path):
    def limit():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (3000, 3000))

    done = run(command(f'text:{texts}/*.txt', tmp_path / 'out', '--workers=0'), preexec_fn=limit)
    assert done.returncode == 2
    last = done.stderr.strip().split('\n')[-1]
    assert last.startswith('error: cannot prepare')
    assert os.strerror(errno.EFBIG) in last
    assert 'Traceback' not in done.stderr
    assert not list(tmp_path.glob('out*'))


@pytest.mark.parametrize(('workers', 'size'), [(0, '16k'), (2, '48k')])  # full early, full later
def test_a_full_disk_is_a_one_line_error_and_leaves_no_files(workers, size, many_texts, tmp_path):
    with disks.small(tmp_path, size) as disk:
        done = run(command(many_texts, disk / 'out', f'--workers={workers}'))
        left = list(disk.glob('out*'))
    assert done.returncode == 2
    last = done.stderr.strip().split('\n')[-1]
    assert last.startswith('error: cannot prepare')
    assert os.strerror(errno.ENOSPC) in last
    assert 'Traceback' not in done.stderr
    assert not left


def wait_for(condition, seconds=60):
    """Poll until condition() is true and return its value."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if found := condition():
            return found
        time.sleep(0.01)
    raise TimeoutError


def children(pid):
    return [
        int(child)
        for task in pathlib.Path(f'/proc/{pid}/task').iterdir()
        for child in (task / 'children').read_text().split()
    ]


def alive(pid):
    try:
        return pathlib.Path(f'/proc/{pid}/stat').read_text().rpartition(')')[2].split()[0] != 'Z'
    except FileNotFoundError:
        return False


def has_written_tokens(partial):
    return lambda: any(path.stat().st_size > 1000 for path in partial.rglob('*.tokens.npy'))


def test_a_run_after_a_killed_run_makes_the_same_files(many_texts, tmp_path):
    output, partial = tmp_path / 'out', tmp_path / 'out.partial'
    process = subprocess.Popen(
        command(many_texts, output, '--workers=2'), cwd=ROOT, stderr=subprocess.DEVNULL
    )
    wait_for(has_written_tokens(partial))
    workers = children(process.pid)
    assert len(workers) == 2
    process.kill()
    process.wait()
    assert not output.exists()
    assert not (partial / 'manifest.json').exists()
    with pytest.raises(errors.UserError, match='no corpus'):
        corpus.Corpus.open(output)
    wait_for(lambda: not any(map(alive, workers)))

    (partial / 'train' / '99999.tokens.npy').write_bytes(b'left behind')
    prepare.prepare([many_texts], TOKENIZER, output, workers=2)
    assert not partial.exists()
    prepare.prepare([many_texts], TOKENIZER, tmp_path / 'undisturbed', workers=0)
    assert contents(output) == contents(tmp_path / 'undisturbed')


def test_a_killed_worker_is_a_one_line_error(many_texts, tmp_path):
    process = subprocess.Popen(
        command(many_texts, tmp_path / 'out', '--workers=2'),
        cwd=ROOT, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    wait_for(has_written_tokens(tmp_path / 'out.partial'))
    os.kill(children(process.pid)[0], signal.SIGKILL)
    _, stderr = process.communicate(timeout=60)
    assert process.returncode == 2
    assert 'error: a worker process ended' in stderr.strip().split('\n')[-1]
    assert 'status -9' in stderr
    assert 'Traceback' not in stderr
    assert not list(tmp_path.glob('out*'))


def test_workers_that_cannot_start_are_a_one_line_error(texts, tmp_path, monkeypatch):
    monkeypatch.setattr(sys, 'executable', shutil.which('false'))
    with pytest.raises(errors.UserError, match='worker process ended .*status 1'):
        prepare.prepare([f'text:{texts}/*.txt'], TOKENIZER, tmp_path / 'out', workers=2)
    assert not list(tmp_path.glob('out*'))


def test_a_script_needs_neither_a_main_guard_nor_jax(texts, tmp_path):
    code = (
        'import sys\n'
        'from bert_jax import prepare\n'
        f'prepare.prepare(["text:{texts}/*.txt"], "{TOKENIZER}", "{tmp_path}/out", workers=2)\n'
        'print("heavy:", {"jax", "tensorflow"} & set(sys.modules))\n'
    )
    path = tmp_path / 'script.py'
    path.write_text(code)
    done = subprocess.run(
        [sys.executable, path], cwd=tmp_path, env=os.environ | {'PYTHONPATH': str(ROOT)},
        capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.stdout.endswith('heavy: set()\n')
    assert (tmp_path / 'out' / 'manifest.json').exists()


def test_command_line(texts, tmp_path, capsys):
    output = tmp_path / 'out'
    source = f'text:{texts}/*.txt'
    flags = [f'--source={source}', f'--tokenizer={TOKENIZER}', f'--output={output}']
    prepare.main([*flags, '--lowercase=false', '--held_out_fraction=0.3', '--workers=0'])
    assert 'tokens/s' in capsys.readouterr().out
    made = corpus.Corpus.open(output)
    made.check_settings(
        sources=[source], tokenizer=TOKENIZER, lowercase=False, held_out_fraction=0.3
    )
    assert made.tokenizer.lowercase is False
    prepare.main([f'--output={output}', '--verify'])
    assert f'all {len(made.manifest["files"])} files match' in capsys.readouterr().out

    shard = output / 'train' / '00000.tokens.npy'
    data = bytearray(shard.read_bytes())
    data[-1] ^= 1
    shard.write_bytes(data)
    for flags in ([f'--output={output}', '--verify'], ['--source=text:/no', '--output=other']):
        with pytest.raises(SystemExit, match='2'):
            prepare.main(flags)
        stderr = capsys.readouterr().err
        assert stderr.startswith('error: ')
        assert len(stderr.strip().split('\n')) == 1


def test_the_defaults_are_those_of_training(texts, tmp_path, monkeypatch):
    monkeypatch.setenv('HOME', str(tmp_path))
    prepare.main([f'--source=text:{texts}/*.txt', '--output=~/out'])
    data = base.get_config().data
    data.sources, data.corpus = (f'text:{texts}/*.txt',), '~/out'
    # It raises an error if the corpus has other settings.
    assert pretraining_data.open_corpus(data).split('train').num_documents


def test_help_lists_every_flag_and_source(capsys):
    with pytest.raises(SystemExit, match='0'):
        prepare.main(['--help'])
    text = capsys.readouterr().out
    for word in ('--source', '--held_out_fraction', '--beam_folder', 'text:GLOB', 'documents=…'):
        assert word in text


@pytest.mark.parametrize('kind', ['bytebpe:300', 'unigram:80', 'sentencepiece-bpe:80'])
def test_corpora_with_other_kinds_of_vocabulary(texts, tmp_path, kind):
    made = prepare.prepare(
        [f'text:{texts}/*.txt'], f'train:{kind}', tmp_path / 'out', lowercase=False, workers=2
    )
    assert made.tokenizer.kind == made.manifest['tokenizer']['kind'] == kind.partition(':')[0]
    opened = corpus.Corpus.open(tmp_path / 'out')
    stored = {
        sentence.strip()
        for name in corpus.SPLITS
        for document in stored_sentences(opened.split(name), opened.tokenizer)
        for sentence in document
    }
    expected = {
        sentence
        for path in texts.iterdir()
        for sentence in sentences.split_sentences(path.read_text())
    }
    assert stored == expected
    # Every sentence starts at the start of a word.
    shard = opened.split('train').shards[0]
    assert opened.tokenizer.is_word_start[shard.tokens[shard.sentences[:-1]]].all()


def test_language_alpha_affects_the_vocabulary(tmp_path):
    """With a smaller alpha, a small language gets more tokens."""
    words = {'xa': ['kapoti', 'lomisu', 'nefaro', 'tigube'], 'xb': ['zwyxqj', 'qjzzwy']}
    specs = []
    for language, repeats in (('xa', 3000), ('xb', 3)):
        draw = random.Random(0)
        path = tmp_path / f'{language}.txt'
        lines = [' '.join(draw.choices(words[language], k=4)) + '.' for _ in range(repeats)]
        path.write_text('\n\n'.join(lines))
        specs.append(f'text:{path};documents=blank_line;language={language}')
    long = {}
    for alpha in (1.0, 0.0):
        output = tmp_path / f'out{alpha}'
        made = prepare.prepare(
            specs, 'train:sentencepiece-bpe:40', output, language_alpha=alpha, workers=0
        )
        long[alpha] = [t for t in made.tokenizer.vocab if len(t) > 2 and set(t) & set('zwyxqj')]
        assert f'∝ p^α of the training text, α = {alpha:g}' in (output / 'DATASHEET.md').read_text()
    assert len(long[1.0]) < len(long[0.0])
    with pytest.raises(errors.UserError, match=r'made with language_alpha=1.0, not 0.5'):
        prepare.prepare(
            specs, 'train:sentencepiece-bpe:40', tmp_path / 'out1.0', language_alpha=0.5
        )
    with pytest.raises(errors.UserError, match='language_alpha is 2'):
        prepare.prepare(specs, TOKENIZER, tmp_path / 'out', language_alpha=2)
