"""Dev and test examples split off a train file: reproducible, and no copies of train rows."""

import pytest

from bert_jax.errors import UserError
from bert_jax.labels.examples import QuestionExample, TaggedExample, TextExample
from bert_jax.labels.splitting import GroupedExample, draw, draw_per_class, split_off, text_name
from tests.labels.reading import read, write_lines


def rows(texts, groups=None):
    groups = groups or [''] * len(texts)
    return [
        GroupedExample(TextExample(str(number), (text,), 'a'), group)
        for number, (text, group) in enumerate(zip(texts, groups, strict=True))
    ]


def ids(examples):
    return [grouped.example.id for grouped in examples]


def test_the_examples_that_are_split_off_never_change():
    """Golden membership: a run that is resumed must not evaluate on rows it was trained on."""
    found = split_off(rows([f'Example number {number}.' for number in range(40)]), 0.2, seed=0)
    assert ids(found.drawn) == ['1', '8', '10', '24', '25', '31', '33', '34']
    assert ids(draw(found.rest, 5, seed=0)) == ['6', '12', '14', '16', '30']


def test_the_order_of_the_rows_does_not_matter():
    texts = [f'text {number}' for number in range(50)]
    found = split_off(rows(texts), 0.3, 1).drawn
    backwards = split_off(rows(texts[::-1]), 0.3, 1).drawn
    assert {one.example.texts for one in found} == {one.example.texts for one in backwards}
    assert len(found) == 15


def test_shots_of_each_class_are_drawn_by_the_seed(tmp_path):
    path = write_lines(
        tmp_path / 'a.tsv', 'text\tlabel', *[f'text {n}\tg{n % 2}' for n in range(40)]
    )
    first, again, other = (
        read('classification', train=path, shots=3, split_seed=seed) for seed in (0, 0, 1)
    )
    for split in (first.train, first.dev):
        assert sorted(one.label for one in split) == ['g0'] * 3 + ['g1'] * 3
    assert (first.train, first.dev) == (again.train, again.dev)
    assert {one.id for one in first.train} != {one.id for one in other.train}


@pytest.mark.parametrize('copies', [2, 5])
def test_no_dev_row_is_a_copy_of_a_train_row(tmp_path, copies):
    """In a trial, all of 100 dev rows were copies of train rows."""
    texts = [f'This is review {number} .' for number in range(200)]
    changed = [
        f'{text.upper()}  ' if copy % 2 else text for copy in range(copies) for text in texts
    ]
    path = write_lines(tmp_path / 'a.tsv', 'text\tlabel', *[f'{text}\tx' for text in changed])
    splits = read('classification', train=path, dev_fraction=0.1, test_fraction=0.1)
    sizes = [len(split) for split in splits[:3]]
    assert sum(sizes) == 200 * copies
    assert sizes[1] == pytest.approx(18 * copies, abs=copies)
    train, dev, test = ({one.texts[0].strip().lower() for one in split} for split in splits[:3])
    assert not train & dev | train & test | dev & test


def test_reversed_pairs_are_copies():
    pairs = [(f'How old is {n}?', f'What is the age of {n}?') for n in range(30)]
    examples = [TextExample('', texts, 'same') for a, b in pairs for texts in ((a, b), (b, a))]
    rest, drawn, _ = split_off([GroupedExample(one, '') for one in examples], 0.2, 0)
    sides = [{frozenset(one.example.texts) for one in side} for side in (rest, drawn)]
    assert not sides[0] & sides[1]
    assert len(drawn) == 12


def test_questions_about_one_context_are_no_copies_but_equal_sentences_are():
    questions = [QuestionExample('', f'Who is {n}?', 'They met.', ()) for n in range(10)]
    found = split_off([GroupedExample(one, '') for one in questions], 0.2, 0)
    assert len(found.drawn) == 2
    sentences = [TaggedExample('', 'A dog .', ((0, 1),), (tag,)) for tag in 'ab'] * 5
    assert split_off([GroupedExample(one, '') for one in sentences], 0.2, 0).drawn == []


def test_copies_of_train_examples_in_other_groups_are_left_out_and_counted(tmp_path):
    """Short sentences occur in many documents, which would otherwise have to stay together."""
    texts = [f'{name} number {n}' for name in 'abcdefghij' for n in range(9)]
    lines = [f'{text}\t{text[0]}' for text in texts] + [f'Yes .\t{name}' for name in 'abcdefghij']
    path = write_lines(tmp_path / 'a.tsv', 'text\tlabel', *lines)
    splits = read('classification', train=path, group='label', dev_fraction=0.2)
    assert {one.label for one in splits.train}.isdisjoint({one.label for one in splits.dev})
    assert (len(splits.train), len(splits.dev)) == (80, 18)
    assert 'Yes .' not in {one.texts[0] for one in splits.dev}
    assert any('copies of train examples left out of dev' in line for line in splits.report.lines())


def test_the_training_subset_has_the_stated_size_even_with_copies():
    examples = rows(['a', 'b'] * 50)
    assert len(draw(examples, 7, 0)) == 7
    assert draw(examples, 1000, 0) == examples


@pytest.mark.parametrize(
    ('lines', 'kind', 'columns', 'settings'),
    [
        (
            ['text\tp\tq\ta\tb\tc\td\tA\tB']
            + [f'Ann told Bea that she won {n}\t18\t21\t0\t3\t9\t12\tT\tF' for n in range(40)],
            'coreference',
            {'marks': ('p:q', 'a:b', 'c:d'), 'candidate_labels': ('A', 'B')},
            {},
        ),
        (
            [line for n in range(40) for line in (f'# newdoc id = {n}', f'word{n}\tNN', '')],
            'tagging',
            {},
            {'group': 'document', 'format': 'conll', 'scheme': 'none'},
        ),
    ],
)
def test_a_moved_file_is_split_in_the_same_way(tmp_path, lines, kind, columns, settings):
    splits = []
    for folder in ('here', 'there'):
        (tmp_path / folder).mkdir()
        path = write_lines(tmp_path / folder / f'{folder}.tsv', *lines)
        splits.append(read(kind, columns, train=path, dev_fraction=0.3, **settings))
    first, second = ([text_name([one]) for one in each.dev] for each in splits)
    assert first == second
    assert first


def labeled(number, labels, group=lambda i: ''):
    return [
        GroupedExample(TextExample(str(i), (f'text {i}',), labels(i)), group(i))
        for i in range(number)
    ]


def test_few_shots_are_as_many_of_each_class_in_train_and_dev():
    examples = labeled(100, lambda i: 'abc'[i % 3])
    drawn = [draw_per_class(examples, 4, seed) for seed in (13, 21)]
    for train, dev in drawn:
        for split in (train, dev):
            assert sorted(one.example.label for one in split) == sorted('abc' * 4)
        assert not set(ids(train)) & set(ids(dev))
    assert drawn[0] == draw_per_class(examples, 4, 13)
    assert ids(drawn[0][0]) != ids(drawn[1][0])


def test_few_shots_have_no_copies_and_do_not_separate_groups():
    copied = labeled(8, lambda i: 'ab'[i % 2]) * 5
    with pytest.raises(UserError, match="shots is 3, but only 4 different examples of class '.' "):
        draw_per_class(copied, 3, 0)
    texts = [one.example.texts for split in draw_per_class(copied, 2, 0) for one in split]
    assert len(set(texts)) == len(texts) == 8
    grouped = labeled(200, lambda i: 'ab'[i % 2], group=lambda i: str(i // 8))
    train, dev = draw_per_class(grouped, 10, 0)
    assert not {one.group for one in train} & {one.group for one in dev}


def test_few_shots_of_numbers_are_of_both_halves():
    train, dev = draw_per_class(labeled(60, lambda i: i / 60), 5, 0)
    for split in (train, dev):
        assert sum(one.example.label >= 0.5 for one in split) == 5
        assert len(split) == 10
    with pytest.raises(UserError, match='data.shots needs examples with one class each'):
        draw_per_class([GroupedExample(QuestionExample('', 'a', 'b', ()), '')], 1, 0)


def test_few_shots_keep_the_whole_dev_split_for_reports(tmp_path):
    path = write_lines(tmp_path / 'a.tsv', 'text\tlabel', *[f't {i}\t{i % 2}' for i in range(60)])
    dev = write_lines(tmp_path / 'b.tsv', 'text\tlabel', *[f'd {i}\t{i % 2}' for i in range(30)])
    splits = read('classification', train=path, dev=dev, shots=4)
    assert [len(split) for split in splits[:3]] == [8, 8, 0]
    assert len(splits.more['full_dev']) == 30
    splits = read('classification', train=path, test_fraction=0.5, shots=4)
    assert [len(split) for split in splits[:3]] == [8, 8, 30]
