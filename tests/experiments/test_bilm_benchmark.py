"""The benchmark of the bidirectional language model: both sides compute the same loss."""

import pytest


def test_both_sides_train_the_same_model(monkeypatch, capsys):
    pytest.importorskip('torch')
    monkeypatch.syspath_prepend('experiments/benchmarks')
    import bilm

    sizes = '--size=16 --cells=12 --vocabulary=40 --batch=2 --length=8 --steps=2 --warmup=1'
    ours, theirs = bilm.main(sizes.split())
    assert (ours['side'], theirs['side']) == ('bert_jax', 'torch')
    assert ours['loss'] == pytest.approx(theirs['loss'], abs=1e-4)
    assert '× the time of torch' in capsys.readouterr().out
    monkeypatch.setattr(bilm, 'TOLERANCE', -1.0)
    with pytest.raises(SystemExit, match='the losses differ'):
        bilm.main(sizes.split())
