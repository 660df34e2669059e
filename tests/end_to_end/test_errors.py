"""Mistakes of a user give a one-line error and a non-zero exit status, and nothing is lost."""

import importlib
import json
import os
import shutil
import subprocess
import sys

import pytest

from bert_jax import main
from bert_jax.errors import UserError
from bert_jax.tasks.pretraining import rehearsal
from bert_jax.text.sources.file_source import FileSource
from tests import disks
from tests.end_to_end import commands, small


@pytest.mark.parametrize('module', ['main', 'prepare', 'predict', 'export'])
def test_help_prints_the_flags_and_exits_with_status_0(module, capsys, monkeypatch):
    monkeypatch.setattr(sys, 'argv', [module, '--help'])
    with pytest.raises(SystemExit) as ended:
        importlib.import_module(f'bert_jax.{module}').main()
    assert ended.value.code == 0
    output = capsys.readouterr()
    assert output.err == ''
    flag = {'main': '--config', 'predict': '--task'}.get(module, '--output')
    assert flag in output.out


# Changes to the config → part of the error.
REFUSED = {
    'optimizer name': ({'optimizer__name': 'adm'}, 'bert_adam'),
    'schedule name': ({'schedule__name': 'linar'}, 'bert_linear'),
    'task name': ({'task': 'pretrain'}, 'pretraining'),
    'another task': ({'task': 'tagging'}, 'use --config=configs/finetune.py:tagging'),
    'positions': ({'init_positions': 'foo'}, 'known: interpolate, tile'),
    'architecture name': ({'model__architecture': 'brt'}, 'bert_base'),
    'segments name': ({'data__segments': 'pair'}, 'pairs, single'),
    'dtype name': ({'compute__dtype': 'float8'}, 'bfloat16'),
    'mesh too large': ({'mesh__data': 64}, 'does not fit 8 device'),
    'batch and mesh': ({'training__batch_size': (12, 8)}, 'batch size 12'),
    'accumulation': ({'training__accumulation': (3, 1)}, 'multiple of 24'),
    'sequence too long': ({'training__sequence_length': (16, 33)}, '33 exceeds'),
    'stages of different number': ({'training__steps': (9, 9, 9)}, 'one for each stage, or one'),
    'no steps': ({'training__steps': (30, 0)}, r'it must be in \[1, inf\)'),
    'warmup too long': ({'schedule__warmup_steps': 50}, 'warmup'),
    'nsp without pairs': ({'data__segments': 'single'}, "'nsp' needs"),
    'nsp of full sentences': (
        {'data__segments': 'full_sentences'},
        "'nsp' needs 'next_sentence_label' .* data.segments='full_sentences' does not provide",
    ),
    'unknown segments': ({'data__segments': 'chapters'}, 'known: doc_sentences, full_sentences'),
    'edits of packed rows': (
        {'objectives__mlm': 0.0, 'objectives__deletion': 1.0, 'data__pack': True},
        'data.pack is True, but .*nsp, deletion',
    ),
    'negative weight': ({'objectives__mlm': -1.0}, 'objectives.mlm is -1.0'),
    'nan as weight': ({'objectives__nsp': float('nan')}, 'objectives.nsp is nan'),
    'no objective': ({'objectives__mlm': 0.0, 'objectives__nsp': 0.0}, 'none has a weight'),
    'masking rate': ({'masking__rate': 1.0}, 'masking.rate is 1.0'),
    'sop without order': ({'objectives__sop': 1.0}, "'sop' needs 'sentence_order_label'"),
    'nsp of ordered pairs': ({'data__segments': 'ordered_pairs'}, "'nsp' needs"),
    'sbo without spans': (
        {'objectives__sbo': 1.0},
        "'sbo' needs masking.scheme 'spans' or 'anchored_spans'",
    ),
    'clm with mlm': ({'objectives__nsp': 0.0, 'objectives__clm': 1.0}, 'mlm: masked.*clm: causal'),
    'clm with nsp': ({'objectives__mlm': 0.0, 'objectives__clm': 1.0}, 'nsp: .*clm: causal'),
    'rtd without mlm': ({'objectives__mlm': 0.0, 'objectives__rtd': 50.0}, "'rtd' needs 'mlm'"),
    'generator': ({'objectives__rtd': 50.0, 'rtd__generator_width': 1.5}, 'rtd.generator_width'),
    'sharing': (
        {'objectives__rtd': 50.0, 'rtd__sharing': 'none'},
        'rtd.sharing .*disentangled, gdes, tied',
    ),
    'temperature': ({'objectives__rtd': 50.0, 'rtd__temperature': -1.0}, 'rtd.temperature'),
    'targets of a span': (
        {'objectives__sbo': 1.0, 'masking__scheme': 'spans', 'sbo__max_targets': 0},
        'sbo.max_targets',
    ),
    'editing rate': (
        {'objectives__mlm': 0.0, 'objectives__deletion': 1.0, 'editing__deletion': 1.0},
        'editing.deletion',
    ),
    'too many predictions': ({'training__max_predictions': (17, 5)}, '17 exceeds'),
    'no reading threads': ({'data__reading_threads': 0}, 'data.reading_threads is 0'),
    'unknown source': ({'data__sources': ('web:all',)}, 'sample'),
    'missing text': ({'data__sources': ('text:/none/*.txt',)}, '/none'),
    'missing tokenizer': ({'data__tokenizer': '/none/vocab.txt'}, '/none/vocab.txt'),
    'heads': ({'model__num_heads': 3}, 'num_heads'),
    'hidden_act': ({'model__hidden_act': 'swish'}, 'swish'),
    'kernel': ({'compute__attention_kernel': 'fast'}, 'fast'),
    'kind of tokenizer': ({'data__tokenizer': 'train:wordpieces:120'}, "kind 'wordpieces'"),
    'size of the vocabulary': ({'data__tokenizer': 'train:bytebpe:120'}, 'bytes alone are 261'),
    'missing weights': ({'init_from': '/none', 'model__architecture': None}, '/none'),
    'method without weights': ({'transfer__method': 'lora'}, 'set init_from'),
    'trained layers': ({'transfer__trainable': 'last'}, 'transfer.trainable'),
    'mask and random': ({'masking__random': 0.5}, 'masking.random is 0.5'),
    'scheme': ({'masking__scheme': 'words'}, 'masking.scheme'),
    'replacement': ({'masking__replacement': 'bigram'}, 'masking.replacement'),
    'rate and predictions': ({'masking__rate': 0.5}, 'training.max_predictions allows 3'),
    'too short for pairs': ({'training__sequence_length': (4, 32)}, 'length is 4|exceeds'),
    'decay pattern': ({'optimizer__decay_exclude': ('biass',)}, "'biass' in optimizer.decay_ex"),
    'rules': ({'sharding_rules': (('bacth', 'data'),)}, "'bacth'"),
    'mesh and parameters': ({'mesh__tensor': 8, 'model__intermediate_size': 36}, '8 shards'),
    'end rate': ({'schedule__end_learning_rate': 1.0}, 'end_learning_rate is 1.0'),
    'decay steps': (
        {'schedule__name': 'linear', 'schedule__decay_steps': 60},
        'schedule.decay_steps is 60',
    ),
    'metric': ({'evaluation__best': 'mlm_acuracy'}, "'mlm_acuracy'; .*known: loss, mlm_accuracy"),
    'patience': (
        {'evaluation__patience': 2},
        'patience is 2, .* one of loss, mlm_accuracy, .*mlm_loss',
    ),
    'profile': ({'logging__profile_steps': (3,)}, 'logging.profile_steps'),
    'pairs': ({'evaluation__linguistic__pairs': ('/none/*.jsonl',)}, '/none'),
    'workdir': ({'workdir': '/dev/null/run'}, 'workdir /dev/null/run cannot be written'),
    'corpus': ({'data__corpus': '/dev/null/corpus'}, 'cannot prepare /dev/null/corpus'),
}


@pytest.mark.eight_devices
@pytest.mark.parametrize('name', REFUSED)
def test_a_config_that_cannot_run_is_refused_before_any_text_is_read(name, tmp_path, monkeypatch):
    """16 of 16 mistakes were told after the corpus had been prepared: hours for Wikipedia."""
    monkeypatch.setattr(FileSource, 'documents', lambda self: pytest.fail('the text was read'))
    change, word = REFUSED[name]
    with pytest.raises(UserError, match=word) as caught:
        main.run(small.config(tmp_path, **{'evaluation__cloze_examples': 0} | change))
    assert '\n' not in str(caught.value)
    assert not any(tmp_path.glob('corpus*'))


def test_a_workdir_of_another_run_is_refused_before_any_text_is_read(tmp_path, monkeypatch):
    monkeypatch.setattr(FileSource, 'documents', lambda self: pytest.fail('the text was read'))
    config = small.config(tmp_path)
    (tmp_path / 'run/checkpoints/10').mkdir(parents=True)
    stored = config.to_dict() | {'seed': 5}
    (tmp_path / 'run/config.json').write_text(json.dumps(stored))
    with pytest.raises(UserError, match='holds a run of another config .seed was 5, is 0.'):
        main.run(config)
    assert not any(tmp_path.glob('corpus*'))


@pytest.mark.parametrize('recipe', ['spanbert', 'electra', 'deberta', 'xlmr'])
def test_a_recipe_passes_the_checks_that_precede_the_text(recipe, tmp_path, monkeypatch):
    config = importlib.import_module(f'configs.{recipe}').get_config()
    config.data.corpus, config.workdir = str(tmp_path / 'corpus'), str(tmp_path / 'run')
    rehearsal.check(config)


def test_the_error_for_an_unknown_objective_lists_the_known_ones(tmp_path):
    config = small.config(tmp_path)
    with config.unlocked():
        config.objectives.nps = 1.0
    with pytest.raises(
        UserError, match="unknown objective 'nps'; known: bilm, clm, .*, mlm, .*, nsp"
    ):
        main.run(config)


def source_of(folder, text: str) -> str:
    (folder / 'given.txt').write_text(text)
    return f'text:{folder}/given.txt;documents=blank_line'


@pytest.mark.parametrize(
    ('text', 'word'), [('', 'no text'), ('One sentence. And another.', 'document')]
)
def test_a_corpus_without_text_or_with_one_document_is_refused(text, word, tmp_path):
    config = small.config(tmp_path, data__sources=(source_of(tmp_path, text),))
    with pytest.raises(UserError, match=word):
        main.run(config)
    assert not (tmp_path / 'corpus').exists()


def test_a_vocabulary_without_a_mask_token_is_refused(tmp_path):
    vocab = tmp_path / 'vocab.txt'
    vocab.write_text('[PAD]\n[UNK]\n[CLS]\n[SEP]\nthe\n')
    with pytest.raises(UserError, match=r'vocab.txt.*lacks \[MASK\]'):
        main.run(small.config(tmp_path, data__tokenizer=str(vocab)))


def test_whole_word_masking_needs_a_vocabulary_that_marks_word_starts(tmp_path):
    letters = [chr(code) for code in range(ord('a'), ord('z') + 1)]
    vocab = tmp_path / 'vocab.txt'
    tokens = ['[PAD]', '[UNK]', '[CLS]', '[SEP]', '[MASK]', 'the', 'and', 'near', '.', *letters]
    vocab.write_text('\n'.join(tokens) + '\n')
    config = small.config(tmp_path, data__tokenizer=str(vocab), masking__scheme='whole_words')
    with pytest.raises(UserError, match="'whole_words' chooses words, but the vocabulary does not"):
        main.run(config)


def test_sentence_order_needs_a_document_with_two_sentences(tmp_path):
    text = '\n\n'.join(f'Document number {number} is short.' for number in range(40))
    config = small.config(
        tmp_path,
        data__sources=(source_of(tmp_path, text),),
        data__segments='ordered_pairs',
        objectives__nsp=0.0,
        objectives__sop=1.0,
    )
    with pytest.raises(UserError, match='none of the .* documents has two sentences') as caught:
        main.run(config)
    assert '\n' not in str(caught.value)


def test_a_workdir_that_cannot_be_written_is_refused(tmp_path):
    (tmp_path / 'file').write_text('')
    with pytest.raises(UserError, match='workdir .*file/run cannot be written'):
        main.run(small.config(tmp_path, workdir=str(tmp_path / 'file/run')))


class TestAWorkdirInUse:
    """One run of a few steps, then mistakes with its folder."""

    @pytest.fixture(scope='class')
    def folder(self, tmp_path_factory):
        folder = tmp_path_factory.mktemp('used')
        status, stderr = small.run(folder, *small.ONE_STAGE_ARGUMENTS)
        assert status == 0, stderr
        return folder

    def refuse(self, folder, word, *arguments):
        checkpoints = sorted(os.listdir(folder / 'run/checkpoints'))
        config = (folder / 'run/config.json').read_text()
        status, stderr = small.run(folder, *small.ONE_STAGE_ARGUMENTS, *arguments)
        assert status == 2
        assert word in stderr.splitlines()[-1]
        assert 'Traceback' not in stderr
        assert sorted(os.listdir(folder / 'run/checkpoints')) == checkpoints
        assert (folder / 'run/config.json').read_text() == config

    def test_another_config(self, folder):
        self.refuse(folder, 'optimizer.beta1 was 0.9, is 0.5', '--config.optimizer.beta1=0.5')

    def test_another_tokenizer_of_the_corpus(self, folder):
        kept = folder / 'kept'
        (folder / 'corpus').rename(kept)
        source = small.write_text(folder)
        text = (folder / 'text.txt').read_text()
        (folder / 'text.txt').write_text(text.replace('near', 'beyond'))  # another vocabulary
        try:
            self.refuse(folder, 'tokenizer', f"--config.data.sources=('{source}',)")
        finally:
            shutil.rmtree(folder / 'corpus')
            kept.rename(folder / 'corpus')

    def test_another_source_than_the_corpus(self, folder):
        other = "--config.data.sources=('sample',)"
        self.refuse(folder, 'sources', other, f'--config.workdir={folder}/other')

    def test_a_damaged_corpus(self, folder):
        path = folder / 'corpus/train/00000.tokens.npy'
        content = path.read_bytes()
        path.write_bytes(content[:-2])
        try:
            self.refuse(folder, f'expected {len(content)} bytes')
            path.write_bytes(content[:-2] + bytes([content[-2] ^ 1, content[-1]]))
            verify = ('bert_jax.prepare', f'--output={folder}/corpus', '--verify')
            done = commands.here(*verify)
            assert done.returncode == 2
            assert 'is damaged: train/00000.tokens.npy' in done.stderr.splitlines()[-1]
        finally:
            path.write_bytes(content)
        done = commands.here(*verify)
        assert done.returncode == 0
        assert 'files match their hashes' in done.stdout

    def test_a_second_run_at_once(self, folder):
        import fcntl

        with open(folder / 'run/lock', 'w') as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            self.refuse(folder, 'in use by another run')


@pytest.fixture
def disk(tmp_path):
    with disks.small(tmp_path, '2m') as folder:
        yield folder


def test_a_read_only_disk_is_refused(tmp_path, disk):
    subprocess.run(['mount', '-o', 'remount,ro', str(disk)], check=True)
    with pytest.raises(UserError, match='run cannot be written: Read-only file system'):
        main.run(small.config(tmp_path, workdir=f'{disk}/run'))
    with pytest.raises(UserError, match='cannot prepare .*: Read-only file system'):
        main.run(small.config(tmp_path, data__corpus=f'{disk}/corpus'))


def test_a_full_disk_gives_a_one_line_error(tmp_path, disk):
    arguments = (*small.ONE_STAGE_ARGUMENTS, f'--config.workdir={disk}/run')
    (disk / 'filling').write_bytes(bytes(2**21 - 2**13))
    status, stderr = small.run(tmp_path, *arguments)
    assert status == 2
    assert stderr.splitlines()[-1].startswith('error: ')
    assert 'No space left on device' in stderr.splitlines()[-1]
    assert 'Traceback' not in stderr
    (disk / 'filling').unlink()
    status, stderr = small.run(tmp_path, *arguments)
    assert status == 0, stderr


def test_a_full_disk_during_a_save_keeps_the_last_good_checkpoint(tmp_path, disk):
    arguments = (
        *small.ONE_STAGE_ARGUMENTS[1:],
        f'--config.workdir={disk}/run',
        '--config.model.hidden_size=64',
        '--config.training.steps=(60,)',
        '--config.checkpoint.keep=50',
    )
    status, stderr = small.run(tmp_path, *arguments)
    steps = sorted(int(name) for name in os.listdir(disk / 'run/checkpoints') if name.isdigit())
    assert status == 2
    assert stderr.splitlines()[-1].startswith('error: ')
    assert 'No space left' in stderr.splitlines()[-1]
    assert 'Traceback' not in stderr
    assert steps
    subprocess.run(['mount', '-o', 'remount,size=200m', str(disk)], check=True)
    status, stderr = small.run(tmp_path, *arguments)
    assert status == 0, stderr
