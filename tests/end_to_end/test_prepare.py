"""Preparing corpora: nothing is lost or changed."""

import itertools
import json
import os
import random
import subprocess
import sys

import pytest

from bert_jax import errors, prepare, tokenizers
from bert_jax.corpus import corpus, preparation
from bert_jax.corpus.workers import Amounts
from bert_jax.tasks.pretraining import sources as pretraining_data
from bert_jax.text import sentences
from configs import base
from tests.end_to_end.preparation import ROOT, TOKENIZER, contents, make_text, texts

__all__ = ['texts']  # a fixture


# Blocks of a few documents, so that small corpora have many blocks.
SMALL_BLOCKS = Amounts(block_characters=2000)


def stored_sentences(split, tokenizer):
    """Yield the decoded sentences of each document of a split."""
    for shard in split.shards:
        for first, end in itertools.pairwise(shard.documents):
            yield [
                tokenizer.decode(shard.tokens[start:stop])
                for start, stop in itertools.pairwise(shard.sentences[first : end + 1])
            ]


def test_every_sentence_is_stored_in_order(texts, tmp_path):
    made = preparation.prepare(
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


def test_the_corpus_does_not_depend_on_the_number_of_workers(texts, tmp_path):
    results = []
    for workers in (0, 1, 3):
        output = tmp_path / f'out{workers}'
        preparation.prepare(
            [f'text:{texts}/*.txt', f'text:{texts}/0*.txt;language=en'],
            TOKENIZER, output, held_out_fraction=0.1, workers=workers, shard_tokens=1000,
            amounts=SMALL_BLOCKS,
        )  # fmt: skip
        results.append(contents(output))
    assert results[0] == results[1] == results[2]
    assert len(results[0]) > 3 * 4


def test_a_shard_ends_with_the_document_that_fills_it(texts, tmp_path):
    results = []
    for characters in (1, 2000, 10**6):
        output = tmp_path / f'out{characters}'
        made = preparation.prepare(
            [f'text:{texts}/*.txt'], TOKENIZER, output, held_out_fraction=0.1, workers=0,
            shard_tokens=1000, amounts=Amounts(characters),
        )  # fmt: skip
        results.append(contents(output))
    assert results[0] == results[1] == results[2]
    shards = made.split('train').shards
    assert len(shards) > 3
    for shard in shards[:-1]:
        last_document = shard.sentences[shard.documents[-2]]
        assert last_document < 1000 <= len(shard.tokens)


def test_the_manifest_has_spec_language_and_license_of_each_source(texts, tmp_path):
    specs = [
        f'text:{texts}/0*.txt;language=en;license=CC0',
        f'text:{texts}/1*.txt;language=de;license=MIT',
    ]
    made = preparation.prepare(specs, TOKENIZER, tmp_path / 'out', workers=0)
    for name in corpus.SPLITS:
        assert [(s.source, s.language) for s in made.split(name).shards] == [(0, 'en'), (1, 'de')]
    described = made.manifest['sources']
    assert [source['spec'] for source in described] == specs
    assert [source['license'] for source in described] == ['CC0', 'MIT']
    assert [source['report']['documents'] for source in described] == [10, 10]


def test_text_that_looks_like_special_tokens_is_ordinary_text(texts, tmp_path):
    for path in texts.iterdir():
        path.write_text(path.read_text() + '\n\nA [MASK] and [SEP], [CLS] too [PAD] now.')
    made = preparation.prepare([f'text:{texts}/*.txt'], TOKENIZER, tmp_path / 'out', workers=0)
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
    made = preparation.prepare([f'jsonl:{path}'], TOKENIZER, tmp_path / 'out', workers=0)
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
    made = preparation.prepare(specs, TOKENIZER, tmp_path / 'out', workers=0)
    assert [source['report'].get('bad_files') for source in made.manifest['sources']] == [1, None]
    for shown in (capsys.readouterr().out, (tmp_path / 'out' / 'DATASHEET.md').read_text()):
        assert f'bad file: {texts}/05.txt is not utf-8 text' in shown
        assert shown.count('files also in another source') == 2
    with pytest.raises(errors.UserError, match='1 of 30 files .* cannot be used'):
        preparation.prepare(specs, TOKENIZER, tmp_path / 'no', max_bad_share=0.01, workers=0)


def test_a_finished_corpus_is_opened_but_not_overwritten(texts, tmp_path, capsys):
    source, output = f'text:{texts}/*.txt', tmp_path / 'out'
    first = preparation.prepare([source], TOKENIZER, output, workers=0)
    before = contents(output)
    again = preparation.prepare([source], TOKENIZER, output, workers=0)
    assert again.fingerprint == first.fingerprint
    assert 'already' in capsys.readouterr().out
    for changed in (
        {'sources': [f'text:{texts}/1*.txt']},
        {'tokenizer': 'train:wordpiece:70'},
        {'lowercase': False},
        {'strip_accents': False},
        {'held_out_fraction': 0.5},
    ):
        wanted = {'sources': [source], 'tokenizer': TOKENIZER} | changed
        with pytest.raises(errors.UserError, match=next(iter(changed))):
            preparation.prepare(output=output, workers=0, **wanted)
    assert contents(output) == before


def test_a_published_vocabulary_is_not_changed(texts, tmp_path):
    vocab = [*tokenizers.SPECIAL_TOKENS, 'the', 'dog', '.', *'abcdefghijklmnop']
    path = tmp_path / 'vocab.txt'
    path.write_text('\n'.join(vocab))
    made = preparation.prepare([f'text:{texts}/*.txt'], str(path), tmp_path / 'out', workers=0)
    assert made.tokenizer.vocab == tuple(vocab)
    unknown = sum(made.unigram_counts(name)[1] for name in corpus.SPLITS)
    assert unknown > 100
    assert f'[UNK]): {unknown:,}' in (tmp_path / 'out' / 'DATASHEET.md').read_text()


def test_held_out_documents_do_not_depend_on_the_other_documents(texts, tmp_path):
    def held_out(name, pattern):
        made = preparation.prepare(
            [f'text:{texts}/{pattern}'], TOKENIZER, tmp_path / name, held_out_fraction=0.4,
            workers=0,
        )  # fmt: skip
        return {str(d) for d in stored_sentences(made.split('held_out'), made.tokenizer)}

    everything, part = held_out('all', '*.txt'), held_out('part', '1*.txt')
    assert 1 < len(part) < 10
    assert part < everything


def test_sources_with_one_document_each_fill_both_splits(texts, tmp_path):
    specs = [f'text:{texts}/{i:02d}.txt' for i in range(3)]
    made = preparation.prepare(specs, TOKENIZER, tmp_path / 'out', workers=0)
    assert made.split('held_out').num_documents == 1
    assert made.split('train').num_documents == 2
    held_out = made.split('held_out').shards[0].source
    assert {shard.source for shard in made.split('train').shards} == {0, 1, 2} - {held_out}


def test_the_only_document_of_a_source_next_to_a_larger_source_is_for_training(texts, tmp_path):
    specs = [f'text:{texts}/00.txt', f'text:{texts}/1*.txt']
    made = preparation.prepare(specs, TOKENIZER, tmp_path / 'out', workers=0)
    assert [s.source for s in made.split('held_out').shards] == [1]
    assert {s.source for s in made.split('train').shards} == {0, 1}


def test_a_script_needs_neither_a_main_guard_nor_jax(texts, tmp_path):
    code = (
        'import sys\n'
        'from bert_jax.corpus import preparation\n'
        f'preparation.prepare(["text:{texts}/*.txt"], "{TOKENIZER}", "{tmp_path}/out", workers=2)\n'
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
    flags = [f'--input={source}', f'--tokenizer={TOKENIZER}', f'--output={output}']
    flags += ['--lowercase=false', '--strip_accents=true', '--held_out_fraction=0.3']
    prepare.main([*flags, '--workers=0'])
    assert 'tokens/s' in capsys.readouterr().out
    made = corpus.Corpus.open(output)
    made.check_settings(
        sources=[source],
        tokenizer=TOKENIZER,
        lowercase=False,
        strip_accents=True,
        held_out_fraction=0.3,
    )
    assert made.tokenizer.lowercase is False
    assert 'cased, accents and vowel signs stripped' in (output / 'DATASHEET.md').read_text()
    prepare.main([f'--output={output}', '--verify'])
    assert f'all {len(made.manifest["files"])} files match' in capsys.readouterr().out

    shard = output / 'train' / '00000.tokens.npy'
    data = bytearray(shard.read_bytes())
    data[-1] ^= 1
    shard.write_bytes(data)
    for flags in ([f'--output={output}', '--verify'], ['--input=text:/no', '--output=other']):
        with pytest.raises(SystemExit, match='2'):
            prepare.main(flags)
        stderr = capsys.readouterr().err
        assert stderr.startswith('error: ')
        assert len(stderr.strip().split('\n')) == 1


def test_the_defaults_are_those_of_training(texts, tmp_path, monkeypatch):
    monkeypatch.setenv('HOME', str(tmp_path))
    prepare.main([f'--input=text:{texts}/*.txt', '--output=~/out'])
    data = base.get_config().data
    data.sources, data.corpus = (f'text:{texts}/*.txt',), '~/out'
    # It raises an error if the corpus has other settings.
    assert pretraining_data.open_corpus(data).split('train').num_documents


def test_help_lists_every_flag_and_source(capsys):
    with pytest.raises(SystemExit, match='0'):
        prepare.main(['--help'])
    text = capsys.readouterr().out
    for word in ('--input', '--held_out_fraction', '--runner', 'text:GLOB', 'documents=…'):
        assert word in text


@pytest.mark.parametrize('kind', ['bytebpe:300', 'unigram:80', 'sentencepiece-bpe:80'])
def test_corpora_with_other_kinds_of_vocabulary(texts, tmp_path, kind):
    made = preparation.prepare(
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
        made = preparation.prepare(
            specs, 'train:sentencepiece-bpe:40', output, language_alpha=alpha, workers=0
        )
        long[alpha] = [t for t in made.tokenizer.vocab if len(t) > 2 and set(t) & set('zwyxqj')]
        assert f'∝ p^α of the training text, α = {alpha:g}' in (output / 'DATASHEET.md').read_text()
    assert len(long[1.0]) < len(long[0.0])
    with pytest.raises(errors.UserError, match=r'made with language_alpha=1.0, not 0.5'):
        preparation.prepare(
            specs, 'train:sentencepiece-bpe:40', tmp_path / 'out1.0', language_alpha=0.5
        )
    with pytest.raises(errors.UserError, match='language_alpha is 2'):
        preparation.prepare(specs, TOKENIZER, tmp_path / 'out', language_alpha=2)
