"""The initial model of a run: a named architecture, or the weights of another model."""

import dataclasses
import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from bert_jax import config_keys, files, markdown, objectives, tree_paths
from bert_jax.errors import UserError
from bert_jax.models import architectures
from bert_jax.models.architecture import Architecture, Compute
from bert_jax.models.heads import HEADS
from bert_jax.models.model import Model
from bert_jax.storage import paths
from bert_jax.tokenizers import Tokenizer
from bert_jax.types import Config, JsonRecord, Params

if TYPE_CHECKING:  # a run without weights does without these
    from bert_jax.loaded.loaded_model import LoadedModel
    from bert_jax.loaded.record import Base
    from bert_jax.models.tuning_method import Tuning


_STACKS = ('encoder/', 'decoder/')


class InitialModel(NamedTuple):
    """The architecture of a run and the parameters it starts from.

    Attributes:
        family: key of interop.families.FAMILIES; None for an architecture without one.
        params: float32 arrays by '/'-joined name; all other parameters are newly initialized.
        lines: what was done to the weights, for the log.
        frozen: names in `params` that parameter-efficient tuning does not train.
        base: with parameter-efficient tuning, what checkpoints record about the model at init_from.
    """

    family: str | None
    architecture: Architecture
    params: dict[str, np.ndarray]
    lines: list[str]
    frozen: frozenset[str] = frozenset()
    base: 'Base | None' = None

    @property
    def has_head(self) -> bool:
        """Whether `params` contains more than the encoder."""
        return any(not name.startswith(_STACKS) for name in self.params)


def load_weights(config: Config) -> 'LoadedModel | None':
    """Load the model at config.init_from; return None if init_from is empty.

    Unsets config.model.architecture, so that the run does not record the recipe's architecture.

    Raises:
        UserError: the model cannot be read, config.model.architecture is of another family, or a
            decoder is added that would not be trained.
    """
    if not config.init_from:
        return None
    if config.get('init_decoder') and config.transfer.method != 'full':
        raise UserError(
            f'init_decoder is {config.init_decoder!r}, which adds a decoder that '
            f'transfer.method={config.transfer.method} would freeze untrained; train it with '
            'transfer.method=full first, and set init_from to that run'
        )
    from bert_jax.interop import loading  # slow to import, and not needed without init_from

    model = loading.load_any(config.init_from, allow_missing=('^encoder/pooler/',))
    if config.get('init_decoder'):
        from bert_jax.interop import added_decoder  # an option that few runs set

        model = added_decoder.add(model)
    name = config.model.architecture
    if name is not None and architectures.find(name).family != model.family:
        raise UserError(
            f'init_from={config.init_from} is a {model.family} model, but model.architecture is '
            f'{name!r}; set it to None to use the architecture of the weights'
        )
    config.model.architecture = None
    return model


def initialize(
    config: Config,
    model: 'LoadedModel | None',
    tokenizer: Tokenizer,
    heads: Iterable[str],
    reasons: Mapping[str, str] | None = None,
    *,
    is_causal: bool = False,
) -> InitialModel:
    """Build the initial model of a config.

    Sizes that are None in config.model come from the weights or, without weights, are the
    defaults of the architecture. The vocabulary is always the tokenizer's.

    Args:
        model: what `load_weights` returned.
        heads: heads to keep from the weights.
        reasons: why another head of the weights is dropped, see `surgery.fit`.
        is_causal: whether the model of the run attends only to earlier tokens.

    Raises:
        UserError: a size does not fit the weights, their positions are for another padding token,
            or there are fewer layers than config.transfer.reinit_layers.
    """
    values = config_keys.flatten(config.model)
    sizes = {name: value for name, value in values.items() if value is not None}
    sizes['vocab_size'] = tokenizer.vocab_size
    if pooling := _pooling(config, model, is_causal):
        sizes['classifier.pooling'] = pooling
    if config.task != 'pretraining':
        sizes['classifier.skipped_id'] = tokenizer.pad_id if is_causal else None
    if _reads_last_layer(config):  # also if the weights had a head with other states
        sizes |= {'head_states': 'last', 'head_lstm.layers': 0}
    name = sizes.pop('architecture', None)
    if model is None:
        return _initialize_randomly(config, name, sizes, tokenizer)
    from bert_jax.interop import added_decoder, surgery
    from bert_jax.loaded.loaded_model import check_padding
    from bert_jax.models.parameters import stack_layers

    architecture = _for_vocabulary(model.architecture.changed(sizes), tokenizer)
    check_padding(architecture, tokenizer, config.init_from)
    loaded, grown = model, list[str]()
    if config.get('init_sizes') == 'tile':
        from bert_jax.interop import tiling  # an option that few runs set

        model, grown = tiling.grow(model, architecture)
    _check_pooling(config, architecture)
    heads, reasons = tuple(heads), dict(reasons or {})
    refitted: list[str] = []
    if architecture.head_inputs != model.architecture.head_inputs:
        refitted += [name for name in model.heads if HEADS[name].reads_head_states]
    if architecture.pair_pooling != model.architecture.pair_pooling:
        refitted += [name for name in model.heads if HEADS[name].is_pair]
    reasons |= {name: 'it was trained on other states' for name in refitted if name in heads}
    heads = tuple(name for name in heads if name not in refitted)
    fitted, lines = surgery.fit(
        model,
        architecture,
        tokenizer,
        heads,
        config.init_positions,
        reasons,
        is_causal=is_causal,
    )
    lines[:0] = [f'weights of {config.init_from}', *grown]
    if config.get('init_decoder'):
        lines.append(added_decoder.describe(model))
    tree = fitted.params
    if config.compute.scan_layers:
        stacks = [part for part in ('encoder', 'decoder') if part in tree]
        tree = tree | {part: stack_layers(tree[part]) for part in stacks}
    params = tree_paths.flatten(tree)
    for missing in fitted.newly_initialized:
        params.pop(missing, None)
    if config.transfer.reinit_layers:
        lines.append(_drop_last_layers(params, config.transfer.reinit_layers))
    initial = InitialModel(model.family, architecture, params, lines)
    if config.transfer.method == 'full':
        return initial
    return _freeze(config, initial, loaded, fitted)


def renamed(initial: InitialModel, names: Mapping[str, str]) -> InitialModel:
    """Return the model with other names of parameters: the beginning of a name → its new one."""
    params, lines = dict(initial.params), [*initial.lines]
    for old, new in names.items():
        moved = [name for name in params if name.startswith(f'{old}/')]
        params |= {new + name.removeprefix(old): params.pop(name) for name in moved}
        if moved:
            lines.append(f'{new}: starts as {old} of the weights')
    return initial._replace(params=params, lines=lines)


def with_parts(
    initial: InitialModel, model: 'LoadedModel | None', names: Iterable[str]
) -> InitialModel:
    """Return the model with those parts of a run that published models have no place for.

    Args:
        initial: the model of the run.
        model: what `load_weights` returned.
        names: heads in `LoadedModel.other_parts`; those that are missing are newly initialized.
    """
    found = {} if model is None else model.other_parts
    parts = {name: found[name] for name in names if name in found}
    if not parts:
        return initial
    lines = [*initial.lines, f'{", ".join(parts)}: as in the weights']
    return initial._replace(params={**initial.params, **tree_paths.flatten(parts)}, lines=lines)


def _freeze(
    config: Config, initial: InitialModel, loaded: 'LoadedModel', fitted: 'LoadedModel'
) -> InitialModel:
    """Add the tuning method of a config, and freeze the parameters that it does not train.

    Args:
        config: the config of the run.
        initial: the model of the run.
        loaded: the model at init_from.
        fitted: the same model, fitted to the config.
    """
    from bert_jax.loaded import tuned

    if loaded.architecture.tuning is not None:
        raise UserError(
            f'{config.init_from} is a tuned model; export it with --merge and tune the exported '
            'model, or set transfer.method=full'
        )
    parts = [part for part in tuned.FROZEN if part in loaded.params and part in fitted.params]
    before, after = ({part: one.params[part] for part in parts} for one in (loaded, fitted))
    _check_unchanged(config, before, after)
    described = tuned.describe_base(config.init_from, before)
    return _add_method(config, initial, parts)._replace(base=described)


def _add_method(config: Config, initial: InitialModel, parts: list[str]) -> InitialModel:
    """Add the tuning method of a config; `parts` of the model are frozen, heads as a whole."""
    params, lines = initial.params, initial.lines
    method = _tuning_method(config)
    if method.published_rate is not None:
        lines.append(
            f'{method.method} was published with a learning rate of {method.published_rate:g}'
        )
    base = {name for name in params if name.startswith(tuple(f'{part}/' for part in parts))}
    stacks = {name for name in base if name.startswith(_STACKS)}
    frozen = {name for name in base if name not in stacks or not method.trains(name)}
    if frozen == base and not method.adds_parameters:
        raise UserError(
            f'transfer.method={method.method} adds no parameters, and {config.init_from} has none '
            'that it trains; choose another method'
        )
    pooler = {name for name in base if name.startswith('encoder/pooler/')}
    if not pooler or not reads_pooler(config, initial.architecture):
        if config.transfer.train_pooler:
            raise UserError(
                'transfer.train_pooler is True, but no head reads a pooler of init_from; '
                'set it to False'
            )
    elif config.transfer.train_pooler:
        frozen -= pooler
    elif pooler <= frozen:
        lines.append('the pooler is frozen; transfer.train_pooler=True trains it')
    return initial._replace(
        architecture=dataclasses.replace(initial.architecture, tuning=method),
        frozen=frozenset(frozen),
    )


def _initialize_randomly(
    config: Config, name: str | None, sizes: JsonRecord, tokenizer: Tokenizer
) -> InitialModel:
    """Build the initial model of a run without `init_from`."""
    if name is None:
        raise UserError('set init_from to the weights of a model, or set model.architecture')
    if config.transfer.method != 'full':
        raise UserError(
            f'transfer.method={config.transfer.method} tunes a trained model; set init_from'
        )
    if config.transfer.reinit_layers:
        raise UserError(
            f'transfer.reinit_layers is {config.transfer.reinit_layers}, but without init_from '
            'all layers are newly initialized; set it to 0'
        )
    architecture = _for_vocabulary(architectures.build(name, **sizes), tokenizer)
    _check_pooling(config, architecture)
    positions = architecture.positions
    if positions.kind == 'offset' and not positions.counts_padding:  # as in the published models
        architecture = architecture.changed({'positions.first': tokenizer.pad_id + 1})
    return InitialModel(architectures.find(name).family, architecture, {}, [])


def _for_vocabulary(architecture: Architecture, tokenizer: Tokenizer) -> Architecture:
    """Let an encoder know the mask token or, if it reads characters, how tokens are written."""
    if architecture.token_dropout is not None:
        architecture = architecture.changed({'token_dropout.mask_id': tokenizer.mask_id})
    if architecture.characters is None:
        return architecture
    from bert_jax.models.characters import spell

    spelling = spell(tokenizer.vocab, tokenizer.cls_id, tokenizer.sep_id)
    return architecture.changed({'characters.spelling': spelling})


def _reads_last_layer(config: Config) -> bool:
    """Whether no head of the task can read other states than those of the last layer."""
    if config.task == 'pretraining':
        return True
    from bert_jax import problems  # imports file formats, which pretraining does not need

    return problems.find(config.task).reads_last_layer


def _pooling(config: Config, model: 'LoadedModel | None', is_causal: bool) -> str | None:
    """Return how the head of a text pools its states; None: as the architecture does.

    A causal model is read at the last token, the only one that has seen the text, unless its own
    head pools in another way.

    Raises:
        UserError: problem.pooling is the state of the first token of a causal model.
    """
    pooling: str | None = config.get('problem', {}).get('pooling')
    if not is_causal:
        return pooling
    if pooling in ('pooler', 'first'):
        raise UserError(
            f'problem.pooling is {pooling!r}, the state of the first token, which has seen no '
            "other token of a text, because the model at init_from is causal; set it to 'last', "
            "'mean' or 'concat', or set init_attention='both'"
        )
    has_head = model is not None and 'sequence_classification' in model.heads
    return pooling or (None if has_head else 'last')


def _check_pooling(config: Config, architecture: Architecture) -> None:
    """Raise UserError if problem.pooling asks for a pooler that the model lacks or cannot use."""
    if config.get('problem', {}).get('pooling') != 'pooler' or architecture.pooling == 'pooler':
        return
    if architecture.reads_last_layer:
        reason = 'but the model has no pooler; model.pooler=True adds a new one, or '
    else:
        reason = (
            'which reads the last layer, but model.head_states or model.head_lstm choose other '
            'states; '
        )
    raise UserError(f"problem.pooling is 'pooler', {reason}set it to 'first', 'mean' or 'concat'")


def _tuning_method(config: Config) -> 'Tuning':
    """Build the method of config.transfer; settings of other methods that are set are errors."""
    from bert_jax.models import tuning

    tuning.settings(config.transfer.method)  # raises for an unknown method
    every = {name for method in tuning.METHODS for name in tuning.settings(method)}
    return tuning.build(config.transfer.method, {name: config.transfer[name] for name in every})


def license_of(init_from: str) -> str:
    """Return the license in the card of the initial weights, or 'unknown'."""
    card = paths.bring(init_from) / 'README.md' if init_from else None
    if card is None or not card.is_file():
        return 'unknown'
    header, _ = markdown.split_header(files.read_text(card, errors='replace'))
    match = re.search(r'^license: *["\']?([\w.-]+)', header, re.MULTILINE)
    return match[1] if match else 'unknown'


def reads_pooler(config: Config, architecture: Architecture) -> bool:
    """Whether a head of the task reads the pooler."""
    if config.task == 'pretraining':
        names = objectives.enabled(config.objectives)
        chosen = [objectives.OBJECTIVES[name].build(name, config) for name in names]
        return objectives.build_model(architecture, Compute(), chosen).reads_pooler()
    from bert_jax import problems  # imports file formats, which pretraining does not need

    heads = problems.find(config.task).pretrained_heads
    return Model(architecture, Compute(), {name: {} for name in heads}).reads_pooler()


def _check_unchanged(config: Config, own: Params, fitted: Params) -> None:
    """Raise UserError if fitting changed the frozen parts, which init_from is to provide later."""
    from bert_jax.loaded.loaded_model import enumerate_names

    before, after = map(tree_paths.flatten, (own, fitted))
    changed = [
        name
        for name in {**before, **after}
        if name not in before or name not in after or not np.array_equal(before[name], after[name])
    ]
    if changed:
        raise UserError(
            f'transfer.method={config.transfer.method} does not change the model at init_from, but '
            f'the config changes {enumerate_names(changed)}; keep its positions and its tokenizer '
            f'(in pretraining --config.data.tokenizer={config.init_from})'
        )


def _drop_last_layers(params: dict[str, np.ndarray], number: int) -> str:
    """Remove the last layers and the pooler from `params`; return a line for the log."""
    matches = (re.match(r'encoder/layers_(\d+)/', name) for name in params)
    layers = sorted({int(match[1]) for match in matches if match})
    if not 0 < number <= len(layers):
        raise UserError(
            f'transfer.reinit_layers is {number}, but there are {len(layers)} layers to initialize '
            '(shared layers count as one, layers stacked by compute.scan_layers as none)'
        )
    parts = [f'layers_{layer}' for layer in layers[-number:]] + ['pooler']
    prefixes = tuple(f'encoder/{part}/' for part in parts)
    for name in [name for name in params if name.startswith(prefixes)]:
        del params[name]
    return f'newly initialized: {", ".join(parts)}'
