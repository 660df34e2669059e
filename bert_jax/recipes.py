"""Makes the recipes of `configs/` available from any folder."""

import importlib.machinery
import importlib.util
import os
import pathlib
import re
import sys
from collections.abc import Iterator

from ml_collections import ConfigDict

from bert_jax.config_keys import flatten
from bert_jax.errors import UserError, nearest
from bert_jax.storage import wrong_paths

PACKAGE = pathlib.Path(__file__).parent
# An error of ml_collections for a key that a locked config does not have.
_LOCKED = re.compile('Key "([^"]*)" does not exist and cannot be added since the config is locked')
_UNLOCK = 'write the line in a block `with config.unlocked():`'
FOLDERS = (PACKAGE / 'configs', PACKAGE.parent / 'configs')  # of an installed wheel, of a checkout


def register() -> None:
    """Make `from configs import base` work from any folder."""
    if 'configs' not in sys.modules:
        location = folder()
        spec = importlib.util.spec_from_file_location(
            'configs', location / '__init__.py', submodule_search_locations=[str(location)]
        )
        assert spec is not None
        assert spec.loader is not None
        sys.modules['configs'] = module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)


def base() -> ConfigDict:
    """Return the config of configs/base.py, without importing the package `configs`."""
    return _config_of(str(folder() / 'base.py'))


def load(file: str) -> ConfigDict:
    """Return the config of a file, 'PATH' or 'PATH:PARAMETER', locked.

    The file may also enter classes of its own in the tables of objectives, encoders, ….

    Raises:
        UserError: the file does not exist or does not make a config.
    """
    register()
    return _config_of(file)


def _config_of(file: str) -> ConfigDict:
    """Run a config file and return its config; see `load`."""
    path, colon, parameter = file.partition(':')
    if not pathlib.Path(path).is_file():
        names = sorted(name.stem for name in folder().glob('*.py') if _is_recipe(name))
        close = nearest(pathlib.Path(path).stem, names)
        similar = wrong_paths.suggest(path) or f'; known: {", ".join(names)}'
        advice = f'; did you mean configs/{close}.py?' if close else similar
        raise UserError(f'config file {path!r} does not exist{advice}')
    spec = importlib.util.spec_from_loader(
        'bert_jax_config', importlib.machinery.SourceFileLoader('bert_jax_config', path)
    )
    assert spec is not None
    assert spec.loader is not None
    # Classes of the file are found by the name of their module, such as `implementation`s.
    sys.modules[spec.name] = module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
        return module.get_config(*([parameter] if colon else [])).lock()
    except UserError:
        raise
    except Exception as error:  # code of the user: anything may go wrong
        raise UserError(f'config file {file!r}: {_describe(error)}') from error


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
    return message


def all_configs() -> Iterator[ConfigDict]:
    """Yield the config of every recipe, once for each of its parameters."""
    register()
    for path in sorted(folder().glob('*.py')):
        module = importlib.import_module(f'configs.{path.stem}')
        if hasattr(module, 'PARAMETERS'):
            yield from map(module.get_config, module.PARAMETERS)
        elif hasattr(module, 'get_config'):
            yield module.get_config()


def own_keys(config: ConfigDict, file: str) -> set[str]:
    """Return the keys with a value that no recipe has, for a config file outside configs/."""
    if pathlib.Path(file.partition(':')[0]).resolve().parent == folder().resolve():
        return set()
    known = list(map(flatten, all_configs()))
    return {
        key
        for key, value in flatten(config).items()
        if all(recipe.get(key) != value for recipe in known)
    }


def _is_recipe(path: pathlib.Path) -> bool:
    return 'def get_config(' in path.read_text(encoding='utf-8')


def folder() -> pathlib.Path:
    """Return the folder of the recipes, of an installed wheel or of a checkout."""
    return next(location for location in FOLDERS if (location / 'base.py').exists())


def locate(file: str) -> str:
    """Resolve configs/NAME.py[:PARAMETER] to the recipe, unless `file` exists or has no recipe."""
    path, colon, parameter = file.partition(':')
    recipe = folder() / pathlib.Path(path).name
    is_recipe = pathlib.Path(path).parent.name == 'configs' and recipe.exists()
    return f'{recipe}{colon}{parameter}' if is_recipe and not os.path.exists(path) else file
