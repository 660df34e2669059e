"""TensorFlow and TensorFlow Datasets, imported on first use and kept off the accelerators.

TensorFlow is optional: it has no release for the newest Python. Training reads its batches with or
without it (training/batches.py); whatever else uses TensorFlow calls `require` first.
"""

import functools
import importlib.util
import json
import os
import re
import sys
from collections.abc import Iterator
from typing import Any

from bert_jax import limits
from bert_jax.errors import UserError

_FEATURES = 'features.json'  # names the classes of a dataset's features, whose modules TFDS imports
_TRUSTED_MODULES = 'tensorflow_datasets.core.features.'
_FIRST_WITHOUT = (3, 14)  # Python for which TensorFlow has no release; pyproject.toml leaves it out


def is_installed(package: str = 'tensorflow') -> bool:
    """Whether a package is installed; it is not imported."""
    spec = importlib.util.find_spec(package)
    # A folder that only has the name, such as ./tensorflow, has no file of its own.
    return spec is not None and spec.origin is not None


def require(what: str, *, datasets: bool = False) -> None:
    """Check that TensorFlow, and with `datasets` TensorFlow Datasets, is installed.

    Args:
        what: What needs it, for the error message.
        datasets: Whether TensorFlow Datasets is needed, too.

    Raises:
        UserError: A package is not installed.
    """
    packages = {'tensorflow': 'TensorFlow'}
    if datasets:
        packages['tensorflow_datasets'] = 'TensorFlow Datasets'
    missing = [package for package in packages if not is_installed(package)]
    if not missing:
        return
    advice = f'pip install {" ".join(missing).replace("_", "-")}'
    if 'tensorflow' in missing and sys.version_info >= _FIRST_WITHOUT:
        here, last = sys.version_info[1], _FIRST_WITHOUT[1] - 1
        advice = f'this is Python 3.{here}, use Python 3.{last}, the newest that TensorFlow is for'
    names = ' and '.join(packages[package] for package in missing)
    raise UserError(f'{what} needs {names}: {advice}')


@functools.cache
def tensorflow() -> Any:
    """Return the `tensorflow` module with its log silenced and its accelerators hidden.

    `require` comes before the first use of what needs it.
    """
    os.environ.setdefault('TF_CPP_MIN_LOG_LEVEL', '3')
    os.environ.setdefault('TF_ENABLE_ONEDNN_OPTS', '0')
    # Keeps TensorFlow from importing Keras, which takes 1.6 s of CPU time and 100 MB of memory.
    os.environ.setdefault('TF_USE_LEGACY_KERAS', '1')
    import tensorflow as tf

    for device_type in ('GPU', 'TPU'):  # TensorFlow would reserve the memory that JAX needs
        tf.config.set_visible_devices([], device_type)
    return tf


@functools.cache
def tensorflow_datasets() -> Any:
    """Return the `tensorflow_datasets` module."""
    tensorflow()
    import tensorflow_datasets as tfds

    return tfds


def open_tfds_builder(name: str, data_dir: str, download: bool, origin: str, advice: str) -> Any:
    """Open a dataset of TensorFlow Datasets, preferably a copy that is already on disk.

    Searches `data_dir`, $TFDS_DATA_DIR and ~/tensorflow_datasets, in this order.

    Args:
        name: 'NAME', 'NAME/CONFIG' or 'NAME/CONFIG:VERSION'; the newest version by default.
        data_dir: Folder to search first, '' for none.
        download: Whether to download a dataset that is not on disk.
        origin: The setting that names the dataset, for error messages.
        advice: What to do if the dataset is not on disk, for error messages.

    Returns:
        A `tfds.core.DatasetBuilder`.

    Raises:
        UserError: TensorFlow or TensorFlow Datasets is not installed; the dataset is not on disk,
            and `download` is false or fails; or the dataset has features of other packages.
    """
    require(origin, datasets=True)
    builder = _find_builder(name, data_dir)
    if builder:
        return builder
    if not download:
        searched = ', '.join(_search_path(data_dir))
        raise UserError(f'{origin}: {name} was not found in {searched}; {advice}')
    tfds = tensorflow_datasets()
    if data_dir:
        dataset = os.path.join(
            os.path.expanduser(data_dir), name.partition('/')[0].partition(':')[0]
        )
        for levels in ('', '*', '*/*'):
            _check_features(os.path.join(dataset, levels))
    try:
        builder = tfds.builder(name, data_dir=data_dir or None)
        builder.download_and_prepare()
    except Exception as error:  # TFDS raises exceptions of many classes
        reason = str(error).strip().partition('\n')[0]
        raise UserError(f'{origin}: cannot download {name}: {reason}') from error
    return builder


def _search_path(data_dir: str) -> list[str]:
    folders = [data_dir, os.environ.get('TFDS_DATA_DIR', ''), '~/tensorflow_datasets']
    return [os.path.expanduser(folder) for folder in folders if folder]


def _find_builder(name: str, data_dir: str) -> Any:
    """The builder of a dataset on disk, or None.

    `tfds.builder` is not used here: offline, it blocks for minutes before it fails.
    """
    name, _, version = name.partition(':')
    files = tensorflow().io.gfile
    for folder in _search_path(data_dir):
        pattern = os.path.join(folder, name, version or '*', 'dataset_info.json')
        versions = sorted(map(os.path.dirname, files.glob(pattern)), key=_version)
        if versions:
            _check_features(versions[-1])
            return tensorflow_datasets().builder_from_directory(versions[-1])
    return None


def _version(folder: str) -> list[int]:
    return [int(number) for number in re.findall(r'\d+', os.path.basename(folder))]


def _check_features(pattern: str) -> None:
    """Raise UserError if a dataset in these folders makes TFDS import modules of other packages."""
    files = tensorflow().io.gfile
    for path in files.glob(os.path.join(pattern, _FEATURES)):
        try:
            with files.GFile(path) as file:
                text = file.read(limits.SMALL_FILE + 1)
            if len(text) > limits.SMALL_FILE:
                raise UserError(f'{path} has more than {limits.SMALL_FILE:,} characters')
            names = list(_class_names(json.loads(text)))
        except (ValueError, RecursionError):
            raise UserError(f'{path} is not valid JSON: download the dataset again') from None
        for name in names:
            if '.' in name and not name.startswith(_TRUSTED_MODULES):
                raise UserError(
                    f'{path} names the class {name!r}, and reading the dataset would run its '
                    f'module; only features of {_TRUSTED_MODULES.rstrip(".")} are read'
                )


def _class_names(value: Any) -> Iterator[str]:
    """Yield the class names in a features.json, whose parts may be JSON strings themselves."""
    if isinstance(value, list):
        for element in value:
            yield from _class_names(element)
    elif isinstance(value, dict):
        for key, element in value.items():
            if not isinstance(element, str):
                yield from _class_names(element)
            elif key in ('pythonClassName', 'python_class_name', 'type'):
                yield element
            elif key == 'json':
                yield from _class_names(json.loads(element))
