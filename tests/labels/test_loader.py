"""Splits, the report of unusable records, and mistakes in the config."""

from typing import NamedTuple

import pytest

from bert_jax.errors import UserError
from bert_jax.labels import examples, loader, records
from bert_jax.problems import PROBLEMS
from tests.labels.reading import config, read, read_all, write_lines


def test_malformed_rows_are_counted_and_reported_with_their_lines(tmp_path):
    path = write_lines(
        tmp_path / 'a.tsv',
        'text\tlabel',
        *[f'good {n}\ta' for n in range(196)],
        'bad',
        'a\tb\tc',
        '\ta',
        '',
    )
    with pytest.raises(UserError) as caught:
        read('classification', train=path)
    assert str(caught.value) == (
        f'3 of 199 records are malformed: {path[0]}:198: 1 columns instead of 2; set '
        f'data.optional_columns=1 if the last are optional; {path[0]}:199: 3 columns instead of 2; '
        f"set data.optional_columns=1 if the last are optional; {path[0]}:200: column 'text' has "
        'an empty text (raise data.malformed_fraction=0.01 to skip more)'
    )
    splits = read('classification', train=path, malformed_fraction=0.02)
    assert splits.report['malformed'] == 3
    assert len(splits.train + splits.dev) == 196
    assert any('a.tsv:198: 1 columns' in line for line in splits.report.lines())


def test_dev_and_test_are_split_off_reproducibly_and_by_group(tmp_path):
    path = write_lines(
        tmp_path / 'a.tsv', 'text\tlabel', *[f'text {n}\tg{n % 10}' for n in range(100)]
    )
    settings = dict(train=path, dev_fraction=0.2, test_fraction=0.1)
    splits = read('classification', **settings)
    assert [len(split) for split in splits[:3]] == [72, 18, 10]
    assert splits == read('classification', **settings)
    everyone = {one.id for split in splits[:3] for one in split}
    assert len(everyone) == 100
    other = read('classification', split_seed=1, **settings)
    assert {one.id for one in other.dev} != {one.id for one in splits.dev}
    grouped = read('classification', group='label', **settings)
    assert [len(split) for split in grouped[:3]] == [70, 20, 10]
    few = read('classification', train_examples=7, **settings)
    assert len(few.train) == 7
    assert few.dev == splits.dev
    assert len(few.unsplit) == 100
    assert set(few.train) < set(splits.train)
    with pytest.raises(
        UserError, match=r"data.group names column 'topic', but .* has columns text, label"
    ):
        read('classification', group='topic', **settings)


def test_the_digest_of_the_splits_changes_with_one_label(tmp_path):
    rows = [f'text {n}\t{n % 2}' for n in range(20)]
    first, same, other = (
        read(
            'classification', train=write_lines(tmp_path / 'x.tsv', 'text\tlabel', *lines)
        ).digest()
        for lines in (rows, rows, [*rows[:-1], 'text 19\t0'])
    )
    assert first == same != other


def test_dev_and_test_files_are_not_split_off_train(tmp_path):
    train = write_lines(tmp_path / 'a.tsv', 'text\tlabel', 'a\tx', 'b\ty')
    dev = write_lines(tmp_path / 'b.tsv', 'label\ttext', 'y\tc')
    test = write_lines(tmp_path / 'c.tsv', 'text', 'd')
    splits = read('classification', train=train, dev=dev, test=test)
    assert [one.texts[0] for split in splits[:3] for one in split] == ['a', 'b', 'c', 'd']
    assert splits.test[0].label is None
    assert not any(map(examples.is_labeled, splits.test))
    assert all(map(examples.is_labeled, splits.train + splits.dev))
    assert splits.report.lines() == []


class CustomExample(NamedTuple):
    """An example of a custom problem whose fields have other names."""

    sentence: str
    count: float


def test_an_example_without_known_fields_is_an_error():
    with pytest.raises(UserError, match='CustomExample has none of the fields label, tags'):
        examples.is_labeled(CustomExample('a b', 2.0))
    with pytest.raises(UserError, match='CustomExample has none of the fields text, texts'):
        examples.texts_of(CustomExample('a b', 2.0))


def test_text_to_predict_on_needs_no_label(tmp_path):
    path = write_lines(tmp_path / 'a.tsv', 'text', 'a', 'b')
    data, readers = config({'label': ''}), PROBLEMS['classification'].readers
    found = loader.read_files(
        path, data, 'classification', readers, records.ReadingReport(), labeled=False
    )
    assert [one.example.label for one in found] == [None, None]
    with pytest.raises(UserError, match='data.columns.label is empty; set it to the column'):
        read('classification', {'label': ''}, train=path)


@pytest.mark.parametrize(
    ('kind', 'columns', 'settings', 'message'),
    [
        (
            'classification',
            {'label': 'class'},
            {},
            "data.columns.label names column 'class', but .*a.tsv has columns text, label",
        ),
        (
            'classification',
            {'text2': 'b'},
            {},
            "data.columns.text2 names column 'b', but .*a.tsv has columns text, label",
        ),
        ('classification', {}, {'dev_fraction': 0.01}, 'the dev split is empty: .* of 5 examples'),
        (
            'classification',
            {},
            {'dev': ('{}/empty.tsv',)},
            r'no examples in .*empty.tsv \(format tsv, the first row is the header: text, label\)',
        ),
        ('classification', {'text': 'txet'}, {}, "column 'txet', .*did you mean text[?]"),
        ('classification', {}, {'train': ('{}/*.doc',)}, 'no file matches .*doc'),
        ('classification', {}, {'train': ('{}/a.tvs',)}, "a.tvs' does not exist; .*/a.tsv'[?]"),
        ('classification', {}, {'train': ('{}/none.csv',)}, 'none.csv. does not exist'),
        ('classification', {}, {'train': ('{}',)}, 'is a folder: write .*/[*] for its files'),
        ('classification', {}, {'train': ('{}/blank.csv',)}, 'blank.csv: the file is empty'),
        ('classification', {}, {'train': ()}, 'set data.train to files or data.dataset'),
        ('classification', {}, {'train': ('{}/empty.tsv',)}, 'no examples in .*empty.tsv'),
        (
            'classification',
            {},
            {'format': 'xls'},
            "unknown data.format 'xls'; known: brackets, brat, ",
        ),
        (
            'classification',
            {},
            {'format': 'conll'},
            "'conll' cannot hold classification examples; set it to one of tsv, csv",
        ),
        ('classification', {}, {'encoding': 'utf-9'}, "unknown data.encoding 'utf-9'"),
        ('classification', {}, {'quotes': 'maybe'}, "unknown data.quotes 'maybe'"),
        ('classification', {}, {'rename_labels': ('a',)}, "set it to pairs \\('old=new', …\\)"),
        ('sorting', {}, {}, "unknown kind of problem 'sorting'; known: classification, "),
        ('multiple_choice', {}, {}, 'data.columns.choices is empty'),
        ('relation', {}, {}, 'data.columns.marks has 0 ranges; set it to two'),
        (
            'relation',
            {'marks': ('a', 'b')},
            {},
            "marks has 'a'; write 'START:END' or 'START\\+TEXT'",
        ),
        ('classification', {}, {'train': ('{}/twice.tsv',)}, 'two columns have the same name'),
    ],
)
def test_a_mistake_in_the_config_is_one_line_with_the_key(
    tmp_path, kind, columns, settings, message
):
    write_lines(tmp_path / 'a.tsv', 'text\tlabel', *['t\ta'] * 5)
    write_lines(tmp_path / 'empty.tsv', 'text\tlabel')
    write_lines(tmp_path / 'blank.csv')
    write_lines(tmp_path / 'twice.tsv', 'text\ttext', 'a\tb')
    settings = {'train': ('{}/a.tsv',)} | settings
    for name in ('train', 'dev'):
        settings[name] = tuple(pattern.format(tmp_path) for pattern in settings.get(name, ()))
    with pytest.raises(UserError, match=message) as caught:
        read(kind, columns, **settings)
    assert '\n' not in str(caught.value)


@pytest.mark.parametrize(
    ('key', 'known'), [('ends', ', exclusive, inc'), ('units', ', characters')]
)
def test_an_unknown_convention_for_offsets_is_refused(key, known, tmp_path):
    (tmp_path / 'a.jsonl').write_text('{"tokens": ["a", "b"], "spans": [[0, 1, "x"]]}\n')
    with pytest.raises(UserError, match=f"unknown data.{key} 'foo'; known: {known}"):
        read('spans', {}, train=(f'{tmp_path}/a.jsonl',), format='jsonl', **{key: 'foo'})


def test_exchanged_columns_of_texts_and_labels_are_named(tmp_path):
    """The advice was to enlarge data.dev_fraction, because no two texts could be separated."""
    rows = [f'This is review {n}.,{"good" if n % 2 else "bad"}' for n in range(40)]
    path = write_lines(tmp_path / 'a.csv', 'review,stars', *rows)
    wrong = {'text': 'stars', 'label': 'review'}
    message = "40 classes, but 2 different texts.*text='review' and data.columns.label='stars'"
    with pytest.raises(UserError, match=message):
        read('classification', wrong, train=path)
    read('classification', {'text': 'review', 'label': 'stars'}, train=path)


def test_exchanged_columns_of_words_and_tags_are_named(tmp_path):
    rows = [f'word{n} {"NOUN" if n % 2 else "VERB"}' for n in range(40)]
    path = write_lines(tmp_path / 'a.conll', *rows)
    settings = {'train': path, 'scheme': 'none', 'dev_fraction': 0.0}
    message = "40 different tags, but 2 .*data.columns.word='1', data.columns.tag='0'"
    with pytest.raises(UserError, match=message):
        read('tagging', {'word': '1', 'tag': '0'}, **settings)
    read('tagging', {'word': '0', 'tag': '1'}, **settings)


@pytest.mark.parametrize(('one', 'other'), [('1', '1.0'), ('-1', '-1.00'), ('True', 'true')])
def test_two_spellings_of_one_label_are_refused(tmp_path, one, other):
    path = write_lines(tmp_path / 'a.csv', 'text,label', f'a,{one}', f'b,{other}', 'c,x')
    with pytest.raises(UserError, match=f"two spellings of one value; .*{other}={one}'"):
        read('classification', train=path, dev_fraction=0.0)
    read('classification', train=path, dev_fraction=0.0, rename_labels=(f'{other}={one}',))
    path = write_lines(tmp_path / 'a.csv', 'text,label', 'a,1.1', 'b,01', 'c,1', 'd,NA', 'e,None')
    found = read_all('classification', train=path)
    assert [one.label for one in found] == ['1.1', '01', '1', 'NA', 'None']
