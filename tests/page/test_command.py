"""The command, and the file that it writes."""

import re

import numpy as np
import pytest

from bert_jax.errors import UserError
from bert_jax.interop import loading
from bert_jax.models import tuning
from bert_jax.page import __main__ as command
from bert_jax.page import contents, weights
from tests.inference.small_runs import save_run
from tests.page import pages


@pytest.fixture(scope='module')
def run(tmp_path_factory):
    return save_run(tmp_path_factory.mktemp('runs') / 'sentiment', 'classification')


def test_the_command_writes_one_file_and_names_its_size(run, tmp_path, capsys):
    output = tmp_path / 'page.html'
    command.main([f'--model={run}', f'--output={output}', '--dtype=int8'])
    assert re.fullmatch(rf'{re.escape(str(output))}: 0\.\d MB, int8\n', capsys.readouterr().out)
    assert list(tmp_path.iterdir()) == [output]
    assert '<h1>sentiment</h1>' in output.read_text(encoding='utf-8')


def test_the_page_names_no_other_file_and_forbids_the_network(tmp_path):
    model = pages.random_model('bert', pages.tokenizer('wordpiece'))
    html = pages.write(tmp_path, model, texts=['</script><b>', 'a\tb']).read_text(encoding='utf-8')
    assert "default-src 'none'" in html
    markup = re.sub(r'<script.*?</script>|<style>.*?</style>', '', html, flags=re.DOTALL)
    assert re.findall(r'(?:src|href)="([^"]*)"', markup) == ['data:,']
    assert not re.search(r'\bfetch\(|XMLHttpRequest|\bimport\b|url\(|@import', html)
    assert html.count('</script>') == 3
    assert 'http' not in re.sub(r'http-equiv|http://www.w3.org/2000/svg', '', html)


@pytest.mark.parametrize(
    ('flags', 'error'),
    [
        (['--output=taken.html'], 'taken.html exists; add --overwrite to replace it'),
        (['--output=no/page.html'], 'there is no folder no'),
        (['--output=.'], 'is a folder; set a file'),
        (['--output=page.html', '--dtype=int4'], "unknown dtype 'int4'; "),
        (['--output=page.html', '--input=none.txt'], '--input=none.txt: No such file'),
    ],
)
def test_wrong_flags_are_one_line_and_nothing_is_written(
    flags, error, run, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / 'taken.html').write_text('mine')
    with pytest.raises(SystemExit) as exit_:
        command.main([f'--model={run}', *flags])
    message = capsys.readouterr().err
    assert exit_.value.code == 2
    assert error in message
    assert message.count('\n') == 1
    assert [path.name for path in tmp_path.iterdir()] == ['taken.html']
    assert (tmp_path / 'taken.html').read_text() == 'mine'


def test_an_existing_file_is_replaced_if_asked(run, tmp_path):
    output = tmp_path / 'page.html'
    output.write_text('old')
    command.main([f'--model={run}', f'--output={output}', '--overwrite'])
    assert output.read_text(encoding='utf-8').startswith('<!doctype html>')


def test_encoders_that_the_page_cannot_compute_are_refused():
    model = pages.random_model('deberta', pages.tokenizer('wordpiece'), heads=())
    with pytest.raises(UserError, match='cannot compute test: its attention is disentangled'):
        contents.describe(model, 'test')
    adapters = tuning.build('houlsby', {})
    tuned = pages.random_model('bert', pages.tokenizer('wordpiece'), tuning=adapters)
    with pytest.raises(UserError, match='transfer.method=houlsby cannot be merged'):
        contents.describe(tuned, 'test')
    without = pages.random_model('bert', pages.tokenizer('wordpiece'))
    with pytest.raises(UserError, match=r'it has no tokenizer; add its tokenizer\.json'):
        contents.describe(without.__class__(without.family, without.architecture, {}), 'test')


def test_weights_beyond_float16_are_refused():
    with pytest.raises(UserError, match='a weight of x is too large for float16'):
        weights.pack({'x': np.full((2, 2), 1e5, np.float32)}, 'float16')


def test_the_generator_of_a_run_with_replaced_tokens(tmp_path, monkeypatch):
    model = pages.random_model('bert', pages.tokenizer('wordpiece'))
    monkeypatch.setattr(
        loading, 'load_checkpoint', lambda path, generator: model if generator else None
    )
    command.main(['--model=electra', f'--output={tmp_path / "page.html"}', '--generator'])
    assert '"heads":["mlm"]' in (tmp_path / 'page.html').read_text(encoding='utf-8')


def test_the_card_of_a_run_links_the_page_inside_its_folder(tmp_path, capsys):
    folder = save_run(tmp_path / 'run', 'classification')
    (folder / 'README.md').write_text('# A run\n')
    for _ in range(2):
        command.main([f'--model={folder}', f'--output={folder / "page.html"}', '--overwrite'])
    link = '[A page that computes with this model](page.html)'
    assert (folder / 'README.md').read_text() == f'# A run\n\n{link}\n'
    assert capsys.readouterr().out.count('linked from') == 1
    command.main([f'--model={folder}', f'--output={tmp_path / "elsewhere.html"}'])
    assert (folder / 'README.md').read_text().count('](') == 1
