"""bert_jax.predict: the command line on a model trained for seconds and on a published folder."""

import csv
import io
import json

import numpy as np
import pyarrow
import pytest
from pyarrow import parquet

import bert_jax
from bert_jax import main, predict
from bert_jax.answers import ANSWERS, find, input_rows
from bert_jax.flag_parser import flags_of
from bert_jax.inference import changed_settings
from tests.end_to_end import commands, small
from tests.inference import small_runs
from tests.interop import published
from tests.test_imports import count_modules, run

# Modules of ours that an answer may import.
LOADING_MODULES, FILLING_MODULES = 85, 105


@pytest.fixture(scope='module')
def workdir(tmp_path_factory):
    folder = tmp_path_factory.mktemp('run')
    changes = {
        'training__steps': (150,),
        'training__batch_size': (32,),
        'evaluation__every_steps': 0,
    }
    main.run(small.config(folder, **small.ONE_STAGE | changes, checkpoint__every_steps=150))
    return folder / 'run'


@pytest.fixture(scope='module')
def folder(tmp_path_factory):
    return published.folder(tmp_path_factory.mktemp('published') / 'bert')


def test_fill_mask_reads_stdin_and_writes_stdout(workdir):
    texts = ['the cow and the barn near [MASK] hen .', 'nothing', 'a [MASK] [MASK]']
    flags = (f'--model={workdir}', '--task=fill_mask', '--input=-', '--output=-', '--top=3')
    done = commands.run('bert_jax.predict', *flags, text='\n'.join(texts) + '\n')
    assert done.returncode == 0, done.stderr
    records = [json.loads(line) for line in done.stdout.splitlines()]
    assert [record['text'] for record in records] == texts
    assert [len(record['masks']) for record in records] == [1, 0, 2]
    assert '1 line(s) have no [MASK]' in done.stderr
    assert '\r' not in done.stderr
    guesses = records[0]['masks'][0]
    assert [len(mask) for mask in records[2]['masks']] == [3, 3]
    assert 'the' in [guess['token'] for guess in guesses]  # always there in the training text
    assert guesses[0]['probability'] > guesses[1]['probability'] > guesses[2]['probability']


def test_a_run_is_loaded_and_asked_with_few_modules(workdir):
    """Without problems of fine-tuning, readers of labeled data and ways to write text."""
    load = f'import bert_jax\nmodel = bert_jax.load({str(workdir)!r})\n'
    assert count_modules(load) <= LOADING_MODULES
    assert count_modules(f"{load}model.fill_mask(['a [MASK] b'])") <= FILLING_MODULES
    code = f'import sys\n{load}model.fill_mask(["a [MASK] b"])\nprint(*sys.modules)'
    (modules,) = run(code).stdout.splitlines()
    for name in ('problems', 'labels', 'inference.finetuned', 'inference.generation', 'answers'):
        assert f'bert_jax.{name}' not in modules.split()


def test_generate_writes_what_the_method_returns(workdir, tmp_path, capfd):
    (tmp_path / 'texts').write_text('the [MASK:3] near\nthe cow\nthe cow\n')
    options = dict(new_tokens=4, temperature=0.7, seed=3, order='random', steps=3, stop=['near'])
    flags = [f'--{name}={value}' for name, value in options.items() if name != 'stop']
    arguments = ['--task=generate', *flags, '--stop=near', f'--output={tmp_path}/out']
    predict.main([f'--model={workdir}', f'--input={tmp_path}/texts', *arguments])
    assert 'not known to be trained to write text' in capfd.readouterr().err
    found = [json.loads(line) for line in (tmp_path / 'out').read_text().splitlines()]
    expected = bert_jax.load(workdir).generate([record['prompt'] for record in found], **options)
    assert len(found) == 3
    for record, result in zip(found, expected, strict=True):
        assert record['text'] == result.text
        assert record['steps'] == result.steps.tolist()
        assert len(record['tokens']) == len(record['log_probabilities'])
    assert found[1]['text'] != found[2]['text']


def test_likelihood_bound_writes_what_the_method_returns(workdir, tmp_path):
    (tmp_path / 'texts.tsv').write_text('text\nthe cow near the barn\nthe cow\n')
    arguments = ['--task=likelihood_bound', '--draws=4', '--seed=1', f'--output={tmp_path}/out']
    predict.main([f'--model={workdir}', f'--input={tmp_path}/texts.tsv', *arguments])
    found = [json.loads(line) for line in (tmp_path / 'out').read_text().splitlines()]
    model = bert_jax.load(workdir)
    expected = model.likelihood_bound([record.pop('text') for record in found], 4, seed=1)
    assert found == [result._asdict() for result in expected]
    with pytest.raises(predict.errors.UserError, match='text 1 has 34 tokens; likelihood_bound'):
        model.likelihood_bound(['the ' * 32])


def test_embed_and_pseudo_likelihood_write_what_the_methods_return(folder, tmp_path, capfd):
    texts = ['the ship', '', 'the moon and ' * 12]
    (tmp_path / 'texts').write_text('\r\n'.join(texts))
    outputs = {
        'mean.npz': ('--task=embed',),
        'tokens.npz': ('--task=embed', '--pooling=tokens', '--layer=0'),
        'scores.jsonl': ('--task=pseudo_likelihood', '--batch_tokens=100'),
    }
    for name, flags in outputs.items():
        common = (f'--model={folder}', f'--input={tmp_path}/texts', f'--output={tmp_path}/{name}')
        predict.main([*common, *flags])
        assert 'window' in capfd.readouterr().err
    model = bert_jax.load(folder)
    with np.load(tmp_path / 'mean.npz') as file:
        np.testing.assert_allclose(file['embeddings'], model.embed(texts), atol=1e-5)
    with np.load(tmp_path / 'tokens.npz') as file:
        vectors = model.embed(texts, 'tokens', 0)
        assert file['offsets'].tolist() == np.cumsum([0, *map(len, vectors)]).tolist()
        np.testing.assert_allclose(file['embeddings'], np.concatenate(vectors), atol=1e-5)
    lines = (tmp_path / 'scores.jsonl').read_text().splitlines()
    for line, text, scored in zip(lines, texts, model.pseudo_likelihood(texts), strict=True):
        record = json.loads(line)
        assert (record['text'], record['tokens']) == (text, scored.tokens)
        expected = scored.log_probabilities.sum()
        assert record['pseudo_log_likelihood'] == pytest.approx(expected, rel=1e-4)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([*outputs, 'texts'])


def test_pairs_says_which_of_two_sentences_is_likelier(folder, tmp_path, capfd):
    pairs = [['the ship', 'a ship'], ['star', 'star'], ['rockets', 'the moon']]
    (tmp_path / 'pairs').write_text('\n'.join(map('\t'.join, pairs)))
    flags = ['--task=pairs', f'--input={tmp_path}/pairs', f'--output={tmp_path}/scores']
    predict.main([f'--model={folder}', *flags, '--variant=word_l2r'])
    model = bert_jax.load(folder)
    for line, pair in zip((tmp_path / 'scores').read_text().splitlines(), pairs, strict=True):
        record = json.loads(line)
        first, second = [s.total for s in model.pseudo_likelihood(pair, variant='word_l2r')]
        assert record['texts'] == pair
        assert record['pseudo_log_likelihoods'] == pytest.approx([first, second], abs=1e-4)
        assert record['preferred'] == (None if pair[0] == pair[1] else int(second > first))
        assert len(record['of_shared_tokens']) == 2
    (tmp_path / 'pairs').write_text('the ship')
    with pytest.raises(SystemExit):
        predict.main([f'--model={folder}', *flags, '--overwrite'])
    assert 'pairs, line 1 is not TEXT<tab>TEXT; it has 1 column(s)' in capfd.readouterr().err


def test_vectors_of_words_and_spans_are_those_of_the_method(folder, tmp_path):
    texts = ['the ship near', 'star', 'the moon and ' * 12]
    (tmp_path / 'texts').write_text('\n'.join([*texts, '{"words": ["a", "cow"]}']))
    spans = '{"text": "the ship near", "spans": [[4, 13], [0, 8]]}\n{"text": "star", "spans": []}'
    (tmp_path / 'spans').write_text(spans)
    for unit, flags in {'word': ['--pooling=sum'], 'span': ['--layer=all']}.items():
        output = f'--output={tmp_path}/{unit}.npz'
        common = [f'--model={folder}', '--task=embed', f'--input={tmp_path}/', output]
        common[2] += {'word': 'texts', 'span': 'spans'}[unit]
        predict.main([*common, f'--unit={unit}', *flags])
    model = bert_jax.load(folder)
    with np.load(tmp_path / 'word.npz') as file:
        vectors = model.embed_words([*texts, ['a', 'cow']], pooling='sum')
        assert file['offsets'].tolist() == [0, 3, 4, 40, 42]
        np.testing.assert_allclose(file['embeddings'], np.concatenate(vectors), atol=1e-5)
        assert file['spans'][[0, 3, -1]].tolist() == [[0, 3], [0, 4], [2, 5]]
    with np.load(tmp_path / 'span.npz') as file:
        (vectors,) = model.embed_words(texts[:1], [[(4, 13), (0, 8)]], layer='all')
        np.testing.assert_allclose(file['embeddings'], vectors, atol=1e-5)
        assert file['offsets'].tolist() == [0, 2, 2]


def test_a_line_is_a_text_a_pair_or_a_json_object(tmp_path):
    path = published.folder(tmp_path / 'bert', 'BertForSequenceClassification', num_labels=3)
    lines = ['the ship', 'the ship\tthe moon', '{"text": "the ship", "text2": "the moon"}']
    (tmp_path / 'texts').write_text('\n'.join(lines) + '\n')
    output = tmp_path / 'out.jsonl'
    flags = (f'--model={path}', '--task=classify', f'--input={tmp_path}/texts')
    predict.main([*flags, f'--output={output}'])
    records = [json.loads(line) for line in output.read_text().splitlines()]
    assert [record.pop('id') for record in records] == ['input 1', 'input 2', 'input 3']
    assert records[1]['texts'] == records[2]['texts']
    expected = bert_jax.load(path).classify(['the ship', ('the ship', 'the moon')])
    assert [own['id'] for own in expected] == ['input 1', 'input 2']
    for record, own in zip(records, [*expected, expected[1]], strict=True):
        assert record['predicted'] == own['predicted']
        assert record['probability'] == pytest.approx(own['probability'], abs=1e-6)


ROWS = [('the ship, "far"', 'good'), ('the moon', 'bad')]
TABLES = {
    'csv': lambda names: csv_text([names, *ROWS], ','),
    'tsv': lambda names: csv_text([names, *ROWS], '\t'),
    'jsonl': lambda names: '\n'.join(
        json.dumps(dict(zip(names, row, strict=True))) for row in ROWS
    ).encode(),
    'json': lambda names: json.dumps([dict(zip(names, row, strict=True)) for row in ROWS]).encode(),
    'parquet': lambda names: parquet_bytes(dict(zip(names, zip(*ROWS, strict=True), strict=True))),
}


def csv_text(rows, separator):
    text = io.StringIO()
    if separator == ',':
        csv.writer(text).writerows(rows)
    else:
        text.writelines('\t'.join(row) + '\n' for row in rows)
    return text.getvalue().encode()


def parquet_bytes(columns):
    file = io.BytesIO()
    parquet.write_table(pyarrow.table({name: list(own) for name, own in columns.items()}), file)
    return file.getvalue()


def rows_of(path, task, columns=(), input_format='auto'):
    """The rows of a file without their ids, as a task reads them."""
    data = changed_settings.data_config({}, {f'columns.{key}': name for key, name in columns})
    return list(input_rows.read(str(path), input_format, find(task).fields, data, task))


@pytest.mark.parametrize('suffix', TABLES)
def test_the_rows_of_a_table_are_the_input(suffix, tmp_path):
    """The header and whole rows were classified as texts."""
    path = tmp_path / f'a.{suffix}'
    path.write_bytes(TABLES[suffix](['text', 'label']))
    found = rows_of(path, 'pseudo_likelihood')
    assert [row.values['text'] for row in found] == [text for text, _ in ROWS]
    path.write_bytes(TABLES[suffix](['review', 'text2']))
    pairs = rows_of(path, 'pairs', [('text', 'review')])
    assert [(row.values['text'], row.values['text2']) for row in pairs] == ROWS
    if suffix == 'jsonl':  # the lines are the input
        assert rows_of(path, 'classify')[1].values == {
            'review': 'the moon',
            'text2': 'bad',
            'id': 'input 2',
        }
        return
    rows = rows_of(path, 'classify', [('text', 'review')])
    assert [row.values['text'] for row in rows] == [text for text, _ in ROWS]
    assert all(row.values['id'].startswith(f'a.{suffix}:') for row in rows)
    assert rows[0].place.startswith(str(path))
    message = rf"a.{suffix} has no column 'text', but the columns 'review', 'text2'"
    for task in ('classify', 'embed'):
        with pytest.raises(predict.errors.UserError, match=message):
            rows_of(path, task)


@pytest.mark.parametrize('task', ['classify', 'pairs'])
def test_a_column_has_the_name_of_its_field_or_that_of_the_training(task, tmp_path):
    for header in ('premise,hypothesis', 'text,text2'):
        (tmp_path / 'a.csv').write_text(f'{header}\n"a\tb",c\n')
        columns = [('text', 'premise'), ('text2', 'hypothesis')]
        (row,) = rows_of(tmp_path / 'a.csv', task, columns)
        assert (row.values['text'], row.values['text2']) == ('a\tb', 'c')


def test_columns_of_choices_and_documents_are_those_of_the_training(tmp_path):
    (tmp_path / 'a.csv').write_text('said,first,second\nIt rained.,It was wet.,It was dry.\n')
    columns = [('text', 'said'), ('choices', ('first', 'second'))]
    (row,) = rows_of(tmp_path / 'a.csv', 'classify', columns)
    run = small_runs.save_run(tmp_path / 'run', 'multiple_choice')
    given = {'premise': 'It rained.', 'choices': ['It was wet.', 'It was dry.']}
    model = bert_jax.load(run)
    (found,), (expected,) = model.classify([row.values]), model.classify([given])
    assert found['choices'] == given['choices']
    assert found['probability'] == expected['probability']
    columns = [('texts', ('said', 'first', 'second'))]
    (row,) = rows_of(tmp_path / 'a.csv', 'rerank', columns)
    assert row.values['query'] == 'It rained.'
    assert row.values['documents'] == given['choices']


def test_a_text_of_a_pair_may_have_a_tab(tmp_path):
    path = published.folder(tmp_path / 'bert', 'BertForMaskedLM')
    (tmp_path / 'a.csv').write_text('text,text2\n"the dog\twent","it\nran"\nthe dog,it ran\n')
    flags = [f'--model={path}', '--task=pairs', f'--input={tmp_path}/a.csv']
    predict.main([*flags, f'--output={tmp_path}/out.jsonl'])
    records = [json.loads(line) for line in (tmp_path / 'out.jsonl').read_text().splitlines()]
    assert [one['texts'] for one in records] == [
        ['the dog\twent', 'it\nran'],
        ['the dog', 'it ran'],
    ]


def test_a_table_is_classified_row_by_row(tmp_path):
    path = published.folder(tmp_path / 'bert', 'BertForSequenceClassification', num_labels=3)
    (tmp_path / 'a.csv').write_bytes(TABLES['csv'](['text', 'label']))
    flags = [f'--model={path}', '--task=classify', f'--input={tmp_path}/a.csv']
    predict.main([*flags, f'--output={tmp_path}/out.jsonl'])
    records = [json.loads(line) for line in (tmp_path / 'out.jsonl').read_text().splitlines()]
    expected = bert_jax.load(path).classify([text for text, _ in ROWS])
    assert [one['texts'] for one in records] == [[text] for text, _ in ROWS]
    assert [one['predicted'] for one in records] == [one['predicted'] for one in expected]
    predict.main([*flags, f'--output={tmp_path}/lines.jsonl', '--input_format=text'])
    assert len((tmp_path / 'lines.jsonl').read_text().splitlines()) == 3


def test_an_unreadable_row_of_a_table_is_refused_and_empty_rows_are_counted(tmp_path, capsys):
    (tmp_path / 'a.csv').write_text('text,label\nthe ship,1\n,\nthe moon\n')
    with pytest.raises(predict.errors.UserError, match='a.csv:4: 1 columns instead of 2'):
        rows_of(tmp_path / 'a.csv', 'classify')
    (tmp_path / 'a.csv').write_text('text,label\nthe ship,1\n,\n')
    assert len(rows_of(tmp_path / 'a.csv', 'embed')) == 1
    warnings = capsys.readouterr().err
    assert 'warning: columns that are not used: label\n' in warnings
    assert 'empty rows' in warnings.replace('_', ' ')
    (tmp_path / 'a.csv').write_text('text,label\n')
    with pytest.raises(predict.errors.UserError, match='a.csv has no rows'):
        rows_of(tmp_path / 'a.csv', 'classify')


def help_of(capsys, *arguments):
    with pytest.raises(SystemExit):
        predict.main([*arguments, '--help'])
    return ' '.join(capsys.readouterr().out.split())


def test_help_lists_the_tasks(capsys):
    text = help_of(capsys)
    for task, kind in ANSWERS.items():
        assert f' {task} {" ".join(kind.summary.split())}' in text


@pytest.mark.parametrize('task', ANSWERS)
def test_help_of_a_task_has_its_flags_its_input_and_its_output(task, capsys):
    text, kind = help_of(capsys, f'--task={task}'), ANSWERS[task]
    for name in flags_of(kind):
        assert f'--{name}' in text
    for words in (kind.summary, f'input: {kind.reads}', f'output: {kind.writes}'):
        assert ' '.join(words.split()) in text


def test_a_task_shows_no_flag_of_another(capsys):
    text = help_of(capsys, '--task=fill_mask')
    assert len(flags_of(find('fill_mask'))) <= 15
    for name in ('pooling', 'beams', 'documents', 'probabilities'):
        assert f'--{name}' not in text


# Arguments (over good ones) → part of the message.
MISTAKES = {
    'no model': (['--model=/none'], "no folder '/none'"),
    'no input': (['--input=/none'], 'cannot read /none: [Errno 2] No such file'),
    'encoding': (['--encoding=utf-99'], "unknown --encoding 'utf-99'"),
    'overlap': (['--task=classify', '--overlap=0.5'], 'needs --long_texts=windows'),
    'no output': (['--output=/none/x.npz'], 'x.npz cannot be written: there is no folder /none'),
    'empty input': (['--input=/dev/null'], '/dev/null is empty'),
    'no task': (['--task=classfy'], "unknown --task 'classfy'; did you mean classify?"),
    'output name': (['--output=x.txt'], '--output=x.txt: embed writes NumPy files; end it in .npz'),
    'pooling': (['--pooling=sum'], "unknown pooling 'sum'; known: cls"),
    'no span': (['--unit=span'], 'input 1 has no "spans": a list of [start, end]'),
    'no unit': (['--words=whitespace'], '--words of embed needs --unit=word'),
    'long words': (['--unit=word', '--long_texts=truncate'], 'not an option of --unit=word'),
    'layer': (['--layer=7'], 'has no layer 7; it must be a number from 0'),
    'too long': (['--max_length=20'], 'max_length is 20; it must be from 3 to 19'),
    'top': (['--task=fill_mask', '--top=0'], '--top is 0; it must be in [1, inf)'),
    'not its option': (['--top=3'], '--top has no effect with --task=embed, only with fill_mask'),
    'no gap': (['--task=generate'], 'texts, line 1 has no [MASK] and new_tokens is 0'),
    'long gap': (['--task=generate', '--new_tokens=30'], 'texts, line 1 has gaps of 30 tokens'),
    'order': (['--task=generate', '--new_tokens=1', '--order=left'], 'unknown order of unmasking'),
    'windows': (
        ['--task=generate', '--overlap=0.5'],
        '--overlap has no effect with --task=generate',
    ),
    'not its task': (['--task=classify'], 'has no head for classify; it can answer fill_mask'),
}


@pytest.mark.parametrize('name', MISTAKES)
def test_a_mistake_is_one_line_and_leaves_no_file(name, folder, tmp_path, capfd):
    (tmp_path / 'texts').write_text('the ship\n')
    good = [f'--model={folder}', '--task=embed', f'--input={tmp_path}/texts']
    arguments, message = MISTAKES[name]
    with pytest.raises(SystemExit) as stopped:
        predict.main([*good, f'--output={tmp_path}/x.npz', *arguments])
    assert stopped.value.code == 2
    last = capfd.readouterr().err.splitlines()[-1]
    assert last.startswith('error: ')
    assert message in last
    assert [path.name for path in tmp_path.iterdir()] == ['texts']


def parse(text: str, task: str, folder, input_format: str = 'auto'):
    """The values of the third line of a file."""
    (folder / 'lines.txt').write_text(f'"a"\tb\n"c"\td\n{text}\n', encoding='utf-8')
    if input_format == 'jsonl':
        (folder / 'lines.txt').write_text(f'{{}}\n{{}}\n{text}\n')
    return rows_of(folder / 'lines.txt', task, input_format=input_format)[2].values


def test_a_line_has_the_columns_of_its_task(tmp_path):
    def read(text, task, input_format='auto'):
        return parse(text, task, tmp_path, input_format)

    assert read('a\tb', 'classify') == {'id': 'input 3', 'text': 'a', 'text2': 'b'}
    assert read('who?\tshe .', 'answer') == {
        'id': 'input 3',
        'question': 'who?',
        'context': 'she .',
    }
    assert read('q\ta\tb', 'rerank') == {'id': 'input 3', 'query': 'q', 'documents': ['a', 'b']}
    assert read('a\tb', 'tag') == {'id': 'input 3', 'text': 'a\tb'}
    assert read('{"id": 7, "text": "a"}', 'tag') == {'id': 7, 'text': 'a'}
    assert read('{"id": null, "text": "a"}', 'tag') == {'id': 'input 3', 'text': 'a'}
    assert read('{laughs} yes', 'classify', 'text') == {'id': 'input 3', 'text': '{laughs} yes'}
    assert read('{laughs} yes', 'fill_mask') == {'id': 'input 3', 'text': '{laughs} yes'}


def test_every_line_of_texts_may_be_json(tmp_path):
    (tmp_path / 'a').write_text('{"text": "a", "id": 7, "stars": 2}\n{"text": "b"}\n')
    rows = rows_of(tmp_path / 'a', 'fill_mask', input_format='jsonl')
    assert [row.values for row in rows] == [
        {'id': 7, 'text': 'a'},
        {'id': 'input 2', 'text': 'b'},
    ]
    (tmp_path / 'a').write_text('{"review": "a"}\n')
    with pytest.raises(predict.errors.UserError, match="a, line 1: 'text' is missing or not a st"):
        rows_of(tmp_path / 'a', 'fill_mask', input_format='jsonl')


@pytest.mark.parametrize(
    ('text', 'task', 'input_format', 'message'),
    [
        ('a\tb\tc', 'classify', 'auto', 'line 3 has 3 columns; give classify at most 2'),
        ('who?', 'answer', 'auto', 'line 3 is not QUESTION<tab>CONTEXT'),
        (
            '{laughs}',
            'classify',
            'auto',
            'line 3 is not valid JSON: .*; set --input_format=text if',
        ),
        ('[1]', 'classify', 'jsonl', 'line 3 is not a JSON object'),
        ('{"text": "\\ud800"}', 'classify', 'auto', 'line 3 has half of a surrogate pair'),
    ],
)
def test_a_malformed_line_is_named(text, task, input_format, message, tmp_path):
    with pytest.raises(predict.errors.UserError, match=f'lines.txt, {message}'):
        parse(text, task, tmp_path, input_format)


@pytest.mark.parametrize(
    ('content', 'encoding'),
    [
        ('the ship\r\n\u2028\n\nb'.encode('utf-8-sig'), 'utf-8'),
        ('the ship\n\u2028\n\nb\n'.encode(), 'UTF8'),
        ('\ufeffthe ship\n\u2028\n\nb'.encode('utf-16-le'), 'utf-16-le'),
        ('the ship\n\u2028\n\nb'.encode('utf-16'), 'utf-16'),
    ],
)
def test_a_byte_order_mark_is_no_text(content, encoding, tmp_path):
    (tmp_path / 'texts').write_bytes(content)
    assert list(input_rows.read_lines(f'{tmp_path}/texts', encoding)) == [
        'the ship',
        '\u2028',
        '',
        'b',
    ]


def test_bytes_of_another_encoding_are_named(tmp_path):
    (tmp_path / 'texts').write_bytes(b'the ship\ncaf\xe9\n')
    with pytest.raises(predict.errors.UserError, match='texts, line 2: not valid utf-8; set --enc'):
        list(input_rows.read_lines(f'{tmp_path}/texts'))
    assert list(input_rows.read_lines(f'{tmp_path}/texts', 'latin-1')) == ['the ship', 'café']
