"""Command-line options for cloze prompts to a model with a masked-language-model head."""

import argparse
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from bert_jax.errors import UserError

if TYPE_CHECKING:
    from bert_jax.inference.predictor import Predictor  # imports JAX

# Option → the arguments of its `add_argument`.
OPTIONS: Mapping[str, dict[str, Any]] = {
    'template': dict(
        help="such as '{text} It was [MASK].': asks a model without training (docs/prompting.md); "
        'default: the template of the training'
    ),
    'answers': dict(
        nargs='+',
        metavar='CLASS=WORD|WORD',
        help='the words that stand for each class at [MASK]; a lone WORD is its own class',
    ),
    'decoding': dict(help='max_first (default), left_to_right or parallel'),
    'calibration': dict(help='none (default), contextual or pmi'),
}


def add(parser: argparse.ArgumentParser, prefix: str = '') -> None:
    """Add the options; their descriptions start with `prefix`."""
    for name, description in OPTIONS.items():
        parser.add_argument(f'--{name}', **description | {'help': prefix + description['help']})


def apply(predictor: 'Predictor', flags: argparse.Namespace) -> 'Predictor':
    """Return the model with the prompt of the options, or unchanged without options.

    Raises:
        UserError: the template or the answers are missing, or the prompt is not valid.
    """
    options = {name: getattr(flags, name) for name in OPTIONS if getattr(flags, name)}
    if not options:
        return predictor
    if missing := {'template', 'answers'} - options.keys():
        raise UserError(
            f'--{min(missing)} is missing; give --template and --answers, or neither for the '
            'prompt of the training'
        )
    return predictor.with_prompt(**options)
