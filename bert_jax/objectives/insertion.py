"""Token insertion detection: does this token not belong here?"""

from bert_jax.objectives.detection import EditDetection


class InsertionDetection(EditDetection):
    """Of every token whether it was inserted at random (editing.insert). What should be there
    instead is nothing, so there is nothing more to learn."""

    edit = 'insertion'
