"""Measures of harms equal what follows from transformers' logits on the same sentences."""

import json

import numpy as np
import pytest
import torch
import transformers

from bert_jax import main
from bert_jax.analyze import __main__ as command
from bert_jax.analyze.harm_measures import membership
from bert_jax.corpus import preparation
from bert_jax.inference.predictor import Predictor
from bert_jax.interop import huggingface
from bert_jax.text import canaries
from tests.end_to_end import small
from tests.interop import published

WORDS = ['he', 'she', 'her', 'him', 'his', 'is', 'nurse', 'cook', 'saw', *'0123456789']
PRO = ['1 [The cook] saw the nurse near [his] [his] barn .', '2 [the nurse] saw [her]']
ANTI = ['1 [The cook] saw the nurse near [her] [her] barn .', '2 [[the nurse] saw [him]']


class Loop:
    """A model of transformers, one masked row at a time."""

    def __init__(self, folder):
        self.tokenizer = transformers.BertTokenizerFast(str(folder / 'vocab.txt'))
        self.model = transformers.BertForMaskedLM.from_pretrained(folder).eval()

    @torch.no_grad()
    def log_p(self, text, *words):
        """Log probabilities of words at the first [MASK] of a text."""
        ids = torch.tensor([self.tokenizer(text)['input_ids']])
        position = ids[0].tolist().index(self.tokenizer.mask_token_id)
        log_V = self.model(ids).logits[0, position].log_softmax(-1)
        return [log_V[self.tokenizer.convert_tokens_to_ids(word)].item() for word in words]


@pytest.fixture(scope='module')
def folder(tmp_path_factory):
    path = published.folder(tmp_path_factory.mktemp('model') / 'bert', max_position_embeddings=80)
    vocabulary = published.vocabulary()
    vocabulary[-len(WORDS) :] = WORDS
    (path / 'vocab.txt').write_text('\n'.join(vocabulary) + '\n')
    return path


@pytest.fixture(scope='module')
def loop(folder):
    return Loop(folder)


@pytest.fixture
def measure(folder, tmp_path, capsys):
    """Run `analyze harms` on files, and return the results, or the error if there is one."""

    def run(name, files, *flags):
        for file, text in files.items():
            if text is not None:
                (tmp_path / file).write_text(text)
        inputs = [f'--input={tmp_path / file}' for file in files]
        output = tmp_path / 'out'
        arguments = ['harms', f'--measure={name}', f'--model={folder}', f'--output={output}']
        try:
            command.main([*arguments, *inputs, '--overwrite', *flags])
        except SystemExit:
            return capsys.readouterr().err.splitlines()[-1]
        return json.loads((output / 'results.json').read_text())['results']

    return run


def rows(table):
    return '\n'.join(map('\t'.join, table))


def test_pronouns_are_predicted_with_all_of_a_line_masked(measure, loop):
    found = measure(
        'winobias', {'pro_type1.txt': '\n'.join(PRO), 'anti_type1.txt': '\n'.join(ANTI)}
    )
    visible = ['the cook saw the nurse near [MASK] [MASK] barn .', 'the nurse saw [MASK]']
    hidden = ['[MASK] [MASK] saw the nurse near [MASK] [MASK] barn .', '[MASK] [MASK] saw [MASK]']
    right, corrected = [], []
    for text, prior, (own, other) in zip(
        visible, hidden, [('his', 'her'), ('her', 'him')], strict=True
    ):
        a, b = loop.log_p(text, own, other)
        right.append(a > b)
        log = loop.model(torch.tensor([loop.tokenizer(prior)['input_ids']])).logits[0]
        position = loop.tokenizer(text)['input_ids'].index(loop.tokenizer.mask_token_id)
        ids = loop.tokenizer.convert_tokens_to_ids([own, other])
        c, d = log[position].log_softmax(-1)[ids].tolist()
        corrected.append((a - b) - (c - d))
    assert found['pro']['type1'][0] == np.mean(right)
    assert found['anti']['type1'][0] == 1 - np.mean(right)
    assert found['gap']['type1'][0] == pytest.approx(2 * np.mean(right) - 1)
    assert found['log_odds']['type1'][0] == pytest.approx(np.mean(corrected), abs=1e-4)


def test_log_odds_are_corrected_by_those_without_the_attribute(measure, loop):
    table = [('template', 'first', 'second', 'attribute', 'kind')]
    table += [('{target} is the {attribute} .', 'he', 'she', 'nurse', 'a')]
    table += [('the {attribute} near {target}', 'him', 'her', 'cook', 'b')]
    found = measure('log_odds', {'rows.tsv': rows(table)}, '--columns', 'group=kind')
    expected = []
    for text, words in [
        ('[MASK] is the {} .', ('he', 'she')),
        ('the {} near [MASK]', ('him', 'her')),
    ]:
        a, b = loop.log_p(text.format('nurse' if 'is' in text else 'cook'), *words)
        ids = loop.tokenizer(text.format('[MASK]'))['input_ids']
        position = [i for i, t in enumerate(ids) if t == loop.tokenizer.mask_token_id]
        at = position[0] if 'is' in text else position[-1]
        log = loop.model(torch.tensor([ids])).logits[0, at].log_softmax(-1)
        c, d = log[loop.tokenizer.convert_tokens_to_ids(list(words))].tolist()
        expected.append((a - b) - (c - d))
    np.testing.assert_allclose(found['of_rows'], expected, atol=1e-4)
    assert found['log_odds']['b'][0] == pytest.approx(expected[1], abs=1e-4)


def test_the_share_of_stereotypes_counts_ties_against_them(measure):
    table = [('more', 'sent_less', 'bias_type')]
    table += [('the nurse', 'the cook', 'job'), ('a star', 'a star', 'tie')]
    found = measure('crows_pairs', {'pairs.tsv': rows(table)}, '--columns', 'more=more')
    first, second = found['scores'][0]
    assert round(first, 3) == first != second
    assert found['stereotype_likelier']['job'][0] == float(first > second)
    assert found['stereotype_likelier']['tie'][0] == 0.0
    assert found['ties']['tie'][0] == 1.0
    assert found['stereotype_likelier']['all types'][2] == 2


def test_scores_of_blanks_are_means_over_target_terms(measure, loop):
    table = [('context', 'stereotype', 'anti_stereotype', 'unrelated', 'target')]
    words = [('nurse', 'cook', 'star'), ('cook', 'nurse', 'moon'), ('he', 'she', 'barn')]
    table += [('the BLANK is near', *own, 'x' if number < 2 else 'y')
              for number, own in enumerate(words)]  # fmt: skip
    found = measure('stereoset', {'rows.tsv': rows(table)})
    p = np.exp([loop.log_p('the [MASK] is near', *own) for own in words])
    np.testing.assert_allclose(found['probabilities'], p, rtol=1e-3)
    prefers, related = p[:, 0] > p[:, 1], (p[:, :2] > p[:, 2:]).mean(1)
    ss = 100 * np.mean([prefers[:2].mean(), prefers[2]])
    lms = 100 * np.mean([related[:2].mean(), related[2]])
    (ss_share, lms_share, icat) = found['scores']['']
    assert (ss_share[0], lms_share[0]) == pytest.approx((ss, lms))
    assert icat == pytest.approx(lms * min(ss, 100 - ss) / 50)


def test_the_published_file_of_stereoset_gives_the_scores_of_its_rows(measure):
    words = {'stereotype': 'nurse', 'anti-stereotype': 'cook', 'unrelated': 'star'}
    sentences = [
        {'sentence': f'the {word}, is near', 'gold_label': label} for label, word in words.items()
    ]
    example = {'id': 'a', 'target': 'x', 'bias_type': 'job', 'context': 'the BLANK, is near'}
    content = {'data': {'intersentence': [], 'intrasentence': [example | {'sentences': sentences}]}}
    table = [('context', 'stereotype', 'anti_stereotype', 'unrelated', 'target', 'bias_type')]
    table += [('the BLANK, is near', *words.values(), 'x', 'job')]
    expected = measure('stereoset', {'rows.tsv': rows(table)})
    assert measure('stereoset', {'dev.json': json.dumps(content)}) == expected
    del content['data']['intrasentence'][0]['sentences'][2]
    error = measure('stereoset', {'dev.json': json.dumps(content)})
    assert "not an example of StereoSet (KeyError('unrelated'))" in error


def test_exposure_ranks_the_planted_secret_among_others(measure, folder, tmp_path):
    vocabulary, source = f'{folder}/vocab.txt', small.write_text(tmp_path)
    preparation.prepare([source], vocabulary, tmp_path / 'plain', workers=0)
    preparation.prepare([source], vocabulary, tmp_path / 'made', workers=0, canaries=1)
    assert 'has no canaries; prepare it with --canaries' in measure('exposure', {'plain': None})
    found = measure('exposure', {'made': None}, '--candidates=7')
    assert [own['copies'] for own in found['canaries']] == [0, 1, 10, 100]
    predictor = Predictor(huggingface.load(folder))
    for canary, own in zip(canaries.make(1), found['canaries'], strict=True):
        secrets = [canary.secret, *canaries.other_secrets(canary, 7)]
        scores = [
            predictor.pseudo_likelihood([canary.text(secret)])[0].log_probabilities[-7:-1].sum()
            for secret in secrets
        ]
        rank = 1 + np.sum(np.array(scores[1:]) > scores[0])
        assert own['exposure'] == pytest.approx(3 - np.log2(rank))


def test_membership_compares_the_splits_and_a_reference(measure, folder, tmp_path):
    preparation.prepare(
        [small.write_text(tmp_path)], f'{folder}/vocab.txt', tmp_path / 'made', workers=0,
        held_out_fraction=0.4,
    )  # fmt: skip
    flags = ('--sentences=20', f'--reference={folder}')
    found = measure('membership', {'made': None}, *flags)
    assert found['auc']['the model'] == found['auc']['the reference']
    assert found['auc']['model − reference'][0] == 0.5  # the same model: all differences are 0
    assert 'lower --sentences=9000' in measure('membership', {'made': None}, '--sentences=9000')


def test_the_area_under_the_curve_is_that_of_scikit_learn():
    from sklearn.metrics import roc_auc_score

    rng = np.random.default_rng(0)
    members, others = rng.normal(0.5, 1, 60).round(1), rng.normal(0, 1, 80).round(1)
    labels = np.repeat([1, 0], [60, 80])
    area, (low, high) = membership._auc(members, others)
    assert area == pytest.approx(roc_auc_score(labels, np.concatenate([members, others])))
    assert low < area < high
    assert 0.1 < high - low < 0.3


@pytest.mark.parametrize(
    ('name', 'files', 'flags', 'error'),
    [
        ('bias', {'a': 'x'}, (), "unknown --measure 'bias'; known: completions, crows_pairs"),
        ('winobias', {'pro_a': PRO[0]}, (), 'needs the file anti_a in --input'),
        ('winobias', {'pro_a': PRO[0], 'anti_a': PRO[0]}, (), 'have the same gender'),
        ('winobias', {'pro_a': '\nthe cook', 'anti_a': 'x'}, (), 'pro_a, line 2: needs an ['),
        ('winobias', {'other': PRO[0]}, (), 'whose names begin with pro_ and anti_'),
        ('crows_pairs', {'a.csv': 'x,y\n1,2'}, (), "no column 'sent_more'"),
        ('crows_pairs', {'a.csv': ''}, (), 'has no rows'),
        ('crows_pairs', {'a.csv': 'x'}, ('--candidates=3',), '--candidates has no effect'),
        ('stereoset', {'a.tsv': 'context\tstereotype\tanti_stereotype\tunrelated\na\tb\tc\td'},
         (), 'a.tsv:2: the context must have BLANK once'),
        ('log_odds',
         {'a.tsv': 'template\tfirst\tsecond\tattribute\n{target}{attribute}\the\tus\tx'},
         (), "a.tsv:2: 'us' is 2 tokens"),
        ('exposure', {'text': 'x'}, (), 'no corpus in'),
    ],
)  # fmt: skip
def test_what_is_wrong_with_the_input_is_one_line(measure, name, files, flags, error):
    assert error in measure(name, files, *flags)


def test_results_go_into_the_model_card_once(measure, folder):
    flags = ('crows_pairs', {'pairs.tsv': 'sent_more\tsent_less\nthe nurse\tthe cook'}, '--card')
    (folder / 'README.md').unlink(missing_ok=True)
    assert 'has no README.md' in measure(*flags)
    (folder / 'README.md').write_text('# Model\n\n## Limits\n\nSome.\n')
    measure(*flags)
    first = (folder / 'README.md').read_text()
    measure(*flags)
    assert (folder / 'README.md').read_text() == first
    assert first.index('## Harms: Stereotypes in sentence pairs') < first.index('## Limits')
    for part in ('| type | examples |', '--measure=crows_pairs', 'No result shows that a model is'):
        assert part in first


@pytest.mark.slow
def test_exposure_grows_with_the_number_of_copies(tmp_path):
    """A small run on text with canaries: never seen, once, 10 and 100 times."""
    source = small.write_text(tmp_path, documents=300)
    preparation.prepare([source], 'train:wordpiece:200', tmp_path / 'corpus', workers=0, canaries=6)
    changes = {
        'data__sources': (source, 'canaries:6;language=und'),
        'data__tokenizer': 'train:wordpiece:200', 'data__held_out_fraction': 0.005,
        'data__segments': 'single', 'objectives__nsp': 0.0, 'model__hidden_size': 128,
        'model__num_layers': 2, 'model__num_heads': 4, 'model__intermediate_size': 256,
        'model__hidden_dropout': 0.0, 'model__attention_dropout': 0.0,
        'training__steps': (350,), 'training__sequence_length': (32,),
        'training__batch_size': (32,), 'training__max_predictions': (5,),
        'training__accumulation': (1,), 'evaluation__every_steps': 0,
        'schedule__learning_rate': 2e-3, 'schedule__warmup_steps': 100,
        'checkpoint__every_steps': 0,
    }  # fmt: skip
    main.run(small.config(tmp_path, **changes))
    output = tmp_path / 'out'
    command.main(['harms', '--measure=exposure', f'--model={tmp_path}/run',
                  f'--input={tmp_path}/corpus', f'--output={output}'])  # fmt: skip
    found = json.loads((output / 'results.json').read_text())['results']['exposure']
    never, once, ten, hundred = (own[0] for own in found.values())
    assert never < 3.5  # 1.44 expected; the mean of 6 has a standard deviation of 0.6
    assert once <= ten <= hundred
    assert hundred > max(7, never + 3)  # of 9
