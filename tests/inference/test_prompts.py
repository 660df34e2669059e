"""Zero-shot prompts: equal to fill_mask, and to a loop in torch for answers of several pieces."""

import json

import numpy as np
import pytest
import torch
import transformers

import bert_jax
from bert_jax import evaluate, predict
from bert_jax.errors import UserError
from tests.interop import published

TEXTS = ['the ship and the storm', 'cow', '', 'the moon , the moon and the sea', 'a b c'] * 3
TEMPLATE = '{text} near the [MASK] .'
WORDS = {'sea': ['ship', 'wxyz'], 'farm': ['cow', 'barn', 'ab'], 'other': ['c d']}


@pytest.fixture(scope='module')
def folder(tmp_path_factory):
    return published.folder(tmp_path_factory.mktemp('model') / 'bert', max_position_embeddings=24)


@pytest.fixture(scope='module')
def model(folder):
    return bert_jax.load(folder)


@pytest.mark.parametrize('published_class', ['BertForPreTraining', 'ModernBertForMaskedLM'])
def test_answers_of_one_piece_equal_fill_mask_bit_for_bit(published_class, tmp_path):
    own = bert_jax.load(published.folder(tmp_path / 'model', published_class))
    words = ['ship', 'wave', 'cow', 'star']
    found = own.with_prompt(TEMPLATE, words).prompt(TEXTS, probabilities=True)
    filled = own.fill_mask([TEMPLATE.replace('{text}', text) for text in TEXTS], top_k=131)
    for record, (mask,) in zip(found, filled, strict=True):
        expected = {guess.token: guess.probability for guess in mask}
        answers = {one['answer']: one['probability'] for one in record['answers']}
        assert answers == {word: expected[word] for word in words}
        total = sum(answers.values())
        for word in words:
            assert record['probabilities'][word] == pytest.approx(answers[word] / total, rel=1e-5)


class Oracle:
    """log p of an answer on a prompt, one mask after the other, by transformers."""

    def __init__(self, folder):
        self.model = transformers.BertForPreTraining.from_pretrained(folder).eval()
        self.tokenizer = transformers.BertTokenizer(str(folder / 'vocab.txt'))

    def log_p(self, text, word, decoding):
        pieces = self.tokenizer.convert_tokens_to_ids(self.tokenizer.tokenize(word))
        masked = TEMPLATE.replace('{text}', text).replace('[MASK]', '[MASK] ' * len(pieces))
        ids = self.tokenizer(masked, return_tensors='pt').input_ids
        masks = (ids[0] == self.tokenizer.mask_token_id).nonzero()[:, 0].tolist()
        open_masks, total = list(range(len(pieces))), 0.0
        while open_masks:
            with torch.no_grad():
                logits = self.model(ids).prediction_logits[0]
            log_p = logits.log_softmax(-1)
            own = {mask: float(log_p[masks[mask], pieces[mask]]) for mask in open_masks}
            chosen = {
                'max_first': [max(own, key=own.get)],
                'left_to_right': open_masks[:1],
                'parallel': open_masks,
            }[decoding]
            for mask in list(chosen):
                total += own[mask]
                ids[0, masks[mask]] = pieces[mask]
                open_masks.remove(mask)
        return total


@pytest.mark.parametrize('decoding', ['max_first', 'left_to_right', 'parallel'])
def test_answers_of_several_pieces_equal_a_loop_in_torch(decoding, model, folder):
    oracle = Oracle(folder)
    records = model.with_prompt(TEMPLATE, WORDS, decoding=decoding).prompt(TEXTS[:5], True)
    for text, record in zip(TEXTS, records, strict=False):
        expected = {
            label: [oracle.log_p(text, word, decoding) for word in words]
            for label, words in WORDS.items()
        }
        found = [np.log(one['probability']) for one in record['answers']]
        np.testing.assert_allclose(found, sum(expected.values(), []), atol=1e-4)
        scores = torch.tensor([np.mean(own) for own in expected.values()])
        np.testing.assert_allclose(
            list(record['probabilities'].values()), scores.softmax(-1), atol=1e-4
        )


def test_the_decodings_differ(model):
    answers = [
        model.with_prompt(TEMPLATE, WORDS, decoding=decoding).prompt(['cow'], True)[0]['answers']
        for decoding in ('max_first', 'left_to_right', 'parallel')
    ]
    assert len({one[1]['probability'] for one in answers}) == 3


def test_calibrations_divide_by_what_the_model_answers_anyway(model):
    words = ['ship', 'cow', 'star']

    def probabilities(texts, **settings):
        records = model.with_prompt(TEMPLATE, words, **settings).prompt(texts, True)
        return np.array([list(record['probabilities'].values()) for record in records])

    plain = probabilities(TEXTS[:5])
    content_free = probabilities(['N/A', '[MASK]', '']).mean(0)
    ratio = plain / content_free
    np.testing.assert_allclose(
        probabilities(TEXTS[:5], calibration='contextual'),
        ratio / ratio.sum(1, keepdims=True),
        rtol=1e-4,
    )
    ratio = plain / probabilities([''])
    np.testing.assert_allclose(
        probabilities(TEXTS[:5], calibration='pmi'), ratio / ratio.sum(1, keepdims=True), rtol=1e-4
    )


def test_fields_have_any_name_and_pairs_are_text_and_text2(model):
    named = model.with_prompt('{title} near {body} : [MASK]', ['cow', 'ship'])
    pairs = model.with_prompt('{text} near {text2} : [MASK]', ['cow', 'ship'])
    (ours,), (theirs,) = (
        named.prompt([{'title': 'the sea', 'body': 'a gull', 'more': 1}]),
        pairs.prompt([('the sea', 'a gull')]),
    )
    assert ours == theirs
    with pytest.raises(UserError, match="^input 1: key 'title' is missing; the input has text$"):
        named.prompt(['the sea'])


def test_a_model_without_the_head_and_a_bad_setting_are_refused(model, folder, tmp_path):
    bare = bert_jax.load(published.folder(tmp_path / 'bare', 'BertModel'))
    with pytest.raises(UserError, match='bare has no head for fill_mask'):
        bare.with_prompt(TEMPLATE, ['a', 'b'])
    with pytest.raises(UserError, match='has no head for prompt; it can answer fill_mask'):
        model.prompt(['the sea'])
    with pytest.raises(UserError, match="problem.decoding 'best'; known: left_to_right, max_first"):
        model.with_prompt(TEMPLATE, ['a', 'b'], decoding='best')
    with pytest.raises(UserError, match='there are no answers; give them as LABEL=WORD'):
        model.with_prompt(TEMPLATE, [])
    with pytest.raises(UserError, match="problem.calibration 'best'; known: contextual, none"):
        model.with_prompt(TEMPLATE, ['a', 'b'], calibration='best')
    short = bert_jax.load(folder, max_length=5).with_prompt(TEMPLATE, ['cow', 'star'])
    with pytest.raises(
        UserError, match='4 tokens besides its texts, .* of 5 tokens have room for 3'
    ):
        short.prompt(['the sea'])


def test_the_commands_ask_any_masked_language_model(folder, model, tmp_path, capsysbinary):
    rows = [('the ship', 'sea'), ('cow', 'farm'), ('the moon', 'sea')]
    (tmp_path / 'gold.tsv').write_text('\n'.join(['text\tlabel', *map('\t'.join, rows)]))
    (tmp_path / 'input').write_text(''.join(f'{text}\n' for text, _ in rows))
    options = [f'--template={TEMPLATE}', '--answers', 'sea=ship|wave', 'farm=cow']
    arguments = [f'--model={folder}', f'--input={tmp_path}/input', '--output=-', '--task=prompt']
    capsysbinary.readouterr()
    predict.main([*arguments, *options])
    found = [json.loads(line) for line in capsysbinary.readouterr().out.splitlines()]
    expected = model.with_prompt(TEMPLATE, {'sea': ['ship', 'wave'], 'farm': 'cow'}).prompt(
        [text for text, _ in rows]
    )
    assert [one['predicted'] for one in found] == [one['predicted'] for one in expected]
    evaluate.main(
        [f'--model={folder}', f'--input={tmp_path}/gold.tsv', f'--output={tmp_path}/new', *options]
    )
    right = [one['predicted'] == label for one, (_, label) in zip(expected, rows, strict=True)]
    metrics = json.loads((tmp_path / 'new/metrics.json').read_text())
    assert json.dumps(metrics).find('accuracy') > 0
    assert np.mean(right) in [value for value in _numbers(metrics)]
    with pytest.raises(SystemExit):
        predict.main([*arguments, options[0]])
    assert b'--answers is missing; give --template and --answers' in capsysbinary.readouterr().err


def _numbers(value):
    if isinstance(value, dict):
        return [number for own in value.values() for number in _numbers(own)]
    return [value] if isinstance(value, int | float) else []
