"""Scoring a fine-tuned model on new labeled files."""

import json

import pytest

import bert_jax
from bert_jax import evaluate
from bert_jax.data.labeled import examples, seen_examples
from bert_jax.errors import UserError
from tests.inference.small_runs import save_run


@pytest.fixture(scope='module')
def run(tmp_path_factory):
    return save_run(tmp_path_factory.mktemp('runs') / 'run', 'classification')


def test_a_run_is_scored_on_a_file_of_another_format(run, tmp_path, capsys):
    texts = ['the ship', 'the moon near the barn', 'star', 'the cow']
    guesses = [record['predicted'] for record in bert_jax.load(run).classify(texts)]
    gold = [*guesses[:3], 'no' if guesses[3] == 'yes' else 'yes']
    rows = [f'"{text}",{label}\n' for text, label in zip(texts, gold, strict=True)]
    (tmp_path / 'new.csv').write_text('review,stars\n' + ''.join(rows))
    columns = ['--data.columns.text=review', '--data.columns.label=stars', '--data.format=csv']
    output = tmp_path / 'new'
    evaluate.main([f'--model={run}', f'--gold={tmp_path}/new.csv', f'--output={output}', *columns])
    shown = capsys.readouterr()
    saved = json.loads((output / 'metrics.json').read_text())
    assert saved['metrics']['accuracy'] == 0.75
    low, high = saved['intervals']['accuracy']
    row = f'| accuracy | 0.7500 | {low:.4f} – {high:.4f} |'
    assert low < 0.75 < high
    assert row in (output / 'report.md').read_text()
    assert {'4 examples', row} <= set(shown.out.splitlines())
    for path in output.iterdir():
        assert path.name in shown.out.splitlines()[-1]
    assert 'texts' not in shown.err  # counts of 0
    records = [json.loads(line) for line in (output / 'predictions.jsonl').read_text().splitlines()]
    assert [record['gold'] for record in records] == gold
    assert [record['predicted'] for record in records] == guesses


@pytest.mark.parametrize(
    ('content', 'changes', 'message'),
    [
        ('text\tlabel\nthe ship\tperhaps\n', {}, "'perhaps' is not among the trained labels"),
        ('text\tlabel\n', {}, 'no examples in '),
        ('text\tlabel\na\tno\n', {'columns.lable': 'x'}, "unknown key of data 'columns.lable'"),
        ('text\tlabel\na\tno\n', {'malformed_fraction': 'x'}, "malformed_fraction is 'x', which"),
        ('text\tlabel\na\tno\n', {'malformed_fraction': float('nan')}, 'is nan; it must be in'),
    ],
)
def test_a_mistake_is_one_line(content, changes, message, run, tmp_path):
    (tmp_path / 'gold.tsv').write_text(content)
    with pytest.raises(UserError, match=message):
        bert_jax.load(run).evaluate([f'{tmp_path}/gold.tsv'], changes)


def test_gold_examples_that_were_trained_on_are_told(run, tmp_path):
    gold = tmp_path / 'gold.tsv'
    gold.write_text('text\tlabel\nthe ship\tno\nthe moon\tyes\nstar\tyes\n')
    assert bert_jax.load(run).evaluate([str(gold)]).warnings == []  # this run has no such file
    trained = [examples.TextExample('1', (text,), 'no') for text in ('The  SHIP', 'star', 'x')]
    seen_examples.save(trained, run)  # copies up to case and whitespace
    (warning,) = bert_jax.load(run).evaluate([str(gold)]).warnings
    assert f'{run} was trained on the texts of 2 of 3 examples' in warning
    (run / 'train_examples.npy').unlink()


def test_what_is_no_option_is_refused():
    assert evaluate.parse_changes(['--data.header=False', '--data.columns.text=a b']) == {
        'header': False,
        'columns.text': 'a b',
    }
    for argument in ('--header=False', '--data.header'):
        with pytest.raises(UserError, match=f"'{argument}' is not an option"):
            evaluate.parse_changes([argument])


def test_columns_are_given_by_number_too(run, tmp_path):
    (tmp_path / 'gold.tsv').write_text('no\tthe ship\nyes\tthe moon\n')
    changes = evaluate.parse_changes(['--data.columns.text=1', '--data.columns.label=0'])
    found = bert_jax.load(run).evaluate([f'{tmp_path}/gold.tsv'], changes)
    assert [(own['texts'], own['gold']) for own in found.records] == [
        (['the ship'], 'no'),
        (['the moon'], 'yes'),
    ]
