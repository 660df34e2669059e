"""The held-out share of the tokens stays near the fraction, by size and copies of documents."""

import json
import random

import numpy as np
import pytest

from bert_jax.corpus import corpus, preparation, unfinished
from bert_jax.corpus.workers import Amounts
from bert_jax.storage import drafts
from bert_jax.text import held_out_share
from bert_jax.text.held_out import choose_rule, text_hash
from bert_jax.text.held_out_share import HeldOutCandidates, corrected_rule
from tests.corpus.test_distributed import Threads
from tests.end_to_end.preparation import contents, make_text


def candidates_of(documents, fraction, block=100):
    """Candidates of documents, given as (hash, tokens), added in blocks."""
    made = HeldOutCandidates(fraction)
    for start in range(0, len(documents), block):
        hashes, tokens = zip(*documents[start : start + block], strict=True)
        made.add(np.array(hashes, np.uint64), np.array(tokens, np.int64))
    return made


def rules(languages, fraction):
    """The rule by hashes alone, and the corrected rule."""
    rule = choose_rule({name: [h for h, _ in own] for name, own in languages.items()}, fraction)
    counted = {name: candidates_of(own, fraction) for name, own in languages.items()}
    return rule, corrected_rule(rule, fraction, counted)


def share(rule, documents):
    """The share of the tokens that a rule holds out, and its distinct documents."""
    hashes = np.array([value for value, _ in documents], np.uint64)
    tokens = np.array([number for _, number in documents])
    held_out = rule.is_held_out(hashes)
    return tokens[held_out].sum() / tokens.sum(), len(set(hashes[held_out].tolist()))


@pytest.mark.parametrize(('distinct', 'copies'), [(30, 970), (300, 2700), (3000, 3000)])
def test_a_page_with_many_copies_is_never_held_out(distinct, copies):
    returned = 0
    for number in range(60):
        documents = [(text_hash(f'{number} {i}'), 50) for i in range(distinct)]
        # Half of the pages have a hash that the rule would hold out.
        page = documents[0][0] if number % 2 else min(h for h, _ in documents) // 2
        documents += [(page, 10)] * copies
        rule, corrected = rules({'en': documents}, 0.005)
        returned += corrected is not rule
        found, number_held_out = share(corrected, documents)
        assert found < 3 * max(0.005, 3 / distinct)
        assert number_held_out >= 2
        assert not corrected.is_held_out(np.array([page], np.uint64))[0]
    assert returned >= 30


def test_the_lighter_of_two_documents_is_held_out():
    for light, heavy in [(3, 5), (5, 3)]:
        documents = [(light * 2**60, 30), (heavy * 2**60, 9970)]
        _, corrected = rules({'en': documents}, 0.005)
        assert share(corrected, documents) == (0.003, 1)
        _, corrected = rules({'en': documents[:1], 'de': documents[1:]}, 0.005)
        assert share(corrected, documents) == (0.003, 1)


def test_ordinary_documents_keep_the_split_of_the_rule():
    draw = random.Random(0)
    for number, distinct in enumerate([12, 25, 60, 200, 1000, 5000] * 5):
        # Lengths of articles and books are about log-normal.
        documents = [
            (text_hash(f'{number} {i}'), int(draw.lognormvariate(6, 0.7))) for i in range(distinct)
        ]
        rule, corrected = rules({'en': documents}, 0.005)
        found, _ = share(rule, documents)
        if distinct < 1000 or 0.0025 <= found <= 0.01:
            assert corrected is rule
        else:  # enough documents for the fraction, but too many or too few of them by chance
            assert distinct == 1000
            assert 0.005 <= share(corrected, documents)[0] <= 0.01


@pytest.mark.parametrize('lowest', [0, 30])
def test_short_documents_are_held_out_up_to_the_fraction(lowest):
    """Of 160 parts of novels, 8 should be held out; by their hashes it is more, or fewer."""
    step = 2**64 // 160
    hashes = {0: [i * step // 4 for i in range(160)], 30: [(i + 10) * step for i in range(150)]}
    documents = [(value, 1000 + i) for i, value in enumerate(hashes[lowest])]
    rule, corrected = rules({'en': documents}, 0.05)
    assert not 0.025 <= share(rule, documents)[0] <= 0.1
    found, number = share(corrected, documents)
    assert 0.05 <= found <= 0.06
    assert number in (8, 9)
    first = np.array(sorted(hashes[lowest])[:number], np.uint64)
    assert corrected.is_held_out(first).all()  # the first by their hashes


def test_each_language_has_its_share_and_copies_stay_together():
    english = [(text_hash(f'en {i}'), 100) for i in range(2000)]
    low = min(h for h, _ in english) // 2
    welsh = [(text_hash(f'cy {i}'), 100) for i in range(30)] + [(low, 100)] * 500
    # The page has few copies in English, but is most of the Welsh text.
    languages = {'en': [*english, (low, 100)], 'cy': welsh}
    rule, corrected = rules(languages, 0.01)
    assert share(rule, welsh)[0] > 0.9
    for documents in languages.values():
        found, number = share(corrected, documents)
        assert found < 0.03
        assert number >= 2
    assert not corrected.is_held_out(np.array([low], np.uint64))[0]


def test_candidates_do_not_depend_on_the_order_or_the_division(monkeypatch):
    monkeypatch.setattr(held_out_share, 'MOST_COUNTED', 50)
    draw = random.Random(0)
    documents = [(draw.choice([draw.getrandbits(64), i % 7]), 1 + i % 9) for i in range(5000)]
    whole = candidates_of(documents, 0.3).state()
    assert len(whole['hashes']) == 50
    for block in (1, 7, 5000):
        draw.shuffle(documents)
        made = [candidates_of(documents[i::3], 0.3, block).state() for i in range(3)]
        merged = HeldOutCandidates(0.3)
        for state in json.loads(json.dumps(made)):
            merged.merge(state)
        assert merged.state() == whole


@pytest.fixture
def copied_pages(tmp_path):
    """The spec of 30 documents and a page with 300 copies, whose hash is among the smallest."""
    texts = [make_text(random.Random(i), 3) for i in range(30)]
    limit = sorted(map(text_hash, texts))[1]
    pages = (f'Page {i} is not here.' for i in range(9999))
    page = next(page for page in pages if text_hash(page) < limit)
    documents = texts + [page] * 300
    random.Random(0).shuffle(documents)
    path = tmp_path / 'a.jsonl'
    path.write_text('\n'.join(json.dumps({'text': text}) for text in documents))
    return f'jsonl:{path}'


SETTINGS = {
    'tokenizer': 'train:wordpiece:60',
    'shard_tokens': 700,
    'amounts': Amounts(block_characters=500, unit_bytes=3000),
}


def test_a_corpus_of_copies_is_the_same_for_all_workers(copied_pages, tmp_path):
    ways = {'local': {'workers': 0}, 'pool': {'workers': 2}, 'far': {'engine': Threads(2)}}
    for name, way in ways.items():
        preparation.prepare([copied_pages], output=tmp_path / name, **SETTINGS, **way)
        assert contents(tmp_path / name) == contents(tmp_path / 'local')
    made = corpus.Corpus.open(tmp_path / 'local')
    made.verify()
    assert made.split('held_out').num_documents == 2
    assert made.split('train').num_documents == 328
    files = {path.name.partition('.')[0] for path in (tmp_path / 'local/held_out').iterdir()}
    assert files == {'00000', 'unigram'}  # nothing is left of the first attempt


@pytest.mark.parametrize('failing', range(1, 5))
def test_a_resumed_corpus_of_copies_is_the_same(failing, copied_pages, tmp_path, monkeypatch):
    preparation.prepare([copied_pages], output=tmp_path / 'whole', workers=0, **SETTINGS)
    monkeypatch.setattr(drafts.DraftOnDisk, 'save_seconds', 0.0)
    save, saved = unfinished.Unfinished.save, []

    def interrupted(self, progress):
        save(self, progress)
        saved.append('exceptions' in progress)
        if len(saved) == failing * 8:
            raise KeyboardInterrupt

    monkeypatch.setattr(unfinished.Unfinished, 'save', interrupted)
    with pytest.raises(KeyboardInterrupt):
        preparation.prepare([copied_pages], output=tmp_path / 'out', workers=0, **SETTINGS)
    preparation.prepare([copied_pages], output=tmp_path / 'out', workers=0, **SETTINGS)
    assert contents(tmp_path / 'out') == contents(tmp_path / 'whole')
    assert {True, False} == set(saved)


def test_a_share_far_from_the_fraction_is_a_warning(tmp_path, capsys):
    (tmp_path / 'a.txt').write_text('The old dog went home. It was late.')
    (tmp_path / 'b.txt').write_text('The old man went up the hill. He saw nobody there.')
    for fraction in (0.005, 0.3):
        output = tmp_path / f'{fraction}'
        made = preparation.prepare(
            [f'text:{tmp_path}/*.txt'], output=output, workers=0, held_out_fraction=fraction,
            **SETTINGS,
        )  # fmt: skip
        held_out, train = (made.split(name).num_tokens for name in ('held_out', 'train'))
        share = held_out / (held_out + train)
        assert 0.3 < share < 0.6
        assert f'{share:.2%} of all tokens are held out' in (output / 'DATASHEET.md').read_text()
        warning = f'warning: {share:.2%} of the tokens are held out instead of {fraction:.2%}'
        assert (warning in capsys.readouterr().err) == (fraction == 0.005)


def test_in_a_bucket_nothing_is_left_of_the_first_attempt(
    copied_pages, buckets, tmp_path, monkeypatch
):
    monkeypatch.setattr(drafts.DraftInBucket, 'save_seconds', 0.0)
    preparation.prepare([copied_pages], output=tmp_path / 'local', workers=0, **SETTINGS)
    save = unfinished.Unfinished.save

    def interrupted(self, progress):
        save(self, progress)
        if 'exceptions' in progress:  # before the files of the first attempt are removed
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(unfinished.Unfinished, 'save', interrupted)
        with pytest.raises(KeyboardInterrupt):
            preparation.prepare([copied_pages], output='gs://texts/out', workers=0, **SETTINGS)
    preparation.prepare([copied_pages], output='gs://texts/out', workers=0, **SETTINGS).verify()
    assert contents(buckets / 'texts/out') == contents(tmp_path / 'local')
