"""The plot of a run: loss terms and accuracies, also without held-out data."""

from unittest import mock

import matplotlib.figure

from bert_jax.training import loop
from bert_jax.training.logging import Log
from tests.training import toy


def curves(records, folder) -> list[set[str]]:
    """The labels of the curves in each panel of the plot of a run with these records."""
    log = Log.__new__(Log)
    log.records, log.workdir, log._is_host0 = records, folder, True
    figures = []
    with mock.patch.object(
        matplotlib.figure.Figure, 'savefig', lambda figure, *_, **__: figures.append(figure)
    ):
        log.plot({})
    return [{line.get_label() for line in axes.lines} for axes in figures[0].axes]


def test_accuracies_and_the_main_metric_have_their_own_panel(tmp_path):
    train = {'kind': 'train', 'step': 1, 'loss': 2.0, 'accuracy': 0.5}
    held_out = {'kind': 'held_out', 'step': 1, 'f1': 0.4, 'recall': 0.3, 'tagging_loss': 1.0}
    assert curves([train, held_out], tmp_path) == [
        {'train loss', 'held-out tagging loss'},
        {'train accuracy', 'held-out f1'},
    ]
    assert curves([{'kind': 'train', 'step': 1, 'loss': 2.0}], tmp_path) == [{'train loss'}]


def test_a_run_without_held_out_data_has_a_plot(tmp_path, monkeypatch):
    monkeypatch.setattr(toy.Toy, 'evaluate', lambda *_: {})
    made = toy.config(tmp_path, training__steps=(2,), checkpoint__every_steps=0)
    loop.train(toy.Toy(made), made)
    assert (tmp_path / 'loss.png').read_bytes().startswith(b'\x89PNG')
