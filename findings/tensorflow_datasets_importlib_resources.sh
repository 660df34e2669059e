#!/usr/bin/env bash
# tensorflow-datasets imports a package on every Python, and declares it for Python below 3.9 only.
#
# Version:  tensorflow-datasets 4.9.10
# Behavior: core/dataset_builder.py imports importlib_resources without a condition. On a newer Python the package is not
#           installed with it, so `import tensorflow_datasets` works only if something else needs importlib_resources.
# Output:   the importing file, and the only requirement: importlib_resources; python_version < "3.9"
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m pip install --quiet --no-deps --target "$folder" tensorflow-datasets==4.9.10
python3 - "$folder" <<'PY'
import importlib.metadata
import pathlib
import re
import sys

folder = pathlib.Path(sys.argv[1])
(distribution,) = importlib.metadata.distributions(path=[str(folder)])
always = [line for line in distribution.requires if 'extra ==' not in line]
importing = [
    str(path.relative_to(folder))
    for path in (folder / 'tensorflow_datasets').rglob('*.py')
    if re.search(r'^\s*(import|from) importlib_resources', path.read_text(), re.MULTILINE)
]
print('imported in', importing, [line for line in always if 'importlib' in line])
assert importing
assert [line for line in always if line.startswith('importlib_resources')] == [
    'importlib_resources; python_version < "3.9"'
]
PY
