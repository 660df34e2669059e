"""The table of fine-tuning problems; kinds/ declares their keys, formats and properties.

Importing this module is cheap: the module of a problem (`ProblemKind.implementation`) is imported
on first use, so that configs and command lines can read the table without JAX.
"""

from ml_collections import ConfigDict

from bert_jax.errors import look_up
from bert_jax.labels import loader
from bert_jax.labels.loader import Splits
from bert_jax.problems.kinds import answers, prompts, text_groups, texts, words
from bert_jax.problems.kinds.base import ProblemKind

__all__ = ['PROBLEMS', 'ProblemKind', 'find', 'read']

PROBLEMS: dict[str, ProblemKind] = {
    'classification': texts.CLASSIFICATION,
    'regression': texts.REGRESSION,
    'multi_label': texts.MULTI_LABEL,
    'multi_regression': texts.MULTI_REGRESSION,
    'multiple_choice': texts.MULTIPLE_CHOICE,
    'prompt': prompts.PROMPT,
    'prompt_regression': prompts.PROMPT_REGRESSION,
    'relation': texts.MARKED_PAIRS,
    'word_in_context': texts.MARKED_PAIRS,
    'coreference': texts.MARKED_PAIRS,
    'tagging': words.TAGGING,
    'semantic_roles': words.SEMANTIC_ROLES,
    'parsing': words.PARSING,
    'spans': words.SPANS,
    'constituency': words.CONSTITUENCY,
    'embedding': text_groups.EMBEDDING,
    'sparse_embedding': text_groups.SPARSE_EMBEDDING,
    'late_interaction': text_groups.LATE_INTERACTION,
    'reranking': text_groups.RERANKING,
    'question_answering': answers.QUESTION_ANSWERING,
    'generation': answers.GENERATION,
    'instructions': answers.INSTRUCTIONS,
}


def find(kind: str) -> ProblemKind:
    """Return the entry of a kind of problem. Raises UserError for an unknown one."""
    return look_up('kind of problem', kind, PROBLEMS)


def read(data: ConfigDict, kind: str) -> Splits:
    """Read the labeled examples that the config's `data` names, as examples of a kind of problem.

    Raises:
        UserError: unknown kind, format or column; unreadable file; empty split; too many bad rows.
    """
    return loader.read(data, kind, find(kind).readers)
