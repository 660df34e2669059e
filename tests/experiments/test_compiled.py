"""The recorded compilations for 256 devices match the code, and notice what they should."""

import copy
import json

import pytest

from experiments.compiled import hlo, run

GOLDEN = json.loads((run.FOLDER / 'golden.json').read_text())


@pytest.mark.slow
@pytest.mark.parametrize('case', ['base, 128 tokens', 'large, 128 tokens, fsdp 8'])
def test_steps_compile_as_recorded(case):
    assert run.differences(GOLDEN[case], run.compile_in_process(case)) == []


def test_every_case_is_recorded_and_in_the_table():
    assert GOLDEN.keys() == run.CASES.keys()
    assert run.as_table(GOLDEN) in (run.FOLDER / 'README.md').read_text()


def test_another_collective_or_size_is_a_difference():
    case = 'large, 128 tokens, fsdp 8'
    found = copy.deepcopy(GOLDEN[case])
    assert run.differences(GOLDEN[case], found) == []
    found['temporaries'] *= 1.05
    assert run.differences(GOLDEN[case], found) == []
    found['temporaries'] *= 1.1
    found['collectives']['all-gather']['number'] += 1
    found['optimizer'] *= 8
    names = [line.split(':')[0] for line in run.differences(GOLDEN[case], found)]
    assert names == ['collectives', 'optimizer', 'temporaries']


def test_data_parallel_steps_sum_the_gradients_once():
    record = GOLDEN['base, 128 tokens']
    assert record['collectives'].keys() == {'all-reduce'}
    assert record['collectives']['all-reduce']['bytes'] <= 1.02 * record['parameters']
    assert 105e6 < record['parameters'] / 4 < 115e6


def test_fsdp_divides_the_optimizer_state():
    sharded, replicated = GOLDEN['large, 128 tokens, fsdp 8'], GOLDEN['large, 128 tokens']
    assert sharded['optimizer'] <= replicated['optimizer'] / 7


def test_collectives_are_read_from_the_text_of_a_program():
    class Compiled:
        def as_text(self):
            return """
              %a = (f32[8,4]{1,0}, bf16[3]{0}) all-reduce(%b, %c), channel_id=1
              %d = f32[16]{0} all-gather(f32[2]{0} %e), dimensions={0}
              %f = pred[7]{0} all-reduce-start(%g)
              %h = f32[2,2]{1,0} add(%i, %j)
            """

    found = hlo.collectives(Compiled())
    assert found == [
        ('all-reduce', (('f32', (8, 4)), ('bf16', (3,)))),
        ('all-gather', (('f32', (16,)),)),
        ('all-reduce', (('pred', (7,)),)),
    ]
    assert [collective.bytes for collective in found] == [134, 64, 7]
