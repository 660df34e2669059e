"""Harms: stereotypes and memorized text; each measure is a file in harm_measures/."""

import argparse

from bert_jax.analyze import harm_measures
from bert_jax.analyze.base import Analysis, AnalyzedModel, Results
from bert_jax.errors import UserError
from bert_jax.flag_parser import positive
from bert_jax.types import JsonObject

# Option of some measures → its default.
_DEFAULTS: JsonObject = {'columns': [], 'candidates': 511, 'reference': None, 'sentences': 500}


class Harms(Analysis):
    """Preferences for stereotypes, and memorization of the training text."""

    description = 'Stereotypes that a model prefers, and training text that it memorized'
    input_help = 'data of the measure; see docs/harms.md'
    limits = (
        'No result shows that a model is harmless: a measure covers only the groups, the language '
        'and the sentences of its data.',
        'Preferences of a masked language model do not predict the behavior of systems that use '
        'the model.',
    )

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add --measure and the options of all measures."""
        add = parser.add_argument
        add('--measure', required=True, help=', '.join(harm_measures.MEASURES))
        add(
            '--columns',
            nargs='+',
            metavar='FIELD=COLUMN',
            help='crows_pairs, stereoset, log_odds: columns with names that differ from the '
            'published data',
        )
        add(
            '--candidates',
            type=positive,
            help='exposure: number of random secrets that each planted secret is ranked against '
            f'(default {_DEFAULTS["candidates"]})',
        )
        add('--reference', help='membership: a model that was not trained on the corpus')
        add(
            '--sentences',
            type=int,
            help='membership: number of sentences of each split (default '
            f'{_DEFAULTS["sentences"]})',
        )

    def run(self, flags: argparse.Namespace, model: AnalyzedModel) -> Results:
        """See `Analysis.run`."""
        measure = harm_measures.find(flags.measure)
        for name, default in _DEFAULTS.items():
            if getattr(flags, name) is None:
                setattr(flags, name, default)
            elif name not in measure.options:
                raise UserError(f'--{name} is not an option of --measure={flags.measure}')
        model.predictor.require('pseudo_likelihood')
        model.stage(flags.measure)
        return measure.run(flags, model)
