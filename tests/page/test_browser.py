"""The page in headless Chromium, without a network."""

import re
import shutil
import subprocess

import pytest

from bert_jax.interop import loading
from tests.inference.small_runs import save_run
from tests.page import pages

BROWSER = shutil.which('chromium') or shutil.which('google-chrome')
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(BROWSER is None, reason='Chromium is not installed'),
]
# View → its title and what its panel must contain.
VIEWS = {
    'fill-mask': ('Fill mask', r'Most probable: “.+?”.*aria-label="Guesses for mask 1".*\d\.\d%'),
    'unmasking': ('Write', r'Wrote 13 tokens in 13 steps.*title="step \d+, probability'),
    'log-odds': ('Log-odds', r'Log-odds [+−][\d.]+ nats: “\w+” is \S+ times as probable'),
    'attention': ('Attention', r'Layer 2, head 1: “mats” attends most to “.+?”.*<rect'),
    'neighbors': ('Neighbors', r'Nearest to “mats”: “.+?”.*class="number">0\.\d{3}'),
    'senses': ('Senses', r'4 occurrences of “cats”; the two components hold \d.*<circle'),
}


@pytest.fixture(scope='module')
def page(tmp_path_factory):
    model = pages.random_model('bert', pages.tokenizer('wordpiece'))
    texts = ['x\tthe cats sat', 'x\tcats on the mats', 'y\tthe dogs and cats', 'y\tcats sits']
    text = 'the [MASK] sat on the mats'
    folder = tmp_path_factory.mktemp('page')
    return pages.write(folder, model, texts=texts, text=text, word='cats')


def shown(path, view):
    """The document after its scripts ran, without their text."""
    command = [BROWSER, '--headless=new', '--no-sandbox', '--disable-gpu', '--dump-dom']
    command += ['--virtual-time-budget=10000', f'file://{path}#{view}']
    done = subprocess.run(command, capture_output=True, encoding='utf-8', timeout=120)
    return re.sub(r'<(script|style).*?</\1>', '', done.stdout, flags=re.DOTALL)


@pytest.mark.parametrize('view', VIEWS)
def test_every_view_shows_its_results(view, page):
    document = shown(page, view)
    assert 'data-state="ready"' in document
    title, content = VIEWS[view]
    assert re.search(content, document, flags=re.DOTALL), document
    assert re.search(rf'aria-selected="true"[^>]*>{title}<', document)


def test_every_control_has_a_label(page):
    for view in VIEWS:
        document = shown(page, view)
        labels = set(re.findall(r'<label for="([^"]+)"', document))
        controls = re.findall(r'<(?:textarea|input|select)\b[^>]*>', document)
        assert controls
        for control in controls:
            assert re.search(r'\bid="([^"]+)"', control).group(1) in labels, control


def test_the_masks_are_filled_while_typing(page, tmp_path):
    typing = """<script>setTimeout(() => {
        const area = document.querySelector('textarea');
        area.value = 'the [MASK] and [MASK] dogs';
        area.dispatchEvent(new Event('input'));
    }, 3000)</script></body>"""
    typed = tmp_path / 'typed.html'
    typed.write_text(page.read_text(encoding='utf-8').replace('</body>', typing), encoding='utf-8')
    document = shown(typed, 'fill-mask')
    assert '5 tokens: <span>the</span><span>[MASK]</span>' in document
    assert re.search(r'Most probable: “.+?”, “.+?”\.', document)
    assert document.count('aria-label="Guesses for mask') == 2


def test_a_text_that_is_too_long_is_cut_and_the_page_says_so(tmp_path):
    model = pages.random_model('bert', pages.tokenizer('wordpiece'))
    document = shown(pages.write(tmp_path, model, text='the cats ' * 99), 'attention')
    assert 'The text is longer than 64 tokens; its end was cut. Layer 2' in document


def test_replaced_tokens(tmp_path):
    model = pages.random_model('electra', pages.tokenizer('wordpiece'), ['rtd'])
    document = shown(pages.write(tmp_path, model, text='the cats sat'), 'replaced')
    assert re.search(r'Most probably replaced: “(the|cats|sat)”, \d+\.\d%', document)


def test_the_prediction_of_a_fine_tuned_model(tmp_path):
    model = loading.load_any(save_run(tmp_path / 'run', 'classification'))
    document = shown(pages.write(tmp_path, model, text='the ship'), 'prediction')
    assert re.search(r'Predicted: (no|yes)\.', document)
