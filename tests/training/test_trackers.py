"""Event files are read by TensorFlow's own parser, which checks their checksums."""

import numpy as np

from bert_jax import tensorflow_import
from bert_jax.training.trackers import EventFile


def events_of(folder):
    tf = tensorflow_import.tensorflow()
    for path in sorted(folder.iterdir()):
        for record in tf.data.TFRecordDataset(str(path)).as_numpy_iterator():
            yield tf.compat.v1.Event.FromString(record)


def test_tensorflow_reads_the_points(tmp_path):
    file = EventFile(tmp_path / 'tensorboard', 301)
    file.record('train', 301, {'loss': 2.5, 'tokens/s': 1e6})
    file.record('held_out', 70_000, {'größe': np.float32(0.1), 'loss': float('nan')})
    file.close()
    version, start, *events = events_of(tmp_path / 'tensorboard')
    assert (version.file_version, version.step) == ('brain.Event:2', 301)
    assert start.session_log.status == start.session_log.START
    assert start.step == 301
    points = [(e.step, v.tag, v.simple_value) for e in events for v in e.summary.value]
    assert points[:3] == [
        (301, 'train/loss', 2.5),
        (301, 'train/tokens/s', 1e6),
        (70_000, 'held_out/größe', np.float32(0.1)),
    ]
    assert points[3][:2] == (70_000, 'held_out/loss')
    assert np.isnan(points[3][2])
    assert all(0 <= event.wall_time - version.wall_time < 60 for event in events)


def test_points_are_on_disk_after_a_flush(tmp_path):
    file = EventFile(tmp_path, 1)
    file.record('train', 1, {'loss': 2.0})
    file.flush()
    assert len(list(events_of(tmp_path))) == 3
    EventFile(tmp_path, 2).close()  # of the resumed run
    assert len(list(tmp_path.iterdir())) == 2
    file.close()
