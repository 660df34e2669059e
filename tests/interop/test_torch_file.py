"""The unpickler of PyTorch files makes its own values, and changes nothing else."""

import io
import pickle
import random
import struct
import zipfile
from collections import OrderedDict

import ml_dtypes
import numpy as np
import pytest
import torch

from bert_jax.errors import UserError
from bert_jax.interop import torch_file
from tests.fuzz import process_state

NAMES = [('torch', name) for name in torch_file._DTYPES] + list(torch_file._FUNCTIONS)


def archive(path, code: bytes, storages: dict[str, bytes] | None = None):
    """Write a file of torch.save with this pickle."""
    with zipfile.ZipFile(path, 'w') as file:
        file.writestr('a/data.pkl', b'\x80\x02' + code + b'.')
        for name, data in (storages or {}).items():
            file.writestr(f'a/data/{name}', data)
    return path


def name_code(module: str, name: str) -> bytes:
    return pickle.GLOBAL + f'{module}\n{name}\n'.encode()


def text(value: str) -> bytes:
    return pickle.BINUNICODE + struct.pack('<I', len(value)) + value.encode()


def refused(path) -> str:
    """Return the error of a file that is refused in one line and changes nothing."""
    before = process_state.fingerprint()
    with pytest.raises(UserError) as error:
        torch_file.read(path)
    assert process_state.fingerprint() == before
    assert '\n' not in str(error.value)
    return str(error.value)


@pytest.mark.parametrize(('module', 'name'), NAMES)
def test_names_stand_for_values_of_the_file_alone(module, name, tmp_path):
    """No state can be set on what a name stands for, so not on a type of arrays either."""
    found = torch_file._Unpickler.find_class(None, module, name)
    assert not isinstance(found, type | np.dtype)
    code = name_code(module, name) + pickle.EMPTY_DICT + pickle.BUILD
    assert 'sets the state' in refused(archive(tmp_path / 'a.bin', code))


@pytest.mark.parametrize('protocol', [2, 3, 4, 5])
@pytest.mark.parametrize('is_zip', [True, False])
def test_files_of_every_protocol_are_read(protocol, is_zip, tmp_path):
    # Its state dictionaries carry `_metadata`, set by the opcode BUILD.
    state = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.LayerNorm(2)).state_dict()
    state |= {'half': torch.ones(3, dtype=torch.bfloat16), 'no rows': torch.zeros(0, 5)}
    state['parameter'] = torch.nn.Parameter(torch.arange(6.0).view(2, 3).T)
    assert isinstance(state, OrderedDict)
    torch.save(
        state,
        tmp_path / 'a.bin',
        pickle_protocol=protocol,
        _use_new_zipfile_serialization=is_zip,
    )
    found = torch_file.read(tmp_path / 'a.bin')
    assert list(found) == list(state)
    assert found['half'].dtype == ml_dtypes.bfloat16
    for name, tensor in state.items():
        np.testing.assert_array_equal(found[name].astype('f4'), tensor.detach().float().numpy())


@pytest.mark.parametrize('place', ['key', 'tag', 'storage key', 'argument', 'name', 'whole'])
def test_made_values_are_neither_hashed_nor_shown(place, tmp_path):
    """Tuples that are nested deeper than this one would take exponential time."""
    value = b'K\x01' + b''.join(b'q%ch%c\x86' % (number, number) for number in range(3))
    storage = name_code('torch', 'FloatStorage')
    end = text('cpu') + b'K\x01t' + pickle.BINPERSID
    code = {
        'key': b'}' + value + b'K\x01s',
        'tag': b'(' + value + storage + text('0') + end,
        'storage key': b'(' + text('storage') + storage + value + end,
        'argument': name_code('torch._utils', '_rebuild_tensor_v2') + value + b'R',
        'name': b'}' + text('a') + value + b's',
        'whole': value,
    }[place]
    assert '(1, 1)' not in refused(archive(tmp_path / 'a.bin', code, {'0': bytes(4)}))


@pytest.mark.parametrize(
    ('code', 'message'),
    [
        (pickle.BINUNICODE + struct.pack('<I', 2**31), 'a value has 2,147,483,648 bytes'),
        (pickle.SHORT_BINUNICODE + b'\xffa', 'a value has 255 bytes'),
        (pickle.FRAME + struct.pack('<Q', 2**40), 'a value has 1,099,511,627,776 bytes'),
        (pickle.LONG1 + b'\x11' + bytes(17), 'a number has 17 bytes'),
        (pickle.LONG4 + struct.pack('<i', 2), 'the opcode 0x8b'),
        (pickle.INT + b'9\n', 'the opcode 0x49'),
        (b']K\x00K\x01s', 'not of the type'),  # an item of a list
        (b'}K\x01a', 'not of the type'),  # a dictionary is no list
        (b'K\x01)R', 'not a function'),
        (b'K\x012', 'the opcode 0x32'),
        (text('abc') + b'}b', 'sets the state'),
        (name_code('numpy', 'dtype') + text('f4') + b'\x85R', 'asks to run numpy.dtype'),
        (pickle.EXT1 + b'\x01', 'the opcode 0x82'),
    ],
)
def test_other_opcodes_and_claims_are_refused(code, message, tmp_path):
    assert message in refused(archive(tmp_path / 'a.bin', code))


def test_programs_of_known_opcodes_change_nothing(tmp_path):
    """Seeded sequences of what such a file may contain, in any order."""
    random_ = random.Random(0)
    values = [b'K\x01', b'N', b')', b'}', b']', text('a'), b'(', b'J\xff\xff\xff\xff']
    values += [name_code(module, name) for module, name in NAMES]
    changes = [b'R', b'b', b'\x81', b's', b'a', b'u', b'e', b't', b'\x85', b'\x86', b'\x87', b'Q']
    changes += [b'q\x00', b'h\x00', b'0', b'1', b'2', b'd', b'l', b'o']
    number = 0
    for _ in range(400):
        program = [random_.choice(values + changes) for _ in range(random_.randint(2, 30))]
        path = archive(tmp_path / 'a.bin', b''.join(program), {'a': bytes(4)})
        before = process_state.fingerprint()
        try:
            torch_file.read(path)
        except UserError:
            number += 1
        assert process_state.fingerprint() == before, program
    assert number > 300


def test_options_of_fairseq_are_plain_values(tmp_path):
    state = {'a': torch.ones(2)}
    buffer = io.BytesIO()
    torch.save({'args': {'model': {'x': 1, 'y': (1,), 'z': 'b'}}, 'model': state}, buffer)
    (tmp_path / 'model.pt').write_bytes(buffer.getvalue())
    options, weights = torch_file.read_fairseq(tmp_path / 'model.pt')
    assert options == {'x': 1, 'z': 'b'}
    assert list(weights) == ['a']
