"""No text of the held-out split of a corpus is in its train split."""

import itertools
import random
import textwrap

import pytest

from bert_jax.corpus import preparation
from bert_jax.errors import UserError

TOKENIZER = 'train:wordpiece:60'


def make_text(number, sentences=6):
    rng = random.Random(number)
    words = ['the', 'old', 'man', 'and', 'a', 'dog', 'went', 'up', 'to', 'green', 'hill', 'where']
    return ' '.join(f'{" ".join(rng.choices(words, k=7)).capitalize()}.' for _ in range(sentences))


def documents(split):
    """The token ids of each document of a split."""
    return {
        tuple(shard.tokens[shard.sentences[first] : shard.sentences[end]].tolist())
        for shard in split.shards
        for first, end in itertools.pairwise(shard.documents)
    }


def splits(specs, folder, fraction=0.3):
    made = preparation.prepare(
        specs, TOKENIZER, folder / 'corpus', held_out_fraction=fraction, workers=0
    )
    return made, documents(made.split('train')), documents(made.split('held_out'))


def write(folder, texts):
    folder.mkdir()
    for name, text in texts.items():
        (folder / f'{name}.txt').write_text(text)
    return f'text:{folder}/*.txt'


def test_copies_in_other_sources_with_other_line_breaks_are_on_the_same_side(tmp_path):
    texts = {f'{number:02d}': make_text(number) for number in range(40)}
    wrapped = {name: textwrap.fill(text, 30 + int(name)) for name, text in texts.items()}
    specs = [
        write(tmp_path / 'a', texts),
        write(tmp_path / 'b', wrapped) + ';language=en',
        # A language of four documents, whose hashes are all above the limit.
        write(tmp_path / 'c', {'a': 'Ein Hund.', '02': texts['02'], '11': texts['11'], 'z': 'Wo.'})
        + ';language=de',
    ]
    made, train, held_out = splits(specs, tmp_path, fraction=0.05)
    assert train.isdisjoint(held_out)
    assert len(train | held_out) == 42
    assert sum(made.split(name).num_documents for name in ('train', 'held_out')) == 84
    for language in ('und', 'en', 'de'):
        for name in ('train', 'held_out'):
            assert made.split(name, language).num_documents >= 2


@pytest.mark.parametrize('held_out_by', ['document', 'file'])
def test_chapters_of_a_file_are_held_out_together_on_request(held_out_by, tmp_path):
    chapters = {
        number: [f'Chapter {chapter}\n{make_text(20 * number + chapter)}' for chapter in range(9)]
        for number in range(12)
    }
    books = {f'{number:02d}': '\n\n'.join(found) for number, found in chapters.items()}
    spec = write(tmp_path / 'a', books) + ';documents=title:^Chapter'
    made, _, held_out = splits([f'{spec};held_out_by={held_out_by}'], tmp_path)
    assert sum(made.split(name).num_documents for name in ('train', 'held_out')) == 12 * 9
    whole = 0
    for found in chapters.values():
        ids, _ = made.tokenizer.encode_ids(found)
        lengths = [len(made.tokenizer.encode_ids([chapter])[0]) for chapter in found]
        stops = list(itertools.accumulate(lengths, initial=0))
        split = {tuple(ids[a:b].tolist()) in held_out for a, b in itertools.pairwise(stops)}
        whole += len(split) == 1
    assert (whole == 12) == (held_out_by == 'file')
    assert held_out


def test_a_file_and_its_wrapped_copy_are_on_the_same_side(tmp_path):
    books = {f'{n:02d}': '\n\n'.join(make_text(20 * n + i) for i in range(5)) for n in range(10)}
    copies = {f'{name}_copy': text.replace('. ', '.\r\n ') for name, text in books.items()}
    spec = write(tmp_path / 'a', books | copies) + ';documents=blank_line;held_out_by=file'
    _, train, held_out = splits([spec], tmp_path)
    assert train.isdisjoint(held_out)
    assert len(train | held_out) == 50


def test_another_unit_is_an_error(tmp_path):
    spec = write(tmp_path / 'a', {'a': 'One.'}) + ';held_out_by=folder'
    with pytest.raises(UserError, match="held_out_by='folder' is not document or file"):
        preparation.prepare([spec], TOKENIZER, tmp_path / 'corpus')
