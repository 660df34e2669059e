"""Regular expressions that run over text take linear time, also on hostile text."""

import importlib
import itertools
import pathlib
import re
import time

import pytest

import bert_jax
from bert_jax.text import personal_data
from bert_jax.text.sentences import split_sentences

SHORT, LONG = 2_000, 20_000  # characters
ROOT = pathlib.Path(bert_jax.__file__).parent
SKIPPED = ('loaders', 'configs')  # scripts for other folders, and recipes
# Beginnings of a match, and runs that let it fail late.
STARTS = ('', '@', '`', '[[', ':math', '|', '"', '.', '$', '<', '(', '_START_')
RUNS = (
    *('a', 'A', '1', 'é', '字', '。', 'Ա．', ' ', '\n', '.', '@', '-', ':', '*', '`', '=', '|'),
    *('[', '[[', '(', '<', '$', '_', '#', ';', '"', '\\', '\x1c', '\ud800', 'a.', 'a@', 'a ', 'a:'),
    *(' .', '. ', '--- ', '1 ', '1.', 'a\n', ' *', '[a', '`a', ':math', 'see ', ' :', '|a', '</'),
    *('<a', '(a', '*a', '.A', 'ＡＢ．', '\u1039a', ') '),
)


def patterns():
    """Yield the name and the methods of each compiled pattern of the package."""
    for path in sorted(ROOT.rglob('*.py')):
        source = path.read_text(encoding='utf-8')
        parts = path.relative_to(ROOT.parent).with_suffix('').parts
        if 're.compile' not in source or any(name in parts for name in SKIPPED):
            continue
        module = importlib.import_module('.'.join(parts))
        for name, value in vars(module).items():
            for index, entry in enumerate(value if isinstance(value, list) else [value]):
                entry = entry[0] if isinstance(entry, tuple) and entry else entry
                if isinstance(entry, re.Pattern) and isinstance(entry.pattern, str):
                    yield f'{module.__name__}.{name}[{index}]', calls(entry, name, source)


def calls(pattern, name, source):
    """The calls of a pattern in a module; a search of the whole text if they are not clear."""
    used = set(re.findall(rf'\b{name}\.(match|fullmatch|search|sub|finditer|split)\(', source))
    if used and used <= {'match', 'fullmatch'}:
        return [getattr(pattern, method) for method in sorted(used)]
    return [lambda text: sum(1 for _ in pattern.finditer(text))]


def assert_linear(function, starts=STARTS):
    """Compare the times for texts of `LONG` and `SHORT` characters, if any is worth comparing."""

    def seconds(text):
        start = time.perf_counter()
        function(text)
        return time.perf_counter() - start

    for start, run in itertools.product(starts, RUNS):
        short, long = (start + run * (size // len(run)) + '\0' for size in (SHORT, LONG))
        # Quadratic time takes 100 times as long, which is more than 0.1 s for `LONG`.
        if seconds(long) > 0.1:
            factor = min(seconds(long) for _ in range(3)) / max(seconds(short) for _ in range(3))
            assert factor < 40, f'{start!r} and a run of {run!r}: {factor:.0f} times as long'


PATTERNS = dict(patterns())


def test_the_patterns_of_the_package_are_found():
    assert len(PATTERNS) > 60
    assert 'bert_jax.text.personal_data._MAIL_DOMAIN[0]' in PATTERNS


@pytest.mark.parametrize('name', PATTERNS)
def test_a_pattern_takes_linear_time(name):
    for call in PATTERNS[name]:
        assert_linear(call)


@pytest.mark.parametrize('function', [personal_data.count, split_sentences])
def test_what_prepares_text_takes_linear_time(function):
    assert_linear(function, starts=['', 'a@b.org '])


def test_a_quadratic_pattern_is_noticed():
    pattern = re.compile(r'[\w.+-]+@\w')
    with pytest.raises(AssertionError, match="a run of 'a'"):
        assert_linear(pattern.findall)
