"""The peak learning rate of fine-tuning: as set, or else one that fits the model."""

from bert_jax.models.architecture import Architecture
from bert_jax.types import Config

BASE_WIDTH = 768  # hidden size of the models that schedule.base_learning_rate is published for
HIGHEST = 1e-3


def choose(config: Config, architecture: Architecture) -> tuple[float, str]:
    """Choose the peak learning rate of a run and say where it comes from.

    Rates are published for models of BERT-base's width. Narrower models need higher ones: with
    2e-5, a model of width 128 hardly leaves the majority class (docs/finetuning.md has figures).

    Returns:
        The rate: `schedule.learning_rate` if it is set; with parameter-efficient tuning, the
        rate that the method was published with; otherwise `schedule.base_learning_rate` ×
        (768 / width)², not above 1e-3, and `schedule.base_learning_rate` itself for wider models.
        And a phrase that explains it.
    """
    settings, width, tuning = config.schedule, architecture.hidden_size, architecture.tuning
    if settings.learning_rate is not None:
        return settings.learning_rate, 'schedule.learning_rate'
    base = settings.base_learning_rate
    if tuning is not None and tuning.published_rate is not None:
        return tuning.published_rate, f'published with transfer.method={tuning.method}'
    if width >= BASE_WIDTH:
        return base, 'schedule.base_learning_rate'
    rate = min(base * (BASE_WIDTH / width) ** 2, max(base, HIGHEST))
    return rate, f'{base:g} × ({BASE_WIDTH} / {width})², at most {HIGHEST:g}: a narrow model'
