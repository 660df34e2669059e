"""Progress bars on a terminal and in a log file."""

import io
import re
import sys
import time

from bert_jax import progress


class Terminal(io.StringIO):
    def isatty(self):
        return True


def show(monkeypatch, stderr) -> str:
    monkeypatch.setattr(sys, 'stderr', stderr)
    monkeypatch.setattr(progress, 'SECONDS_BETWEEN_LINES', 0.0)
    bar = progress.bar(total=2, unit='step')
    bar.update(1)
    bar.write('a line of the log', file=sys.stderr)
    bar.update(1)
    bar.close()
    return stderr.getvalue()


def test_a_log_file_gets_lines_without_carriage_returns(monkeypatch):
    text = show(monkeypatch, io.StringIO())
    assert '\r' not in text
    lines = text.splitlines()
    assert 'a line of the log' in lines
    assert lines[-1].startswith('100%')
    assert all(lines)


def test_a_terminal_gets_one_line_that_is_redrawn(monkeypatch):
    text = show(monkeypatch, Terminal())
    assert '\r' in text
    assert 'a line of the log\n' in text


def test_a_bar_without_progress_is_not_shown(monkeypatch):
    """Predictions started with '0 windows [00:00, ? windows/s]'."""
    for stderr in (io.StringIO(), Terminal()):
        monkeypatch.setattr(sys, 'stderr', stderr)
        progress.bar(unit=' windows').close()
        assert stderr.getvalue().strip() == ''
        with progress.bar(unit=' windows') as bar:
            bar.update(3)
        assert '3 windows' in stderr.getvalue()
        assert ' 0 windows' not in stderr.getvalue()


def test_a_long_evaluation_has_a_bar_with_the_time_left(monkeypatch):
    for stderr in (io.StringIO(), Terminal()):
        monkeypatch.setattr(sys, 'stderr', stderr)
        monkeypatch.setattr(progress, 'EVALUATION_SECONDS', 0.01)
        monkeypatch.setattr(progress, 'SECONDS_BETWEEN_LINES', 0.0)
        with progress.bar(total=9, unit='step') as training:
            training.update(1)
            with progress.evaluation_bar(100, ' rows', is_shown=True) as advance:
                time.sleep(1.1)  # a terminal is redrawn once a second
                advance(50)
        assert re.search(r'evaluating: +50%.*50/100 \[00:01<00:01', stderr.getvalue())
        assert '\x1b[A' not in stderr.getvalue()  # the bar is not on a line below


def test_a_short_evaluation_has_no_bar(monkeypatch):
    monkeypatch.setattr(sys, 'stderr', io.StringIO())
    monkeypatch.setattr(progress, 'SECONDS_BETWEEN_LINES', 0.0)
    with progress.evaluation_bar(100, ' rows', is_shown=True) as advance:
        advance(50)
    assert sys.stderr.getvalue() == ''
