"""What one of two processes does in a test of training/multihost.py.

python -m tests.multidevice.scenarios SCENARIO PORT PROCESS_ID FOLDER
"""

import os
import signal
import sys
import time

import jax
import numpy as np
from jax.sharding import AxisType, NamedSharding, PartitionSpec

from bert_jax.errors import UserError, exit_cleanly
from bert_jax.storage import bucket
from bert_jax.tasks import make_task
from bert_jax.training import multihost
from bert_jax.training.checkpoints import Checkpoints
from configs import finetune
from tests import folder_bucket


def agree(folder):
    """Call everything that hosts do together."""
    host = jax.process_index()
    time.sleep(host)
    multihost.barrier()
    assert multihost.run_on_host0(lambda: [host, 'x']) == [0, 'x']
    multihost.check_same('value', lambda: 'the same')
    mesh = jax.make_mesh((4,), ('fsdp',), (AxisType.Auto,))
    split, whole = NamedSharding(mesh, PartitionSpec('fsdp')), NamedSharding(mesh, PartitionSpec())
    shardings = {'split': split, 'whole': whole, 'step': whole}
    arrays = {name: jax.device_put(value, shardings[name]) for name, value in values().items()}
    with jax.set_mesh(mesh):
        assert int(multihost.largest(5 * host)) == 5
    np.testing.assert_array_equal(multihost.fetch(arrays)['split'], values()['split'])
    bucket._file_system = lambda scheme: folder_bucket.Buckets(folder)
    for directory in (os.path.join(folder, 'disk'), 'gs://bucket/run'):
        save_and_restore(directory, arrays)
    time.sleep(2 * (1 - host))  # host 0 is the last to leave


def values():
    """The state that `agree` saves: an array split over the hosts, one on both, and a number."""
    array = np.random.default_rng(0).random((512, 8), np.float32)
    return {'split': array, 'whole': array + 1, 'step': np.int32(7)}


def save_and_restore(directory, arrays):
    """Save arrays several times, replace one checkpoint, and restore onto other meshes."""
    made = Checkpoints.open(directory, 1)
    for step in (1, 2, 2):
        made.save(step, arrays, {'step': step})
    made.replace_metadata(2, {'step': 3})
    for shape in ((4, 1), (1, 4), (2, 2)):
        mesh = jax.make_mesh(shape, ('fsdp', 'tensor'), (AxisType.Auto,) * 2)
        target = {
            name: jax.ShapeDtypeStruct(
                array.shape,
                array.dtype,
                sharding=NamedSharding(mesh, PartitionSpec(*('fsdp', 'tensor')[: array.ndim])),
            )
            for name, array in arrays.items()
        }
        restored = made.restore(target)
        assert (restored.step, restored.metadata) == (2, {'step': 3})
        for name, value in values().items():
            for shard in restored.state[name].addressable_shards:
                np.testing.assert_array_equal(shard.data, value[shard.index])
    made.close()


def user_error_on_host_0(folder):
    """Host 0 fails while host 1 waits in a collective for it."""
    if jax.process_index() == 0:
        time.sleep(1)
        raise UserError('the disk is full')
    with jax.set_mesh(jax.make_mesh((4,), ('data',), (AxisType.Auto,))):
        int(multihost.largest(1))


def exception_on_host_1(folder):
    """Host 1 fails while host 0 works and host 1 would wait for it."""
    if jax.process_index() == 1:
        raise ZeroDivisionError('a bug')
    multihost.run_on_host0(lambda: time.sleep(60))


def upload_fails_on_host_1(folder):
    """Host 1 may not write to the bucket; host 0 waits for its shards in the background."""
    files = folder_bucket.Buckets(folder)
    bucket._file_system = lambda scheme: files
    if jax.process_index() == 1:
        files.put_file = refuse
    made = Checkpoints.open('gs://bucket/run', 1)
    mesh = jax.make_mesh((4,), ('data',), (AxisType.Auto,))
    split = NamedSharding(mesh, PartitionSpec('data'))
    made.save(1, {'x': jax.device_put(np.ones(4, np.float32), split)}, {})
    made.wait()


def refuse(*_):
    raise PermissionError(13, 'Permission denied')


def different_values(folder):
    multihost.check_same('config', lambda: f'that of {jax.process_index()}')


def different_labeled_data(folder):
    """The same relative path, but on storage that the hosts do not share."""
    os.chdir(os.path.join(folder, str(jax.process_index())))
    config = finetune.get_config('classification')
    config.data.train = ('train.tsv',)
    make_task(config)


def host_0_is_killed(folder):
    """Host 0 dies while the only thread of Python on host 1 that gets a turn sorts."""
    numbers = [7919 * i % 1000003 for i in range(4_000_000)]
    multihost.barrier()
    if jax.process_index() == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    while True:
        sorted(numbers)


def host_1_hangs(folder):
    """Host 1 is suspended, and host 0 waits for its result of hours of work."""
    multihost.barrier()
    if jax.process_index() == 1:
        os.kill(os.getpid(), signal.SIGSTOP)
    multihost.barrier()


@exit_cleanly
def main(scenario, port, process_id, folder):
    # So that the tests need not wait: the service finds out within 1.5 × the timeout.
    multihost.HEARTBEAT_TIMEOUT = 8
    multihost.JOIN_TIMEOUT = 60 if scenario != 'missing' else 3
    with multihost.joined(f'localhost:{port}', 2, int(process_id)):
        globals()[scenario](folder)


if __name__ == '__main__':
    main(*sys.argv[1:])
