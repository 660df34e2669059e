"""The pretraining task: corrupt a batch, encode it, and sum the loss terms of all objectives."""

import dataclasses
from collections.abc import Iterator, Mapping
from typing import cast

import jax
import numpy as np

from bert_jax import averages, objectives, progress
from bert_jax.averages import Terms
from bert_jax.corpus.corpus import Corpus
from bert_jax.errors import UserError, warn, writing
from bert_jax.examples.example_source import ExampleSource, FirstExamples
from bert_jax.models import kernels
from bert_jax.models.architecture import Compute
from bert_jax.models.rows import Rows
from bert_jax.objectives import OBJECTIVES
from bert_jax.objectives.corruption import Vocabulary
from bert_jax.objectives.masking import MaskedText
from bert_jax.objectives.masking_schemes import find_scheme
from bert_jax.reports import model_card
from bert_jax.reports import pretraining as evaluation
from bert_jax.storage import paths
from bert_jax.tasks import (
    evaluators,
    initialization,
    next_commands,
    pretraining_data,
    show_batch,
)
from bert_jax.tasks.evaluators import TEXT_ROWS, Evaluator, EvaluatorInputs
from bert_jax.tasks.stage_settings import check_masking_rate, num_predictions, stage_settings
from bert_jax.tokenizers import word_starts
from bert_jax.training import batches, multihost
from bert_jax.training.step import step_key, sum_over_micro_batches
from bert_jax.training.task import Stage
from bert_jax.types import Batch, Config, JsonObject, JsonView, Key, Params, Tree

HELD_OUT_SEED = 0  # the same held-out examples and masks in every run


class Pretraining:
    """A `Task` (training/task.py) that pretrains an encoder."""

    def __init__(
        self, config: Config, corpus: Corpus | None = None, evaluate_further: bool = True
    ) -> None:
        """Build the task.

        Args:
            config: See configs/base.py.
            corpus: The text; by default the corpus of the config, which is prepared if missing.
            evaluate_further: Whether to build the evaluators that the config enables.

        Raises:
            UserError: For a config that cannot be trained.
        """
        self.config = config
        names = objectives.enabled(config.objectives)
        corruption = objectives.common_corruption(names, config.masking.scheme)
        if config.data.pack and not corruption.allows_packing:
            raise UserError(
                f'data.pack is True, but the objectives {", ".join(names)} need {corruption.label} '
                'text, which moves tokens from one example of a row into another; set '
                'data.pack=False'
            )
        self.objectives = {name: OBJECTIVES[name].build(name, config) for name in names}
        self._mark_sentences = any(
            'sentence_start' in objective.batch_keys for objective in self.objectives.values()
        )
        self.weights = objectives.loss_weights(config.objectives)
        self.learning_rate = config.schedule.learning_rate
        self.corpus = corpus or pretraining_data.open_corpus(config.data)
        tokenizer = self.corpus.tokenizer
        self.start = initialization.initialize(
            config, initialization.load_weights(config), tokenizer, names
        )
        self.architecture = self.start.architecture
        self.compute = Compute(**config.compute.to_dict())
        self.model = objectives.build_model(
            self.architecture, self.compute, self.objectives.values()
        )
        stages = stage_settings(config.training)
        if issubclass(corruption, MaskedText):
            check_masking_rate(stages, config.masking.rate)
        vocabulary = _vocabulary(config.masking, self.corpus)
        self.corruption = corruption.build(config, vocabulary, num_predictions(stages))
        self.stages = tuple(map(self._make_stage, stages))
        self._held_out = {
            shape: pretraining_data.held_out_sources(
                self.corpus, config.data, shape, HELD_OUT_SEED, self._mark_sentences
            )
            for shape in map(_shape, self.stages)
        }
        self.metadata: JsonObject = {
            'task': 'pretraining',
            'family': self.start.family,
            'architecture': dataclasses.asdict(self.architecture),
            'base': self.start.base,
            'tokenizer': tokenizer.to_json(),
            'tokenizer_fingerprint': tokenizer.fingerprint,
            'corpus_fingerprint': self.corpus.fingerprint,
        }
        self._held_out_step = jax.jit(self._held_out_terms, static_argnums=2)
        self._evaluators = self._build_evaluators() if evaluate_further else []

    def _make_stage(self, settings: Mapping[str, int]) -> Stage:
        batch_size, length = settings['batch_size'], settings['sequence_length']
        if length > self.architecture.max_length:
            raise UserError(
                f'training.sequence_length {length} exceeds the '
                f'{self.architecture.max_length} positions of the model; set '
                'model.max_position_embeddings'
            )
        tokens = batch_size * length
        source = pretraining_data.train_source(
            self.corpus,
            self.config.data,
            (batch_size, length),
            self.config.seed,
            self._mark_sentences,
        )
        self._check_batch_keys(source)
        return Stage(
            source=source,
            steps=settings['steps'],
            accumulation=settings['accumulation'],
            tokens_per_step=tokens,
            flops_per_step=tokens * self.model.flops_per_token(length, settings['max_predictions']),
            evaluate_at=frozenset(self.config.evaluation.get('steps', ())),
        )

    def _build_evaluators(self) -> list[Evaluator]:
        """Build the evaluators that are enabled, with batches of the first stage's size."""
        stage = self.stages[0]
        source = self._held_out[_shape(stage)][None]
        return [
            evaluator.build(
                EvaluatorInputs(
                    settings=self.config.evaluation[name],
                    model=self.model,
                    corpus=self.corpus,
                    text=source.examples(np.arange(min(TEXT_ROWS, source.num_examples))),
                    rows=stage.source.batch_size // stage.accumulation,
                    threads=self.config.data.reading_threads,
                    is_special=self.corruption.vocabulary.is_special,
                    flops=sum(stage.steps * stage.flops_per_step for stage in self.stages),
                    num_evaluations=self._num_evaluations(),
                )
            )
            for name, evaluator in evaluators.enabled(self.config.evaluation).items()
        ]

    def _num_evaluations(self) -> int:
        """Count the steps of the run after which it is evaluated."""
        ends = np.cumsum([stage.steps for stage in self.stages]).tolist()
        every = self.config.evaluation.every_steps
        periodic = range(every, ends[-1] + 1, every) if every else ()
        extra = {step for step in self.stages[0].evaluate_at if step <= ends[-1]}
        return len({*ends, *periodic, *extra})

    def _check_batch_keys(self, source: ExampleSource) -> None:
        batch = source.batch(0, np.arange(1))
        for name, objective in self.objectives.items():
            for key in objective.batch_keys:
                if key not in batch:
                    raise UserError(
                        f'objective {name!r} needs {key!r} in its batches, which '
                        f'data.segments={self.config.data.segments!r} does not provide'
                    )

    def describe(self) -> list[str]:
        """Return lines for the start of the log: the model, the corpus and the stages."""
        train, held_out = self.corpus.split('train'), self.corpus.split('held_out')
        longest = max(length for _, length in map(_shape, self.stages))
        lines = [
            f'{self.config.model.architecture or self.start.family} '
            f'{self.architecture.num_layers} × {self.architecture.hidden_size}, vocabulary '
            f'{self.architecture.vocab_size:,}; {", ".join(self.weights)}',
            f'{self.config.data.corpus}: {train.num_tokens:,} tokens in {train.num_documents:,} '
            f'documents; held out {held_out.num_tokens:,} in {held_out.num_documents:,}',
            kernels.describe(self.architecture, self.compute, longest),
        ]
        for number, stage in enumerate(self.stages, start=1):
            source = cast(ExampleSource, stage.source)
            first, *others = pretraining_data.describe(source, stage.steps * source.batch_size)
            lines += [f'stage {number}: {stage.steps:,} steps, {first}', *others]
        return [*lines, *(line for evaluator in self._evaluators for line in evaluator.lines)]

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

    def terms(self, params: Params, batch: Batch, key: Key, train: bool) -> Terms:
        """Compute the terms of a batch.

        Corruption and dropout depend on `key` and the index of each example alone.
        """
        clean = Rows.of(batch)
        corruption_keys_B, dropout_keys_B = _example_keys(key, clean)
        rows = self.corruption(corruption_keys_B, clean)
        seeds_B = jax.vmap(jax.random.bits)(dropout_keys_B) if train else None
        output: Tree = self.model.apply({'params': params}, rows, seeds_B)
        return objectives.compute_terms(self.objectives.values(), output, clean)

    def corrupted_batch(self, stage: Stage, number: int, step: int) -> tuple[Rows, Rows]:
        """Return batch `number` of a stage, clean and as corrupted in training step `step`."""
        clean = Rows.of(stage.source.batch(number))
        key = step_key(jax.random.key(self.config.seed), step)
        return clean, jax.jit(self.corruption)(_example_keys(key, clean)[0], clean)

    def readable_batch(self, stage: Stage, number: int, step: int) -> Iterator[JsonObject]:
        clean, rows = jax.device_get(self.corrupted_batch(stage, number, step))
        tokenizer = self.corpus.tokenizer
        for row in range(stage.source.batch_size):
            targets = self.corruption.describe(rows, row, tokenizer.vocab)
            yield show_batch.corrupted_row(clean, rows, row, tokenizer) | targets

    def evaluate(self, params: Params, stage: Stage) -> dict[str, float]:
        """Compute the held-out metrics and baselines that ignore the context.

        With several languages, the losses of each language, such as `mlm_loss/cy`, are added; each
        language gets an equal share of the examples.
        """
        num_examples, means = self.config.evaluation.examples, {}
        sources = self._held_out[_shape(stage)]
        for language, source in sources.items():
            number = num_examples // (len(sources) - 1) if language else num_examples
            means[language] = self._held_out_means(params, source, number, stage.accumulation)
        counts = self.corpus.unigram_counts('held_out')
        metrics = evaluation.add_baselines(means.pop(None), counts)
        for language, values in means.items():
            names = [name for name in self.weights if name in values]
            metrics |= {f'{name}/{language}': values[name] for name in names}
        for evaluator in self._evaluators:
            metrics |= evaluator(params)
        return metrics

    def compile_evaluation(self, params: Params, stage: Stage) -> jax.stages.Compiled:
        batch = batches.abstract(self._held_out[_shape(stage)][None])
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
        source = self._held_out[_shape(self.stages[-1])][None]
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

    def report(self, params: Params, results: JsonObject) -> None:
        """Write cloze.md and the model card into the workdir; print examples and metrics."""
        params = multihost.fetch(params)
        if jax.process_index():
            return
        workdir = paths.local(self.config.workdir)
        examples = ''
        if 'mlm' in self.model.heads and self.config.evaluation.cloze_examples:
            filled = self.cloze(params, self.config.evaluation.cloze_examples)
            examples = evaluation.cloze_markdown(self.corpus.tokenizer, *filled)
            with writing(f'workdir {workdir}'):
                (workdir / 'cloze.md').write_text(examples, encoding='utf-8')
            for line in evaluation.cloze_lines(self.corpus.tokenizer, *filled):
                progress.say(line)
        held_out = results['held_out']
        if warnings := evaluation.warnings(held_out):
            results['warnings'] = warnings
            for warning in warnings:
                warn(warning)
        with writing(f'workdir {workdir}'):
            sections = [evaluator.report(held_out, workdir) for evaluator in self._evaluators]
            elsewhere = {name for section in sections for name in section.metrics}
            card = model_card.pretrained(
                self.config,
                stage_settings(self.config.training),
                self.architecture,
                self.corpus,
                results,
                {name: held_out[name] for name in held_out if name not in elsewhere},
                [*(f'Warning: {line}.\n' for line in warnings), *(s.text for s in sections)],
                examples,
            )
            (workdir / 'README.md').write_text(card, encoding='utf-8')
        shown = ', '.join(
            f'{name} {value:.4g}'
            for name, value in held_out.items()
            if name.endswith(('_accuracy', '_loss'))
        )
        progress.say(f'held-out: {shown}')

    def next_commands(self) -> list[str]:
        return next_commands.after_pretraining(
            self.config.workdir,
            self.corpus.tokenizer,
            'mlm' in self.model.heads,
            self.corpus.split('train').languages,
        )

    def references(self) -> dict[str, float]:
        """Return a horizontal line for the loss plot: the loss of guessing by token frequency."""
        entropy = evaluation.unigram_entropy(self.corpus.unigram_counts('held_out'))
        return {'unigram entropy of the held-out text (nats)': entropy}


def _vocabulary(masking: Config, corpus: Corpus) -> Vocabulary:
    """Return what a corruption must know of the vocabulary of a corpus.

    Raises:
        UserError: For text in which the masking scheme cannot find words.
    """
    tokenizer, counts_V = corpus.tokenizer, corpus.unigram_counts('train')
    may_be_chosen = {tokenizer.unk_id} if masking.unknown else set()
    special_ids = tuple(sorted({*tokenizer.special_ids} - may_be_chosen))
    starts_V = word_starts.find(tokenizer, masking.word_starts, masking.unspaced)
    if find_scheme(masking.scheme).needs_words and starts_V is not None:
        word_starts.check_unspaced(tokenizer, starts_V, counts_V)
    return Vocabulary(tokenizer.mask_id, tokenizer.pad_id, special_ids, counts_V, starts_V)


def _shape(stage: Stage) -> tuple[int, int]:
    """Return the batch size and the sequence length of a stage."""
    batch_size = stage.source.batch_size
    return batch_size, stage.tokens_per_step // batch_size


def _example_keys(key: Key, rows: Rows) -> tuple[Key, Key]:
    """Return a corruption key and a dropout key for each example, from its index alone."""
    example_keys = jax.vmap(jax.random.fold_in, (None, 0))(key, rows.labels['example_index'])
    keys = jax.vmap(jax.random.split)(example_keys)
    return keys[:, 0], keys[:, 1]
