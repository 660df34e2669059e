"""Harms: stereotypes and memorized text; each measure is a file in harm_measures/."""

import dataclasses

from bert_jax.analyze import harm_measures
from bert_jax.analyze.base import AnalyzedModel, Results
from bert_jax.analyze.harm_measures.base import HarmFlags


@dataclasses.dataclass(frozen=True, kw_only=True)
class Harms(HarmFlags):
    """Preferences for stereotypes, and memorization of the training text."""

    description = 'Stereotypes that a model prefers, and training text that it memorized'
    limits = (
        'No result shows that a model is harmless: a measure covers only the groups, the language '
        'and the sentences of its data.',
        'Preferences of a masked language model do not predict the behavior of systems that use '
        'the model.',
    )

    def run(self, model: AnalyzedModel) -> Results:
        """See `Analysis.run`."""
        model.predictor.require('pseudo_likelihood')
        model.stage(self.measure)
        results: Results = harm_measures.MEASURES[self.measure](self, model)
        return results
