"""The pretraining task: corrupt a batch, encode it, and sum the loss terms of all objectives."""

import dataclasses
import functools
from collections.abc import Callable, Iterator, Mapping
from typing import cast

import jax
import jax.numpy as jnp
import numpy as np

from bert_jax import averages, lazy_table, objectives, progress
from bert_jax.averages import Term, Terms
from bert_jax.corpus.corpus import Corpus
from bert_jax.errors import UserError, warn
from bert_jax.examples.example_source import ExampleSource, FirstExamples
from bert_jax.loaded.record import RunRecord
from bert_jax.models import kernels
from bert_jax.models.model import Model, ModelOutput
from bert_jax.models.rows import Rows
from bert_jax.models.visibility import Pattern
from bert_jax.objectives import Objective
from bert_jax.objectives.corruption import Corruption
from bert_jax.objectives.masking import MaskedText
from bert_jax.reports import model_card
from bert_jax.reports import pretraining as evaluation
from bert_jax.tasks import initialization, next_commands
from bert_jax.tasks.pretraining import Evaluator
from bert_jax.tasks.pretraining import sources as pretraining_data
from bert_jax.training import batches, multihost, runtime
from bert_jax.training.step import step_key, sum_over_micro_batches
from bert_jax.training.task import Stage, TaskMemory
from bert_jax.training.workdir import Workdir
from bert_jax.types import Batch, Config, JsonObject, JsonRecord, Key, Params, Tree

_SAMPLES = 'bert_jax.tasks.pretraining.diffusion_samples:samples'
_MASKING_MEMORY = 'bert_jax.objectives.adaptive_masking:MaskingMemory'
_DESCRIBE_ROW = 'bert_jax.tasks.show_batch:corrupted_row'
_COUNTS = 'target_counts'  # of each token, beside the terms of an evaluation
HELD_OUT_SEED = 0  # the same held-out examples and masks in every run


@dataclasses.dataclass(frozen=True, eq=False)
class Pretraining:
    """A `Task` (training/task.py) that pretrains an encoder; `builder.build` makes one.

    Attributes:
        config: See configs/base.py.
        corpus: The text.
        start: The weights that training starts from, and their architecture.
        objectives: The objectives by name.
        model: The encoder with the heads of the objectives.
        corruption: Corrupts the batch of each step.
        held_out_corruption: Corrupts held-out batches; None: `corruption` does, as at the end of
            the run.
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
    held_out_corruption: Corruption | None = None

    @property
    def weights(self) -> dict[str, float]:
        return objectives.loss_weights(self.config.objectives, self.config.training.z_loss)

    @property
    def learning_rate(self) -> float:
        rate: float = self.config.schedule.learning_rate
        return rate

    @functools.cached_property
    def memory(self) -> TaskMemory | None:
        corruption = self.corruption
        if not isinstance(corruption, MaskedText) or not corruption.scheme.adapts:
            return None

        def change(corruption: MaskedText, mlm: Objective) -> Pretraining:
            chosen = {**self.objectives, 'mlm': mlm}
            return dataclasses.replace(self, corruption=corruption, objectives=chosen)

        memory: TaskMemory = lazy_table.load(_MASKING_MEMORY).of(corruption, change)
        return memory

    @functools.cached_property
    def record(self) -> RunRecord:
        return RunRecord(
            task='pretraining',
            family=self.start.family,
            architecture=self.start.architecture,
            base=self.start.base,
            tokenizer=self.corpus.tokenizer.to_json(),
            tokenizer_fingerprint=self.corpus.tokenizer.fingerprint,
            corpus_fingerprint=self.corpus.fingerprint,
            is_causal=self.model.is_causal,
            has_prefix=self.corruption.has_prefix,
            is_generative=any(one.is_generative for one in self.objectives.values()),
            config=self.config.to_dict(),
            train_seconds=0.0,
            is_evaluated=True,
        )

    def describe(self) -> list[str]:
        """Return lines for the start of the log: the model, the corpus and the stages."""
        train, held_out = self.corpus.split('train'), self.corpus.split('held_out')
        longest = max(length for _, length in map(stage_shape, self.stages))
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
        if pretraining_data.SEGMENTS[self.config.data.segments].mixes_texts:
            lines += evaluation.few_texts(self.corpus.manifest)
        if masking := pretraining_data.held_out_masking(self.config):
            lines.append(f'held-out masks: {masking["scheme"]}, rate {masking["rate"]:g}')
        lines += self._long_evaluations()
        return [*lines, *(line for evaluator in self.evaluators for line in evaluator.lines)]

    def _long_evaluations(self) -> list[str]:
        """Say if the evaluation at the end of a stage reads more rows than its training."""
        for stage in self.stages:
            rows = sum(first.num_examples for first in self._held_out_rows(stage).values())
            trained = stage.steps * stage.source.batch_size
            if rows > trained and not stage.seconds:
                return [
                    f'an evaluation reads {rows:,} rows, more than the {trained:,} rows that are '
                    f'trained on: to finish sooner, set --config.evaluation.examples={trained}'
                ]
        return []

    def check(self, stored: RunRecord) -> None:
        """Raise UserError if a checkpoint was made with another tokenizer or corpus."""
        tokenizers = self.record.tokenizer_fingerprint, stored.tokenizer_fingerprint
        corpora = self.corpus.fingerprint, stored.corpus_fingerprint or 'none'
        for part, (here, there) in {'tokenizer': tokenizers, 'corpus': corpora}.items():
            if here != there:
                raise UserError(
                    f'{self.config.data.corpus} has another {part} ({here[:12]}) than the '
                    f'checkpoints in {self.config.workdir} ({there[:12]}); restore that corpus or '
                    'choose another --config.workdir'
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
        return self._terms_of(output, clean)

    def _terms_of(self, output: ModelOutput, clean: Rows) -> Terms:
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

    def readable_batch(self, stage: Stage, number: int, step: int) -> Iterator[JsonRecord]:
        clean, rows = jax.device_get(self.corrupted_batch(stage, number, step))
        tokenizer = self.corpus.tokenizer
        describe: Callable[..., JsonRecord] = lazy_table.load(_DESCRIBE_ROW)
        for row in range(stage.source.batch_size):
            targets = self.corruption.describe(rows, row, tokenizer.vocab)
            yield describe(clean, rows, row, tokenizer) | targets

    def evaluate(self, params: Params, stage: Stage) -> dict[str, float]:
        """Compute the held-out metrics, `loss` first, and baselines that ignore the context.

        `loss` is the sum of the losses of the objectives, weighted as in training.
        With several languages, the losses of each language, such as `mlm_loss/cy`, are added; each
        language gets an equal share of the examples.
        """
        rows, totals = self._held_out_rows(stage), dict[str | None, Terms]()
        number = sum(first.num_examples for first in rows.values())
        with progress.evaluation_bar(number, ' rows', jax.process_index() == 0) as advance:
            for language, first in rows.items():
                totals[language] = self._held_out_totals(params, first, stage.accumulation, advance)
        total = totals.pop(None)
        names = objectives.predicting_tokens(self.objectives)
        counts_V = np.asarray(total.pop(_COUNTS).sum) if names else np.zeros(0)
        metrics = averages.means_and_loss(total, self.weights)
        bytes_per_token = self.corpus.bytes_per_token('held_out')
        metrics = evaluation.add_baselines(metrics, names, counts_V, bytes_per_token)
        for language, of_language in totals.items():
            values = averages.means(of_language)
            own = [name for name in self.weights if name in values]
            metrics |= {f'{name}/{language}': values[name] for name in own}
        for evaluator in self.evaluators:
            metrics |= evaluator(params)
        return metrics

    @functools.cached_property
    def _held_out_step(self) -> jax.stages.Wrapped:
        return jax.jit(self._held_out_terms, static_argnums=2)

    def lower_evaluation(self, params: Params, stage: Stage) -> jax.stages.Lowered:
        batch = batches.abstract(self.held_out[stage_shape(stage)][None])
        return self._held_out_step.lower(params, batch, stage.accumulation)

    def _held_out_rows(self, stage: Stage) -> dict[str | None, FirstExamples]:
        """The rows of an evaluation: of all languages (None) and, if there are several, of each."""
        number, sources = self.config.evaluation.examples, self.held_out[stage_shape(stage)]
        return {
            language: FirstExamples(source, number // (len(sources) - 1) if language else number)
            for language, source in sources.items()
        }

    def _held_out_totals(
        self,
        params: Params,
        first: FirstExamples,
        accumulation: int,
        advance: Callable[[int], object],
    ) -> Terms:
        total: Terms = {}
        for batch in batches.read(first, 0, first.num_batches, self.config.data.reading_threads):
            terms = self._held_out_step(params, batch, accumulation)
            total = averages.add(total, jax.device_get(terms))
            advance(first.batch_size)
        return total

    def _held_out_terms(self, params: Params, batch: Batch, accumulation: int) -> Terms:
        """Return the terms of a batch, and under _COUNTS how often each token is predicted."""
        key = jax.random.key(HELD_OUT_SEED)
        corruption = self.held_out_corruption or self.corruption.at(1.0)

        def terms_of(micro: Batch) -> Terms:
            clean = Rows.of(micro)
            rows = corruption(_example_keys(key, clean)[0], clean)
            output: Tree = self.model.apply({'params': params}, rows, None)
            terms = self._terms_of(output, clean)
            if objectives.predicting_tokens(self.objectives):
                _, ids_BP, weights_BP = output.head_rows.chosen
                none_V = jnp.zeros(self.start.architecture.vocab_size)
                counts_V = none_V.at[ids_BP].add(jnp.asarray(weights_BP > 0, jnp.float32))
                terms[_COUNTS] = Term(counts_V, jnp.zeros(()))
            return terms

        return sum_over_micro_batches(terms_of, batch, accumulation)

    def cloze(self, params: Params, number: int) -> tuple[Rows, np.ndarray]:
        """Predict the masked tokens of up to `number` held-out examples, all masked by [MASK].

        Returns:
            The masked rows and probabilities, float32 [N, P, V]; NumPy arrays.
        """
        source = self.held_out[stage_shape(self.stages[-1])][None]
        clean = Rows.of(source.examples(np.arange(min(number, source.num_examples))))
        assert isinstance(self.corruption, MaskedText)
        mask_all = dataclasses.replace(self.corruption, mask=1.0, random=0.0)

        def predict(params: Params, clean: Rows) -> tuple[Rows, jax.Array]:
            keys_B = jax.random.split(jax.random.key(HELD_OUT_SEED), len(clean.input_ids_BT))
            masked = mask_all(keys_B, clean)
            output: Tree = self.model.with_heads('mlm').apply({'params': params}, masked)
            return masked, jax.nn.softmax(output.heads['mlm'])

        compiled = jax.jit(predict, compiler_options=runtime.quick_compiler_options())
        filled: tuple[Rows, np.ndarray] = jax.device_get(compiled(params, clean))
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
            source = self.held_out[stage_shape(self.stages[-1])][None]
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
        warnings = [
            *evaluation.warnings(held_out),
            *evaluation.share_warnings(self.corpus.manifest),
        ]
        if warnings:
            results['warnings'] = warnings
            for warning in warnings:
                warn(warning)
        with workdir.writing():
            sections = [evaluator.report(held_out, workdir.local) for evaluator in self.evaluators]
            elsewhere = {name for section in sections for name in section.metrics}
            card = model_card.pretrained(
                self.config,
                _trained_stages(self, results),
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

    def next_commands(self, params: Params) -> list[str]:
        workdir, heads = self.config.workdir, self.model.heads
        languages = self.corpus.split('train').languages
        return next_commands.after_pretraining(workdir, self.corpus.tokenizer, heads, languages)

    def references(self, held_out: Mapping[str, float]) -> dict[str, float]:
        """Return a line for the loss plot: the loss of guessing tokens by their frequency."""
        if 'unigram_entropy' not in held_out:
            return {}
        return {'unigram entropy of the predicted tokens (nats)': held_out['unigram_entropy']}


def stage_shape(stage: Stage) -> tuple[int, int]:
    """Return the batch size and the sequence length of a stage."""
    batch_size = stage.source.batch_size
    return batch_size, stage.tokens_per_step // batch_size


def _example_keys(key: Key, rows: Rows) -> tuple[Key, Key]:
    """Return a corruption key and a dropout key for each example, from its index alone."""
    example_keys = jax.vmap(jax.random.fold_in, (None, 0))(key, rows.labels['example_index'])
    keys = jax.vmap(jax.random.split)(example_keys)
    return keys[:, 0], keys[:, 1]


def _trained_stages(task: Pretraining, results: JsonObject) -> list[dict[str, int]]:
    """Return the steps that the stages of a finished run had, and the shapes of their batches."""
    is_timed = bool(task.config.training.minutes)
    steps = results['stage_steps'] if is_timed else [stage.steps for stage in task.stages]
    return [
        {'steps': number, 'batch_size': batch_size, 'sequence_length': length}
        for number, (batch_size, length) in zip(steps, map(stage_shape, task.stages), strict=False)
    ]
