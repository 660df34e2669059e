"""The recorded dry run: still what the code compiles to, and sensitive to what it should show."""

import copy
import json

import pytest

from experiments.compiled import run

GOLDEN = json.loads((run.FOLDER / 'golden.json').read_text())


@pytest.mark.slow
@pytest.mark.parametrize('case', ['base, 128 tokens', 'large, 128 tokens, fsdp 8'])
def test_it_is_as_recorded(case):
    assert run.differences(GOLDEN[case], run.in_its_own_process(case)) == []


def test_every_case_is_recorded_and_in_the_table():
    assert GOLDEN.keys() == run.CASES.keys()
    assert run.as_table(GOLDEN) in (run.FOLDER / 'README.md').read_text()


def test_another_exchange_or_size_is_a_difference():
    case = 'large, 128 tokens, fsdp 8'
    found = copy.deepcopy(GOLDEN[case])
    assert run.differences(GOLDEN[case], found) == []
    found['temporaries'] *= 1.05
    assert run.differences(GOLDEN[case], found) == []
    found['temporaries'] *= 1.1
    found['exchanges']['all-gather']['number'] += 1
    found['optimizer'] *= 8
    named = [line.split(':')[0] for line in run.differences(GOLDEN[case], found)]
    assert named == ['exchanges', 'optimizer', 'temporaries']


def test_replicated_parameters_and_one_sum_of_the_gradients():
    record = GOLDEN['base, 128 tokens']
    sums = record['exchanges']
    assert sums.keys() == {'all-reduce'}
    assert sums['all-reduce']['bytes'] <= 1.02 * record['parameters']
    assert 105e6 < record['parameters'] / 4 < 115e6
    cut, whole = GOLDEN['large, 128 tokens, fsdp 8'], GOLDEN['large, 128 tokens']
    assert cut['optimizer'] <= whole['optimizer'] / 7
