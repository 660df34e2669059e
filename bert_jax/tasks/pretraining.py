"""The pretraining task: corrupt a batch, encode it, and sum the loss terms of all objectives."""

import collections
import dataclasses
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, cast

import jax
import numpy as np
from ml_collections import ConfigDict

from bert_jax import averages, lazy_table, objectives, progress
from bert_jax.averages import Terms
from bert_jax.corpus.corpus import Corpus
from bert_jax.errors import UserError, warn
from bert_jax.examples.example_source import BatchSource, ExampleSource, FirstExamples
from bert_jax.models import kernels
from bert_jax.models.architecture import Architecture, Compute
from bert_jax.models.architecture_parts import DecoderStack
from bert_jax.models.model import Model
from bert_jax.models.rows import Rows
from bert_jax.models.visibility import Pattern
from bert_jax.objectives import CORRUPTIONS, OBJECTIVES, Objective
from bert_jax.objectives.corruption import Corruption, TargetLayout, Vocabulary
from bert_jax.objectives.masking import MaskedText
from bert_jax.objectives.masking_schemes import find_scheme
from bert_jax.reports import model_card
from bert_jax.reports import pretraining as evaluation
from bert_jax.tasks import (
    evaluators,
    initialization,
    next_commands,
    pretraining_data,
)
from bert_jax.tasks.evaluators import TEXT_ROWS, BuildEvaluator, Evaluator, EvaluatorInputs
from bert_jax.tasks.stage_settings import (
    StageSettings,
    check_masking_rate,
    num_predictions,
    stage_settings,
)
from bert_jax.training import batches, multihost
from bert_jax.training.step import step_key, sum_over_micro_batches
from bert_jax.training.task import Memory, Stage, first_batches
from bert_jax.training.workdir import Workdir
from bert_jax.types import Batch, Config, JsonObject, JsonView, Key, Params, Tree

if TYPE_CHECKING:  # only runs with several languages need it
    from bert_jax.examples.language_mixture import Mixture

_SAMPLES = 'bert_jax.tasks.diffusion_samples:samples'
_MASKING_MEMORY = 'bert_jax.objectives.adaptive_masking:MaskingMemory'
_DESCRIBE_ROW = 'bert_jax.tasks.show_batch:corrupted_row'
HELD_OUT_SEED = 0  # the same held-out examples and masks in every run


@dataclasses.dataclass(frozen=True, eq=False)
class Pretraining:
    """A `Task` (training/task.py) that pretrains an encoder; `build` makes one.

    Attributes:
        config: See configs/base.py.
        corpus: The text.
        start: The weights that training starts from, and their architecture.
        objectives: The objectives by name.
        model: The encoder with the heads of the objectives.
        corruption: Corrupts the batch of each step.
        stages: The stages.
        held_out: Shape of the batches of a stage → language → its held-out examples; None → the
            examples of all languages.
        evaluators: Those that the config enables.
    """

    config: Config
    corpus: Corpus
    start: initialization.InitialModel
    objectives: Mapping[str, Objective]
    model: Model
    corruption: Corruption
    stages: tuple[Stage, ...]
    held_out: Mapping[tuple[int, int], Mapping[str | None, ExampleSource]]
    evaluators: tuple[Evaluator, ...] = ()

    @property
    def weights(self) -> dict[str, float]:
        return objectives.loss_weights(self.config.objectives, self.config.training.z_loss)

    @property
    def learning_rate(self) -> float:
        rate: float = self.config.schedule.learning_rate
        return rate

    @functools.cached_property
    def memory(self) -> Memory | None:
        corruption = self.corruption
        if not isinstance(corruption, MaskedText) or not corruption.scheme.adapts:
            return None

        def change(corruption: MaskedText, mlm: Objective) -> Pretraining:
            chosen = {**self.objectives, 'mlm': mlm}
            return dataclasses.replace(self, corruption=corruption, objectives=chosen)

        memory: Memory = lazy_table.load(_MASKING_MEMORY).of(corruption, change)
        return memory

    @functools.cached_property
    def metadata(self) -> JsonObject:
        return {
            'task': 'pretraining',
            'family': self.start.family,
            'architecture': dataclasses.asdict(self.start.architecture),
            'base': self.start.base,
            'tokenizer': self.corpus.tokenizer.to_json(),
            'tokenizer_fingerprint': self.corpus.tokenizer.fingerprint,
            'corpus_fingerprint': self.corpus.fingerprint,
            'is_causal': self.model.is_causal,
            'has_prefix': self.corruption.has_prefix,
            'is_generative': any(one.is_generative for one in self.objectives.values()),
        }

    def describe(self) -> list[str]:
        """Return lines for the start of the log: the model, the corpus and the stages."""
        train, held_out = self.corpus.split('train'), self.corpus.split('held_out')
        longest = max(length for _, length in map(_shape, self.stages))
        architecture = self.start.architecture
        lines = [
            f'{self.config.model.architecture or self.start.family} {architecture.num_layers} × '
            f'{architecture.hidden_size}, vocabulary {architecture.vocab_size:,}; '
            f'{", ".join(self.weights)}',
            f'{self.config.data.corpus}: {train.num_tokens:,} tokens in {train.num_documents:,} '
            f'documents; held out {held_out.num_tokens:,} in {held_out.num_documents:,}',
            kernels.describe(
                architecture,
                self.model.compute,
                longest,
                Pattern(self.corruption.has_causal_rows, self.corruption.has_prefix),
            ),
        ]
        for number, stage in enumerate(self.stages, start=1):
            source = cast(ExampleSource, stage.source)
            first, *others = pretraining_data.describe(source, stage.steps * source.batch_size)
            if stage.seconds:
                lines += [f'stage {number}: {stage.seconds / 60:.3g} minutes']
            else:
                lines += [f'stage {number}: {stage.steps:,} steps, {first}', *others]
        return [*lines, *(line for evaluator in self.evaluators for line in evaluator.lines)]

    def check(self, metadata: JsonView) -> None:
        """Raise UserError if a checkpoint was made with another tokenizer or corpus."""
        for part in ('tokenizer', 'corpus'):
            key = f'{part}_fingerprint'
            if metadata[key] != self.metadata[key]:
                raise UserError(
                    f'{self.config.data.corpus} has another {part} ({self.metadata[key][:12]}) '
                    f'than the checkpoints in {self.config.workdir} ({metadata[key][:12]}); '
                    'restore that corpus or choose another --config.workdir'
                )

    def init(self, key: Key) -> Params:
        clean = Rows.of(self.stages[0].source.batch(0, np.arange(1)))
        rows = self.corruption(jax.random.split(key, 1), clean)
        params: Params = self.model.init(key, rows)['params']
        return params

    def terms(
        self,
        params: Params,
        batch: Batch,
        key: Key,
        train: bool,
        progress: jax.typing.ArrayLike = 1.0,
    ) -> Terms:
        """Compute the terms of a batch.

        Corruption and dropout depend on `key` and the index of each example alone.
        """
        clean = Rows.of(batch)
        corruption_keys_B, dropout_keys_B = _example_keys(key, clean)
        rows = self.corruption.at(progress)(corruption_keys_B, clean)
        seeds_B = jax.vmap(jax.random.bits)(dropout_keys_B) if train else None
        output: Tree = self.model.apply({'params': params}, rows, seeds_B)
        terms = objectives.compute_terms(self.objectives.values(), output, clean)
        if self.config.training.z_loss:
            terms |= objectives.z_terms(self.objectives, output)
        return terms

    def corrupted_batch(self, stage: Stage, number: int, step: int) -> tuple[Rows, Rows]:
        """Return batch `number` of a stage, clean and as corrupted in training step `step`."""
        clean = Rows.of(stage.source.batch(number))
        key = step_key(jax.random.key(self.config.seed), step)
        progress = step / sum(stage.steps for stage in self.stages)
        corrupt = jax.jit(lambda keys_B, rows, progress: self.corruption.at(progress)(keys_B, rows))
        return clean, corrupt(_example_keys(key, clean)[0], clean, progress)

    def readable_batch(self, stage: Stage, number: int, step: int) -> Iterator[JsonObject]:
        clean, rows = jax.device_get(self.corrupted_batch(stage, number, step))
        tokenizer = self.corpus.tokenizer
        describe: Callable[..., JsonObject] = lazy_table.load(_DESCRIBE_ROW)
        for row in range(stage.source.batch_size):
            targets = self.corruption.describe(rows, row, tokenizer.vocab)
            yield describe(clean, rows, row, tokenizer) | targets

    def evaluate(self, params: Params, stage: Stage) -> dict[str, float]:
        """Compute the held-out metrics and baselines that ignore the context.

        With several languages, the losses of each language, such as `mlm_loss/cy`, are added; each
        language gets an equal share of the examples.
        """
        num_examples, means = self.config.evaluation.examples, {}
        sources = self.held_out[_shape(stage)]
        for language, source in sources.items():
            number = num_examples // (len(sources) - 1) if language else num_examples
            means[language] = self._held_out_means(params, source, number, stage.accumulation)
        baseline = self.corpus.unigram_counts('held_out'), self.corpus.bytes_per_token('held_out')
        metrics = evaluation.add_baselines(means.pop(None), *baseline)
        for language, values in means.items():
            names = [name for name in self.weights if name in values]
            metrics |= {f'{name}/{language}': values[name] for name in names}
        for evaluator in self.evaluators:
            metrics |= evaluator(params)
        return metrics

    @functools.cached_property
    def _held_out_step(self) -> jax.stages.Wrapped:
        return jax.jit(self._held_out_terms, static_argnums=2)

    def compile_evaluation(self, params: Params, stage: Stage) -> jax.stages.Compiled:
        batch = batches.abstract(self.held_out[_shape(stage)][None])
        return self._held_out_step.lower(params, batch, stage.accumulation).compile()

    def _held_out_means(
        self, params: Params, source: ExampleSource, number: int, accumulation: int
    ) -> dict[str, float]:
        first, threads = FirstExamples(source, number), self.config.data.reading_threads
        total: Terms = {}
        for batch in batches.read(first, 0, first.num_batches, threads):
            terms = self._held_out_step(params, batch, accumulation)
            total = averages.add(total, jax.device_get(terms))
        return averages.means(total)

    def _held_out_terms(self, params: Params, batch: Batch, accumulation: int) -> Terms:
        key = jax.random.key(HELD_OUT_SEED)
        return sum_over_micro_batches(
            lambda micro: self.terms(params, micro, key, train=False), batch, accumulation
        )

    def cloze(self, params: Params, number: int) -> tuple[Rows, np.ndarray]:
        """Predict the masked tokens of up to `number` held-out examples, all masked by [MASK].

        Returns:
            The masked rows and probabilities, float32 [N, P, V]; NumPy arrays.
        """
        source = self.held_out[_shape(self.stages[-1])][None]
        clean = Rows.of(source.examples(np.arange(min(number, source.num_examples))))
        assert isinstance(self.corruption, MaskedText)
        mask_all = dataclasses.replace(self.corruption, mask=1.0, random=0.0)

        def predict(params: Params, clean: Rows) -> tuple[Rows, jax.Array]:
            keys_B = jax.random.split(jax.random.key(HELD_OUT_SEED), len(clean.input_ids_BT))
            masked = mask_all(keys_B, clean)
            output: Tree = self.model.with_heads('mlm').apply({'params': params}, masked)
            return masked, jax.nn.softmax(output.heads['mlm'])

        filled: tuple[Rows, np.ndarray] = jax.device_get(jax.jit(predict)(params, clean))
        return filled

    def _write_examples(self, params: Params, workdir: Workdir) -> str:
        """Write cloze.md or samples.md; return the section of the card, '' if there is none."""
        tokenizer, number = self.corpus.tokenizer, self.config.evaluation.cloze_examples
        if objectives.shows_cloze(self.objectives):
            filled = self.cloze(params, number)
            name, text = 'cloze.md', evaluation.cloze_markdown(tokenizer, *filled)
            title = 'Cloze examples (held-out; bold where the first guess is right)'
            lines = evaluation.cloze_lines(tokenizer, *filled)
        elif objectives.shows_samples(self.objectives):
            source = self.held_out[_shape(self.stages[-1])][None]
            clean = Rows.of(source.examples(np.arange(min(number, source.num_examples))))
            make: Callable[..., tuple[str, str]] = lazy_table.load(_SAMPLES)
            name, (title, text) = 'samples.md', make(self.model, params, clean, tokenizer)
            lines = text.replace('\n', ' ').split('> ')[1:3]
        else:
            return ''
        with workdir.writing():
            (workdir.local / name).write_text(text, encoding='utf-8')
        for line in lines:
            progress.say(line)
        return f'## {title}\n\n{text}'

    def report(self, params: Params, results: JsonObject, workdir: Workdir) -> None:
        """Write examples and the model card into the workdir; print examples and metrics."""
        params = multihost.fetch(params)
        if jax.process_index():
            return
        examples = ''
        if self.config.evaluation.cloze_examples:
            examples = self._write_examples(params, workdir)
        held_out = results['held_out']
        if warnings := evaluation.warnings(held_out):
            results['warnings'] = warnings
            for warning in warnings:
                warn(warning)
        with workdir.writing():
            sections = [evaluator.report(held_out, workdir.local) for evaluator in self.evaluators]
            elsewhere = {name for section in sections for name in section.metrics}
            card = model_card.pretrained(
                self.config,
                _trained_stages(self.config, results),
                self.start.architecture,
                self.corpus,
                results,
                {name: held_out[name] for name in held_out if name not in elsewhere},
                [*(f'Warning: {line}.\n' for line in warnings), *(s.text for s in sections)],
                examples,
            )
            (workdir.local / 'README.md').write_text(card, encoding='utf-8')
        shown = ', '.join(
            f'{name} {value:.4g}'
            for name, value in held_out.items()
            if name.endswith(('_accuracy', '_loss'))
        )
        progress.say(f'held-out: {shown}')

    def next_commands(self) -> list[str]:
        *commands, export = next_commands.after_pretraining(
            self.config.workdir,
            self.corpus.tokenizer,
            'mlm' in self.model.heads,
            self.corpus.split('train').languages,
        )
        return commands if self.start.family is None else [*commands, export]

    def references(self) -> dict[str, float]:
        """Return a horizontal line for the loss plot: the loss of guessing by token frequency."""
        entropy = evaluation.unigram_entropy(self.corpus.unigram_counts('held_out'))
        return {'unigram entropy of the held-out text (nats)': entropy}


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
    corpus = corpus or pretraining_data.open_corpus(config.data)
    heads = [head for objective in built.values() for head in objective.heads()]
    start = initialization.initialize(
        config, initialization.load_weights(config), corpus.tokenizer, heads
    )
    compute = Compute(**config.compute.to_dict())
    model = objectives.build_model(start.architecture, compute, built.values())
    if start.architecture.prediction.shift and 'mntp' not in built:
        raise UserError(
            f'model.prediction.shift is True, which {", ".join(names)} does not train; enable '
            'objectives.mntp or set it to False'
        )
    settings = _settings(config)
    if issubclass(corruption, MaskedText):
        _check_scheme(config, names)
        check_masking_rate(settings, max(config.masking.rate, config.masking.end_rate or 0.0))
    vocabulary = _vocabulary(config, corpus, corruption, start.architecture.decoder)
    _check_decoder(built, start.architecture)
    marks = pretraining_data.Marks(
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
        stages=stages,
        held_out={
            shape: pretraining_data.held_out_sources(
                corpus, config.data, shape, HELD_OUT_SEED, marks
            )
            for shape in map(_shape, stages)
        },
    )
    if evaluate_further:
        return dataclasses.replace(task, evaluators=_build_evaluators(task, own_evaluators))
    return task


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
    if evaluators.enabled(config.evaluation):
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


def _settings(config: Config) -> list[StageSettings]:
    """Return the settings of the stages of a run."""
    return stage_settings(config.training, len(config.data.language_alphas) or 1)


def _build_stages(
    config: Config,
    corpus: Corpus,
    model: Model,
    corruption: Corruption,
    settings: Sequence[StageSettings],
    marks: pretraining_data.Marks,
) -> tuple[Stage, ...]:
    """Build the stages; where the shares of languages change, each continues its text."""
    total, starts = sum(stage.steps for stage in settings), [0]
    stages: list[Stage] = []
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
    marks: pretraining_data.Marks,
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
    source = pretraining_data.train_source(
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
    source = task.held_out[_shape(stage)][None]
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
    enabled = evaluators.enabled(config.evaluation).items()
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


def _shape(stage: Stage) -> tuple[int, int]:
    """Return the batch size and the sequence length of a stage."""
    batch_size = stage.source.batch_size
    return batch_size, stage.tokens_per_step // batch_size


def _example_keys(key: Key, rows: Rows) -> tuple[Key, Key]:
    """Return a corruption key and a dropout key for each example, from its index alone."""
    example_keys = jax.vmap(jax.random.fold_in, (None, 0))(key, rows.labels['example_index'])
    keys = jax.vmap(jax.random.split)(example_keys)
    return keys[:, 0], keys[:, 1]


def _trained_stages(config: Config, results: JsonObject) -> list[dict[str, int]]:
    """Return the settings of the stages of a finished run, with the steps that they had."""
    settings = _settings(config)
    steps = results['stage_steps'] if config.training.minutes else [one.steps for one in settings]
    return [
        one._replace(steps=number)._asdict() for one, number in zip(settings, steps, strict=False)
    ]
