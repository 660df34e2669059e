"""The loop over stages: what is compiled, and when."""

import shutil
import threading

import jax
import numpy as np
import pytest

from bert_jax.training import compilation, loop
from tests.training import toy

STAGES = dict(stages__steps=(6, 4), checkpoint__every_steps=4, checkpoint__keep=4)


@pytest.fixture
def compiled(monkeypatch):
    """What was begun to be compiled."""
    begun, begin = [], compilation.start_compiling

    def record(*arguments):
        begun.append(arguments)
        return begin(*arguments)

    monkeypatch.setattr(compilation, 'start_compiling', record)
    return begun


def test_the_step_is_compiled_while_the_state_is_made(tmp_path, monkeypatch):
    begun, made = threading.Event(), threading.Event()
    compile_lowered, initial_state = jax.stages.Lowered.compile, loop.initial_state

    def compile_slowly(*arguments):
        if threading.current_thread() is not threading.main_thread():
            begun.set()
            assert made.wait(30), 'the state was not made meanwhile'
        return compile_lowered(*arguments)

    def make(*arguments):
        assert begun.wait(30), 'the step is not being compiled'
        state = initial_state(*arguments)
        made.set()
        return state

    monkeypatch.setattr(jax.stages.Lowered, 'compile', compile_slowly)
    monkeypatch.setattr(loop, 'initial_state', make)
    _, results = toy.train(tmp_path)
    assert results['steps'] == 30


def test_each_stage_is_compiled_once(tmp_path, compiled):
    """Also after a restart with nothing but damaged checkpoints of the second stage."""
    expected, _ = toy.train(tmp_path / 'run', **STAGES)
    assert len(compiled) == 2
    again = shutil.copytree(tmp_path / 'run', tmp_path / 'again')
    toy.train(again, **STAGES)  # with nothing left to do
    assert len(compiled) == 2
    back = shutil.copytree(tmp_path / 'run', tmp_path / 'back')
    shutil.rmtree(back / 'checkpoints' / '10')
    for step in ('6', '8'):
        (back / 'checkpoints' / step / 'arrays.json').write_text('{}')
    params, results = toy.train(back, **STAGES)
    assert len(compiled) == 4  # the second stage's first, and that was not for nothing
    assert results['steps'] == 10
    for one, other in zip(jax.tree.leaves(params), jax.tree.leaves(expected), strict=True):
        np.testing.assert_array_equal(one, other)
