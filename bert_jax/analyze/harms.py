"""Harms: stereotypes, memorized text, harmful texts; each measure is a file in harm_measures/."""

import dataclasses

from bert_jax.analyze import harm_measures
from bert_jax.analyze.base import AnalyzedModel, Results
from bert_jax.analyze.harm_measures.base import HarmFlags
from bert_jax.errors import UserError


@dataclasses.dataclass(frozen=True, kw_only=True)
class Harms(HarmFlags):
    """Preferences for stereotypes, memorization of the training text, and harmful texts."""

    description = (
        'Stereotypes that a model prefers, training text that it memorized, and harmful texts that '
        'it writes'
    )
    limits = (
        'No result shows that a model is harmless: a measure covers only the groups, the language '
        'and the sentences of its data.',
        'Preferences of a masked language model do not predict the behavior of systems that use '
        'the model.',
    )

    def check(self) -> None:
        """Raise UserError for a missing classifier or class."""
        if self.measure == 'toxicity' and not self.classifier:
            raise UserError('toxicity needs --classifier, a model that finds harmful texts')
        if self.classifier and not self.harmful:
            raise UserError('--classifier needs --harmful, the name of its class that is harmful')

    def run(self, model: AnalyzedModel) -> Results:
        """See `Analysis.run`."""
        writes = self.measure in ('extraction', 'toxicity', 'completions')
        model.predictor.require('generate' if writes else 'pseudo_likelihood')
        model.stage(self.measure)
        results: Results = harm_measures.MEASURES[self.measure](self, model)
        return results
