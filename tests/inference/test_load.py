"""bert_jax.load: one object for every kind of model, with methods on lists of texts."""

import functools
import subprocess
import sys

import numpy as np
import pytest
import torch
import transformers

import bert_jax
from bert_jax.errors import UserError
from bert_jax.interop import loading
from bert_jax.loaded import loaded_model
from bert_jax.models.architecture import Compute
from bert_jax.models.rows import Rows
from tests.inference.small_runs import KINDS, save_run
from tests.interop import published


@pytest.fixture(scope='module')
def run(tmp_path_factory):
    """Kind of problem → the folder of a run."""
    folder = tmp_path_factory.mktemp('runs')
    return functools.cache(lambda kind: save_run(folder / kind, kind))


@pytest.fixture(scope='module')
def load(run):
    """Kind of problem → a loaded model."""
    return functools.cache(lambda kind: bert_jax.load(run(kind)))


def logits(path, texts, head):
    """Logits of a head for one sequence, computed without packing."""
    model = loading.load_any(path)
    ids, types = [model.tokenizer.cls_id], [0]
    for number, text in enumerate(texts):
        own = model.tokenizer.encode_batch([text]).ids[0]
        ids += [*own, model.tokenizer.sep_id]
        types += [number] * (len(own) + 1)
    inputs = (np.array([own], np.int32) for own in (ids, np.ones(len(ids)), types))
    computed = loaded_model.outputs(model.architecture, Compute(), model.params, Rows(*inputs))
    return np.asarray(computed[f'{head}_logits'][0], np.float64)


def softmax(x):
    return np.exp(x) / np.exp(x).sum(-1, keepdims=True)


def test_importing_the_package_imports_neither_jax_nor_tensorflow():
    code = 'import sys, bert_jax; print({"jax", "numpy", "tensorflow"} & sys.modules.keys())'
    done = subprocess.run([sys.executable, '-c', code], capture_output=True, text=True, check=True)
    assert done.stdout == 'set()\n'


def test_texts_and_pairs_are_classified(run, load):
    path, model = run('classification'), load('classification')
    assert model.tasks == ('embed', 'classify')
    inputs = ['the ship', ('the ship', 'a storm'), {'text': 'the ship', 'text2': 'a storm'}]
    one, pair, mapping = model.classify(inputs)
    assert (pair['predicted'], pair['texts']) == (mapping['predicted'], ['the ship', 'a storm'])
    for record, texts in ((one, ['the ship']), (pair, ['the ship', 'a storm'])):
        shares = softmax(logits(path, texts, 'sequence_classification'))
        assert record['predicted'] == ('no', 'yes')[shares.argmax()]
        assert record['probability'] == pytest.approx(shares.max(), abs=1e-5)
    assert model.classify([]) == []
    assert model.embed(['the ship'])[0].shape == (16,)


def test_words_are_tagged(run, load):
    path, model = run('tagging'), load('tagging')
    from_text, from_words = model.tag(['the ship near the moon', ['the', 'ship', 'near']])
    assert [word['text'] for word in from_text['words']] == ['the', 'ship', 'near', 'the', 'moon']
    assert [word['text'] for word in from_words['words']] == ['the', 'ship', 'near']
    assert all(entity['label'] == 'X' for entity in from_text['entities'])
    shares = softmax(logits(path, ['the ship near'], 'token_classification'))
    for word, own in zip(from_words['words'], shares[1:-1], strict=True):  # whole-word tokens
        assert word['predicted'] == ('B-X', 'I-X', 'O')[own.argmax()]
        assert word['probability'] == pytest.approx(own.max(), abs=1e-5)


def test_questions_are_answered_from_their_contexts(load):
    contexts = ['the ship near the moon', 'the cow and the barn']
    records = load('question_answering').answer(['the ship', 'a storm'], contexts)
    for record, context in zip(records, contexts, strict=True):
        assert record['answer'] == context[record['start'] : record['end']] != ''
        assert record['n_best'][0]['text'] == record['answer']


def test_spans_are_found(load):
    (record,) = load('spans').spans(['the ship near the moon'])
    for span in record['predicted']:
        assert span['text'] == record['text'][span['start'] : span['end']]
        assert span['label'] == 'X'


@pytest.mark.parametrize('kind', ['regression', 'multiple_choice', 'relation'])
def test_other_examples_are_classified(load, kind):
    labels, given = KINDS[kind]
    (record,) = load(kind).classify([given])
    assert 'gold' not in record
    expected = {'regression': float, 'multiple_choice': int, 'relation': str}[kind]
    assert type(record['predicted']) is expected
    if kind == 'relation':
        assert record['predicted'] in labels


def test_a_folder_of_transformers_classifies_and_fills_masks(tmp_path):
    path = published.folder(tmp_path / 'bert', 'BertForSequenceClassification', num_labels=3)
    theirs = transformers.BertForSequenceClassification.from_pretrained(path).eval()
    tokenize = transformers.BertTokenizer(str(path / 'vocab.txt'))
    model = bert_jax.load(path)
    pairs = [('the ship near', 'the moon'), ('star', 'the cow and the barn')]
    for pair, record in zip(pairs, model.classify(pairs), strict=True):
        with torch.no_grad():
            shares = theirs(**tokenize(*pair, return_tensors='pt')).logits[0].softmax(-1).numpy()
        assert record['predicted'] == f'LABEL_{shares.argmax()}'
        assert record['probability'] == pytest.approx(shares.max(), abs=1e-5)
    with pytest.raises(UserError, match=r'bert has no head for fill_mask; it can .* embed, class'):
        model.fill_mask(['the [MASK]'])


def test_a_method_without_a_head_names_what_the_model_can_do(load):
    model = load('tagging')
    calls = {
        'fill_mask': lambda: model.fill_mask(['[MASK]']),
        'pseudo_likelihood': lambda: model.pseudo_likelihood(['x']),
        'classify': lambda: model.classify(['x']),
        'spans': lambda: model.spans(['x']),
        'answer': lambda: model.answer(['x'], ['x']),
    }
    for task, call in calls.items():
        with pytest.raises(UserError, match=f'no head for {task}; it can answer embed, tag$'):
            call()


@pytest.mark.parametrize(
    ('call', 'message'),
    [
        (lambda model: model.embed('the ship'), "a list of texts, not 'the ship'"),
        (
            lambda model: model.classify([('a', 'b', 'c')]),
            r"a pair of texts, not \('a', 'b', 'c'\)",
        ),
        (lambda model: model.classify([{'txt': 'a'}]), "input 1: .*'text'"),
        (lambda model: model.answer(['a'], []), 'questions has 1 entries, but contexts has 0'),
    ],
)
def test_a_malformed_input_is_one_line(load, call, message):
    with pytest.raises(UserError, match=message):
        call(load('classification'))


def test_a_folder_of_several_runs_names_them_and_the_best(tmp_path):
    for seed in (0, 1):
        (tmp_path / f'sweep/seed_{seed}/checkpoints').mkdir(parents=True)
    with pytest.raises(UserError, match='choose one of them: seed_0, seed_1'):
        bert_jax.load(tmp_path / 'sweep')
    results = '{"metric": "f1", "best_run": "seed_1"}'
    (tmp_path / 'sweep/results.json').write_text(results)
    with pytest.raises(UserError, match=r'holds 2 runs; the best by f1 is .*/sweep/seed_1: choose'):
        bert_jax.load(tmp_path / 'sweep')
