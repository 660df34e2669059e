"""TensorFlow Datasets that are on disk already, fetched only where that is asked for."""

import os
import re

from bert_jax.data import tensorflow_import
from bert_jax.errors import UserError


def open_builder(name: str, data_dir: str, download: bool, what: str, advice: str):
    """The TFDS builder of 'NAME', 'NAME/CONFIG' or 'NAME/CONFIG:VERSION'; without a version the
    newest one there.

    Looked for in `data_dir`, in $TFDS_DATA_DIR, in ~/tensorflow_datasets.
    Args:
        what: who asks, for the message. advice: what to do if it is not there.
    Raises:
        UserError: it is not on disk and must not, or cannot, be fetched.
    """
    builder = _find(name, data_dir)
    if builder:
        return builder
    if not download:
        raise UserError(f'{what}: {name} is in none of {", ".join(_folders(data_dir))}; {advice}')
    tfds = tensorflow_import.tensorflow_datasets()
    try:
        builder = tfds.builder(name, data_dir=data_dir or None)
        builder.download_and_prepare()
    except Exception as error:
        first = str(error).strip().partition('\n')[0]
        raise UserError(f'{what}: cannot download {name}: {first}') from error
    return builder


def _folders(data_dir: str) -> list[str]:
    named = [data_dir, os.environ.get('TFDS_DATA_DIR', ''), '~/tensorflow_datasets']
    return [os.path.expanduser(folder) for folder in named if folder]


def _find(name: str, data_dir: str):
    name, _, version = name.partition(':')
    files = tensorflow_import.tensorflow().io.gfile
    for folder in _folders(data_dir):
        pattern = os.path.join(folder, name, version or '*', 'dataset_info.json')
        found = sorted(map(os.path.dirname, files.glob(pattern)), key=_version)
        if found:
            return tensorflow_import.tensorflow_datasets().builder_from_directory(found[-1])
    return None


def _version(folder: str) -> list[int]:
    return [int(number) for number in re.findall(r'\d+', os.path.basename(folder))]
