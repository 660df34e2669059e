"""What the notebooks of this folder share: `prepare` the runtime, `run` a command, show a `table`.

Colab has older versions of jax, flax and numpy than the package needs, and its kernel has imported
numpy before the first cell runs. `prepare` therefore compares versions, not names, and asks for a
restart when modules in memory are not those that were installed.
"""

import importlib
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Iterator
from importlib import metadata

from IPython.display import Markdown, display
from packaging.requirements import Requirement  # every kernel has packaging

PIP = 'python -m pip --disable-pip-version-check'

imported: dict[str, str] = {}  # distribution → version in the memory of this kernel

# Modules that tell their version, so that an installation by hand before the first cell is noticed.
TELL_VERSION = ('jax', 'jaxlib', 'numpy', 'tensorflow')


class RestartNeeded(Exception):
    """The kernel holds modules of replaced versions. Shown as one line in a notebook."""

    def _render_traceback_(self) -> list[str]:
        return [str(self)]


def run(command: str) -> None:
    """Run a command and show what it prints.

    Raises:
        RuntimeError: the command failed, which stops the notebook.
    """
    words = [sys.executable if word == 'python' else word for word in shlex.split(command)]
    with subprocess.Popen(
        words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        for line in process.stdout:
            print(line, end='')
    if process.returncode:
        raise RuntimeError(f'the command ended with status {process.returncode}: {command}')


def table(records: list[dict]) -> None:
    """Show dictionaries with the same keys as the rows of a table."""
    rows = [records[0].keys(), ['---'] * len(records[0]), *(record.values() for record in records)]
    lines = (' | '.join(map(_cell, row)) for row in rows)
    display(Markdown('\n'.join(f'| {line} |' for line in lines)))


def _cell(value: object) -> str:
    return f'{value:.4g}' if isinstance(value, float) else str(value)


def prepare(checkout: pathlib.Path) -> None:
    """Make this kernel and the commands it runs use the checkout, with the versions that it needs.

    Raises:
        RestartNeeded: the kernel had imported a module of a version that was then replaced.
        RuntimeError: pip failed, versions are wrong after it, or jax does not find the accelerator.
    """
    extra = accelerator()
    wanted = requirements(checkout, extra)
    note_imports(wanted)
    if lacking := unmet(wanted):
        print('Installing into this runtime, for minutes:', '; '.join(lacking), flush=True)
        if 'tensorflow-cpu is missing' in lacking and distribution('tensorflow'):
            run(f'{PIP} uninstall --quiet --yes tensorflow')  # it has the same files
        install(checkout, extra)
        note_imports(wanted)
    if lacking := unmet(wanted):
        raise RuntimeError(f'still wrong after the installation: {"; ".join(lacking)}')
    if stale := [f'{name} {old}' for name, old in imported.items() if old != version(name)]:
        raise RestartNeeded(
            'Restart the session (in Colab: Runtime, Restart session), then run all cells: '
            f'it had imported {", ".join(sorted(stale))}, and other versions are installed now.'
        )
    paths = os.environ.get('PYTHONPATH', '').split(os.pathsep)
    if str(checkout) not in paths:
        os.environ['PYTHONPATH'] = os.pathsep.join(filter(None, [str(checkout), *paths]))
    if extra:
        check_backend('tpu' if extra == 'tpu' else 'gpu')


def accelerator(devices: pathlib.Path = pathlib.Path('/dev')) -> str:
    """Return the extra of the package for this hardware: '', 'cuda12', 'cuda13' or 'tpu'."""
    if os.environ.get('JAX_PLATFORMS') == 'cpu':
        return ''
    if shutil.which('nvidia-smi'):
        # jax takes one CUDA plugin: the kind that is here, else the one that more drivers run.
        return 'cuda13' if distribution('jax-cuda13-plugin') else 'cuda12'
    is_tpu = any((devices / name).exists() for name in ('accel0', 'vfio/0'))
    return 'tpu' if is_tpu else ''


def requirements(checkout: pathlib.Path, extra: str) -> list[Requirement]:
    """Return the requirements of the package and of one of its extras."""
    project = tomllib.loads((checkout / 'pyproject.toml').read_text())['project']
    extras = project['optional-dependencies']
    return [Requirement(line) for line in (*project['dependencies'], *extras.get(extra, ()))]


def distribution(name: str) -> metadata.Distribution | None:
    return next(iter(metadata.distributions(name=name)), None)


def version(name: str) -> str | None:
    found = distribution(name)
    return found.version if found else None


def closure(
    wanted: Iterable[Requirement],
) -> Iterator[tuple[Requirement, metadata.Distribution | None]]:
    """Yield what is wanted and all that this requires in turn, each with what is installed."""
    waiting = [(requirement, ('',)) for requirement in wanted]
    seen = set()
    while waiting:
        requirement, extras = waiting.pop(0)
        marker = requirement.marker
        if marker and not any(marker.evaluate({'extra': extra}) for extra in extras):
            continue
        key = (requirement.name, str(requirement.specifier), *sorted(requirement.extras))
        if key in seen:
            continue
        seen.add(key)
        found = distribution(requirement.name)
        yield requirement, found
        lines = found.requires or () if found else ()
        waiting += [(Requirement(line), ('', *requirement.extras)) for line in lines]


def unmet(wanted: Iterable[Requirement]) -> list[str]:
    """Describe each requirement that this environment does not meet."""
    problems = []
    for requirement, found in closure(wanted):
        if found is None:
            problems.append(f'{requirement.name} is missing')
        elif not requirement.specifier.contains(found.version, prereleases=True):
            problems.append(f'{requirement.name} {found.version} is not {requirement.specifier}')
    return problems


def install(checkout: pathlib.Path, extra: str) -> None:
    """Install the package and the versions that its tests run with."""
    lock = shlex.quote(str(checkout / 'requirements.lock'))
    source = shlex.quote(f'{checkout}[{extra}]' if extra else str(checkout))
    run(f'{PIP} install --quiet --constraint {lock} --editable {source}')
    importlib.invalidate_caches()


def note_imports(wanted: Iterable[Requirement]) -> None:
    """Note the versions in memory, which stay there when pip replaces the files."""
    files = {getattr(module, '__file__', None) for module in [*sys.modules.values()]}
    for _, found in closure(wanted):
        if found and any(str(found.locate_file(file)) in files for file in found.files or ()):
            module = re.sub('[-_]cpu$', '', found.name)
            told = sys.modules[module].__version__ if module in TELL_VERSION else found.version
            imported.setdefault(found.name, told)


def check_backend(expected: str) -> None:
    """Check in a process of its own that jax computes on the accelerator: a TPU serves only one."""
    code = 'import jax; print(jax.default_backend())'
    done = subprocess.run([sys.executable, '-c', code], capture_output=True, text=True, check=False)
    if done.stdout.strip() != expected:
        raise RuntimeError(
            f'this runtime has a {expected.upper()}, but jax does not use it; to compute on the '
            f'CPU, set the environment variable JAX_PLATFORMS=cpu. {done.stderr.strip()[-2000:]}'
        )
