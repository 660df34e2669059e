"""Every head and every architecture in every format; a published encoder on 200 sentences."""

import pytest

from bert_jax import export_formats
from bert_jax.interop import huggingface, loading
from bert_jax.models import tuning
from tests.export_formats import exported
from tests.inference import small_runs
from tests.page import pages
from tests.parity.test_minilm import folder, sentences  # noqa: F401  (fixtures)

pytestmark = pytest.mark.slow
FORMATS = tuple(export_formats.FORMATS)
FINE_TUNED = [
    *((kind, {}) for kind in small_runs.KINDS),
    ('tagging', {'crf': True}),
    ('tagging', {'decode_pieces': 'mean', 'crf': True}),
]


@pytest.fixture(autouse=True)
def _packages():
    for name in ('ai_edge_litert', 'onnx', 'onnxruntime', 'sentence_transformers'):
        pytest.importorskip(name, reason=f'{name} is not installed')


@pytest.mark.parametrize('format_name', [f for f in FORMATS if f != 'sentence_transformers'])
@pytest.mark.parametrize(('kind', 'changes'), FINE_TUNED)
def test_every_fine_tuned_head(format_name, kind, changes, tmp_path):
    model = loading.load_any(small_runs.save_run(tmp_path / 'run', kind, changes))
    written = exported.write(tmp_path / 'out', format_name, model)  # compares with the packed model
    assert written.report.startswith('largest difference from bert_jax')


@pytest.mark.parametrize('format_name', ['onnx', 'savedmodel', 'stablehlo', 'tflite'])
@pytest.mark.parametrize(
    'name',
    ['albert', 'deberta', 'distilbert', 'modernbert', 'mosaicbert', 'neobert', 'roberta', 'xlnet'],
)
def test_every_architecture(format_name, name, tmp_path):
    kinds = {'modernbert': 'bytebpe', 'roberta': 'bytebpe', 'xlnet': 'xlnet'}
    kind = kinds.get(name, 'wordpiece')
    model = pages.random_model(name, pages.tokenizer(kind))
    exported.write(tmp_path / 'out', format_name, model, task='embed')
    texts = [*exported.TEXTS, 'cats ' * 15]
    assert exported.embeds_like_predict(tmp_path / 'out', model, texts)


@pytest.mark.parametrize('method', sorted(tuning.METHODS))
def test_every_tuned_model(method, tmp_path):
    added = tuning.build(method, {})
    model = pages.random_model('bert', pages.tokenizer('wordpiece'), tuning=added)
    exported.write(tmp_path / 'out', 'onnx', model, task='embed')
    assert exported.embeds_like_predict(tmp_path / 'out', model, exported.TEXTS)


@pytest.mark.parametrize('format_name', FORMATS)
def test_a_published_encoder_on_sentences_of_all_lengths(format_name, folder, sentences, tmp_path):  # noqa: F811
    model = huggingface.load(folder, allow_missing=('^encoder/pooler/',))
    mixed = [*sentences[:90], *sentences[-90:]]
    long = [' '.join(sentences[n : n + 6]) for n in range(500, 620, 6)]
    exported.write(tmp_path / 'out', format_name, model)
    assert len(mixed + long) == 200
    assert exported.embeds_like_predict(tmp_path / 'out', model, mixed + long)
