"""The names of a model's classes in a config.json."""

from bert_jax.errors import UserError
from bert_jax.interop import pretrained
from bert_jax.interop.pretrained import Pretrained


def read(config: dict) -> tuple[str, ...]:
    """The class names by id, LABEL_0 … where they are not named; two where it is not said either.

    Raises UserError if id2label, label2id and num_labels disagree.
    """
    by_id = {int(number): label for number, label in (config.get('id2label') or {}).items()}
    number = config.get('num_labels', len(by_id) or 2)
    by_id = by_id or {index: f'LABEL_{index}' for index in range(number)}
    if sorted(by_id) != list(range(len(by_id))):
        raise UserError(f'id2label has the ids {sorted(by_id)}, which are not 0, 1, 2, …')
    if number != len(by_id):
        raise UserError(f'num_labels is {number}, but id2label has {len(by_id)} classes')
    ids = config.get('label2id')
    if ids and ids != {label: number for number, label in by_id.items()}:
        raise UserError('id2label and label2id disagree')
    return tuple(by_id[number] for number in range(len(by_id)))


def write(model: Pretrained) -> dict:
    """The names of the classes, as many as there are."""
    labels, number = model.labels, pretrained.num_labels(model.params)
    with_labels = set(pretrained.WITH_LABELS) & model.params.keys()
    if not labels and not with_labels:
        return {}
    labels = labels or tuple(f'LABEL_{number}' for number in range(number))
    if len(labels) != number and (
        with_labels or {'question_answering', 'sop'} & model.params.keys()
    ):
        raise UserError(f'the model has {number} classes, but {len(labels)} labels')
    return {
        'id2label': dict(enumerate(labels)),
        'label2id': {label: number for number, label in enumerate(labels)},
    }
