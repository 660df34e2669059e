"""Pretraining data of several languages: same on any number of hosts, in the right shares."""

import random
import re
import shutil

import numpy as np
import pytest

from bert_jax.corpus import preparation
from bert_jax.errors import UserError
from bert_jax.examples import language_mixture
from bert_jax.tasks.pretraining import sources as pretraining_data
from configs import base

LETTERS = {'xa': 'abcdefgh', 'xb': 'ijklmnop', 'xc': 'qrstuvwx'}  # disjoint alphabets
DOCUMENTS = {'xa': 90, 'xb': 20, 'xc': 6}
LENGTH, BATCH = 24, 48


@pytest.fixture(scope='module')
def corpus(tmp_path_factory):
    folder, rng = tmp_path_factory.mktemp('text'), random.Random(0)
    specs = []
    for name, letters in LETTERS.items():
        documents = [
            ' '.join(
                f'{"".join(rng.choices(letters, k=3))} {"".join(rng.choices(letters, k=4))}.'
                for _ in range(rng.randint(2, 9))
            )
            for _ in range(DOCUMENTS[name])
        ]
        (folder / f'{name}.txt').write_text('\n\n'.join(documents))
        specs.append(f'text:{folder}/{name}.txt;documents=blank_line;language={name}')
    return preparation.prepare(
        specs, 'train:wordpiece:90', folder / 'corpus', workers=0, held_out_fraction=0.2
    )


def test_an_existing_corpus_is_used_by_its_name(corpus, monkeypatch, capsys):
    monkeypatch.setenv('HOME', str(corpus.directory.parent))
    data = base.get_config().data
    data.corpus = '~/corpus'
    with pytest.raises(UserError, match=r"made with sources=.* not \['tfds:wiki40b/en'\]"):
        pretraining_data.open_corpus(data)
    pretraining_data.follow_corpus(data, ['corpus'])
    assert "data.tokenizer = 'train:wordpiece:90', as in ~/corpus" in capsys.readouterr().out
    assert data.held_out_fraction == 0.2
    assert pretraining_data.open_corpus(data).fingerprint == corpus.fingerprint
    # What the command line sets is not replaced, and a recipe's corpus has the recipe's settings.
    data.tokenizer = 'train:wordpiece:80'
    pretraining_data.follow_corpus(data, ['corpus', 'tokenizer'])
    pretraining_data.follow_corpus(data, [])
    with pytest.raises(UserError, match='made with tokenizer'):
        pretraining_data.open_corpus(data)
    data.corpus = '~/none'
    pretraining_data.follow_corpus(data, ['corpus'])
    assert data.tokenizer == 'train:wordpiece:80'


def test_a_text_of_the_user_gets_a_folder_of_its_own(corpus, tmp_path, capsys):
    """It was prepared in the folder of the recipe, or refused if the recipe's text was there."""
    recipe = f'{tmp_path}/recipe'
    shutil.copytree(corpus.directory, recipe)
    made_from = corpus.manifest['made_from']

    def folder(keys=('sources',), **changes):
        data = base.get_config().data
        data.corpus, data.held_out_fraction = recipe, 0.2
        data.sources, data.tokenizer = tuple(made_from['sources']), made_from['tokenizer']
        data.update(changes)
        pretraining_data.follow_corpus(data, keys)
        return data.corpus

    assert folder() == folder(()) == recipe  # the same settings
    own = folder(sources=('text:own.txt',))
    assert re.fullmatch(f'{recipe}_[0-9a-f]{{8}}', own)
    shown = capsys.readouterr().out
    assert own in shown
    assert '--config.data.corpus' in shown
    assert folder(sources=('text:own.txt',)) == own  # to resume
    assert len({own, folder(sources=('text:b.txt',)), folder(['lowercase'], lowercase=False)}) == 3
    assert folder(['sources', 'corpus'], sources=('text:own.txt',)) == recipe


def test_a_mistyped_corpus_is_refused_before_the_text_of_the_recipe_is_prepared(corpus):
    data = base.get_config().data
    data.corpus = f'{corpus.directory}s'
    message = f"corpuss', which does not exist; did you mean '{re.escape(str(corpus.directory))}'"
    with pytest.raises(UserError, match=message):
        pretraining_data.follow_corpus(data, ['corpus'])
    pretraining_data.follow_corpus(data, ['corpus', 'sources'])
    data.corpus = f'{corpus.directory.parent}/another'
    pretraining_data.follow_corpus(data, ['corpus'])


def test_the_folder_and_the_text_are_said_before_the_work(monkeypatch, capsys):
    data = base.get_config().data
    data.corpus, data.sources = '/none/books', ('text:/none/a.txt',)
    with pytest.raises(UserError, match='does not exist'):
        pretraining_data.open_corpus(data)
    assert '/none/books from text:/none/a.txt' in capsys.readouterr().out


def test_changed_text_is_reported_when_its_corpus_is_used(corpus, capsys):
    data = base.get_config().data
    data.corpus = str(corpus.directory)
    pretraining_data.follow_corpus(data, ['corpus'])
    path = corpus.directory.parent / 'xc.txt'
    text = path.read_text()
    path.write_text(text + ' More.')
    pretraining_data.open_corpus(data)
    path.write_text(text)
    assert f'{path} has changed' in capsys.readouterr().err


def source_of(corpus, seed=3, **changes):
    data = base.get_config().data
    data.update(changes)
    return pretraining_data.train_source(corpus, data, (BATCH, LENGTH), seed)


@pytest.mark.parametrize('pack', [False, True])
@pytest.mark.parametrize('segments', pretraining_data.SEGMENTS)
def test_examples_do_not_depend_on_the_number_of_hosts(corpus, segments, pack):
    changes = {'segments': segments, 'pack': pack, 'language_alpha': 0.3}
    alone = source_of(corpus, **changes)
    assert isinstance(alone, language_mixture.Mixture)
    steps = np.array([0, 7, 4000])
    whole = alone.batch(steps)
    assert whole['input_ids'].shape == (3, BATCH, LENGTH)
    assert (np.diff(whole['example_index'], axis=1) == 1).all()
    for hosts in (2, 4):
        parts = []
        for host in range(hosts):
            rows = slice(host * BATCH // hosts, (host + 1) * BATCH // hosts)
            mine = source_of(corpus, **changes)
            parts.append([mine.batch(step, rows) for step in steps])
        for name, array in whole.items():
            for place in range(len(steps)):
                together = np.concatenate([part[place][name] for part in parts])
                np.testing.assert_array_equal(together, array[place], err_msg=name)
    other = source_of(corpus, seed=4, **changes).batch(steps)
    assert (other['input_ids'] != whole['input_ids']).any()


@pytest.mark.parametrize('alpha', [0.3, 1.0])
@pytest.mark.parametrize('pack', [False, True])
def test_languages_have_their_shares_in_twenty_thousand_examples(corpus, pack, alpha):
    source = source_of(corpus, segments='single', pack=pack, language_alpha=alpha)
    number = 20_000
    ids = source.examples(np.arange(number))['input_ids']
    language_V = np.array(
        [next((n for n, some in enumerate(LETTERS.values()) if set(some) & set(token)), -1)
         for token in corpus.tokenizer.vocab]
    )  # fmt: skip
    language_V[list(corpus.tokenizer.special_ids)] = -1
    of_token = language_V[ids]
    language = of_token.max(1)
    assert ((of_token == language[:, None]) | (of_token < 0)).all()  # one language per row
    counts = np.bincount(language, minlength=len(LETTERS))
    data = base.get_config().data
    data.update(segments='single', pack=pack)
    p = np.array(
        [
            pretraining_data.source(corpus, 'train', name, data, (BATCH, LENGTH), 0).num_examples
            for name in LETTERS
        ]
    )
    q = (p / p.sum()) ** alpha / ((p / p.sum()) ** alpha).sum()
    assert q.max() - q.min() > 0.2
    np.testing.assert_allclose(counts / number, q, rtol=0, atol=0.005)
    logged = pretraining_data.describe(source, number)[-1]
    logged_shares = re.findall(r'(\w+) ([\d.]+)% \(([\d.]+)%\)', logged)
    assert [name for name, _, _ in logged_shares] == list(LETTERS)
    for count, aim, (_, seen, asked) in zip(counts, q, logged_shares, strict=True):
        assert float(seen) == pytest.approx(100 * count / number, abs=0.006)
        assert float(asked) == pytest.approx(100 * aim, abs=0.006)


@pytest.mark.parametrize('array', ['tokens', 'sentences', 'documents'])
def test_a_damaged_corpus_is_refused_when_training_starts(corpus, array):
    """Six of six files with a flipped bit opened: only their sizes were compared."""
    data = base.get_config().data
    data.corpus = str(corpus.directory)
    pretraining_data.follow_corpus(data, ['corpus'])
    path = corpus.directory / f'held_out/00000.{array}.npy'
    content = path.read_bytes()
    path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    try:
        with pytest.raises(UserError, match=f'is damaged: held_out/00000.{array}.npy: prepare it'):
            pretraining_data.open_corpus(data)
        data.verify_corpus = False
        pretraining_data.open_corpus(data)
    finally:
        path.write_bytes(content)


def test_files_of_a_bucket_that_are_read_as_a_whole_are_verified(corpus, buckets, tmp_path):
    shutil.copytree(corpus.directory, buckets / 'texts/corpus')
    data = base.get_config().data
    data.corpus, data.cache_folder = 'gs://texts/corpus', str(tmp_path / 'cache')
    pretraining_data.follow_corpus(data, ['corpus'])
    pretraining_data.open_corpus(data)
    path = next(buckets.glob('**/train/unigram.npy'))
    path.write_bytes(path.read_bytes()[:-1] + b'1')
    with pytest.raises(UserError, match='is damaged: train/unigram.npy: prepare it'):
        pretraining_data.open_corpus(data)


@pytest.mark.parametrize('segments', ['pairs', 'ordered_pairs'])
def test_documents_of_one_sentence_are_left_out_of_pairs_with_a_log_or_used(segments, tmp_path):
    tweets = [f'One {number} tweet.' for number in range(190)]
    articles = ['\n'.join(f'Line {i} of {number}.' for i in range(10)) for number in range(12)]
    (tmp_path / 'a.txt').write_text('\n\n'.join(tweets + articles))
    corpus = preparation.prepare(
        [f'text:{tmp_path}/a.txt;documents=blank_line;sentences=line'], 'train:wordpiece:90',
        tmp_path / 'corpus', workers=0, held_out_fraction=0.05,
    )  # fmt: skip
    split = corpus.split('train')
    shard = split.shards[0]
    sizes = np.diff(shard.sentences[shard.documents])
    is_single = np.diff(shard.documents) == 1
    source = source_of(corpus, segments=segments)
    (line,) = [line for line in pretraining_data.describe(source, 100) if 'left out' in line]
    share = sizes[is_single].sum() / split.num_tokens
    assert share > 0.5
    assert (
        f'{is_single.sum()} documents of one sentence, with {sizes[is_single].sum():,} of '
        f'{split.num_tokens:,} tokens ({share:.1%})'
    ) in line
    used = source_of(corpus, segments=segments, faithful_negatives=True)
    assert used.statistics()['tokens_per_epoch'] == split.num_tokens
    assert not any('left out' in line for line in pretraining_data.describe(used, 100))
