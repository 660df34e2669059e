"""Makes the recipes of `configs/` available from any folder."""

import functools
import importlib.machinery
import importlib.util
import os
import pathlib
import re
import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any

from ml_collections import ConfigDict

from bert_jax.config_keys import flatten
from bert_jax.errors import UserError, nearest

FOLDER = pathlib.Path(__file__).parents[1] / 'configs'  # of a checkout or of installed packages
# An error of ml_collections for a key that a locked config does not have.
_LOCKED = re.compile('Key "([^"]*)" does not exist and cannot be added since the config is locked')
_UNLOCK = 'write the line in a block `with config.unlocked():`'


def base() -> ConfigDict:
    """Return the config of configs/base.py."""
    return load(str(FOLDER / 'base.py'))


def load(file: str) -> ConfigDict:
    """Return the config of a file, 'PATH' or 'PATH:PARAMETER', locked.

    The file may also enter classes of its own in the tables of objectives, encoders, ….

    Raises:
        UserError: the file does not exist or does not make a config.
    """
    path, colon, parameter = file.partition(':')
    if not pathlib.Path(path).is_file():
        names = sorted(name.stem for name in FOLDER.glob('*.py') if _is_recipe(name))
        close = nearest(pathlib.Path(path).stem, names)
        from bert_jax.storage import wrong_paths  # only to say what is wrong

        similar = wrong_paths.suggest(path) or f'; known: {", ".join(names)}'
        advice = f'; did you mean configs/{close}.py?' if close else similar
        raise UserError(f'config file {path!r} does not exist{advice}')
    try:
        config: ConfigDict = _run(path).get_config(*([parameter] if colon else [])).lock()
        return config
    except UserError:
        raise
    except Exception as error:  # code of the user: anything may go wrong
        raise UserError(f'config file {file!r}: {_describe(error)}') from error


def _run(path: str) -> ModuleType:
    """Run a config file and return its module."""
    name = f'recipe_{pathlib.Path(path).stem}'
    loader = importlib.machinery.SourceFileLoader(name, path)
    spec = importlib.util.spec_from_loader(name, loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    # Classes of the file are found by the name of their module, such as `implementation`s.
    sys.modules[name] = module
    loader.exec_module(module)
    return module


def _describe(error: Exception) -> str:
    """Return the message of an error in a config file in one line."""
    message = ' '.join(f'{type(error).__name__}: {error}'.split())
    if match := _LOCKED.search(message):
        keys = {key.rpartition('.')[2] for config in all_configs() for key in flatten(config)}
        close = nearest(match[1], keys)
        advice = f'; did you mean {close}?' if close else ''
        return f'the recipe has no key {match[1]!r}{advice} (to add a key, {_UNLOCK})'
    if 'unlock it before' in message:
        return f'to delete a key, {_UNLOCK}'
    if 'from another FieldReference' in message:
        return 'a config is updated with the values of another one: write update(OTHER.to_dict())'
    if isinstance(error, ImportError) and str(error.name).partition('.')[0] == 'configs':
        return f'{message}; the recipes of bert_jax are in {FOLDER}: no other configs may hide them'
    return message


def all_configs() -> Iterator[ConfigDict]:
    """Yield the config of every recipe, once for each of its parameters."""
    for path in filter(_is_recipe, sorted(FOLDER.glob('*.py'))):
        recipe = _run(str(path))
        if hasattr(recipe, 'PARAMETERS'):
            yield from map(recipe.get_config, recipe.PARAMETERS)
        else:
            yield recipe.get_config()


def own_keys(config: ConfigDict, file: str = '') -> set[str]:
    """Return the keys with a value that no recipe of configs/ has.

    Args:
        config: The config.
        file: Its file; '' for a config made in Python. A file of configs/ sets no keys of its own.
    """
    if pathlib.Path(file.partition(':')[0]).resolve().parent == FOLDER.resolve():
        return set()
    known = _values_of_recipes()
    return {
        key
        for key, value in flatten(config).items()
        if all(recipe.get(key) != value for recipe in known)
    }


@functools.cache
def _values_of_recipes() -> list[dict[str, Any]]:
    return list(map(flatten, all_configs()))


def _is_recipe(path: pathlib.Path) -> bool:
    return 'def get_config(' in path.read_text(encoding='utf-8')


def locate(file: str) -> str:
    """Resolve configs/NAME.py[:PARAMETER] to the recipe, unless `file` exists or has no recipe."""
    path, colon, parameter = file.partition(':')
    recipe = FOLDER / pathlib.Path(path).name
    is_recipe = pathlib.Path(path).parent.name == 'configs' and recipe.exists()
    return f'{recipe}{colon}{parameter}' if is_recipe and not os.path.exists(path) else file
