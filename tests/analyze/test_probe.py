"""The analysis of probes on a small model and a small treebank."""

import json

import pytest

from bert_jax.analyze import __main__ as command
from bert_jax.models.architecture_parts import HeadLSTM
from tests.inference.small_runs import save_run

SENTENCE = """\
1\tthe\tthe\tDET\tDT\t_\t2\tdet\t_\t_
2\t{0}\t{0}\tNOUN\tNN\t_\t0\troot\t_\t_
3\tnear\tnear\tADP\tIN\t_\t5\tcase\t_\t_
4\tthe\tthe\tDET\tDT\t_\t5\tdet\t_\t_
5\t{1}\t{1}\tNOUN\tNN\t_\t2\tnmod\t_\t_
6\t.\t.\tPUNCT\t.\t_\t2\tpunct\t_\t_

"""
NOUNS = ('ship', 'cow', 'barn', 'field', 'moon', 'storm')


@pytest.fixture(scope='module')
def run(tmp_path_factory):
    return save_run(tmp_path_factory.mktemp('runs') / 'sentiment', 'classification')


@pytest.fixture
def files(tmp_path):
    text = ''.join(SENTENCE.format(a, b) for a in NOUNS for b in NOUNS if a != b)
    (tmp_path / 'train.conllu').write_text(text)
    (tmp_path / 'dev.conllu').write_text(text[: len(text) // 2 + 40].rpartition('\n\n')[0] + '\n')
    (tmp_path / 'empty.conllu').write_text('\n')
    return [f'--input={tmp_path}/train.conllu', f'--dev={tmp_path}/dev.conllu']


def test_probes_of_all_layers_stand_beside_their_baselines(run, files, tmp_path):
    flags = [f'--model={run}', *files, f'--output={tmp_path}/out', '--mlp=8', '--seeds=2']
    command.main(['probe', *flags, '--rank=4', '--tree_epochs=2'])
    found = json.loads((tmp_path / 'out/results.json').read_text())['results']
    tags = found['trained']['tags']
    assert found['majority_per_type'] == 1  # each word has one tag here
    for kind in ('linear', 'mlp', 'mix'):
        assert min(tags[kind]['accuracy']) > 0.9
        assert len(tags[kind]['accuracy_of_seeds']) == 2
    assert len(tags['linear']['compression']) == 2
    assert min(tags['linear']['compression']) > 1
    assert found['linear_chain']['uuas'] == 0.5  # the - ship and the - moon, of four
    assert set(found['untrained']) == {'tags', 'trees'}
    assert len(found['trained']['trees']['uuas']) == 2


@pytest.mark.parametrize(
    ('flags', 'error'),
    [
        (['--seeds=0'], '--seeds is 0; it must be in [1, inf)'),
        (['--dev=empty.conllu'], 'empty.conllu has no sentence'),
        (['--max_words=2'], 'no sentence has 2 to 2 words'),
        (['--label=xpos', '--input=one.conllu'], 'have the xpos NN'),
    ],
)
def test_wrong_options_are_one_line(flags, error, run, files, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / 'one.conllu').write_text('1\tship\tship\tNOUN\tNN\t_\t0\troot\t_\t_\n')
    given = [flag for flag in files if not any(f.startswith(flag.partition('=')[0]) for f in flags)]
    if '--label=xpos' in flags:
        given = ['--dev=one.conllu']
    with pytest.raises(SystemExit):
        command.main(['probe', f'--model={run}', '--output=out', *given, *flags])
    assert error in capsys.readouterr().err.splitlines()[-1]
    assert not (tmp_path / 'out').exists()


def test_layers_of_the_lstm_of_a_head_are_probed(files, tmp_path):
    """The LSTM of the run, and for the baseline a newly initialized LSTM."""
    run = save_run(tmp_path / 'run', 'tagging', architecture={'head_lstm': HeadLSTM(2, 5)})
    flags = [f'--model={run}', *files, f'--output={tmp_path}/out', '--layers=lstm_1,lstm_2']
    command.main(['probe', *flags, '--rank=0', '--epochs=1'])
    found = json.loads((tmp_path / 'out/results.json').read_text())['results']
    assert found['layers'] == ['lstm_1', 'lstm_2']
    trained, untrained = (found[k]['tags']['linear'] for k in ('trained', 'untrained'))
    assert trained['bits_per_word'] != untrained['bits_per_word']
