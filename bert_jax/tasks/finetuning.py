"""Fine-tuning on labeled examples, as a task of the training loop."""

import dataclasses
import json
import math
import pathlib
from collections.abc import Sequence

import flax.linen as nn
import jax
import numpy as np

from bert_jax import averages
from bert_jax.data import tokenizers
from bert_jax.data.finetune_batches import TrainBatches, evaluation_slots, row_length
from bert_jax.data.labeled.examples import is_labeled, texts_of
from bert_jax.data.special_token_layout import SpecialTokenLayout
from bert_jax.errors import UserError
from bert_jax.evaluation import glue, tables
from bert_jax.evaluation.scores import Scores
from bert_jax.models.architecture import Compute
from bert_jax.models.flops import training_flops_per_token
from bert_jax.tasks import initialization, problems
from bert_jax.tasks.finetuning_model import (
    EncodedExamples,
    FineTuningModel,
    decode_all,
    predict,
    prediction_step,
    to_records,
)
from bert_jax.tasks.problems.base import Problem
from bert_jax.training import sharding
from bert_jax.training.task import Stage


class FineTuning:
    """The task of the training loop (see training/task.py)."""

    def __init__(self, config):
        self.config = config
        problem_class = problems.find(config.task).load()
        self.splits = problems.read(config.data, config.task)
        model = initialization.load_weights(config)
        tokenizer = model.tokenizer if model else _tokenizer(config.data, self.splits.train)
        labels, parts = _labels(problem_class, self.splits.train, config.problem, model)
        self.start = initialization.initialize(config, model, tokenizer, parts)
        self.architecture = self.start.architecture
        self.compute = Compute(**config.compute.to_dict())
        layout = SpecialTokenLayout(
            tokenizer, self._max_length(), self.architecture.type_vocab_size
        )
        self.problem = problem_class(config.problem, layout, labels)
        self.problem.prepare(self.splits.train)
        self.weights = self.problem.weights
        self.model = FineTuningModel(self.architecture, self.compute, self.problem)
        self.train = EncodedExamples.of(self.problem, self.splits.train)
        self.held_out = {
            name: EncodedExamples.of(self.problem, examples)
            for name, examples in (('dev', self.splits.dev), ('test', self.splits.test))
            if examples
        }
        self.stages = (self._stage(),)
        self.scores: dict[str, Scores] = {}
        self._step = None  # compiled at its first use
        self._last = (None, None)  # the parameters evaluated last, and what came of it

    def _max_length(self) -> int:
        wanted, most = self.config.training.max_length, self.architecture.max_length
        if wanted > most:
            raise UserError(
                f'training.max_length {wanted} is longer than the {most} positions of the model'
            )
        return wanted

    def _stage(self) -> Stage:
        training = self.config.training
        if (training.steps > 0) == (training.epochs > 0):
            raise UserError(
                f'training.steps is {training.steps} and training.epochs {training.epochs}: '
                'one of them must be 0'
            )
        per_epoch = math.ceil(len(self.train.items) / training.batch_size)
        steps = training.steps or math.ceil(training.epochs * per_epoch)
        every = [self.train, *self.held_out.values()]
        longest = max(int(encoded.items.length_N.max()) for encoded in every)
        length = row_length(longest, self.architecture.max_length)
        mesh = sharding.make_mesh(self.config.mesh)
        multiple = training.accumulation * math.prod(
            mesh.shape[axis] for axis in sharding.BATCH_AXES
        )
        source = TrainBatches(
            self.train.items, training.batch_size, length, steps, self.config.seed, multiple
        )
        positions = source.shape.rows * source.shape.length
        return Stage(
            source=source,
            steps=steps,
            accumulation=training.accumulation,
            tokens_per_step=max(1, round(source.num_tokens(steps) / steps)),
            flops_per_step=positions * training_flops_per_token(self.architecture, length, 0),
            evaluate_every=self.config.evaluation.every_steps or per_epoch,
        )

    @property
    def metadata(self) -> dict:
        """What a checkpoint needs to be used alone."""
        return {
            'task': self.config.task,
            'family': self.start.family,
            'architecture': dataclasses.asdict(self.architecture),
            'tokenizer': self.problem.tokenizer.to_json(),
            'tokenizer_fingerprint': self.problem.tokenizer.fingerprint,
            'labels': self.problem.labels,
            'calibrated': self.problem.thresholds,
        }

    def describe(self) -> list[str]:
        """Lines for the start of the log: what is trained, on what, for how long."""
        stage, sizes = self.stages[0], self.architecture
        rows, length, _ = stage.source.shape
        filled = stage.tokens_per_step / (rows * length)
        sizes = f'{sizes.num_layers} × {sizes.hidden_size}, vocabulary {sizes.vocab_size:,}'
        counts = ', '.join(
            f'{len(examples):,} {name}'
            for name, examples in self.splits._asdict().items()
            if name != 'report' and examples
        )
        lines = [
            f'{self.config.task} with {sizes}; {len(self.problem.labels)} labels; {counts}',
            f'{stage.steps:,} steps of {self.config.training.batch_size} in {rows} rows of '
            f'{length} tokens, {filled:.0%} of them filled',
        ]
        lines += self.splits.report.lines()
        counts = self.problem.counts.items()
        return lines + [f'{number:,} {name}' for name, number in counts if number]

    def check(self, metadata: dict):
        """Raises UserError if a checkpoint is of another task, tokenizer or classes."""
        if metadata.get('task') != self.config.task:
            raise UserError(
                f'{self.config.workdir} holds a {metadata.get("task")} run, and this is '
                f'{self.config.task}; choose another --config.workdir'
            )
        if metadata['tokenizer_fingerprint'] != self.problem.tokenizer.fingerprint:
            raise UserError(f'the checkpoints in {self.config.workdir} have another tokenizer')
        check_order(tuple(metadata['labels']), self.problem.labels, self.config.workdir)

    def init(self, key):
        """Parameters with their logical axis names, float32."""
        batch = self.stages[0].source.batch(0, np.arange(1))
        return self.model.init(key, batch)['params']

    def terms(self, params, batch, key, train: bool) -> averages.Terms:
        """The terms of a batch; dropout depends on `key` and the row's index alone."""
        seeds_R = None
        if train:
            keys_R = jax.vmap(jax.random.fold_in, (None, 0))(key, batch['example_index'])
            seeds_R = jax.vmap(jax.random.bits)(keys_R)
        return self.problem.terms(self.model.apply({'params': params}, batch, seeds_R), batch)

    def evaluate(self, params, stage: Stage) -> dict[str, float]:
        """The metrics of the dev split and the loss there."""
        self._last = params, self._evaluate(params, 'dev')
        return self._last[1][1]

    def _evaluate(self, params, split: str) -> tuple[list, dict[str, float]]:
        """The predictions for a split, and its metrics (none if it has no labels); on dev what is
        calibrated there."""
        encoded, shape = self.held_out[split], self.stages[0].source.shape
        shape = shape._replace(slots=evaluation_slots(encoded.items, shape))
        parts, terms = predict(self._on_mesh(), params, encoded, shape)
        if split == 'dev':
            self.problem.thresholds = self.problem.tune_thresholds(encoded.examples, parts)
        predictions = decode_all(self.problem, encoded.examples, parts)
        if not all(map(is_labeled, encoded.examples)):
            return predictions, {}
        self.scores[split] = self.problem.score(encoded.examples, predictions)
        means = {f'{name}_loss': float(averages.mean(terms[name])) for name in self.weights}
        return predictions, self.scores[split].metrics | means

    def _on_mesh(self):
        """The answering step, over the rows of the current mesh; compiled once."""
        if self._step is None:
            mesh = jax.sharding.get_mesh()
            place = sharding.batch_sharding(mesh)
            step = jax.jit(
                prediction_step(self.model, with_terms=True),
                out_shardings=sharding.replicated(mesh),
            )
            self._step = lambda params, batch: step(params, jax.device_put(batch, place))
        return self._step

    def report(self, params, results: dict):
        """Predictions, scores and the model card, beside what the loop left in the workdir."""
        workdir = pathlib.Path(self.config.workdir)
        mesh = sharding.make_mesh(self.config.mesh)
        with jax.set_mesh(mesh), nn.logical_axis_rules(self.config.sharding_rules):
            for split, encoded in self.held_out.items():
                known, found = self._last
                if split != 'dev' or known is not params:
                    found = self._evaluate(params, split)
                predictions, metrics = found
                records = to_records(self.problem, encoded.examples, predictions)
                if jax.process_index() == 0:
                    self._save(workdir / split, split, records)
                    figures = ', '.join(f'{name} {value:.4g}' for name, value in metrics.items())
                    print(f'{split}: {figures or "predictions, for it has no labels"}')

    def _save(self, folder: pathlib.Path, split: str, records: list[dict]):
        """The predictions of a split, its scores and, of a test split of GLUE, the file to send."""
        folder.mkdir(parents=True, exist_ok=True)
        write_lines(folder / 'predictions.jsonl', records)
        if split in self.scores:
            tables.save_scores(self.scores[split], folder, f'{self.config.task}, {split}')
        dataset = self.config.data.dataset
        if split == 'test' and dataset in glue.SUBMISSIONS:
            predicted = {record['id']: record['predicted'] for record in records}
            glue.write_submission(dataset, predicted, folder)

    def references(self) -> dict[str, float]:
        """No lines for the picture."""
        return {}


def write_lines(path: pathlib.Path, records: list[dict]):
    """JSON lines."""
    lines = [json.dumps(record, ensure_ascii=False) + '\n' for record in records]
    path.write_text(''.join(lines), encoding='utf-8')


def check_order(known: tuple[str, ...], labels: tuple[str, ...], where):
    """Raises UserError if classes are others or in another order than those of a checkpoint."""
    if known != labels:
        told = 'the same labels in another order' if set(known) == set(labels) else 'other labels'
        raise UserError(
            f'{where} has {told}: {", ".join(known[:6])} there, {", ".join(labels[:6])} here'
        )


def _tokenizer(data, train: Sequence) -> tokenizers.Tokenizer:
    """Where there are no weights: read, or trained on the train split."""
    if not data.tokenizer:
        raise UserError(
            'set init_from to weights to go on from, or data.tokenizer to a file or to '
            "'train:wordpiece:2000'"
        )
    if data.tokenizer.startswith('train:'):
        spec = data.tokenizer.removeprefix('train:')
        return tokenizers.train(spec, (text for example in train for text in texts_of(example)))
    return tokenizers.load(data.tokenizer)


def _labels(kind: type[Problem], train: Sequence, settings, model):
    """(classes, heads to begin with): in the order that the config says, or that of the weights if
    they have a head for just these classes, which then is gone on with."""
    asked = tuple(settings.labels)
    labels = asked or kind.collect_labels(train, settings)
    if model is None or not set(kind.pretrained_heads) & set(model.heads):
        return labels, ()
    if not labels:
        return labels, kind.pretrained_heads
    if set(labels) != set(model.labels):
        return labels, ()
    if asked:
        check_order(model.labels, asked, 'init_from')
    return model.labels, kind.pretrained_heads
