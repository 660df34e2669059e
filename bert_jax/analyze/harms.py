"""Harms: stereotypes and memorized text, each by a measure of its own (harm_measures/)."""

import argparse
from typing import Any

from bert_jax.analyze import harm_measures
from bert_jax.analyze.base import Analysis, Model, Results
from bert_jax.errors import UserError

# Option → its default.
_OPTIONS: dict[str, Any] = {
    'columns': [],
    'candidates': 511,
    'reference': None,
    'sentences': 500,
}


class Harms(Analysis):
    """Preferences for stereotypes, and memorization of the training text."""

    description = 'Stereotypes that a model prefers, and training text that it remembers'
    input_help = 'data of the measure; see docs/harms.md'
    limits = (
        'No result shows that a model is harmless: a measure sees the groups, the language and the '
        'sentences of its data alone.',
        'Preferences of a masked language model do not say how a system that uses it will behave.',
    )

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add --measure and the options of all measures."""
        add = parser.add_argument
        add(
            '--measure',
            required=True,
            help=f'what to measure: {", ".join(harm_measures.MEASURES)}',
        )
        add(
            '--columns',
            nargs='+',
            metavar='FIELD=COLUMN',
            help='crows_pairs, stereoset, log_odds: names of columns that differ from the original',
        )
        add(
            '--candidates',
            type=int,
            help='exposure: number of random secrets that each one is ranked among (default '
            f'{_OPTIONS["candidates"]})',
        )
        add('--reference', help='membership: a model that was not trained on the corpus')
        add(
            '--sentences',
            type=int,
            help=f'membership: number of sentences of each split (default {_OPTIONS["sentences"]})',
        )

    def run(self, flags: argparse.Namespace, model: Model) -> Results:
        """See `Analysis.run`."""
        measure = harm_measures.find(flags.measure)
        for name, default in _OPTIONS.items():
            if getattr(flags, name) is None:
                setattr(flags, name, default)
            elif name not in measure.options:
                raise UserError(f'--{name} is not an option of --measure={flags.measure}')
        model.predictor.require('pseudo_likelihood')
        model.stage(flags.measure)
        return measure.run(flags, model)
