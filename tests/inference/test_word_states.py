"""Vectors of words equal those of transformers, pooled by a loop over characters."""

import dataclasses

import numpy as np
import pytest
import tokenizers
import torch
import transformers

from bert_jax.errors import UserError
from bert_jax.inference import streams, word_states
from bert_jax.inference.predictor import Predictor
from bert_jax.interop import huggingface
from bert_jax.tokenizers import alignment, train
from tests.inference.test_predictor import LAYERS, agree
from tests.interop import published

SENTENCES = [
    'the unbelievable ships sailed near the storm .',
    'Café naïveté , déjà vu',
    'a rocket 🚀 and a flag 🇫🇷 near the moon',
    '',
    'star',
]
SIZES = {'vocab_size': 330, 'max_position_embeddings': 80, 'num_hidden_layers': 4}
POOLS = {'mean': np.mean, 'sum': np.sum, 'first': lambda x, axis: x[0]}


@pytest.fixture(scope='module')
def published_model(tmp_path_factory):
    folder = published.folder(tmp_path_factory.mktemp('model') / 'bert', **SIZES)
    return huggingface.load(folder), transformers.BertModel.from_pretrained(folder).eval()


@pytest.fixture(scope='module', params=['wordpiece', 'bytebpe', 'unigram'])
def models(published_model, request):
    """Our model, and a function from a text to the states and characters of its tokens."""
    loaded, theirs = published_model
    texts = [*SENTENCES, 'the sea and the ships near it , unbelievable rockets and flags'] * 3
    tokenizer = train(f'{request.param}:330', texts, lowercase=False)
    backend = tokenizers.Tokenizer.from_str(tokenizer.to_json())

    def run(text):
        encoded = backend.encode(text, add_special_tokens=False)
        ids = [tokenizer.cls_id, *encoded.ids, tokenizer.sep_id]
        with torch.no_grad():
            output = theirs(torch.tensor([ids]), output_hidden_states=True)
        states = torch.stack(output.hidden_states)[:, 0, 1:-1].numpy()
        return states, encoded.offsets

    return Predictor(dataclasses.replace(loaded, tokenizer=tokenizer), batch_tokens=400), run


def expected(run, text, spans, layer, pooling):
    states, offsets = run(text)
    chosen = LAYERS[layer](states)
    found = []
    for start, end in spans:
        inside = [i for i, (a, b) in enumerate(offsets) if a < end and b > start]
        found.append(POOLS[pooling](chosen[inside], axis=0))
    return np.array(found)


@pytest.mark.parametrize('pooling', POOLS)
@pytest.mark.parametrize('layer', [-1, 1, 'mean_last_4', 'all'])
def test_words_equal_a_loop_over_transformers(models, layer, pooling):
    ours, run = models
    vectors = ours.embed_words(SENTENCES, layer=layer, pooling=pooling)
    for text, own in zip(SENTENCES, vectors, strict=True):
        assert len(own) == len(text.split())
        if text:
            agree(own, expected(run, text, words_of(text), layer, pooling))


def test_spans_may_overlap_and_have_any_order(models):
    ours, run = models
    spans = [(17, 29), (0, 3), (4, 16), (0, 46), (4, 16)]
    (own,) = ours.embed_words(SENTENCES[:1], [spans])
    agree(own, expected(run, SENTENCES[0], spans, -1, 'mean'))


def words_of(text):
    starts = np.cumsum([0, *(len(word) + 1 for word in text.split())])[:-1]
    return [(int(a), int(a) + len(word)) for a, word in zip(starts, text.split(), strict=True)]


@pytest.mark.parametrize('models', ['wordpiece'], indirect=True)
def test_words_of_a_long_text_come_from_the_window_with_most_context(models, published_model):
    ours, run = models
    text, own_words = ' '.join(SENTENCES[:2] * 6), words_of(' '.join(SENTENCES[:2] * 6))
    model = dataclasses.replace(published_model[0], tokenizer=ours.tokenizer)
    (vectors,) = Predictor(model, max_length=40, overlap=0.25).embed_words([text])
    aligned = alignment.align(ours.tokenizer, text, own_words)
    windows = aligned.windows(38, 9)
    assert len(windows) > 2
    for window in windows:
        inside = [w for w, i in enumerate(aligned.first) if window.start <= i < window.stop]
        chosen = [w for w in inside if window.first <= aligned.first[w] < window.last]
        start, end = own_words[inside[0]][0], own_words[inside[-1]][1]
        spans = [(own_words[w][0] - start, own_words[w][1] - start) for w in chosen]
        agree(vectors[chosen], expected(run, text[start:end], spans, -1, 'mean'))


def test_lists_of_words_are_joined_by_spaces(models):
    ours, _ = models
    (joined,), (given,) = ours.embed_words(SENTENCES[:1]), ours.embed_words([SENTENCES[0].split()])
    np.testing.assert_array_equal(joined, given)


def test_a_stream_holds_a_part_of_the_texts_at_a_time(models, monkeypatch):
    ours, _ = models
    sentences = word_states.locate(SENTENCES * 3, None, 'whitespace')
    calls = []
    embed = Predictor.embed_words
    monkeypatch.setattr(
        Predictor, 'embed_words', lambda *a, **k: calls.append(len(a[1])) or embed(*a, **k)
    )
    monkeypatch.setattr(streams, '_STATE_BYTES', 4000)
    streamed = list(streams.stream_words(ours, sentences))
    assert calls == [5, 5, 5]
    assert sum(calls) == len(sentences)
    for own, whole in zip(streamed, embed(ours, SENTENCES * 3), strict=True):
        agree(own, whole) if len(own) else None


@pytest.mark.parametrize(
    ('texts', 'options', 'error'),
    [
        (['the cat'], {'spans': [[(0, 3), (4, 9)]]}, 'span 4:9 is empty or outside the text of 7'),
        (['the cat'], {'spans': [[(3, 4)]]}, 'span 3:4 is empty or outside'),
        (['the cat'], {'spans': []}, 'texts has 1 entries, but spans has 0'),
        (['the cat'], {'pooling': 'cls'}, "unknown pooling of words 'cls'"),
        (['the cat'], {'split': 'moses'}, "unknown way to split words 'moses'"),
        (['the cat'], {'layer': 9}, 'has no layer 9'),
        ([7], {}, 'text 1 is 7, not a string'),
        ([['the', '']], {}, "text 1 is ['the', ''], not a string or a list of words"),
        ('the cat', {}, 'put it in [ ]'),
    ],
)
def test_wrong_arguments_are_one_line(models, texts, options, error):
    with pytest.raises(UserError) as raised:
        models[0].embed_words(texts, **options)
    assert error in str(raised.value)
