"""Scoring a fine-tuned model on new labeled files."""

import json

import pytest
import torch
import transformers

import bert_jax
from bert_jax import evaluate, predict
from bert_jax.errors import UserError
from bert_jax.labels import examples, seen_examples
from tests.inference.small_runs import save_run
from tests.interop import published


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
    evaluate.main([f'--model={run}', f'--input={tmp_path}/new.csv', f'--output={output}', *columns])
    shown = capsys.readouterr()
    saved = json.loads((output / 'metrics.json').read_text())
    assert saved['metrics']['accuracy'] == 0.75
    low, high = saved['intervals']['accuracy']
    row = f'| accuracy | 0.7500 | {low:.4f} – {high:.4f} |'
    assert low < 0.75 < high
    report = (output / 'report.md').read_text()
    assert row in report
    assert '\nAttention in both directions.\n' in report
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
    path = run / 'train_examples.npy'
    path.write_bytes(path.read_bytes()[:-4])  # fewer than its header says
    with pytest.raises(UserError, match=r'train_examples\.npy is damaged; remove it'):
        bert_jax.load(run).evaluate([str(gold)])
    path.unlink()


def changes(**texts):
    return evaluate.changes('data', tuple(texts.items()), evaluate.data_keys())


def test_what_is_no_option_is_refused():
    assert changes(header='False', **{'columns.text': 'a b', 'dev': 'x'}) == {
        'header': False,
        'columns.text': 'a b',
        'dev': ('x',),
    }
    with pytest.raises(UserError, match='--data.header has no value'):
        changes(header=None)


def test_columns_are_given_by_number_too(run, tmp_path):
    (tmp_path / 'gold.tsv').write_text('no\tthe ship\nyes\tthe moon\n')
    columns = changes(**{'columns.text': '1', 'columns.label': '0'})
    found = bert_jax.load(run).evaluate([f'{tmp_path}/gold.tsv'], columns)
    assert [(own['texts'], own['gold']) for own in found.records] == [
        (['the ship'], 'no'),
        (['the moon'], 'yes'),
    ]


PLACES = ['the ship', 'the moon near the barn', 'the cow and the barn', 'star', 'the field . moon']


def published_answer(theirs, tokenize, question, context):
    """The answer of the original code for SQuAD 2.0, '' for none: the best span, or [CLS]."""
    given = tokenize(question, context, return_tensors='pt')
    with torch.no_grad():
        output = theirs(**given)
    starts, ends = output.start_logits[0], output.end_logits[0]
    words = context.split()
    first = len(question.split()) + 2
    spans = {
        ' '.join(words[i : j + 1]): float(starts[first + i] + ends[first + j])
        for i in range(len(words))
        for j in range(i, len(words))
    }
    best = max(spans, key=spans.get)
    return best if spans[best] >= float(starts[0] + ends[0]) else ''


def test_a_published_model_of_squad_2_is_scored(tmp_path, capsys):
    """Its folder cannot say that some questions have no answer; the option does."""
    path = published.folder(tmp_path / 'model', 'BertForQuestionAnswering')

    theirs = transformers.BertForQuestionAnswering.from_pretrained(path).eval()
    tokenize = transformers.BertTokenizer(str(path / 'vocab.txt'))
    answers = [published_answer(theirs, tokenize, 'the ship', place) for place in PLACES]
    assert '' in answers
    assert any(answers)
    gold = [*answers[:-1], '' if answers[-1] else 'moon']  # the last one is wrong
    records = [
        {
            'id': str(number),
            'question': 'the ship',
            'context': place,
            'answers': [{'text': text, 'answer_start': place.index(text)}] * bool(text),
            'is_impossible': not text,
        }
        for number, (place, text) in enumerate(zip(PLACES, gold, strict=True))
    ]
    paragraphs = [{'context': r.pop('context'), 'qas': [r]} for r in records]
    content = {'version': 'v2.0', 'data': [{'title': 't', 'paragraphs': paragraphs}]}
    (tmp_path / 'dev.json').write_text(json.dumps(content))
    files = [f'--model={path}', f'--input={tmp_path}/dev.json', f'--output={tmp_path}/scores']
    with pytest.raises(SystemExit):
        evaluate.main(files)
    option = '--problem.no_answer=True'
    assert 'problem.no_answer=True' in capsys.readouterr().err
    evaluate.main([*files, option])
    saved = json.loads((tmp_path / 'scores/metrics.json').read_text())['metrics']
    assert saved['exact_match'] == pytest.approx(0.8)
    found = (tmp_path / 'scores/predictions.jsonl').read_text().splitlines()
    assert [json.loads(line)['answer'] for line in found] == answers

    given = tmp_path / 'questions.txt'
    given.write_text(''.join(f'the ship\t{place}\n' for place in PLACES))
    flags = [f'--model={path}', '--task=answer', f'--input={given}', f'--output={tmp_path}/out']
    predict.main([*flags, '--no_answer'])
    found = (tmp_path / 'out').read_text().splitlines()
    assert [json.loads(line)['answer'] for line in found] == answers


def test_settings_that_need_another_training_are_refused(run):
    model = bert_jax.load(run)
    changed = model.with_settings(metrics=['f1_macro'])
    assert [*changed.problem.setup.settings.metrics] == ['f1_macro']
    short = model.with_settings(metrics='f1_macro')  # as --problem.metrics=f1_macro
    assert [*short.problem.setup.settings.metrics] == ['f1_macro']
    assert [*model.problem.setup.settings.metrics] == ['accuracy']
    with pytest.raises(UserError, match="unknown setting of a classification model 'labels'"):
        model.with_settings(labels=('a', 'b'))
    with pytest.raises(UserError, match='problem.metrics is 3, not of type'):
        model.with_settings(metrics=3)
