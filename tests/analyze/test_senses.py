"""The analysis of senses on a small model, where the context tells the sense."""

import json

import pytest

from bert_jax.analyze import __main__ as command
from tests.analyze.readers import test_wordnet
from tests.inference.small_runs import save_run


@pytest.fixture(scope='module')
def run(tmp_path_factory):
    return save_run(tmp_path_factory.mktemp('runs') / 'sentiment', 'classification')


def sentence(document, words, word, sense):
    target = {'word': word, 'lemma': words[word], 'pos': 'NOUN', 'senses': [sense]}
    return {'words': words, 'document': document, 'targets': [target]}


@pytest.fixture
def corpus(tmp_path):
    """In training documents 1 and 2 a crane of the barn is a bird, one of the ship a machine."""
    bird, machine = 'crane%1:05:00::', 'crane%1:06:00::'
    rows = [
        sentence('0', ['the', 'crane', 'near', 'the', 'ship'], 1, machine),
        sentence('0', ['the', 'crane', 'and', 'the', 'barn'], 1, bird),
        sentence('0', ['the', 'moon'], 1, 'moon%1:17:00::'),
        sentence('1', ['the', 'crane', 'near', 'the', 'ship'], 1, machine),
        sentence('1', ['the', 'crane', 'near', 'the', 'ship', '.'], 1, machine),
        sentence('2', ['the', 'crane', 'and', 'the', 'barn'], 1, bird),
    ]
    path = tmp_path / 'senses.jsonl'
    path.write_text('\n'.join(map(json.dumps, rows)) + '\n')
    return path


def test_contexts_tell_what_the_most_frequent_sense_cannot(run, corpus, tmp_path):
    net = tmp_path / 'wordnet'
    net.mkdir()
    flags = [f'--model={run}', f'--input={corpus}', f'--output={tmp_path}/out']
    command.main(['senses', *flags, f'--wordnet={test_wordnet.write(net)}'])
    found = json.loads((tmp_path / 'out/results.json').read_text())['results']
    assert found['words'] == {'train': 3, 'test': 3}
    baseline = found['methods'].pop('most frequent sense')
    assert baseline['seen']['accuracy'] == 0.5
    assert len(found['methods']) == 4  # centroids and instances of layer 1, z-scored or not
    for method, own in found['methods'].items():
        assert own['ambiguous']['accuracy'] == 1, method
        assert own['all']['accuracy'] == pytest.approx(2 / 3)  # the moon is not seen
    all_senses = found['wordnet']
    assert all_senses['mapped'] == {'train': 1, 'test': pytest.approx(2 / 3)}
    assert all_senses['gold_sense_vector']['own'] == 1
    methods = all_senses['methods']
    assert methods["WordNet's first sense"]['all']['accuracy'] == 0.5
    assert methods['centroid with back-off, layer 1']['all']['accuracy'] == 1


@pytest.mark.parametrize(
    ('flags', 'error'),
    [
        (['--every=1'], '--every is 1; it must be in [2, inf)'),
        (['--layers=9'], 'has no layer 9'),
        (['--sense_map=x'], '--sense_map has no effect without --wordnet'),
        (['--test=empty.jsonl', '--every=2'], '--every has no effect with --test'),
        (['--test=empty.jsonl'], 'empty.jsonl: no word has a sense'),
        (['--input=one.jsonl'], '--input has one document (0); add --test'),
    ],
)
def test_wrong_options_are_one_line(flags, error, run, corpus, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / 'empty.jsonl').write_text('\n')
    (tmp_path / 'one.jsonl').write_text(corpus.read_text().splitlines()[0])
    given = [] if '--input=one.jsonl' in flags else [f'--input={corpus}']
    with pytest.raises(SystemExit):
        command.main(['senses', f'--model={run}', '--output=out', *given, *flags])
    assert error in capsys.readouterr().err.splitlines()[-1]
    assert not (tmp_path / 'out').exists()
