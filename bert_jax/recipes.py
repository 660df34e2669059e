"""Makes the recipes of `configs/` available from any folder."""

import importlib.machinery
import importlib.util
import pathlib
import sys
from collections.abc import Iterator

from ml_collections import ConfigDict

from bert_jax.config_values import flatten
from bert_jax.errors import UserError

PACKAGE = pathlib.Path(__file__).parent
FOLDERS = (PACKAGE / 'configs', PACKAGE.parent / 'configs')  # of an installed wheel, of a checkout


def register() -> pathlib.Path:
    """Make `from configs import base` work from any folder; return the folder of the recipes."""
    folder = _folder()
    if 'configs' not in sys.modules:
        spec = importlib.util.spec_from_file_location(
            'configs', folder / '__init__.py', submodule_search_locations=[str(folder)]
        )
        assert spec is not None
        assert spec.loader is not None
        sys.modules['configs'] = module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    return folder


def base() -> ConfigDict:
    """Return `configs/base.py`, the defaults of all keys, without importing a package `configs`."""
    return load(str(_folder() / 'base.py'))


def load(file: str) -> ConfigDict:
    """Return the config of a file, 'PATH' or 'PATH:PARAMETER', locked.

    Raises:
      UserError: the file does not exist or does not make a config.
    """
    path, colon, parameter = file.partition(':')
    if not pathlib.Path(path).is_file():
        raise UserError(f'config file {path!r} does not exist')
    spec = importlib.util.spec_from_loader(
        'bert_jax_config', importlib.machinery.SourceFileLoader('bert_jax_config', path)
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
        return module.get_config(*([parameter] if colon else [])).lock()
    except UserError:
        raise
    except Exception as error:  # whatever goes wrong in a file of the user's own
        message = ' '.join(f'{type(error).__name__}: {error}'.split())
        raise UserError(f'config file {file!r}: {message}') from error


def all_configs() -> Iterator[ConfigDict]:
    """Yield the config of every recipe, once for each of its parameters."""
    folder = register()
    for path in sorted(folder.glob('*.py')):
        module = importlib.import_module(f'configs.{path.stem}')
        if hasattr(module, 'PARAMETERS'):
            yield from map(module.get_config, module.PARAMETERS)
        elif hasattr(module, 'get_config'):
            yield module.get_config()


def own_keys(config: ConfigDict, file: str) -> set[str]:
    """Return the keys to which a config file outside configs/ gives a value that no recipe has."""
    if pathlib.Path(file.partition(':')[0]).resolve().parent == _folder().resolve():
        return set()
    known = [dict(flatten(recipe)) for recipe in all_configs()]
    return {
        key for key, value in flatten(config) if all(recipe.get(key) != value for recipe in known)
    }


def _folder() -> pathlib.Path:
    return next(folder for folder in FOLDERS if (folder / 'base.py').exists())


def locate(argument: str, folder: pathlib.Path) -> str:
    """Point `--config=configs/NAME.py[:PARAMETER]` to the recipe in `folder`.

    Other arguments, and files that exist relative to the working directory, stay as they are.
    """
    flag, _, value = argument.partition('=')
    path, colon, parameter = value.partition(':')
    recipe = folder / pathlib.Path(path).name
    is_recipe = flag == '--config' and pathlib.Path(path).parent.name == 'configs'
    if not is_recipe or pathlib.Path(path).exists() or not recipe.exists():
        return argument
    return f'{flag}={recipe}{colon}{parameter}'
