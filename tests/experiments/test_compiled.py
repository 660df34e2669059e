"""Steps compiled for accelerators: names, errors, what is read from programs, recorded steps."""

import copy
import importlib.util
import json
import shlex

import pytest

from bert_jax.cli import command_line
from bert_jax.errors import UserError
from bert_jax.tasks import make_task
from experiments.compiled import hlo, report, run, step, topology

GOLDEN = json.loads(run.GOLDEN.read_text())
RECORD = {
    'rows': 32,
    'accumulation': 2,
    'length': 128,
    'model_flops': 4e12,
    'memory': 95 * 2**30,
    'fits': True,
    'parameters': 2**29,
    'optimizer': 2**30,
    'batch': 1000,
    'temporaries': 3 * 2**30,
    'collectives': {'all-reduce': {'number': 3, 'bytes': 2**29}},
    'kernels': {'tpu_custom_call': 24},
    'cycles': 2000,
    'operations': [
        {
            'path': 'jit(step)/transpose(jvp(Model))/layers_*/layers_*._f/input/BTD,DF->BTF',
            'source': 'bert_jax/models/linear.py:51',
            'cycles': 500,
            'number': 12,
        }
    ],
    'seconds': 0.02,
    'mfu': 0.4357,
}
PROGRAM = """HloModule jit_step

FileNames
1 "/somewhere/bert_jax/models/linear.py"

FileLocations
7 {file_name_id=1 function_name_id=1 line=51 end_line=51 column=3 end_column=9}

StackFrames
9 {file_location_id=7 parent_frame_id=1}

%fused (a: f32[2]) -> f32[2] {
  %b = f32[2]{0} add(%a, %a)
}

%body (a: (f32[2])) -> (f32[2]) {
  %c = (f32[2]{0}, f32[16]{0}) all-gather-start(f32[2]{0} %d), dimensions={0}
  %e = f32[2] fusion(%d), kind=kLoop, calls=%fused, metadata={op_name="a/layers_3/mul" \
stack_frame_id=9}, backend_config={"window_config":{"estimated_cycles":"100"}}
  %f = f32[2] custom-call(%d), custom_call_target="tpu_custom_call"
}

ENTRY %main (a: f32[2]) -> f32[2] {
  %w = (f32[2]) while(%a), condition=%c, body=%body, \
backend_config={"known_trip_count":{"n":"12"}}
  %g = (f32[8,4]{1,0}, bf16[3]{0}) all-reduce(%b, %c), channel_id=1, to_apply=%fused
  %h = pred[7]{0} all-reduce-start(%g)
  %i = (f32[2]{0}, f32[2]{0}, u32[], u32[]) collective-permute-start(%g)
  %j = f32[2,2]{1,0} add(%i, %j), metadata={op_name="a/layers_4/mul" stack_frame_id=9}, \
backend_config={"estimated_cycles":"30"}
  %k = f32[2] custom-call(%j), custom_call_target="Sharding"
}
"""


def test_instructions_in_a_loop_count_once_for_each_iteration():
    found = hlo.collectives(PROGRAM)
    assert found[:12] == [('all-gather', (('f32', (16,)),))] * 12
    assert found[12:] == [
        ('all-reduce', (('f32', (8, 4)), ('bf16', (3,)))),
        ('all-reduce', (('pred', (7,)),)),
        ('collective-permute', (('f32', (2,)),)),
    ]
    assert [collective.bytes for collective in found[12:]] == [134, 7, 8]
    assert hlo.kernels(PROGRAM) == {'tpu_custom_call': 12}


GPU_PROGRAM = """
%fused_part (p.0: f32[100,8], p.1: f32[8]) -> bf16[2,8] {
  %p.0 = f32[100,8]{1,0} parameter(0)
  %p.1 = f32[8]{0} parameter(1)
  %slice.0 = f32[2,8]{1,0} slice(%p.0), slice={[0:2], [0:8]}
  ROOT %add.0 = bf16[2,8]{1,0} add(%slice.0, %p.1)
}

ENTRY %main (a.0: f32[100,8], b.0: f32[8]) -> f32[2,8] {
  %a.0 = f32[100,8]{1,0} parameter(0)
  %b.0 = f32[8]{0} parameter(1)
  %fusion.0 = bf16[2,8]{1,0} fusion(%a.0, %b.0), kind=kLoop, calls=%fused_part
  %call.0 = (f32[2,8]{1,0}, s8[4096]{0}) custom-call(%fusion.0, %fusion.0), \
metadata={op_name="jit(f)/layers_3/mul"}
  ROOT %part.0 = f32[2,8]{1,0} get-tuple-element(%call.0), index=0
}
"""


def test_kernels_of_a_gpu_move_their_operands_and_results():
    """Of an operand that is sliced, the slice; scratch memory does not count."""
    fusion = 2 * 8 * 4 + 8 * 4 + 2 * 8 * 2
    call = 2 * (2 * 8 * 2) + 2 * 8 * 4
    assert hlo.bytes_moved(GPU_PROGRAM) == fusion + call


def test_large_float32_arrays_between_kernels_are_named():
    assert hlo.float32_arrays(GPU_PROGRAM, least=16) == {'jit(f)/layers_*/mul [2,8]': 1}
    assert hlo.float32_arrays(GPU_PROGRAM, least=17) == {}


def test_the_cost_of_equal_operations_of_all_layers_is_summed_by_source_line():
    assert hlo.operations(PROGRAM) == [
        ('a/layers_*/mul', 'bert_jax/models/linear.py:51', 12 * 100 + 30, 13)
    ]


@pytest.mark.parametrize(
    ('name', 'number'), [('v5p:2x2x2', 8), ('v5e:16x16', 256), ('h200:8', 8), ('a100:1', 1)]
)
def test_a_topology_is_a_kind_of_device_and_a_shape(name, number):
    assert topology.parse(name).num_devices == number


@pytest.mark.parametrize('name', ['', 'v5', 'v5p', 'v5p:', 'v5p:2xx2', 'h200:0', 'tpu:8'])
def test_an_unknown_topology_is_an_error_of_one_line(name):
    with pytest.raises(UserError) as error:
        topology.parse(name)
    assert '\n' not in str(error.value)
    assert 'v5p' in str(error.value)


@pytest.mark.parametrize(('name', 'extra'), [('v5p:2x2x2', 'tpu'), ('h200:8', 'cuda12')])
def test_a_missing_compiler_is_an_error_that_says_what_to_install(name, extra, monkeypatch):
    monkeypatch.setattr(importlib.util, 'find_spec', lambda name: None)
    monkeypatch.delenv('TPU_LIBRARY_PATH', raising=False)
    with pytest.raises(UserError, match=rf'pip install -e "\.\[{extra}\]"'):
        topology.parse(name).devices()


def test_options_become_flags_of_the_training_command():
    line = '--recipe=electra:base --mesh=data=4,fsdp=2 --kernel=flash --config.seed=1'
    assert run.overrides(run.parse(line.split())) == [
        '--config=configs/electra.py:base',
        '--config.seed=1',
        '--config.mesh.data=4',
        '--config.mesh.fsdp=2',
        '--config.mesh.tensor=1',
        '--config.compute.attention_kernel=flash',
    ]


@pytest.mark.parametrize('mesh', ['data', 'data=', 'rows=2', 'data=2,fsdp=-1'])
def test_an_invalid_mesh_is_an_error(mesh):
    with pytest.raises(UserError, match='--mesh='):
        run.overrides(run.parse([f'--mesh={mesh}']))


def test_the_report_shows_memory_collectives_kernels_and_operations():
    text = report.describe(RECORD)
    assert text.splitlines() == [
        '32 × 128 tokens a device, 2 micro-batches, 4.00 TFLOP of the model a device',
        '  parameters      0.50 GiB',
        '  optimizer       1.00 GiB',
        '  temporaries     3.00 GiB',
        'fits into 95.0 GiB',
        '     3 all-reduce, 0.500 GiB',
        '    24 tpu_custom_call',
        'estimated 20.0 ms, MFU 43.6%',
        '   25.0%   12 × backward layers_*/input/BTD,DF->BTF  bert_jax/models/linear.py:51',
    ]
    missing = {key: RECORD[key] for key in ('rows', 'length', 'model_flops', 'memory')}
    text = report.describe(missing | {'accumulation': 1, 'fits': False, 'needed': 99 * 2**30})
    assert text.splitlines()[-1] == 'does not fit: needs 99.0 of 95.0 GiB'


def test_another_collective_or_size_is_a_difference():
    found = copy.deepcopy(RECORD)
    found['operations'] = []
    found['temporaries'] *= 1.05
    assert report.differences(RECORD, found) == []
    found['temporaries'] *= 1.1
    found['collectives']['all-reduce']['number'] += 1
    found['optimizer'] *= 8
    names = [line.split(':')[0] for line in report.differences(RECORD, found)]
    assert names == ['collectives', 'optimizer', 'temporaries']


def test_the_table_of_results_shows_the_records():
    assert run.RESULTS.read_text().endswith(report.table(GOLDEN))


def test_data_parallel_steps_sum_the_gradients_once():
    records = [record for command, record in GOLDEN.items() if '--mesh' not in command]
    assert records
    for record in records:
        assert record['collectives'].keys() == {'all-reduce'}
        assert record['collectives']['all-reduce']['bytes'] <= 1.02 * record['parameters']


@pytest.mark.slow
@pytest.mark.parametrize('platform', ['tpu', 'cuda'])
def test_steps_compile_as_recorded(platform):
    if not topology.is_installed(platform):
        pytest.skip(f'no compiler for {platform}')

    def is_of_platform(command):
        name = run.parse(shlex.split(command)).topology
        return topology.parse(name).chip.platform == platform

    command = next(filter(is_of_platform, GOLDEN))
    assert report.differences(GOLDEN[command], run.compile_in_process(command)) == []


def test_rows_of_fine_tuning_take_all_sequences_at_their_full_length(tmp_path):
    flags = ['--config=configs/finetune.py:mnli', '--config.model.num_layers=1']
    config = command_line.parse(['run', *flags], '').config
    step._replace_data(config, tmp_path)
    task = step._with_length(make_task(config), config.training.sequence_length)
    assert task.source.batch(0)['input_ids'].shape == (task.source.batch_size, 128)
