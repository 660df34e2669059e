"""Special tokens written in texts are those of transformers, in predictions and in exports."""

import itertools
import json

import numpy as np
import pytest
import torch
import transformers
from ml_collections import ConfigDict

import bert_jax
from bert_jax.export_formats import folder as export_folder
from bert_jax.interop import huggingface, huggingface_export
from bert_jax.problems import PROBLEMS
from bert_jax.problems.setup import Setup
from bert_jax.tokenizers.special_token_layout import SpecialTokenLayout
from tests.export_formats import exported
from tests.inference import small_runs
from tests.interop import published

ADDED = ('[e1]', '[/e1]', '<user>', '@name')  # the first three are special
TEXT = '[e1] the storm [/e1] near <user> and @name'
TEXTS = [
    TEXT,
    'the [SEP] storm',
    'x[MASK]y the [PAD] moon',
    'near[UNK] [cls] [CLS]',
    '[e1]the[/e1]',
]


def save(path, name, **changes):
    """A model of transformers whose tokenizer has added tokens: the model and the tokenizer."""
    path.mkdir()
    (path / 'vocab.txt').write_text('\n'.join(published.vocabulary()) + '\n')
    tokenizer = transformers.BertTokenizerFast.from_pretrained(path)
    tokenizer.add_special_tokens({'additional_special_tokens': list(ADDED[:3])})
    tokenizer.add_tokens([ADDED[3]])
    model = published.model(name, vocab_size=len(tokenizer), **changes)
    model.save_pretrained(path)
    tokenizer.save_pretrained(path)
    return model, tokenizer


def logits(model, tokenizer, *texts):
    with torch.no_grad():
        return model(**tokenizer(*texts, return_tensors='pt')).logits[0].numpy()


def test_classes_of_texts_and_pairs(tmp_path):
    reference = save(tmp_path / 'in', 'BertForSequenceClassification', num_labels=3)
    given = [*TEXTS, ('the storm', TEXT)]
    found = bert_jax.load(tmp_path / 'in').classify(given, probabilities=True)
    for texts, own in zip(given, found, strict=True):
        pair = (texts,) if isinstance(texts, str) else texts
        expected = torch.tensor(logits(*reference, *pair)).softmax(-1)
        np.testing.assert_allclose([*own['probabilities'].values()], expected, atol=1e-5)


def test_tags_of_words(tmp_path):
    model, tokenizer = save(tmp_path / 'in', 'BertForTokenClassification', num_labels=3)
    words = [text.split() for text in TEXTS[:3]]
    found = bert_jax.load(tmp_path / 'in').tag(words, probabilities=True)
    for own_words, own in zip(words, found, strict=True):
        encoded = tokenizer(own_words, is_split_into_words=True, return_tensors='pt')
        with torch.no_grad():
            probabilities = model(**encoded).logits[0].softmax(-1).numpy()
        first = [encoded.word_ids().index(word) for word in range(len(own_words))]
        ours = [[*word['probabilities'].values()] for word in own['words']]
        np.testing.assert_allclose(ours, probabilities[first], atol=1e-5)


def test_answers_and_vectors(tmp_path):
    model, tokenizer = save(tmp_path / 'in', 'BertForQuestionAnswering')
    predictor = bert_jax.load(tmp_path / 'in')
    question, context = 'near [SEP] <user>', 'storm [e1] moon [/e1]'
    with torch.no_grad():
        encoded = tokenizer(question, context, return_tensors='pt')
        output = model(**encoded)
        states = model.bert(**tokenizer(TEXT, return_tensors='pt')).last_hidden_state[0]
    (answer,) = predictor.answer([question], [context])
    score = output.start_logits[0, 5:9][:, None] + output.end_logits[0, 5:9]
    score[np.tril_indices(4, -1)] = -np.inf
    start, end = np.unravel_index(score.argmax(), score.shape)
    offsets = tokenizer(context, return_offsets_mapping=True)['offset_mapping'][1:-1]
    assert answer['answer'] == context[offsets[start][0] : offsets[end][1]]
    model.bert.save_pretrained(tmp_path / 'encoder')
    tokenizer.save_pretrained(tmp_path / 'encoder')
    vector = bert_jax.load(tmp_path / 'encoder').embed([TEXT])[0]
    np.testing.assert_allclose(vector, states.mean(0), atol=1e-5)


@pytest.mark.parametrize('kind', small_runs.KINDS)
def test_every_kind_of_example(kind):
    """The special token [SEP] occurs once more if an example contains it."""
    labels, plain = small_runs.KINDS[kind]
    marked = json.loads(json.dumps(plain).replace('moon', '[SEP]').replace('storm', '[SEP]'))
    if 'marks' in marked:
        marked['marks'][1][1] += 1
    settings = dict(PROBLEMS[kind].settings) | {'labels': list(labels)}
    layout = SpecialTokenLayout(small_runs.tokenizer(), 48, 2)
    problem = PROBLEMS[kind].load().build(Setup(ConfigDict(settings), layout, tuple(labels)))
    numbers = []
    for example in (plain, marked):
        sequences = itertools.chain(
            *problem.encoding.encode(problem.encoding.parse_input('x', example))
        )
        ids = np.concatenate([sequence.ids for sequence in sequences])
        numbers.append(int((ids == layout.tokenizer.sep_id).sum()))
    words = json.dumps(plain)
    assert numbers[1] - numbers[0] == words.count('moon') + words.count('storm')


@pytest.mark.parametrize('format_name', ['huggingface', 'stablehlo', 'onnx'])
def test_exports_read_texts_as_predict_does(format_name, tmp_path):
    if format_name == 'onnx':
        pytest.importorskip('onnxruntime')
    save(tmp_path / 'in', 'BertForSequenceClassification', num_labels=3)
    model, predictor = huggingface.load(tmp_path / 'in'), bert_jax.load(tmp_path / 'in')
    expected = predictor.classify(TEXTS, probabilities=True)
    if format_name == 'huggingface':
        huggingface_export.save(model, tmp_path / 'out')
        reference = published.open_without_complaints(tmp_path / 'out')
        tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / 'out')
        rows = [torch.tensor(logits(reference, tokenizer, text)).softmax(-1) for text in TEXTS]
    else:
        export_folder.write(model, 'the model', tmp_path / 'out', format_name)
        rows = exported.loader(tmp_path / 'out').run(TEXTS)['probabilities']
    for own, row in zip(expected, rows, strict=True):
        np.testing.assert_allclose([*own['probabilities'].values()], row, atol=1e-5)
