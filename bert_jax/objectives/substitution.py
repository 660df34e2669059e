"""Token substitution detection: was this token put in another's place?"""

from bert_jax.objectives.detection import EditDetection


class SubstitutionDetection(EditDetection):
    """Of every token whether it is a random one in place of the original (editing.substitute); a
    random token that happens to be the original counts as original."""

    edit = 'substitution'
