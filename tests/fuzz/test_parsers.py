"""Damaged files are read or refused in one line, in bounded time and memory."""

import os
import random
import resource
import time

import pytest

from bert_jax.errors import UserError
from tests.fuzz import process_state
from tests.fuzz.parsers import PARSERS

MOST_SECONDS, MOST_KIBIBYTES = 5.0, 2**20  # for one file; growth of the process
SLOW_SECONDS = float(os.environ.get('BERT_JAX_FUZZ_SECONDS', 60))


@pytest.mark.parametrize('name', PARSERS)
def test_damaged_files_are_read_or_refused(name, tmp_path):
    fuzz(name, tmp_path, seed=0, seconds=0.7)


@pytest.mark.slow
@pytest.mark.parametrize('name', PARSERS)
def test_many_damaged_files_are_read_or_refused(name, tmp_path):
    fuzz(name, tmp_path, seed=time.time_ns(), seconds=SLOW_SECONDS, is_quick=False)


def fuzz(name: str, folder, seed: int, seconds: float, is_quick: bool = True) -> None:
    """Read damaged files for some time, at least as many as the parser asks for."""
    parser, random_ = PARSERS[name](), random.Random(seed)
    for number, sample in enumerate(parser.samples):  # also imports what reading needs
        (folder / f'sample{number}').mkdir()
        parser.read(sample, folder / f'sample{number}')
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    state = process_state.fingerprint()
    end, number = time.monotonic() + seconds, 0
    least = parser.least[0 if is_quick else 1]
    while number < least or time.monotonic() < end:
        number += 1
        (folder / str(number)).mkdir()
        data = parser.mutate(random_.choice(parser.samples), random_)
        (folder / 'last').write_bytes(data)  # to reproduce a crash of the process
        start, message = time.process_time(), ''
        try:
            parser.read(data, folder / str(number))
        except UserError as error:
            message = str(error)
        except BaseException as error:
            raise AssertionError(f'seed {seed}, file {number}: {data!r:.1000}') from error
        assert '\n' not in message, data
        assert len(message) < 2000, data
        assert time.process_time() - start < MOST_SECONDS, data
        used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
        assert used < MOST_KIBIBYTES, (used, data)
        assert process_state.fingerprint() == state, data
