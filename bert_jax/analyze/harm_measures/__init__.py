"""The measures of the analysis `harms`; each is a file here and a line in `MEASURES`.

No data sets are shipped: every measure reads files that the user provides.
"""

import importlib
from typing import TYPE_CHECKING

from bert_jax.errors import unknown

if TYPE_CHECKING:
    from bert_jax.analyze.harm_measures.base import Measure

# Name → module with a `MEASURE`; imported when the measure is used.
MEASURES = {
    name: f'bert_jax.analyze.harm_measures.{name}'
    for name in ('crows_pairs', 'stereoset', 'winobias', 'log_odds', 'exposure', 'membership')
}


def find(name: str) -> 'Measure':
    """Return a measure by name. Raises UserError if the name is unknown."""
    if name not in MEASURES:
        raise unknown('measure', name, MEASURES)
    measure: Measure = importlib.import_module(MEASURES[name]).MEASURE
    return measure
