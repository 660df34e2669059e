"""docs/published_models.md lists what is read."""

import pathlib
import re

from bert_jax.interop.families import FAMILIES

PAGE = pathlib.Path(__file__).parents[2] / 'docs/published_models.md'


def test_the_page_lists_every_model_type():
    rows = re.findall(r'^\| (`[^|]+) \|', PAGE.read_text(), re.MULTILINE)
    listed = [name for row in rows for name in re.findall('`([^`]+)`', row)]
    assert sorted(listed) == sorted(FAMILIES)
