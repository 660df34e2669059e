"""Checks a pretraining run before its text is read, which may take hours.

The run is built on a placeholder corpus, with its own config, weights and tokenizer. Whatever is
wrong with them, other than with the text, shows here.
"""

import jax
import numpy as np

from bert_jax import objectives
from bert_jax.corpus.placeholder_corpus import PlaceholderCorpus, make_tokenizer
from bert_jax.reports.pretraining import add_baselines
from bert_jax.tasks.pretraining import builder, enabled_evaluators
from bert_jax.tasks.pretraining.stage_settings import stage_settings
from bert_jax.training.early_stopping import EarlyStopping
from bert_jax.training.run import Plan
from bert_jax.types import Config


def check(config: Config) -> None:
    """Build a run on a placeholder corpus, up to the shapes of its parameters.

    Raises:
        UserError: the config cannot be trained on any text.
    """
    longest = max(stage.sequence_length for stage in stage_settings(config.training))
    data = config.data
    tokenizer = make_tokenizer(data.tokenizer, data.lowercase, data.strip_accents)
    # What evaluators cost, and whether sentences fit, depends on the vocabulary.
    task = builder.build(config, PlaceholderCorpus.of(tokenizer, longest), evaluate_further=False)
    with Plan.of(task, config) as plan:
        batch = task.stages[0].source.batch(0, np.arange(1))
        terms = jax.eval_shape(
            lambda params, batch, key: task.terms(params, batch, key, train=False),
            plan.abstract.params,
            batch,
            jax.eval_shape(jax.random.key, 0),  # the mesh may be of absent devices
        )
    others = enabled_evaluators(config.evaluation)
    for name, evaluator in others.items():
        evaluator.check(config.evaluation[name], task.model)
    ones = dict.fromkeys(('loss', *terms), 1.0)
    counts_V = task.corpus.unigram_counts('held_out')
    metrics = add_baselines(ones, objectives.predicting_tokens(task.objectives), counts_V, 1.0)
    best = config.evaluation.best
    if not best or (not others and best.partition('/')[0] not in metrics):
        EarlyStopping(config.evaluation).check(metrics)
