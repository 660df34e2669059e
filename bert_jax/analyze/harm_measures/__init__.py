"""What the analysis `harms` can measure; each measure is a file and a line in `MEASURES`.

No data sets are shipped: every measure reads files that the user names.
"""

import importlib
from typing import TYPE_CHECKING

from bert_jax.errors import unknown

if TYPE_CHECKING:
    from bert_jax.analyze.harm_measures.base import Measure

# Name → module with a `MEASURE`, imported when it is used.
MEASURES = {
    name: f'bert_jax.analyze.harm_measures.{name}'
    for name in (
        'crows_pairs',
        'stereoset',
        'winobias',
        'log_odds',
        'exposure',
        'membership',
    )
}


def find(name: str) -> 'Measure':
    """Return the measure of this name. Raises UserError for an unknown one."""
    if name not in MEASURES:
        raise unknown('measure', name, MEASURES)
    measure: Measure = importlib.import_module(MEASURES[name]).MEASURE
    return measure
