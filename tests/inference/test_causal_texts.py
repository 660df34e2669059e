"""What causal models write after texts: options, stop strings, streaming, and what is refused."""

import dataclasses
import json

import numpy as np
import pytest

from bert_jax import predict, tokenizers
from bert_jax.errors import UserError
from bert_jax.inference.predictor import Predictor
from bert_jax.interop import huggingface
from tests.inference import small_gpt2
from tests.inference.small_runs import tokenizer

TEXTS = ['the ship', 'near the old moon and the barn', 'a']


@pytest.fixture(scope='module')
def folder(tmp_path_factory):
    return small_gpt2.folder(tmp_path_factory.mktemp('gpt2'))


@pytest.fixture(scope='module')
def gpt2(folder):
    return Predictor(huggingface.load(folder), batch_tokens=256)


@pytest.fixture(scope='module')
def bert():
    """A model that was pretrained here, which has not learned where texts end."""
    model = dataclasses.replace(
        small_gpt2.make('bert', tokenizer(), max_length=48), learned_end=False
    )
    return Predictor(model, batch_tokens=256)


def test_a_folder_writes_what_it_writes_in_transformers(folder, gpt2):
    from transformers import AutoModelForCausalLM, AutoTokenizer

    theirs = AutoModelForCausalLM.from_pretrained(folder)
    their_tokenizer = AutoTokenizer.from_pretrained(folder)
    found = gpt2.generate(TEXTS, new_tokens=10, temperature=0)
    for text, generated in zip(TEXTS, found, strict=True):
        inputs = their_tokenizer(text, return_tensors='pt')
        output = theirs.generate(**inputs, max_new_tokens=10, do_sample=False)
        expected = their_tokenizer.decode(output[0], skip_special_tokens=True)
        assert generated.text == expected
        assert generated.text == text + generated.written[0]
        assert len(generated.tokens) == len(generated.log_probabilities) == len(generated.steps)


def test_log_probabilities_are_those_of_the_whole_text(bert):
    (found,) = bert.generate(TEXTS[:1], new_tokens=6)
    (scored,) = bert.pseudo_likelihood([found.text])
    assert scored.tokens[-6:] == found.tokens
    np.testing.assert_allclose(found.log_probabilities, scored.log_probabilities[-6:], atol=1e-4)


def test_texts_do_not_depend_on_each_other_and_equal_texts_differ(bert):
    options = dict(new_tokens=8, seed=3)
    together = bert.generate([*TEXTS, TEXTS[0]], **options)
    assert together[1].text == bert.generate(TEXTS[1:2], **options)[0].text
    assert together[0].text != together[3].text
    assert together[0].text != bert.generate(TEXTS[:1], new_tokens=8, seed=4)[0].text


@pytest.mark.parametrize('options', [{'temperature': 0}, {'beams': 3}, {'top_k': 5}])
def test_special_tokens_are_never_written(bert, options):
    special = {bert.tokenizer.vocab[index] for index in bert.tokenizer.special_ids}
    for generated in bert.generate(TEXTS, new_tokens=12, **options):
        assert len(generated.tokens) == 12  # the model has not learned to end
        assert not special & {*generated.tokens}


def test_texts_end_before_a_stop_string(bert):
    (whole,) = bert.generate(TEXTS[:1], new_tokens=12, seed=1)
    stop = whole.written[0][5:8]
    (found,) = bert.generate(TEXTS[:1], new_tokens=12, seed=1, stop=[stop, 'never written'])
    assert found.written[0] == whole.written[0][: whole.written[0].index(stop)]
    assert len(found.tokens) < 12
    bert.counts.clear()
    bert.generate(TEXTS, new_tokens=3, stop=['never written'])
    assert bert.counts['texts in which no stop string was written'] == 3


def test_a_text_is_shown_while_it_is_written(gpt2):
    shown = []
    (found,) = gpt2.generate(TEXTS[:1], new_tokens=12, temperature=0, stream=shown.append)
    assert ''.join(shown) == found.written[0]
    assert len(shown) > 3


def test_what_is_shown_is_what_is_returned_with_any_stop_string(gpt2):
    options = dict(new_tokens=12, seed=3)
    (whole,) = gpt2.generate(TEXTS[:1], **options)
    for place in range(1, len(whole.written[0]) - 2):
        shown, stop = [], whole.written[0][place : place + 3]
        (found,) = gpt2.generate(TEXTS[:1], stop=(stop,), stream=shown.append, **options)
        assert ''.join(shown) == found.written[0] == whole.written[0].partition(stop)[0]


REFUSED = {
    'new_tokens is 0': {},
    'beams are not sampled, so temperature': dict(beams=2, temperature=0.5),
    'top_p has no effect with beams': dict(beams=2, top_p=0.5),
    'stop has no effect with beams': dict(beams=2, stop=['.']),
    'top_k has no effect at temperature 0': dict(temperature=0, top_k=3),
    'seed has no effect at temperature 0': dict(temperature=0, seed=3),
    'seed has no effect with beams': dict(beams=2, seed=3),
    'length_penalty has no effect without beams': dict(length_penalty=2.0),
    'top_p is 0': dict(top_p=0),
    'min_p is 1': dict(min_p=1),
    'beams is 0': dict(beams=0),
    'min_new_tokens is 9': dict(min_new_tokens=9),
    "early_stopping is 'soon'": dict(beams=2, early_stopping='soon'),
    'unknown option of generation with this model': dict(steps=3),
}


@pytest.mark.parametrize('message', REFUSED)
def test_options_without_effect_are_refused(bert, message):
    options = REFUSED[message]
    with pytest.raises(UserError, match=message):
        bert.generate(TEXTS, **({'new_tokens': 8} if options else {}), **options)


def test_a_prompt_without_room_is_refused(bert):
    with pytest.raises(UserError, match=r'text 2 has 41 tokens; with 8 new tokens it exceeds'):
        bert.generate(['the', 'ship ' * 40], new_tokens=8)


def test_stream_shows_one_text(bert):
    with pytest.raises(UserError, match='stream shows one text'):
        bert.generate(TEXTS, new_tokens=3, stream=print)


def test_the_vocabulary_of_gpt2_has_one_special_token(folder, gpt2):
    found = gpt2.tokenizer
    assert found.vocab_size == 257
    assert {*found.special_ids} == {found.sep_id} == {256}
    assert not found.starts_texts
    assert not found.is_unknown(np.arange(257)).any()
    with pytest.raises(UserError, match='the vocabulary lacks'):
        found.mask_id  # noqa: B018
    without_class = tokenizers.load(str(folder.parent / 'vocab.json'))
    assert without_class.vocab_size == 262  # for masked language models


def test_the_command_line_writes_and_shows_texts(folder, tmp_path, capfd):
    (tmp_path / 'texts.txt').write_text('the ship\n')
    output = tmp_path / 'out.jsonl'
    arguments = [f'--model={folder}', f'--input={tmp_path}/texts.txt', f'--output={output}']
    arguments += ['--task=generate', '--new_tokens=6', '--overwrite']
    predict.main([*arguments, '--temperature=0', '--stream'])
    (record,) = map(json.loads, output.read_text().splitlines())
    assert record['text'] == 'the ship' + record['written'][0]
    assert record['written'][0].rstrip('\ufffd') in capfd.readouterr().err
    predict.main([*arguments, '--beams=2', '--early_stopping=never', '--length_penalty=2'])
    (record,) = map(json.loads, output.read_text().splitlines())
    assert 1 <= len(record['tokens']) <= 6


def test_the_command_line_refuses_beams_that_are_sampled(folder, tmp_path, capfd):
    (tmp_path / 'texts.txt').write_text('the ship\n')
    with pytest.raises(SystemExit) as exit_:
        predict.main(
            [
                *(f'--model={folder}', f'--input={tmp_path}/texts.txt', '--output=-'),
                *('--task=generate', '--new_tokens=6', '--beams=2', '--top_k=3'),
            ]
        )
    assert exit_.value.code == 2
    assert 'error: top_k has no effect with beams' in capfd.readouterr().err
