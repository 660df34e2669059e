"""Damaged files are read or refused in one line, in bounded time and memory.

The slow test tries 20,000 files of each parser, with one seed that BERT_JAX_FUZZ_SEED changes.
"""

import os
import pathlib
import random
import resource
import shutil
import time

import pytest

from bert_jax.errors import UserError
from tests.fuzz import process_state
from tests.fuzz.parsers import PARSERS

MOST_SECONDS = 5.0  # of a processor, for one file
MOST_BYTES, MOST_PER_BYTE = 2**28, 8  # of memory, and per byte of the file
SEED = int(os.environ.get('BERT_JAX_FUZZ_SEED', 0))
_STATUS, _PEAK = pathlib.Path('/proc/self/status'), pathlib.Path('/proc/self/clear_refs')


@pytest.mark.parametrize('name', PARSERS)
def test_damaged_files_are_read_or_refused(name, tmp_path):
    fuzz(name, tmp_path, seed=0, seconds=0.7)


@pytest.mark.slow
@pytest.mark.parametrize('name', PARSERS)
def test_many_damaged_files_are_read_or_refused(name, tmp_path, capsys):
    figures = fuzz(name, tmp_path, seed=SEED, seconds=0, is_quick=False)
    with capsys.disabled():
        print(f'\n{name}: {figures}')


def fuzz(name: str, folder: pathlib.Path, seed: int, seconds: float, is_quick: bool = True) -> str:
    """Read damaged files, at least as many as the parser asks for; return the worst figures."""
    parser, random_ = PARSERS[name](), random.Random(seed)
    for number, sample in enumerate(parser.samples):  # also imports what reading needs
        (folder / f'sample{number}').mkdir()
        parser.read(sample, folder / f'sample{number}')
    state = process_state.fingerprint()
    started = time.process_time()
    end, number = time.monotonic() + seconds, 0
    slowest = largest = refused = 0.0
    least = parser.least[0 if is_quick else 1]
    while number < least or time.monotonic() < end:
        number += 1
        place = folder / str(number)
        place.mkdir()
        data = parser.mutate(random_.choice(parser.samples), random_)
        (folder / 'last').write_bytes(data)  # to reproduce a crash of the process
        before = reset_peak()
        start, message = time.process_time(), ''
        try:
            parser.read(data, place)
        except UserError as error:
            message, refused = str(error), refused + 1
        except BaseException as error:
            raise AssertionError(f'seed {seed}, file {number}: {data!r:.1000}') from error
        took, used = time.process_time() - start, peak() - before
        assert '\n' not in message, data
        assert len(message) < 2000, data
        assert took < MOST_SECONDS, (took, data)
        assert used < MOST_BYTES + MOST_PER_BYTE * len(data), (used, data)
        assert process_state.fingerprint() == state, data
        slowest, largest = max(slowest, took), max(largest, used)
        shutil.rmtree(place)
    total = time.process_time() - started
    worst = f'at most {slowest:.2f} s and {largest / 1e6:.0f} MB'
    return f'{number:,} files, {refused:,.0f} refused, {total:,.0f} s; {worst}'


def reset_peak() -> int:
    """Let the peak of this process's memory start anew where Linux can; return the peak, bytes."""
    if os.access(_PEAK, os.W_OK):
        _PEAK.write_text('5')
    return peak()


def peak() -> int:
    """Return the peak of this process's memory since `reset_peak`, in bytes."""
    if not os.access(_PEAK, os.W_OK):
        return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    lines = _STATUS.read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith('VmHWM'))
