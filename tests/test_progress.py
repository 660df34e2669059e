"""Progress bars on a terminal and in a log file."""

import contextlib
import io
import re
import sys
import time

from bert_jax import progress


class Terminal(io.StringIO):
    def isatty(self):
        return True


def show(stderr) -> str:
    with contextlib.redirect_stderr(stderr):
        bar = progress.bar(total=2, unit='step', interval=0.0)
        bar.update(1)
        bar.write('a line of the log', file=sys.stderr)
        bar.update(1)
        bar.close()
    return stderr.getvalue()


def test_a_log_file_gets_lines_without_carriage_returns():
    text = show(io.StringIO())
    assert '\r' not in text
    lines = text.splitlines()
    assert 'a line of the log' in lines
    assert lines[-1].startswith('100%')
    assert all(lines)


def test_a_terminal_gets_one_line_that_is_redrawn():
    text = show(Terminal())
    assert '\r' in text
    assert 'a line of the log\n' in text


def test_a_bar_without_progress_is_not_shown():
    """Predictions started with '0 windows [00:00, ? windows/s]'."""
    for stderr in (io.StringIO(), Terminal()):
        with contextlib.redirect_stderr(stderr):
            progress.bar(unit=' windows').close()
            assert stderr.getvalue().strip() == ''
            with progress.bar(unit=' windows') as bar:
                bar.update(3)
        assert '3 windows' in stderr.getvalue()
        assert ' 0 windows' not in stderr.getvalue()


def test_a_long_evaluation_has_a_bar_with_the_time_left():
    for stderr in (io.StringIO(), Terminal()):
        evaluation = progress.evaluation_bar(100, ' rows', True, delay=0.01, interval=0.0)
        with (
            contextlib.redirect_stderr(stderr),
            progress.bar(total=9, unit='step', interval=0.0) as training,
        ):
            training.update(1)
            with evaluation as advance:
                time.sleep(1.1)  # a terminal is redrawn once a second
                advance(50)
        assert re.search(r'evaluating: +50%.*50/100 \[00:01<00:01', stderr.getvalue())
        assert '\x1b[A' not in stderr.getvalue()  # the bar is not on a line below


def test_a_short_evaluation_has_no_bar():
    stderr = io.StringIO()
    with (
        contextlib.redirect_stderr(stderr),
        progress.evaluation_bar(100, ' rows', True, interval=0.0) as advance,
    ):
        advance(50)
    assert stderr.getvalue() == ''
