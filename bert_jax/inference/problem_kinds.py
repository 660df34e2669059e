"""The problems that a loaded model was fine-tuned on."""

from bert_jax.loaded import loaded_model
from bert_jax.loaded.loaded_model import LoadedModel
from bert_jax.problems import PROBLEMS

# Whether a published sequence classifier has one output → its activation → kind of problem.
_CLASSIFIERS = {
    True: {'identity': 'regression', 'sigmoid': 'regression'},
    False: {
        'softmax': 'classification',
        'sigmoid': 'multi_label',
        'identity': 'multi_regression',
    },
}


def other_kind(model: LoadedModel, kind: str | None) -> str | None:
    """The kind of problem that a model of a kind answers too; None if there is none."""
    if kind is None or model.usage.texts == 1:  # the other kind takes pairs
        return None
    return PROBLEMS[kind].also_answers or None


def problem_kind(model: LoadedModel) -> str | None:
    """The kind of problem (key of PROBLEMS) a model was fine-tuned on; None for other models."""
    if task := model.usage.task:
        return task if task in PROBLEMS else None
    heads = {*model.heads}
    kind = next((kind for kind, one in PROBLEMS.items() if heads & {*one.fine_tuned_heads}), None)
    if kind == 'classification':
        kind = _CLASSIFIERS[loaded_model.num_labels(model.params) == 1].get(model.activation)
    return None if unsupported(model) else kind


def unsupported(model: LoadedModel) -> str | None:
    """Why a published sequence classifier cannot answer `classify`; None if it can."""
    if model.usage.task or 'sequence_classification' not in model.heads:
        return None
    if model.activation in _CLASSIFIERS[loaded_model.num_labels(model.params) == 1]:
        return None
    return f'activation_fn {model.activation} is not supported'
