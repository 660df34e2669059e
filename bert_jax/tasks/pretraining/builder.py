"""Builds the pretraining task of a config, and refuses configs that cannot be trained."""

import collections
import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, cast

import numpy as np
from ml_collections import ConfigDict

from bert_jax import objectives
from bert_jax.corpus.corpus import Corpus
from bert_jax.errors import UserError
from bert_jax.examples.example_source import BatchSource
from bert_jax.models.architecture import Architecture, Compute
from bert_jax.models.architecture_parts import DecoderStack
from bert_jax.models.model import Model
from bert_jax.objectives import CORRUPTIONS, OBJECTIVES, Objective
from bert_jax.objectives.corruption import Corruption, TargetLayout, Vocabulary
from bert_jax.objectives.masking import MaskedText
from bert_jax.objectives.masking_schemes import find_scheme
from bert_jax.tasks import initialization
from bert_jax.tasks.pretraining import (
    TEXT_ROWS,
    BuildEvaluator,
    Evaluator,
    EvaluatorInputs,
    enabled_evaluators,
    sources,
)
from bert_jax.tasks.pretraining.stage_settings import (
    StageSettings,
    check_masking_rate,
    num_predictions,
    stage_settings,
)
from bert_jax.tasks.pretraining.task import HELD_OUT_SEED, Pretraining, stage_shape
from bert_jax.training.task import Stage, first_batches
from bert_jax.types import Config

if TYPE_CHECKING:  # only runs with several languages need it
    from bert_jax.examples.language_mixture import Mixture


def build(
    config: Config,
    corpus: Corpus | None = None,
    evaluate_further: bool = True,
    own_evaluators: Sequence[BuildEvaluator] = (),
) -> Pretraining:
    """Build the task of a config.

    Args:
        config: See configs/base.py.
        corpus: The text; by default the corpus of the config, which is prepared if missing.
        evaluate_further: Whether to build evaluators.
        own_evaluators: Build evaluators beside those that the config enables.

    Raises:
        UserError: For a config that cannot be trained.
    """
    names = objectives.enabled(config.objectives)
    corrupted = objectives.common_corruption(names, config.masking.scheme)
    corruption = CORRUPTIONS[corrupted]
    if config.data.pack and not corruption.allows_packing:
        raise UserError(
            f'data.pack is True, but the objectives {", ".join(names)} need {corrupted} '
            'text, which moves tokens from one example of a row into another; set '
            'data.pack=False'
        )
    built = {name: OBJECTIVES[name].build(name, config) for name in names}
    corpus = corpus or sources.open_corpus(config.data)
    heads = [head for objective in built.values() for head in objective.heads()]
    start = initialization.initialize(
        config,
        initialization.load_weights(config),
        corpus.tokenizer,
        heads,
        is_causal=any(objective.is_causal for objective in built.values()),
    )
    compute = Compute(**config.compute.to_dict())
    model = objectives.build_model(start.architecture, compute, built.values())
    if start.architecture.prediction.shift and 'mntp' not in built:
        raise UserError(
            f'model.prediction.shift is True, which {", ".join(names)} does not train; enable '
            'objectives.mntp or set it to False'
        )
    settings = stage_settings(config.training, len(config.data.language_alphas) or 1)
    if issubclass(corruption, MaskedText):
        _check_scheme(config, names)
        masking = config.masking
        rates = masking.rate, masking.end_rate, config.evaluation.masking_rate
        check_masking_rate(settings, max(rate or 0.0 for rate in rates))
    vocabulary = _vocabulary(config, corpus, corruption, start.architecture.decoder)
    _check_decoder(built, start.architecture)
    marks = sources.Marks(
        any('sentence_start' in one.batch_keys for one in built.values()),
        _language_ids(corpus) if vocabulary.layout and vocabulary.layout.has_language else None,
    )
    corrupt = corruption.build(config, vocabulary, num_predictions(settings))
    if config.training.minutes:
        _check_timed(config)
    stages = _build_stages(config, corpus, model, corrupt, settings, marks)
    for stage in stages:
        _check_batch_keys(built, stage.source, config.data.segments)
    task = Pretraining(
        config=config,
        corpus=corpus,
        start=start,
        objectives=built,
        model=model,
        corruption=corrupt,
        held_out_corruption=_held_out_corruption(
            config, corpus, corruption, start.architecture.decoder, num_predictions(settings)
        ),
        stages=stages,
        held_out={
            shape: sources.held_out_sources(corpus, config.data, shape, HELD_OUT_SEED, marks)
            for shape in map(stage_shape, stages)
        },
    )
    if evaluate_further:
        return dataclasses.replace(task, evaluators=_build_evaluators(task, own_evaluators))
    return task


def _held_out_corruption(
    config: Config,
    corpus: Corpus,
    corruption: type[Corruption],
    decoder: DecoderStack | None,
    num_predictions: Mapping[int, int],
) -> Corruption | None:
    """Return the corruption of `evaluation.masking_scheme` and `masking_rate`; None if unset."""
    masking = sources.held_out_masking(config)
    if masking is None:
        return None
    changed = config.copy_and_resolve_references()
    with changed.unlocked():
        changed.masking.update(masking)
    names = objectives.enabled(config.objectives)
    objectives.common_corruption(names, changed.masking.scheme)
    _check_scheme(changed, names)
    if find_scheme(changed.masking.scheme).adapts:
        raise UserError(
            f'evaluation.masking_scheme is {changed.masking.scheme!r}, whose masks depend on the '
            "run; choose another, such as 'tokens'"
        )
    vocabulary = _vocabulary(changed, corpus, corruption, decoder)
    return corruption.build(changed, vocabulary, num_predictions)


def _check_scheme(config: Config, names: Sequence[str]) -> None:
    """Raise UserError if the masking scheme needs another objective, or steps that have passed."""
    scheme = find_scheme(config.masking.scheme)
    if scheme.objective is not None and scheme.objective not in names:
        raise UserError(
            f'masking.scheme={config.masking.scheme!r} needs the objective {scheme.objective!r}, '
            f'but the run has {", ".join(names)}; set objectives.{scheme.objective} above 0 or '
            "masking.scheme to 'tokens'"
        )
    if scheme.adapts and config.debug.batch > config.masking.adapt_every:
        raise UserError(
            f'debug.batch is {config.debug.batch}, but with masking.scheme='
            f'{config.masking.scheme!r} the masks depend on the predictions of the steps before; '
            f'choose a step up to masking.adapt_every, {config.masking.adapt_every}'
        )


def _check_timed(config: Config) -> None:
    """Raise UserError for keys that need the number of steps before the run."""
    if config.transfer.unfreeze_every_steps or config.transfer.unfreeze_every_fraction:
        raise UserError(
            'gradual unfreezing counts steps, but training.minutes ends the run at a time; leave '
            'transfer.unfreeze_every_steps and transfer.unfreeze_every_fraction out'
        )
    if enabled_evaluators(config.evaluation):
        raise UserError(
            'evaluation.linguistic has a share of the operations of the run, which '
            'training.minutes does not tell; measure the finished run with bert_jax.analyze'
        )
    if config.data.language_alphas:
        raise UserError(
            'data.language_alphas needs the number of steps of each part of the run, which '
            'training.minutes does not tell; set data.language_alpha'
        )
    if config.debug.batch:
        raise UserError(
            'debug.batch counts steps, but training.minutes ends stages at a time; set '
            'training.minutes to 0'
        )


def _build_stages(
    config: Config,
    corpus: Corpus,
    model: Model,
    corruption: Corruption,
    settings: Sequence[StageSettings],
    marks: sources.Marks,
) -> tuple[Stage, ...]:
    """Build the stages; where the shares of languages change, each language continues its text."""
    total, starts = sum(stage.steps for stage in settings), [0]
    stages: list[Stage] = []
    # Examples of each language since the last stage that started from the first example.
    seen: collections.Counter[str] = collections.Counter()
    for own in settings:
        stage = _build_stage(config, corpus, model, corruption, own, own.steps / total, marks)
        stages.append(stage)
        if config.data.language_alphas:
            if not stage.continues:
                seen.clear()
            source = cast('Mixture', stage.source)
            first = first_batches(stages, starts)[-1] * source.batch_size
            stages[-1] = dataclasses.replace(stage, source=source.continuing(seen, first))
            seen.update(source.observed(first + own.steps * source.batch_size))
            seen.subtract(source.observed(first))
        starts.append(starts[-1] + own.steps)
    return tuple(stages)


def _build_stage(
    config: Config,
    corpus: Corpus,
    model: Model,
    corruption: Corruption,
    settings: StageSettings,
    share: float,
    marks: sources.Marks,
) -> Stage:
    """Build a stage that has this share of the steps of the run."""
    batch_size, length = settings.batch_size, settings.sequence_length
    lengths = corruption.source_length(length), corruption.target_length(length)
    longest = max(lengths)
    if longest > model.architecture.max_length:
        rows = '' if longest == length else f' gives rows of {longest} tokens, which'
        raise UserError(
            f'training.sequence_length {length}{rows} exceeds the {model.architecture.max_length} '
            'positions of the model; set model.max_position_embeddings'
        )
    tokens = batch_size * length
    source = sources.train_source(
        corpus, config.data, (batch_size, length), config.seed, marks, settings.part
    )
    return Stage(
        source=source,
        steps=settings.steps,
        accumulation=settings.accumulation,
        tokens_per_step=tokens,
        flops_per_step=batch_size * model.flops_per_row(*lengths, settings.max_predictions),
        evaluate_at=frozenset(config.evaluation.get('steps', ())),
        seconds=60 * config.training.minutes * share,
        continues=settings.continues,
    )


def _check_batch_keys(chosen: Mapping[str, Objective], source: BatchSource, segments: str) -> None:
    batch = source.batch(0, np.arange(1))
    for name, objective in chosen.items():
        for key in objective.batch_keys:
            if key not in batch:
                raise UserError(
                    f'objective {name!r} needs {key!r} in its batches, which '
                    f'data.segments={segments!r} does not provide'
                )


def _build_evaluators(task: Pretraining, own: Sequence[BuildEvaluator]) -> tuple[Evaluator, ...]:
    """Build the evaluators that are enabled and `own`, with batches of the first stage's size."""
    stage, config = task.stages[0], task.config
    source = task.held_out[stage_shape(stage)][None]
    inputs = EvaluatorInputs(
        settings=ConfigDict(),
        model=task.model,
        corpus=task.corpus,
        text=source.examples(np.arange(min(TEXT_ROWS, source.num_examples))),
        rows=stage.source.batch_size // stage.accumulation,
        threads=config.data.reading_threads,
        is_special=task.corruption.vocabulary.is_special,
        flops=sum(stage.steps * stage.flops_per_step for stage in task.stages),
        num_evaluations=_num_evaluations(task),
    )
    enabled = enabled_evaluators(config.evaluation).items()
    configured = (
        kind.build(inputs._replace(settings=config.evaluation[name])) for name, kind in enabled
    )
    return (*configured, *(build(inputs) for build in own))


def _num_evaluations(task: Pretraining) -> int:
    """Count the steps of the run after which it is evaluated."""
    ends = np.cumsum([stage.steps for stage in task.stages]).tolist()
    every = task.config.evaluation.every_steps
    periodic = range(every, ends[-1] + 1, every) if every else ()
    extra = {step for step in task.stages[0].evaluate_at if step <= ends[-1]}
    return len({*ends, *periodic, *extra})


def _vocabulary(
    config: Config, corpus: Corpus, corruption: type[Corruption], decoder: DecoderStack | None
) -> Vocabulary:
    """Return what a corruption must know of the vocabulary of a corpus.

    Raises:
        UserError: For text in which the masking scheme cannot find words, or for a vocabulary
            without a [MASK] that the corruption needs.
    """
    tokenizer, counts_V = corpus.tokenizer, corpus.unigram_counts('train')
    masking, sentinel_ids = config.masking, tokenizer.sentinel_ids
    mask_id = tokenizer.role_ids.get('mask', next(iter(sentinel_ids), -1))
    if corruption.hides_tokens:
        mask_id = tokenizer.mask_id
    may_be_chosen = {tokenizer.role_ids.get('unk')} if masking.unknown else set()
    special_ids = tuple(sorted({*tokenizer.special_ids} - may_be_chosen))
    starts_V = None
    if corruption.reads_words(config):
        from bert_jax.tokenizers import word_starts

        starts_V = word_starts.find(tokenizer, masking.word_starts, masking.unspaced)
        if starts_V is not None:
            word_starts.check_unspaced(tokenizer, starts_V, counts_V)
    layout = None
    if decoder is not None:
        cls_ids = (tokenizer.cls_id,) if tokenizer.starts_texts else ()
        starts = {'cls': tokenizer.first_id, 'sep': tokenizer.sep_id, 'pad': tokenizer.pad_id}
        layout = TargetLayout(cls_ids, tokenizer.sep_id, starts.get(decoder.start))
    return Vocabulary(
        mask_id, tokenizer.pad_id, special_ids, counts_V, starts_V, sentinel_ids, layout
    )


def _check_decoder(chosen: Mapping[str, Objective], architecture: Architecture) -> None:
    """Raise UserError unless the objectives train the decoder that the model has."""
    reading = [name for name, objective in chosen.items() if objective.reads_decoder]
    if reading and architecture.decoder is None:
        raise UserError(
            f'objective {reading[0]} needs a model with a decoder; set model.architecture, for '
            "example to 'bart_base' or 't5_small'"
        )
    if architecture.decoder is not None and not reading:
        able = [name for name in OBJECTIVES if OBJECTIVES[name].reads_decoder]
        raise UserError(
            f'the model has a decoder, which {", ".join(chosen)} does not train; set '
            f'objectives.{able[0]} above 0 and the others to 0'
        )


def _language_ids(corpus: Corpus) -> dict[str, int]:
    """Return language of the corpus → id of its token; UserError if one has no token."""
    languages, ids = corpus.split('train').languages, corpus.tokenizer.language_ids
    if missing := [name for name in languages if name not in ids]:
        raise UserError(
            f'the tokenizer has no token of the language {missing[0]!r}, with which targets start; '
            'train it with languages, as in train:unigram:8000:languages='
            f'{",".join(languages)}:cls=no'
        )
    return {name: ids[name] for name in languages}
