"""Sentence permutation detection: does this sentence follow the one in front of it?"""

from bert_jax.objectives.detection import EditDetection


class PermutationDetection(EditDetection):
    """Of the first token of each sentence whether the sentence stands elsewhere in the text than
    behind the one that is in front of it now (editing.permute). The original order as a whole is no
    output of an encoder; if every answer is right, it follows from them where none is "elsewhere".
    """

    edit = 'permutation'
    needs = ('sentence_start',)
