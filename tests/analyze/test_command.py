"""The command: a finished folder of results or none."""

import json
import shlex

import numpy as np
import pytest

from bert_jax.analyze import __main__ as command
from tests.inference.small_runs import TEXT, save_run


@pytest.fixture(scope='module')
def run(tmp_path_factory):
    return save_run(tmp_path_factory.mktemp('runs') / 'sentiment', 'classification')


@pytest.fixture
def texts(tmp_path):
    path = tmp_path / 'texts.txt'
    path.write_text('\n'.join([TEXT, '', 'the moon', 'a star near the ship']) + '\n')
    return path


def test_the_folder_has_numbers_a_report_and_the_figure(run, texts, tmp_path, capsys):
    output = tmp_path / 'new/isotropy'
    arguments = ['isotropy', f'--model={run}', f'--input={texts}', f'--output={output}']
    command.main(arguments)
    files = ['README.md', 'isotropy.pdf', 'isotropy.png', 'results.json']
    assert sorted(path.name for path in output.iterdir()) == files
    assert [path.name for path in output.parent.iterdir()] == ['isotropy']
    found = json.loads((output / 'results.json').read_text())
    assert shlex.split(found['command'])[3:] == arguments
    assert found['results']['texts'] == 3
    assert len(found['results']['layers']) == 2  # the embeddings and one layer
    report_text = (output / 'README.md').read_text()
    for line in [found['command'], *found['limits'], '![isotropy.png](isotropy.png)']:
        assert line in report_text
    assert report_text in capsys.readouterr().out
    for layer in found['results']['layers']:
        assert np.sum(layer['shares']) == pytest.approx(1)


@pytest.mark.parametrize(
    ('flags', 'error'),
    [
        (['isotrophy'], "unknown analysis 'isotrophy'; did you mean isotropy? known: "),
        (['isotropy', '--output=taken'], 'taken exists; add --overwrite to replace it'),
        (['isotropy', '--output=taken', '--overwrite'], 'was not made by this command'),
        (['isotropy', '--output=run', '--overwrite'], 'run has no results.json of an analysis'),
        (['isotropy', '--output=new', '--input=none.txt'], "'none.txt' does not exist"),
        (['isotropy', '--output=new', '--input=empty.txt'], 'empty.txt has no text'),
        (['isotropy', '--output=new', '--batch_tokens=0'], '--batch_tokens is 0; it must be in'),
        (['isotropy', '--output=file/new'], 'file/new cannot be written: Not a dir'),
    ],
)
def test_wrong_flags_are_one_line_and_nothing_is_written(
    flags, error, run, texts, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / 'taken').mkdir()
    (tmp_path / 'taken/mine').write_text('mine')
    (tmp_path / 'run').mkdir()
    (tmp_path / 'run/results.json').write_text('{"steps": 1}')
    (tmp_path / 'empty.txt').write_text('\n')
    (tmp_path / 'file').write_text('')
    if not any(flag.startswith('--input') for flag in flags):
        flags = [*flags, f'--input={texts}']
    with pytest.raises(SystemExit) as exit_:
        command.main([flags[0], f'--model={run}', *flags[1:]])
    lines = capsys.readouterr().err.splitlines()
    assert exit_.value.code == 2
    assert error in lines[-1]
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        'empty.txt',
        'file',
        'run',
        'taken',
        'texts.txt',
    ]
    assert (tmp_path / 'taken/mine').read_text() == 'mine'


def test_a_plan_runs_what_is_not_done_yet(run, texts, tmp_path, monkeypatch, capsys):
    plan = tmp_path / 'plan.txt'
    lines = [f'isotropy --input={texts} --limit={limit}' for limit in (2, 3)]
    plan.write_text('\n'.join(['# what is known', lines[0], '', f'{lines[1]}  # all']) + '\n')
    flags = ['all', f'--model={run}', f'--input={plan}', f'--output={tmp_path}/out']
    command.main(flags)
    names = ['README.md', 'isotropy', 'isotropy_2']
    assert sorted(path.name for path in (tmp_path / 'out').iterdir()) == names
    summary = (tmp_path / 'out/README.md').read_text()
    assert '[isotropy_2](isotropy_2/README.md)' in summary
    assert '![isotropy.png](isotropy/isotropy.png)' in summary
    found = json.loads((tmp_path / 'out/isotropy_2/results.json').read_text())
    assert found['results']['texts'] == 3
    ran = []
    monkeypatch.setattr(command, 'run', lambda arguments: ran.append(arguments))
    command.main(flags)
    assert ran == []
    plan.write_text('\n'.join([lines[0], 'isotropia --input=x']))
    with pytest.raises(SystemExit):
        command.main(flags)
    assert "unknown analysis 'isotropia'" in capsys.readouterr().err.splitlines()[-1]
