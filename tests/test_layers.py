"""Imports run one way: no module imports from a higher layer, and no modules import each other."""

import ast
import functools
import graphlib
import pathlib

ROOT = pathlib.Path(__file__).parents[1]
# From the lowest to the highest; a package may import itself and packages of lower layers.
LAYERS = (
    ('errors', 'figures', 'lazy_table', 'limits', 'markdown', 'tree_paths', 'types'),
    ('averages', 'flag_parser', 'progress', 'sampling', 'tensorflow_import'),
    ('storage',),
    ('config_values', 'files'),
    ('models', 'recipes'),
    ('key_meanings', 'objectives'),
    ('text',),
    ('labels', 'tokenizers'),
    ('corpus', 'metrics'),
    ('examples',),
    ('training',),
    ('reports',),
    ('problems',),
    ('interop',),
    ('tasks',),
    ('inference',),
    ('analyze', 'export_formats', 'page'),
    ('cli',),
    ('__init__', 'evaluate', 'export', 'main', 'predict', 'prepare'),
    ('completion',),
)


@functools.cache
def imports() -> dict[str, set[str]]:
    """Each module of bert_jax → the modules of bert_jax that its code imports at any time.

    Imports for annotations alone do not count, nor does the package itself, which every import of a
    module imports first.
    """
    paths = {name_of(path): path for path in sorted((ROOT / 'bert_jax').rglob('*.py'))}
    found = {}
    for module, path in paths.items():
        tree = ast.parse(path.read_text(encoding='utf-8'))
        names = [name for node in walk(tree) for name in imported_names(node)]
        own = {longest_module(name, paths) for name in names if name.startswith('bert_jax.')}
        found[module] = own - {module, 'bert_jax'}
    return found


def walk(node: ast.AST):
    """The nodes of a tree outside `if TYPE_CHECKING`."""
    if isinstance(node, ast.If) and 'TYPE_CHECKING' in ast.unparse(node.test):
        return
    yield node
    for child in ast.iter_child_nodes(node):
        yield from walk(child)


def name_of(path: pathlib.Path) -> str:
    return '.'.join(path.relative_to(ROOT).with_suffix('').parts).removesuffix('.__init__')


def imported_names(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom):
        assert node.level == 0, 'imports are absolute'
        return [f'{node.module}.{alias.name}' for alias in node.names]
    return []


def longest_module(name: str, modules) -> str:
    """The module of an imported name: `name` itself, or what remains without its last part."""
    return name if name in modules else name.rpartition('.')[0]


def package_of(module: str) -> str:
    return module.split('.')[1] if '.' in module else '__init__'


def layer_of(module: str) -> int:
    layers = [number for number, names in enumerate(LAYERS) if package_of(module) in names]
    assert len(layers) == 1, f'{module} belongs to {len(layers)} layers'
    return layers[0]


def test_modules_import_from_lower_layers_and_their_own_package_only():
    assert len(imports()) > 100
    upward = [
        f'{module} imports {other}'
        for module, others in imports().items()
        for other in others
        if package_of(module) != package_of(other) and layer_of(other) >= layer_of(module)
    ]
    assert not upward


def test_no_modules_import_each_other():
    graphlib.TopologicalSorter(imports()).prepare()  # raises CycleError
