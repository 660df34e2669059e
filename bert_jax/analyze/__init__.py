"""Analyses of a loaded model, each with JSON results, a Markdown report and figures.

An analysis is a file in this folder with a subclass of `base.Analysis`, and a line in `ANALYSES`;
`__main__.py` is the command line. Formulas that need only arrays are in `measures`.
"""

from typing import TYPE_CHECKING

from bert_jax.lazy_table import LazyTable

if TYPE_CHECKING:
    from bert_jax.analyze.base import Analysis

# Name → 'module:Class'; the module is imported when the analysis is used.
ANALYSES: 'LazyTable[type[Analysis]]' = LazyTable(
    {
        'heads': 'bert_jax.analyze.heads:Heads',
        'isotropy': 'bert_jax.analyze.isotropy:Isotropy',
        'pairs': 'bert_jax.analyze.pairs:MinimalPairs',
        'harms': 'bert_jax.analyze.harms:Harms',
        'picture': 'bert_jax.analyze.picture:Picture',
        'probe': 'bert_jax.analyze.probe:Probes',
        'retrieval': 'bert_jax.analyze.retrieval:Retrieval',
        'senses': 'bert_jax.analyze.senses:WordSenses',
        'similarity': 'bert_jax.analyze.similarity:Similarity',
        'vector_sizes': 'bert_jax.analyze.vector_sizes:VectorSizes',
        'sts': 'bert_jax.analyze.sts:SentenceSimilarity',
    }
)
