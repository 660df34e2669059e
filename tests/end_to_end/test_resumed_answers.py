"""predict: a command that was interrupted resumes, and writes what one without a break writes."""

import json
import pathlib
import random
import signal
import subprocess
import time

import pytest

from bert_jax import predict
from bert_jax.answers.base import FAST, SLOW
from bert_jax.inference import vector_search, vector_store
from tests import disks
from tests.end_to_end import commands, small
from tests.interop import published
from tests.interop.test_sentence_modules import add_modules, legacy

WORDS = [word for topic in small.TOPICS.values() for word in topic]
# Name → task and flags, rows that are answered together, and suffix of the output.
TASKS = {
    'fill_mask': (['--task=fill_mask', '--top=2'], FAST, 'jsonl'),
    'vectors': (['--task=embed', '--pooling=max'], FAST, 'npz'),
    'words': (['--task=embed', '--unit=word', '--input_format=text'], FAST, 'npz'),
    'likelihood': (['--task=pseudo_likelihood'], SLOW, 'jsonl'),
    'bound': (['--task=likelihood_bound', '--draws=2'], SLOW, 'jsonl'),
    'generate': (['--task=generate', '--new_tokens=2', '--seed=5'], SLOW, 'jsonl'),
}


@pytest.fixture(scope='module')
def model(tmp_path_factory):
    return published.folder(tmp_path_factory.mktemp('model') / 'bert', 'BertForMaskedLM')


def write_texts(path, number: int, seed: int = 0):
    """Write short texts with gaps, of which some are too long for the model and some are equal."""
    rng = random.Random(seed)
    texts = [f'the {rng.choice(WORDS)} [MASK]' + ' near' * (n % 3) for n in range(number)]
    path.write_text('\n'.join(texts) + '\n')
    return path


def ask(model, output, *flags):
    """Run the command in this process; return its exit status."""
    try:
        predict.main([f'--model={model}', f'--output={output}', *map(str, flags)])
    except SystemExit as ended:
        return ended.code
    return 0


def interrupt(model, texts, output, flags, row: int):
    """Run a command that fails at a row, because the text is not UTF-8."""
    content = texts.read_bytes()
    lines = content.splitlines(keepends=True)
    texts.write_bytes(b''.join([*lines[:row], b'\xff\n', *lines[row + 1 :]]))
    assert ask(model, output, f'--input={texts}', *flags) == 2
    texts.write_bytes(content)


@pytest.mark.parametrize('name', TASKS)
def test_an_interrupted_command_resumes_to_the_same_bytes(name, model, tmp_path, capsys):
    flags, size, suffix = TASKS[name]
    texts, whole = write_texts(tmp_path / 'texts.txt', size + 9), tmp_path / f'whole.{suffix}'
    assert ask(model, whole, f'--input={texts}', *flags) == 0
    said = [line for line in capsys.readouterr().err.splitlines() if 'windows [' not in line]
    output = tmp_path / f'output.{suffix}'
    interrupt(model, texts, output, flags, size + 3)
    first = capsys.readouterr().err
    assert f'{output}.partial is kept: rerun the same command to resume' in first
    assert not output.exists()
    assert ask(model, output, f'--input={texts}', *flags) == 0
    assert output.read_bytes() == whole.read_bytes()
    again = [line for line in capsys.readouterr().err.splitlines() if 'windows [' not in line]
    assert f'resumed after {size:,} rows' in again
    assert {line for line in said if 'more than' in line or 'line(s)' in line} <= {*again}
    assert {path.name for path in tmp_path.iterdir()} == {texts.name, whole.name, output.name}


def test_answers_that_depend_on_something_else_are_not_continued(model, tmp_path, capsys):
    texts, output = write_texts(tmp_path / 'texts.txt', SLOW + 9), tmp_path / 'out.jsonl'
    flags, _, _ = TASKS['likelihood']
    interrupt(model, texts, output, flags, SLOW + 3)
    changed = [f'--input={texts}', *flags, '--dtype=bfloat16']
    capsys.readouterr()
    assert ask(model, output, *changed) == 2
    said = capsys.readouterr().err
    assert f'{output}.partial holds the answers of an interrupted command' in said
    assert "--dtype was 'float32' and is 'bfloat16'" in said
    assert 'add --overwrite to start again' in said
    write_texts(texts, SLOW + 9, seed=1)
    assert ask(model, output, f'--input={texts}', *flags) == 2
    assert f'the first {SLOW} rows of {texts} have changed' in capsys.readouterr().err
    write_texts(texts, 9, seed=1)  # fewer rows than are answered
    assert ask(model, output, f'--input={texts}', *flags) == 2
    write_texts(texts, SLOW + 9, seed=1)
    assert ask(model, output, f'--input={texts}', *flags, '--overwrite') == 0
    records = [json.loads(line) for line in output.read_text().splitlines()]
    assert [record['text'] for record in records] == texts.read_text().splitlines()
    assert not (tmp_path / 'out.jsonl.partial').exists()


def test_rows_that_are_added_at_the_end_are_answered_too(model, tmp_path):
    """What is answered is a part of the new input, so nothing is computed again."""
    texts, output = write_texts(tmp_path / 'texts.txt', SLOW + 9), tmp_path / 'out.jsonl'
    flags, _, _ = TASKS['likelihood']
    interrupt(model, texts, output, flags, SLOW + 3)
    texts.write_text(texts.read_text() + 'the moon\n')
    assert ask(model, output, f'--input={texts}', *flags) == 0
    assert len(output.read_text().splitlines()) == SLOW + 10


def test_a_damaged_or_foreign_folder_is_refused(model, tmp_path, capsys):
    texts, output = write_texts(tmp_path / 'texts.txt', SLOW + 9), tmp_path / 'out.jsonl'
    flags, partial = TASKS['likelihood'][0], tmp_path / 'out.jsonl.partial'
    interrupt(model, texts, output, flags, SLOW + 3)
    for content in (b'{', b'{"sizes": {"../texts.txt": 1}, "origin": {}, "progress": {}}'):
        (partial / 'progress.json').write_bytes(content)
        capsys.readouterr()
        assert ask(model, output, f'--input={texts}', *flags) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert 'out.jsonl.partial' in line
    for path in partial.iterdir():
        path.unlink()
    (partial / 'thesis.txt').write_text('mine')
    assert ask(model, output, f'--input={texts}', *flags, '--overwrite') == 2
    assert 'is not of an unfinished result' in capsys.readouterr().err
    assert (partial / 'thesis.txt').read_text() == 'mine'


@pytest.mark.parametrize('task', ['search', 'mine'])
def test_an_index_and_a_search_resume(task, model, tmp_path, capsys, monkeypatch):
    bert = published.folder(tmp_path / 'bert', 'BertModel')
    encoder = add_modules(bert, legacy('mean'), ['Normalize'])
    monkeypatch.setattr(vector_store, '_TEXTS_AT_ONCE', 64)
    documents = write_texts(tmp_path / 'documents.txt', 200, seed=2)
    rows = [f'{word} {n}\t{word}' for n in range(FAST // 32 + 9) for word in WORDS]
    texts = tmp_path / 'queries.txt'
    texts.write_text('\n'.join(rows) + '\n')
    flags = [f'--task={task}', f'--documents={documents}', f'--input={texts}']
    assert ask(encoder, tmp_path / 'whole', *flags, f'--vectors={tmp_path}/a') == 0
    encoded = []

    def fail(self, part):
        encoded.append(len(part))
        if len(encoded) == 3:
            raise OSError(28, 'No space left on device')
        return encode(self, part)

    kind = vector_search.TextEncoder
    encode = kind.encode_documents
    with monkeypatch.context() as patch:
        patch.setattr(kind, 'encode_documents', fail)
        assert ask(encoder, tmp_path / 'out', *flags, f'--vectors={tmp_path}/b') == 2
    assert f'{tmp_path}/b.partial is kept' in capsys.readouterr().err
    assert ask(encoder, tmp_path / 'out', *flags, f'--vectors={tmp_path}/b') == 0
    assert 'vectors of 128 of 200 texts are in' in capsys.readouterr().err
    assert (tmp_path / 'out').read_bytes() == (tmp_path / 'whole').read_bytes()
    for name in ('vectors.npy', 'manifest.json'):
        assert (tmp_path / 'a' / name).read_bytes() == (tmp_path / 'b' / name).read_bytes()
    assert not (tmp_path / 'b.partial').exists()


def test_two_commands_do_not_write_the_same_output(model, tmp_path):
    texts, output = write_texts(tmp_path / 'texts.txt', 8 * SLOW), tmp_path / 'out.jsonl'
    arguments = [f'--model={model}', f'--input={texts}', f'--output={output}']
    arguments += ['--task=likelihood_bound', '--draws=32']
    first = commands.Command('bert_jax.predict', arguments)
    while not (tmp_path / 'out.jsonl.partial/.bert_jax_lock').exists():
        time.sleep(0.05)
    second = commands.run('bert_jax.predict', *arguments)
    assert second.returncode == 2
    assert f'another process writes {output}' in second.stderr
    first.send_signal(signal.SIGKILL)
    first.communicate()
    assert (tmp_path / 'out.jsonl.partial').exists()


def test_a_device_is_written_as_it_is(model, tmp_path):
    """/dev/stdout is the file that the shell has opened; a rename would replace it."""
    texts = write_texts(tmp_path / 'texts.txt', 3)
    flags = [f'--model={model}', f'--input={texts}', '--task=fill_mask', '--output=/dev/stdout']
    done = commands.run('bert_jax.predict', *flags)
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == 3
    assert pathlib.Path('/dev/stdout').is_symlink()


def test_vectors_in_a_read_only_folder_are_named(tmp_path, capsys):
    """The error named the output."""
    with disks.small(tmp_path, '20m') as disk:
        bert = published.folder(disk / 'bert', 'BertModel')
        encoder = add_modules(bert, legacy('mean'), ['Normalize'])
        subprocess.run(['mount', '-o', 'remount,ro', str(disk)], check=True)
        texts = write_texts(tmp_path / 'texts.txt', 3)
        flags = ['--task=search', f'--documents={texts}', f'--input={texts}']
        assert ask(encoder, tmp_path / 'out', *flags) == 2
        *_, line = capsys.readouterr().err.splitlines()
        assert f'--vectors={encoder}/vectors/' in line
        assert 'cannot be written: Read-only file system' in line
        assert ask(encoder, tmp_path / 'out', *flags, f'--vectors={tmp_path}/vectors') == 0
        assert ask(encoder, disk / 'out', *flags, f'--vectors={tmp_path}/vectors') == 2
        assert f'--output={disk}/out cannot be written: Read-only' in capsys.readouterr().err
