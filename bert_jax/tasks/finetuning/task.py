"""Fine-tuning on labeled examples, as a task of the training loop."""

import dataclasses
import functools
from collections.abc import Iterator, Mapping
from typing import cast

import flax.linen as nn
import jax
import numpy as np
from ml_collections import ConfigDict

from bert_jax import averages, problems, progress
from bert_jax.errors import UserError, warn
from bert_jax.examples.finetune_batches import (
    BatchShape,
    TrainBatches,
    evaluation_batches,
    evaluation_slots,
)
from bert_jax.inference.problem_writer import ProblemWriter
from bert_jax.labels import loader
from bert_jax.labels.examples import (
    DistilledExample,
    LabelSetExample,
    NumbersExample,
    ParsedExample,
    SpansExample,
    TaggedExample,
    TargetExample,
    TextExample,
    texts_of,
)
from bert_jax.labels.loader import Splits
from bert_jax.loaded.record import RunRecord
from bert_jax.models import kernels
from bert_jax.models.architecture import Architecture
from bert_jax.models.head_states import describe_states
from bert_jax.models.visibility import Pattern
from bert_jax.problems import evaluation, finetuning_model
from bert_jax.problems.base import AnyProblem
from bert_jax.problems.evaluation import Evaluated
from bert_jax.tasks import attention_direction, initialization, next_commands, show_batch
from bert_jax.tasks.finetuning import inputs
from bert_jax.tasks.finetuning.report import EvaluatedSplit, Report
from bert_jax.training import sharding
from bert_jax.training.step import all_rows, map_micro_batches
from bert_jax.training.task import Stage
from bert_jax.training.workdir import Workdir
from bert_jax.types import Batch, JsonRecord, Key, Params, Tree


@dataclasses.dataclass(frozen=True, eq=False)
class FineTuning:
    """A `Task` (training/task.py): one fine-tuning problem on labeled examples.

    Attributes:
        config: the config of configs/finetune.py.
        splits: labeled examples.
        start: the weights that training starts from.
        problem: the `Problem` of config.task.
        model: encoder and heads.
        train: the encoded train split.
        held_out: the other encoded splits by name.
        stage: the steps on the train split.
        learning_rate: the peak learning rate.
        rate_origin: where the learning rate comes from, for the log.
        evaluated: the last evaluation of each held-out split.
    """

    config: ConfigDict
    splits: Splits
    start: initialization.InitialModel
    problem: AnyProblem
    model: finetuning_model.FineTuningModel
    train: finetuning_model.EncodedExamples
    held_out: Mapping[str, finetuning_model.EncodedExamples]
    stage: Stage
    learning_rate: float
    rate_origin: str
    evaluated: dict[str, EvaluatedSplit] = dataclasses.field(default_factory=dict)

    memory = None

    @property
    def stages(self) -> tuple[Stage]:
        """The only stage."""
        return (self.stage,)

    @property
    def weights(self) -> Mapping[str, float]:
        """Loss term → weight."""
        return self.problem.loss.weights

    @property
    def architecture(self) -> Architecture:
        """The architecture of the encoder."""
        return self.start.architecture

    @property
    def source(self) -> TrainBatches:
        """The training batches."""
        return cast(TrainBatches, self.stage.source)

    @functools.cached_property
    def mesh(self) -> jax.sharding.Mesh:
        """The devices."""
        return sharding.make_mesh(self.config.mesh)

    @functools.cached_property
    def _report(self) -> Report:
        is_causal = self.model.model.is_causal
        return Report(
            self.config,
            self.splits.train,
            self.held_out,
            self.problem,
            self.learning_rate,
            attention_direction.of_model(self.architecture, is_causal),
            self.evaluated,
        )

    @functools.cached_property
    def _step(self) -> jax.stages.Wrapped:
        return jax.jit(
            finetuning_model.prediction_step(self.model, with_terms=True),
            out_shardings=sharding.replicated(self.mesh),
        )

    @property
    def record(self) -> RunRecord:
        """What makes a checkpoint usable on its own."""
        return RunRecord(
            task=self.config.task,
            problem_type=problems.find(self.config.task).problem_type,
            family=self.start.family,
            architecture=self.architecture,
            base=self.start.base,
            tokenizer=self.problem.encoding.tokenizer.to_json(),
            tokenizer_fingerprint=self.problem.encoding.tokenizer.fingerprint,
            labels=self.problem.setup.labels,
            calibrated=self._thresholds,
            kept=self.problem.setup.kept,
            is_causal=self.model.model.is_causal,
            has_prefix=self.problem.loss.has_prefix,
            is_generative=self.problem.loss.is_generative,
            texts=len(getattr(self.splits.train[0], 'texts', ())),
            train_digest=self._train_digest,
            config=self.config.to_dict(),
            train_seconds=0.0,
            is_evaluated=True,
        )

    @functools.cached_property
    def _train_digest(self) -> str:
        return loader.digest(self.splits.train)

    def describe(self) -> list[str]:
        """Return log lines: the model, the data, the number of steps, and what was truncated."""
        stage, sizes = self.stage, self.architecture
        rows, length, _ = self.source.shape
        filled = stage.tokens_per_step / (rows * length)
        splits = {'train': self.train, **self.held_out}
        examples = ', '.join(f'{len(split.examples):,} {name}' for name, split in splits.items())
        lines = [
            f'{self.config.task} with {sizes.num_layers} × {sizes.hidden_size}, vocabulary '
            f'{sizes.vocab_size:,}; {len(self.problem.setup.labels)} labels; {examples}',
            f'{stage.steps:,} steps of {self.config.training.batch_size} examples or windows, '
            f'packed in {rows} rows of {length} tokens, {filled:.0%} filled',
            f'learning rate {self.learning_rate:.3g} ({self.rate_origin})',
            kernels.describe(
                self.architecture,
                self.model.model.compute,
                length,
                Pattern(has_prefix=self.problem.loss.has_prefix),
            ),
        ]
        if sizes.decoder is None:
            direction = attention_direction.describe(self.model.model.is_causal)
            lines.append(f'attention: {direction}{self._why_direction()}')
        pooled = 'pooling' in self.config.problem
        if not sizes.reads_last_layer or (pooled and sizes.pooling != sizes.classifier.pooling):
            pooling = f'; a text as one vector: {sizes.pooling}' if pooled else ''
            lines.append(f'heads read {describe_states(sizes)}{pooling}')
        asked, positions = self.config.training.sequence_length, sizes.max_length
        if asked > positions:
            lines.append(
                f'sequences of {positions} tokens, because the model has no more positions '
                f'(the recipe has {asked})'
            )
        if jax.process_index() == 0:
            for text in self._report.copies.values():
                warn(text)
        lines += self.splits.report.lines()
        counts = self.problem.setup.counts.items()
        return lines + [f'{number:,} {name}' for name, number in counts if number]

    def _why_direction(self) -> str:
        chosen = self.config.init_attention
        if chosen != 'same':
            return f' (init_attention={chosen!r})'
        return ', as pretrained' if self.config.init_from else ''

    def check(self, stored: RunRecord) -> None:
        """Raise UserError if a checkpoint has another task, train split, tokenizer or labels."""
        workdir = self.config.workdir
        if stored.task != self.config.task:
            raise UserError(
                f'{workdir} holds a {stored.task} run, but the config says '
                f'{self.config.task}; choose another --config.workdir'
            )
        if stored.tokenizer_fingerprint != self.problem.encoding.tokenizer.fingerprint:
            raise UserError(
                f'the checkpoints in {workdir} have another tokenizer; choose another '
                '--config.workdir'
            )
        if stored.train_digest != self._train_digest:
            raise UserError(
                f'{workdir} holds a run on other training examples than data.train has now; '
                'restore them or choose another --config.workdir'
            )
        inputs.check_label_order(stored.labels, self.problem.setup.labels, workdir)

    def init(self, key: Key) -> Params:
        batch = self.source.batch(0, np.arange(1))
        params: Params = self.model.model.init(key, self.model.rows(batch))['params']
        return params

    def terms(
        self,
        params: Params,
        batch: Batch,
        key: Key,
        train: bool,
        progress: jax.typing.ArrayLike = 1.0,
    ) -> averages.Terms:
        """Return the loss terms; dropout depends only on `key` and the index of the row."""
        seeds_R = None
        if train:
            keys_R = jax.vmap(jax.random.fold_in, (None, 0))(key, batch['example_index'])
            seeds_R = jax.vmap(jax.random.bits)(keys_R)
        loss = self.problem.loss.at(progress)
        if not loss.reads_whole_batch:
            return loss.terms(self.model.outputs(params, batch, seeds_R), batch)
        outputs = map_micro_batches(
            lambda micro: self.model.outputs(params, micro['rows'], micro['seeds']),
            {'rows': batch, 'seeds': seeds_R},
            self.config.training.accumulation,
        )
        (outputs, batch), num_devices = all_rows((outputs, dict(batch)))
        terms = loss.terms(outputs, batch)
        return averages.scale(terms, 1 / num_devices)

    def evaluate(self, params: Params, stage: Stage) -> dict[str, float]:
        """Tune thresholds, if any, on the dev split; return its metrics and losses."""
        if 'dev' not in self.held_out:
            return {}
        return self.evaluate_split(params, 'dev').metrics

    def lower_evaluation(self, params: Params, stage: Stage) -> jax.stages.Lowered | None:
        if 'dev' not in self.held_out:
            return None
        items, shape = self.held_out['dev'].items, self._evaluation_shape()
        shape = shape._replace(slots=evaluation_slots(items, shape))
        batch, _ = next(evaluation_batches(items, shape))
        sharded = sharding.batch_sharding(self.mesh)
        abstract = {
            name: jax.ShapeDtypeStruct(array.shape, array.dtype, sharding=sharded)
            for name, array in batch.items()
        }
        return self._step.lower(params, abstract)

    def _evaluation_shape(self) -> BatchShape:
        """Return the shape of a batch for evaluation, as many rows as a micro-batch of training."""
        shape = self.source.shape
        return shape._replace(rows=shape.rows // self.config.training.accumulation)

    @property
    def _thresholds(self) -> Mapping[str, float]:
        return self.evaluated['dev'].result.thresholds if 'dev' in self.evaluated else {}

    def evaluate_split(self, params: Params, split: str) -> Evaluated:
        """Evaluate a held-out split; on dev, tune the thresholds first."""
        encoded, shape = self.held_out[split], self._evaluation_shape()
        bars = functools.partial(progress.evaluation_bar, is_shown=jax.process_index() == 0)
        with bars(len(encoded.items), ' windows') as advance:
            predicted = finetuning_model.predict(self._predict, params, encoded, shape, advance)
        writer = ProblemWriter.of(
            self.problem,
            self.model.model,
            params,
            shape.rows * shape.length,
            bars,
            concurrent_batches=1,  # computations of several devices must have one order
        )
        thresholds = None if split == 'dev' else self._thresholds
        result = evaluation.evaluate(self.problem, encoded.examples, predicted, thresholds, writer)
        self.evaluated[split] = EvaluatedSplit(params, result)
        return result

    def _predict(self, params: Params, batch: Batch) -> Tree:
        """Run the prediction step with rows distributed over the mesh."""
        return self._step(params, jax.device_put(batch, sharding.batch_sharding(self.mesh)))

    def report(self, params: Params, results: JsonRecord, workdir: Workdir) -> None:
        """Write predictions and scores of the held-out splits, and the card, to the workdir."""
        with jax.set_mesh(self.mesh), nn.logical_axis_rules(self.config.sharding_rules):
            for split in self.held_out:
                if split not in self.evaluated or self.evaluated[split].params is not params:
                    self.evaluate_split(params, split)
        if jax.process_index() == 0:
            self._report.write(workdir, results)

    def readable_batch(self, stage: Stage, number: int, step: int) -> Iterator[JsonRecord]:
        batch = stage.source.batch(number)
        for row in range(stage.source.batch_size):
            yield show_batch.packed_row(batch, row, self.problem)

    def next_commands(self, params: Params) -> list[str]:
        examples, texts = self.splits.train[:100], []
        takes_text = (
            TextExample
            | DistilledExample
            | LabelSetExample
            | NumbersExample
            | TaggedExample
            | ParsedExample
            | SpansExample
            | TargetExample
        )
        if isinstance(examples[0], takes_text):  # a short text, because the command is printed
            texts = min(map(texts_of, examples), key=lambda texts: sum(map(len, texts)))
        task = problems.find(self.config.task).predict_task
        workdir = self.config.workdir
        return [
            *next_commands.after_fine_tuning(workdir, task, texts),
            *next_commands.export(workdir, self.start, self.record, params),
        ]

    def references(self, held_out: Mapping[str, float]) -> dict[str, float]:
        return {}
