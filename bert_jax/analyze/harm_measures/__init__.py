"""The measures of the analysis `harms`; each is a file here and a line in `MEASURES`.

No data sets are shipped: every measure reads files that the user provides.
"""

from typing import Any

from bert_jax.lazy_table import LazyTable

# Name → the function of the flags and the model to results; imported when the measure is used.
MEASURES: LazyTable[Any] = LazyTable(
    {
        name: f'bert_jax.analyze.harm_measures.{name}:run'
        for name in (
            'crows_pairs',
            'stereoset',
            'winobias',
            'log_odds',
            'exposure',
            'membership',
            'extraction',
            'toxicity',
            'completions',
        )
    }
)
