"""SavedModel and TensorFlow Lite compute what predict does."""

import numpy as np
import pytest

from bert_jax.errors import UserError
from tests.export_formats import exported

pytest.importorskip('ai_edge_litert', reason='ai-edge-litert is not installed')


@pytest.fixture(scope='module')
def model():
    return exported.small_model(num_layers=1)


def test_a_saved_model_computes_any_number_of_texts_of_any_length(model, tmp_path):
    exported.write(tmp_path / 'out', 'savedmodel', model, task='embed')
    assert exported.embeds_like_predict(tmp_path / 'out', model, exported.TEXTS)


def test_a_tflite_file_pads_texts_to_its_lengths(model, tmp_path):
    exported.write(tmp_path / 'out', 'tflite', model, task='embed', lengths=(40, 16))
    assert exported.loader(tmp_path / 'out').SIGNATURE['lengths'] == [16, 40, 64]
    load = exported.loader(tmp_path / 'out')
    with pytest.warns(UserWarning, match='truncated to 64 tokens'):
        states = load.run(['cats ' * 70])['last_hidden_state']
    assert states.shape == (1, 64, 16)
    for texts in (exported.TEXTS, ['cats ' * 20]):
        assert exported.embeds_like_predict(tmp_path / 'out', model, texts)


def test_int8_is_smaller_and_close(tmp_path):
    model = exported.small_model(num_layers=1, hidden_size=64, intermediate_size=256)
    sizes = {}
    for dtype in ('float32', 'int8'):
        written = exported.write(tmp_path / dtype, 'tflite', model, lengths=(16,), dtype=dtype)
        sizes[dtype] = (tmp_path / dtype / 'model.tflite').stat().st_size
    assert sizes['int8'] < sizes['float32']
    assert 'int8 changes the outputs' in written.lines[0]
    exact, near = (
        exported.loader(tmp_path / dtype).run(['the [MASK] sat'])['logits'] for dtype in sizes
    )
    assert 1e-4 < np.abs(exact - near).max() < 0.2 * np.abs(exact).max()


def test_options_that_are_not_valid_are_one_line(model, tmp_path):
    with pytest.raises(UserError, match="'int4'; --format=tflite supports float32, int8"):
        exported.write(tmp_path / 'out', 'tflite', model, dtype='int4')
    with pytest.raises(UserError, match='--lengths has 65, must be from 3 to 64'):
        exported.write(tmp_path / 'out', 'tflite', model, lengths=(65,))
    assert not (tmp_path / 'out').exists()
