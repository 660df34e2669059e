"""The plot of a run without held-out data."""

from bert_jax.training import loop
from bert_jax.training.workdir import Workdir
from tests.training import toy


class Unevaluated(toy.Toy):
    def evaluate(self, params, stage):
        return {}


def test_a_run_without_held_out_data_has_a_plot(tmp_path, figures):
    made = toy.config(tmp_path, training__steps=(2,), checkpoint__every_steps=0)
    loop.train(Unevaluated(made), made, Workdir.of(made.workdir))
    assert (tmp_path / 'loss.png').read_bytes().startswith(b'\x89PNG')
