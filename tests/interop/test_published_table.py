"""docs/published_models.md lists what is read."""

import pathlib
import re

from bert_jax.interop.families import _OTHER_NAMES, FAMILIES

PAGE = pathlib.Path(__file__).parents[2] / 'docs/published_models.md'


def test_the_page_lists_every_model_type():
    written, others = PAGE.read_text().split('written as another type')
    for part, known in ((written, {*FAMILIES}), (others, {*_OTHER_NAMES, 'bert'})):
        rows = re.findall(r'^\| (`[^|]+) \|', part, re.MULTILINE)
        listed = {name for row in rows for name in re.findall('`([^`]+)`', row)}
        assert known <= listed
        assert part is others or listed == known
