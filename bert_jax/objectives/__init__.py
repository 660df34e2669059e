"""What an encoder is pretrained on: one file an objective, one line each in this table.

An objective is a Linen module, called with an Encoded batch, that returns its terms. It declares:
    needs: keys that batches must have.
    forms: in which forms of the text it can be trained (forms.py).
    losses: the terms that its weight is for, if not its name + '_loss' alone.
    beside: objectives it cannot be without.
    schemes: the masking schemes it needs, if not any will do.
"""

from bert_jax.objectives.clm import CausalLanguageModel
from bert_jax.objectives.deletion import DeletionDetection
from bert_jax.objectives.insertion import InsertionDetection
from bert_jax.objectives.mlm import MaskedLanguageModel
from bert_jax.objectives.nsp import NextSentencePrediction
from bert_jax.objectives.permutation import PermutationDetection
from bert_jax.objectives.rtd import ReplacedTokenDetection
from bert_jax.objectives.sbo import SpanBoundaryObjective
from bert_jax.objectives.sop import SentenceOrderPrediction
from bert_jax.objectives.substitution import SubstitutionDetection

OBJECTIVES = {
    'mlm': MaskedLanguageModel,
    'nsp': NextSentencePrediction,
    'sop': SentenceOrderPrediction,
    'sbo': SpanBoundaryObjective,
    'rtd': ReplacedTokenDetection,
    'clm': CausalLanguageModel,
    'permutation': PermutationDetection,
    'deletion': DeletionDetection,
    'insertion': InsertionDetection,
    'substitution': SubstitutionDetection,
}
