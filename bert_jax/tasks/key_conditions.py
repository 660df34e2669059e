"""When keys of configs/base.py have no effect because of the objectives or the tuning method."""

from bert_jax import objectives, problems
from bert_jax.models import tuning
from bert_jax.objectives.masking_schemes import find_scheme
from bert_jax.types import Config


def unused_masking(config: Config, key: str) -> str:
    """Return why the enabled objectives do not use a key of `config.masking`; '' if they do."""
    names, masking = objectives.enabled(config.objectives), config.masking
    corruption = objectives.CORRUPTIONS[objectives.common_corruption(names, masking.scheme)]
    used = corruption.masking_keys
    if 'scheme' not in used:
        is_used = key.removeprefix('masking.') in used
        return '' if is_used else f'{", ".join(names)} does not use it'
    if key == 'masking.replacement' and not masking.random:
        return 'masking.random is 0'
    if key == 'masking.rate_change' and masking.end_rate is None:
        return 'masking.end_rate is not set'
    held_out = config.evaluation.masking_scheme
    schemes = [find_scheme(name) for name in (masking.scheme, held_out) if name]
    options = [option for scheme in schemes for option in scheme.options()]
    of_words = ('word_starts', 'unspaced') if any(one.needs_words for one in schemes) else ()
    is_used = key.removeprefix('masking.') in (*used, *options, *of_words)
    return '' if is_used else f'masking.scheme is {masking.scheme!r}'


def unused_held_out_masks(config: Config, key: str) -> str:
    """Return why the enabled objectives have no masks of held-out text; '' if they have."""
    return unused_masking(config, key.replace('evaluation.masking_', 'masking.'))


def unused_noise(config: Config, key: str) -> str:
    """Return why a key of `config.noise` has no effect; '' if it has one."""
    if not config.objectives.denoising:
        return f'objectives.denoising is {config.objectives.denoising}'
    from bert_jax.objectives.denoising import NOISES, options

    name, noise = key.removeprefix('noise.'), config.noise
    if name == 'kind' or noise.kind not in NOISES:
        return ''
    if name not in options(NOISES[noise.kind]):
        return f'noise.kind is {noise.kind!r}'
    if name in ('poisson_lambda', 'replace_length', 'whole_words') and not noise.mask:
        return 'noise.mask is 0'
    is_random = name == 'mask_random' and not (noise.mask or noise.insert)
    return 'noise.mask and noise.insert are 0' if is_random else ''


def unused_cloze(config: Config, key: str) -> str:
    """Return why a run shows no cloze examples or samples; '' if it does."""
    names = objectives.enabled(config.objectives)
    is_used = objectives.shows_cloze(names) or objectives.shows_samples(names)
    return '' if is_used else f'{", ".join(names)} shows no cloze examples'


def unused_head_states(config: Config, key: str) -> str:
    """Return why keys of the states of fine-tuning heads have no effect; '' if they have one."""
    if problems.find(config.task).reads_last_layer:
        return f'the head of task={config.task} reads the last layer'
    if config.task == 'embedding':
        return 'task=embedding pools the last layer'
    is_size = key == 'model.head_lstm.size' and not config.model.head_lstm.layers
    return 'model.head_lstm.layers is not set' if is_size else ''


def unused_attention(config: Config, key: str) -> str:
    """Return why `init_attention` has no effect; '' if it has one."""
    if problems.find(config.task).keeps_attention:
        return f'task={config.task} learns to write as the model at init_from does'
    return '' if config.init_from else "init_from is ''"


def unused_transfer(config: Config, key: str) -> str:
    """Return why a key of `config.transfer` has no effect: it is for other tuning methods."""
    name, method = key.removeprefix('transfer.'), config.transfer.method
    used = {other: {*tuning.settings(other), 'train_pooler'} for other in tuning.METHODS}
    used |= {'full': set()}
    if name in set().union(*used.values()) - used.get(method, {name}):
        return f'transfer.method is {method!r}'
    return f'sweep.ranks is {config.sweep.ranks}' if name == 'rank' and config.sweep.ranks else ''
