"""Measures of what a model writes equal what follows from its texts, one at a time."""

import json
import re

import numpy as np
import pytest
from scipy.spatial import distance

from bert_jax.analyze import __main__ as command
from bert_jax.analyze.harm_measures import completions
from bert_jax.corpus import preparation
from bert_jax.inference.predictor import Predictor
from bert_jax.interop import huggingface, loading
from bert_jax.text import canaries
from tests.end_to_end import small
from tests.inference import small_runs
from tests.interop import published

pytestmark = pytest.mark.usefixtures('no_loader_process')

PROMPTS = ['the ship near', 'the cow', 'a star near the', 'moon']
GROUPS = ['a', 'b', 'a', 'b']


@pytest.fixture(scope='module')
def folder(tmp_path_factory):
    path = published.folder(tmp_path_factory.mktemp('model') / 'bert', max_position_embeddings=80)
    vocabulary = published.vocabulary()
    vocabulary[-12:] = [*'0123456789', 'code', 'is']
    (path / 'vocab.txt').write_text('\n'.join(vocabulary) + '\n')
    return path


@pytest.fixture(scope='module')
def classifier(tmp_path_factory):
    path = tmp_path_factory.mktemp('classifier')
    small_runs.save_run(path, 'classification')
    return path


@pytest.fixture
def measure(folder, tmp_path, capsys):
    """Run `analyze harms` on a file; return the results, or the error if there is one."""

    def run(name, file, *flags):
        output = tmp_path / 'out'
        arguments = ['harms', f'--measure={name}', f'--model={folder}', f'--output={output}']
        try:
            command.main([*arguments, f'--input={file}', '--overwrite', *flags])
        except SystemExit:
            return capsys.readouterr().err.splitlines()[-1]
        return json.loads((output / 'results.json').read_text())['results']

    return run


@pytest.fixture
def prompts(tmp_path):
    lines = [f'{group}\t{prompt}' for group, prompt in zip(GROUPS, PROMPTS, strict=True)]
    path = tmp_path / 'prompts.tsv'
    path.write_text('\n'.join(['who\tprompt', *lines]) + '\n')
    return path


def written(folder, number):
    model = Predictor(huggingface.load(folder))
    repeated = [prompt for prompt in PROMPTS for _ in range(number)]
    options = {'new_tokens': 3, 'temperature': 0.8, 'seed': 5}
    texts = [result.written[0] for result in model.generate(repeated, **options)]
    return [texts[first : first + number] for first in range(0, len(texts), number)]


def p_yes(classifier, texts):
    model = Predictor(loading.load_any(classifier))
    return np.array(
        [
            [one['probabilities']['yes'] for one in model.classify(own, probabilities=True)]
            for own in texts
        ]
    )


FLAGS = ('--continuations=4', '--new_tokens=3', '--temperature=0.8', '--seed=5')


def test_toxicity_is_that_of_the_worst_continuation(measure, folder, classifier, prompts):
    flags = (*FLAGS, f'--classifier={classifier}', '--harmful=yes', '--columns', 'group=who')
    found = measure('toxicity', prompts, *flags)
    texts = written(folder, 4)
    assert [one['texts'] for one in found['continuations']] == texts
    assert len({*texts[0]}) > 1
    p_NK = p_yes(classifier, texts)
    assert (p_NK.max(1) >= 0.5).mean() > 0 or p_NK.max() < 0.5
    maximum, at_least_one = found['expected_maximum'], found['at_least_one']
    assert maximum['all prompts'][0] == pytest.approx(p_NK.max(1).mean(), abs=1e-6)
    assert maximum['a'][0] == pytest.approx(p_NK[[0, 2]].max(1).mean(), abs=1e-6)
    assert at_least_one['all prompts'][0] == (p_NK >= 0.5).any(1).mean()
    assert found['share_of_texts']['b'][0] == (p_NK[[1, 3]] >= 0.5).mean()
    low, high = maximum['all prompts'][1]
    assert low <= maximum['all prompts'][0] <= high


def test_completions_are_compared_between_groups(measure, folder, classifier, prompts):
    flags = (*FLAGS, f'--classifier={classifier}', '--harmful=yes', '--columns', 'group=who')
    found = measure('completions', prompts, *flags)
    texts = written(folder, 4)
    assert [one['texts'] for one in found['completions']] == texts
    mean_N = p_yes(classifier, texts).mean(1)
    expected = mean_N[[0, 2]].mean() - mean_N[[1, 3]].mean()
    assert found['difference']['a'][0] == pytest.approx(expected, abs=1e-6)
    assert found['difference']['b'][0] == pytest.approx(-expected, abs=1e-6)
    assert 0 <= found['divergence']['a']['value'] <= 1


def test_the_divergence_is_that_of_scipy_and_beside_chance():
    counts = np.random.default_rng(0).integers(0, 5, (6, 7))
    is_own = np.arange(6) < 2
    own, others = counts[is_own].sum(0), counts[~is_own].sum(0)
    expected = distance.jensenshannon(own, others, base=2) ** 2
    assert completions.jensen_shannon(counts, is_own) == pytest.approx(expected)
    words = [['cook', 'nurse']] * 5 + [['pilot', 'judge']] * 5
    apart = completions._divergence(words, np.arange(10) < 5)
    assert apart.value == pytest.approx(1)
    assert apart.chance < 1
    same = completions._divergence([['cook']] * 10, np.arange(10) < 5)
    assert same.value == 0


def test_secrets_that_are_written_are_counted(measure, folder, tmp_path, monkeypatch):
    source, made = small.write_text(tmp_path), tmp_path / 'made'
    preparation.prepare([source], f'{folder}/vocab.txt', made, workers=0, canaries=2)
    found = measure('extraction', made, '--continuations=3')
    assert found['verbatim']['0 copies'][::2] == [0.0, 2]
    assert all(len(own['samples']) == 3 for own in found['canaries'])

    planted = canaries.make(2)
    generate = Predictor.generate

    def remember(self, texts, **options):
        """Write the secrets with 100 copies, and half of those with 10 if samples are drawn."""
        results = generate(self, texts, **options)
        known = {one.prefix: one.secret for one in planted if one.copies == 100}
        if options['temperature']:
            known[planted[2].prefix] = planted[2].secret
        for number, text in enumerate(texts):
            for prefix, secret in known.items():
                if text.startswith(prefix):
                    results[number] = results[number]._replace(written=[f' {secret}'])
        return results

    monkeypatch.setattr(Predictor, 'generate', remember)
    found = measure('extraction', made, '--continuations=3')
    assert [found['verbatim'][f'{n} copies'][0] for n in canaries.COPIES] == [0, 0, 0, 1]
    sampled = [found['at_least_one_sample'][f'{n} copies'][0] for n in canaries.COPIES]
    assert sampled == [0, 0, 0.5, 1]
    assert found['digits']['100 copies'][0] == 1


@pytest.mark.parametrize(
    ('name', 'text', 'flags', 'error'),
    [
        ('toxicity', 'prompt\nthe', (), 'toxicity needs --classifier'),
        ('toxicity', 'prompt\nthe', ('--classifier=C',), '--classifier needs --harmful'),
        ('toxicity', 'prompt\nthe', ('--classifier=C', '--harmful=bad'), "--harmful of .* 'bad'"),
        ('completions', 'prompt\nthe', (), 'needs a column group with at least two groups'),
        ('completions', 'prompt\tgroup\nthe\ta\n\tb', (), 'tsv:3: the prompt is empty'),
        ('completions', 'prompt\tgroup\na [MASK:2]\ta', (), 'the prompt has .MASK'),
        ('completions', 'text\nthe', (), "no column 'prompt'"),
        ('exposure', 'x', ('--continuations=3',), '--continuations has no effect'),
        ('completions', 'prompt\tgroup\nx\ta\ny\tb', ('--top_p=0.9',), 'unknown option .*top_p'),
    ],
)
def test_what_is_wrong_is_one_line(measure, classifier, tmp_path, name, text, flags, error):
    path = tmp_path / 'in.tsv'
    path.write_text(text + '\n')
    flags = [flag.replace('=C', f'={classifier}') for flag in flags]
    found = measure(name, path, *flags)
    assert re.search(error, str(found)), found
