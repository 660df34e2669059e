"""The learning curves: a panel for each loss and one for scores, with stages and references."""

import pytest

from bert_jax.training import curves

RECORDS = [
    {'kind': kind, 'step': step, 'loss': 5 - step / 9, 'mlm_loss': 4.0, 'nsp_loss': 0.7}
    | {'mlm_accuracy': step / 20, 'f1': 0.5}
    for step in (2, 4, 6)
    for kind in ('train', 'held_out')
]


def test_each_loss_has_its_own_panel_and_scores_share_one():
    figure = curves.draw(RECORDS, 'f1', {'guessing': 3.0}, [0, 3])
    panels = {axes.get_title(): axes for axes in figure.axes}
    assert [*panels] == ['Loss: masked tokens', 'Loss: next sentence', 'Scores']
    labels = [text.get_text() for text in panels['Loss: masked tokens'].get_legend().get_texts()]
    assert labels == ['train', 'held-out', 'guessing']
    labels = [text.get_text() for text in panels['Scores'].get_legend().get_texts()]
    assert labels == ['train: f1', 'held-out: f1', 'train: mlm accuracy', 'held-out: mlm accuracy']
    for axes in figure.axes:
        assert [text.get_text() for text in axes.texts] == ['stage 2']
        assert axes.get_xlabel() == 'training step'
    assert panels['Loss: next sentence'].get_ylim()[0] > 0.5  # its own scale


@pytest.mark.parametrize('score', ['loss', 'mlm_loss'])
def test_a_loss_that_chooses_the_best_step_is_not_drawn_with_the_scores(score):
    *_, scores = curves.draw(RECORDS, score, {}, [0]).axes
    assert scores.get_title() == 'Scores'
    assert [line.get_label() for line in scores.lines] == ['train', 'held-out']  # of mlm accuracy


def test_the_legends_cover_no_curve():
    figure = curves.draw(RECORDS, 'f1', {'unigram entropy of predicted tokens (nats)': 3.0}, [0])
    figure.draw_without_rendering()
    for axes in figure.axes:
        legend = axes.get_legend().get_window_extent()
        assert legend.y1 <= axes.bbox.y0
        assert 0 <= legend.x0 < legend.x1 <= figure.bbox.x1


def test_a_run_without_held_out_data_and_an_empty_run_have_a_figure():
    train = [{'kind': 'train', 'step': 1, 'loss': 2.0}]
    (axes,) = curves.draw(train, '', {}, [0]).axes
    assert axes.get_title() == 'Loss: total'
    assert not axes.texts
    assert len(curves.draw([], '', {}, [0]).axes) == 1


def test_the_loss_of_fine_tuning_is_in_one_panel():
    records = [
        {'kind': 'train', 'step': 1, 'loss': 2.0, 'tagging': 2.0, 'accuracy': 0.5},
        {'kind': 'held_out', 'step': 2, 'f1': 0.4, 'tagging_loss': 1.0},
    ]
    loss, scores = curves.draw(records, 'f1', {}, [0]).axes
    assert loss.get_title() == 'Loss: tagging'
    assert [line.get_ydata().tolist() for line in loss.lines] == [[2.0], [1.0]]
    assert [line.get_label() for line in scores.lines] == ['train: accuracy', 'held-out: f1']
