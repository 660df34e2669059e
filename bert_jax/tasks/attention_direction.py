"""Whether a fine-tuned model attends from left to right or in both directions.

A model is fine-tuned as it was pretrained unless `init_attention` says otherwise (Radford et al.
2018, section 3.2; the row "LTR & No NSP" in Devlin et al. 2019, section 5.1).
"""

from ml_collections import ConfigDict

from bert_jax import problems
from bert_jax.errors import UserError
from bert_jax.loaded.loaded_model import LoadedModel
from bert_jax.models.architecture import Architecture


def is_causal(config: ConfigDict, model: LoadedModel | None) -> bool:
    """Return whether positions attend only to earlier positions.

    A model that was pretrained in both ways reads in both directions, except to write: one with
    masked and causal rows (GPT-BERT), and one whose positions see the whole of a prefix (UniLM).

    Args:
        config: the config of configs/finetune.py.
        model: the model at init_from; None: newly initialized weights, which attend in both.

    Raises:
        UserError: init_attention is not possible for the model.
    """
    chosen = config.init_attention
    if problems.find(config.task).keeps_attention:
        return model is not None and model.is_causal
    if model is None:
        return False
    if chosen == 'both' and not model.is_causal:
        raise UserError(
            f"init_attention is 'both', but the model at init_from={config.init_from} attends in "
            "both directions already; set it to 'same'"
        )
    has_both = model.has_prefix or (model.is_generative and model.architecture.prediction.shift)
    if chosen == 'causal' and not (model.is_causal or has_both):
        raise UserError(
            f"init_attention is 'causal', but the model at init_from={config.init_from} has not "
            "learned to attend from left to right; set it to 'same'"
        )
    return chosen == 'causal' or (chosen == 'same' and model.is_causal and not has_both)


def describe(is_causal: bool) -> str:
    """Return the direction in words, for logs, cards and tables."""
    return 'from left to right' if is_causal else 'in both directions'


def of_model(architecture: Architecture, is_causal: bool) -> str:
    """Return the direction in words; '' for a model with a decoder, which attends in both ways."""
    return '' if architecture.decoder is not None else describe(is_causal)


def writes_causally(
    config: ConfigDict, architecture: Architecture, model: LoadedModel | None
) -> bool:
    """Whether a model that writes text is a causal model, not one with a decoder.

    Raises:
        UserError: the target has more tokens than the model has positions, init_from is an encoder,
            or a causal model would have a tuned prompt.
    """
    size = config.problem.get('target_tokens', 0)
    if size + 1 > architecture.max_length:
        raise UserError(
            f'problem.target_tokens is {size}, but the model has {architecture.max_length} '
            'positions, and at least one token precedes the target; lower it'
        )
    if architecture.decoder is not None:
        return False
    if model is not None and not model.is_causal:
        raise UserError(
            f'{config.task} writes text, but init_from={config.init_from} is an encoder, whose '
            'positions attend in both directions; set init_from to a causal model or to a model '
            'with a decoder'
        )
    if architecture.tuning is not None and architecture.tuning.prompt_length:
        raise UserError(
            f'transfer.method={architecture.tuning.method} tunes a prompt, which has no place in '
            'the cache of a causal model that writes text; choose another method'
        )
    return True
