"""Imports run one way: no module imports from a higher layer, and no modules import each other.

Imports for annotations count, and so do names 'module:name' that are imported when used.
"""

import ast
import functools
import graphlib
import pathlib
import re

ROOT = pathlib.Path(__file__).parents[1]
# From the lowest to the highest; a package may import itself and packages of lower layers.
LAYERS = (
    ('errors', 'figures', 'lazy_table', 'limits', 'markdown', 'tree_paths', 'types'),
    ('averages', 'progress', 'rounding', 'sampling', 'tensorflow_import', 'xla_flags'),
    ('storage',),
    ('config_keys', 'files', 'schema'),
    ('flag_parser',),
    ('models', 'recipes'),
    ('objectives',),
    ('text',),
    ('labels', 'tokenizers'),
    ('corpus', 'metrics'),
    ('examples',),
    ('loaded',),
    ('training',),
    ('reports',),
    ('problems',),
    ('interop',),
    ('inference',),
    ('answers', 'tasks'),
    ('cli', 'given_data'),
    ('evaluate', 'export', 'main', 'predict', 'prepare'),
    ('mteb_model', 'training_calls'),
    ('__init__', '__main__'),
    ('completion',),
    ('analyze', 'export_formats', 'page'),
)
LEAVES = LAYERS[-1]  # reached only by lazy names, 'module:name', of the modules below
HOLDERS = {
    'bert_jax.__main__',
    'bert_jax.completion',
    'bert_jax.export',
    'bert_jax.tasks.pretraining',
}
_LAZY_NAME = re.compile(r'(bert_jax(?:\.\w+)*):\w+')


@functools.cache
def trees() -> dict[str, ast.Module]:
    """Each module of bert_jax → its syntax tree."""
    paths = sorted((ROOT / 'bert_jax').rglob('*.py'))
    return {name_of(path): ast.parse(path.read_text(encoding='utf-8')) for path in paths}


@functools.cache
def imports() -> dict[str, set[str]]:
    """Each module of bert_jax → the modules of bert_jax that it imports at any time.

    Imports for annotations count. The package itself does not: every import of a module imports it.
    """
    found = {}
    for module, tree in trees().items():
        names = [name for node in ast.walk(tree) for name in imported_names(node)]
        own = {longest_module(name, trees()) for name in names if name.startswith('bert_jax.')}
        found[module] = own - {module, 'bert_jax'}
    return found


def lazy_names(module: str) -> set[str]:
    """The modules of the names 'module:name' in the code of a module."""
    strings = (node.value for node in ast.walk(trees()[module]) if isinstance(node, ast.Constant))
    matches = (_LAZY_NAME.fullmatch(text) for text in strings if isinstance(text, str))
    return {match[1] for match in matches if match} - {module}


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


def is_upward(module: str, other: str) -> bool:
    """Whether `other` is in another package of the same or a higher layer."""
    return package_of(module) != package_of(other) and layer_of(other) >= layer_of(module)


def test_modules_import_from_lower_layers_and_their_own_package_only():
    assert len(imports()) > 100
    upward = [
        f'{module} imports {other}'
        for module, others in imports().items()
        for other in others
        if is_upward(module, other)
    ]
    assert not upward


def test_lazy_names_reach_lower_layers_and_from_few_tables_the_leaves():
    upward = {
        (module, package_of(other))
        for module in trees()
        for other in lazy_names(module)
        if is_upward(module, other)
    }
    assert {module for module, _ in upward} == HOLDERS
    assert {package for _, package in upward} == set(LEAVES)


def test_lazy_names_exist():
    for module in trees():
        assert lazy_names(module) <= trees().keys()


def test_no_modules_import_each_other():
    graphlib.TopologicalSorter(imports()).prepare()  # raises CycleError


def test_only_storage_asks_whether_a_path_is_in_a_bucket():
    for path in sorted((ROOT / 'bert_jax').rglob('*.py')):
        module = name_of(path)
        if package_of(module) not in ('storage', 'files'):
            text = path.read_text(encoding='utf-8')
            assert 'is_in_bucket' not in text, module
            assert 'BucketPath' not in text, module
