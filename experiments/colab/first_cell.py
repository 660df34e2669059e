# Finds the checkout, or clones it, and installs the versions that it needs. In Colab, first choose
# a runtime: CPU, GPU or TPU.
import pathlib
import shlex
import subprocess
import sys

from IPython.display import Image, Markdown, display

repository = ''  # URL of the git repository; needed only where there is no checkout, as in Colab

here = pathlib.Path.cwd()
folders = [here / 'bert_jax', here, *here.parents]
checkout = next((folder for folder in folders if (folder / 'bert_jax/__init__.py').exists()), None)
if checkout is None:
    if not repository:
        raise RuntimeError(
            'there is no checkout here: set `repository` above, or open this notebook in a checkout'
        )
    subprocess.run(['git', 'clone', '--quiet', '--depth=1', repository, 'bert_jax'], check=True)
    checkout = here / 'bert_jax'
sys.path.insert(0, str(checkout))
from experiments.colab.runtime import prepare, run, table

prepare(checkout)
