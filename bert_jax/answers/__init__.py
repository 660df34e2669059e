"""The tasks of `bert_jax.predict`, which answer the rows of a file with a loaded model.

A task is a subclass of `base.Question` in a file of this folder, and a line in `ANSWERS`.
"""

from typing import TYPE_CHECKING

from bert_jax.errors import unknown
from bert_jax.lazy_table import LazyTable, load

if TYPE_CHECKING:
    from bert_jax.answers.base import Question

# --task → 'module:Class'; the module is imported when the task is used.
ANSWERS: 'LazyTable[type[Question]]' = LazyTable(
    {
        'fill_mask': 'bert_jax.answers.tokens:FillMask',
        'pseudo_likelihood': 'bert_jax.answers.tokens:PseudoLikelihood',
        'pairs': 'bert_jax.answers.tokens:Pairs',
        'likelihood_bound': 'bert_jax.answers.tokens:LikelihoodBound',
        'embed': 'bert_jax.answers.embed:Embed',
        'embed_late': 'bert_jax.answers.embed_late:EmbedLate',
        'search': 'bert_jax.answers.search:Search',
        'mine': 'bert_jax.answers.search:Mine',
        'terms': 'bert_jax.answers.tokens:Terms',
        'generate': 'bert_jax.answers.generate:Generate',
        'classify': 'bert_jax.answers.finetuned:Classify',
        'tag': 'bert_jax.answers.finetuned:Tag',
        'roles': 'bert_jax.answers.finetuned:Roles',
        'parse': 'bert_jax.answers.parse:Parse',
        'constituents': 'bert_jax.answers.finetuned:Constituents',
        'spans': 'bert_jax.answers.finetuned:Spans',
        'answer': 'bert_jax.answers.finetuned:AnswerQuestions',
        'rerank': 'bert_jax.answers.finetuned:Rerank',
        'prompt': 'bert_jax.answers.prompt:Prompt',
        'write': 'bert_jax.answers.generate:Write',
        'respond': 'bert_jax.answers.generate:Respond',
        'chat': 'bert_jax.answers.generate:Chat',
    }
)


def find(task: str) -> 'type[Question]':
    """Return the class of a task.

    The --task of a fine-tuning problem that a recipe adds is asked like that of any other problem.

    Raises:
        UserError: the task is unknown.
    """
    if task in ANSWERS:
        return ANSWERS[task]
    from bert_jax.problems import PROBLEMS

    added = {kind.predict_task for kind in PROBLEMS.values()}
    if task not in added:
        raise unknown('--task', task, [*ANSWERS, *added])
    finetuned: type[Question] = load('bert_jax.answers.finetuned:Finetuned')
    return finetuned
