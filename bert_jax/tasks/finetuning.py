"""Fine-tuning on labeled examples, as a task of the training loop."""

import dataclasses
import functools
import math
import pathlib
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence

import flax.linen as nn
import jax
import numpy as np
from ml_collections import ConfigDict

from bert_jax import averages, problems, progress
from bert_jax.errors import UserError, warn, writing
from bert_jax.examples.finetune_batches import (
    BatchShape,
    TrainBatches,
    evaluation_batches,
    evaluation_slots,
    row_length,
)
from bert_jax.labels import loader, seen_examples
from bert_jax.labels.examples import (
    DistilledExample,
    SpansExample,
    TaggedExample,
    TextExample,
    is_labeled,
    texts_of,
)
from bert_jax.metrics import intervals
from bert_jax.metrics.scores import Scores
from bert_jax.models import kernels
from bert_jax.models.architecture import Compute
from bert_jax.models.flops import training_flops_per_token
from bert_jax.models.model import Model
from bert_jax.problems import finetuning_model
from bert_jax.problems.base import Calibration, Setup
from bert_jax.reports import finetuning_card, glue, tables
from bert_jax.storage import paths
from bert_jax.tasks import finetuning_data, initialization, learning_rate, next_commands, show_batch
from bert_jax.tokenizers.special_token_layout import SpecialTokenLayout
from bert_jax.training import sharding
from bert_jax.training.early_stopping import lower_is_better
from bert_jax.training.task import Stage
from bert_jax.types import Batch, JsonObject, Key, Params, Tree

SplitResult = tuple[Sequence[object], dict[str, float]]  # predictions and metrics of a split


class FineTuning:
    """A `Task` (training/task.py): one fine-tuning problem on labeled examples.

    Attributes:
        config: the config of configs/finetune.py; `user_keys` are the keys that the user set.
        splits: labeled examples.
        problem: the `Problem` of config.task.
        model: encoder and heads.
        train: the encoded train split.
        learning_rate: the peak learning rate.
        held_out: the other encoded splits by name.
        scores: scores of the last evaluation of each held-out split.
    """

    def __init__(self, config: ConfigDict, user_keys: Collection[str] = ()) -> None:
        self.config, self._mesh = config, sharding.make_mesh(config.mesh)
        kind = problems.find(config.task)
        self.splits = finetuning_data.read_splits(config)
        model = initialization.load_weights(config)
        tokenizer = finetuning_data.make_tokenizer(config, model, self.splits.train)
        labels, heads = finetuning_data.choose_labels(
            kind, self.splits.unsplit, config.problem, model
        )
        reasons = finetuning_data.reasons_to_drop(config.task, labels, model)
        self.start = initialization.initialize(config, model, tokenizer, heads, reasons)
        self.architecture = self.start.architecture
        self.compute = Compute(**config.compute.to_dict())
        self.learning_rate, self._rate_origin = learning_rate.choose(config, self.architecture)
        length = self._sequence_length('training.sequence_length' in user_keys)
        layout = SpecialTokenLayout(tokenizer, length, self.architecture.type_vocab_size)
        setup = Setup(config.problem, layout, labels)
        self.problem = kind.load().build_for(self.splits.train, setup)
        self.problem.decoder.score((), ())  # raises for invalid metrics now, not after training
        self.weights = self.problem.loss.weights
        self.model = finetuning_model.FineTuningModel(
            self.problem, Model(self.architecture, self.compute, self.problem.loss.heads())
        )
        self.train = finetuning_model.EncodedExamples.of(
            self.problem,
            self.problem.encoding.training_examples(self.splits.train, self.splits.unlabeled),
        )
        held_out = {'dev': self.splits.dev, 'test': self.splits.test, **self.splits.more}
        self.held_out = {
            name: finetuning_model.EncodedExamples.of(self.problem, examples)
            for name, examples in held_out.items()
            if examples
        }
        for key in ('best', 'every_steps'):
            if config.evaluation[key] and 'dev' not in self.held_out:
                raise UserError(
                    f'evaluation.{key} is {config.evaluation[key]!r}, but there is no dev split; '
                    'set data.dev or data.dev_fraction'
                )
        self.stages = (self._make_stage(),)
        self.scores: dict[str, Scores] = {}
        self._thresholds: Mapping[str, float] = {}  # of the last evaluation on dev
        self._step = jax.jit(
            finetuning_model.prediction_step(self.model, with_terms=True),
            out_shardings=sharding.replicated(self._mesh),
        )
        # The parameters of the last evaluation on dev, and its result.
        self._last_dev: tuple[Params | None, SplitResult] = None, ([], {})

    def _sequence_length(self, is_set: bool) -> int:
        """Return the sequence length of the config, or the shorter one of the model.

        Raises:
            UserError: the user set (`is_set`) more tokens than the model has positions.
        """
        length, max_length = self.config.training.sequence_length, self.architecture.max_length
        if is_set and length > max_length:
            raise UserError(
                f'training.sequence_length is {length}, but the model has {max_length} positions; '
                f'set it to at most {max_length}'
            )
        return int(min(length, max_length))

    def _make_stage(self) -> Stage:
        training = self.config.training
        if (training.steps > 0) == (training.epochs > 0):
            raise UserError(
                f'training.steps is {training.steps} and training.epochs is {training.epochs}; set '
                'one of them to 0'
            )
        per_epoch = math.ceil(len(self.train.items) / training.batch_size)
        steps = training.steps or math.ceil(training.epochs * per_epoch)
        all_splits = [self.train, *self.held_out.values()]
        longest = max(int(encoded.items.length_N.max()) for encoded in all_splits)
        length = row_length(longest, self.architecture.max_length)
        shards = math.prod(self._mesh.shape[axis] for axis in sharding.BATCH_AXES)
        multiple = training.accumulation * shards
        source = self._source = TrainBatches(
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
    def metadata(self) -> JsonObject:
        """JSON-compatible values that make a checkpoint usable on its own."""
        return {
            'task': self.config.task,
            'family': self.start.family,
            'architecture': dataclasses.asdict(self.architecture),
            'base': self.start.base,
            'tokenizer': self.problem.encoding.tokenizer.to_json(),
            'tokenizer_fingerprint': self.problem.encoding.tokenizer.fingerprint,
            'labels': self.problem.setup.labels,
            'calibrated': self._thresholds,
            'kept': self.problem.setup.kept,
            'texts': len(getattr(self.splits.train[0], 'texts', ())),
            'train_digest': self._train_digest,
        }

    @functools.cached_property
    def _train_digest(self) -> str:
        return loader.digest(self.splits.train)

    def describe(self) -> list[str]:
        """Return log lines: the model, the data, the number of steps, and what was truncated."""
        stage, sizes = self.stages[0], self.architecture
        rows, length, _ = self._source.shape
        filled = stage.tokens_per_step / (rows * length)
        splits = {'train': self.train, **self.held_out}
        examples = ', '.join(f'{len(split.examples):,} {name}' for name, split in splits.items())
        lines = [
            f'{self.config.task} with {sizes.num_layers} × {sizes.hidden_size}, vocabulary '
            f'{sizes.vocab_size:,}; {len(self.problem.setup.labels)} labels; {examples}',
            f'{stage.steps:,} steps of {self.config.training.batch_size} examples or windows, '
            f'packed in {rows} rows of {length} tokens, {filled:.0%} filled',
            f'learning rate {self.learning_rate:.3g} ({self._rate_origin})',
            kernels.describe(self.architecture, self.compute, length),
        ]
        asked, positions = self.config.training.sequence_length, sizes.max_length
        if asked > positions:
            lines.append(
                f'sequences of {positions} tokens, because the model has no more positions '
                f'(the recipe has {asked})'
            )
        if jax.process_index() == 0:
            for text in self._copies.values():
                warn(text)
        lines += self.splits.report.lines()
        counts = self.problem.setup.counts.items()
        return lines + [f'{number:,} {name}' for name, number in counts if number]

    @functools.cached_property
    def _copies(self) -> dict[str, str]:
        """Splits with texts that are also trained on → a sentence that says how many."""
        trained_N = seen_examples.hashes(self.splits.train)
        sentences = {}
        for name, split in self.held_out.items():
            copies = np.isin(seen_examples.hashes(split.examples), trained_N).sum()
            if copies:
                sentences[name] = (
                    f'{name}: the texts of {copies:,} of {len(split.examples):,} examples are also '
                    'in the train split, so scores on them are too high'
                )
        return sentences

    def check(self, metadata: JsonObject) -> None:
        """Raise UserError if a checkpoint has another task, train split, tokenizer or labels."""
        workdir = self.config.workdir
        if metadata.get('task') != self.config.task:
            raise UserError(
                f'{workdir} holds a {metadata.get("task")} run, but the config says '
                f'{self.config.task}; choose another --config.workdir'
            )
        if metadata['tokenizer_fingerprint'] != self.problem.encoding.tokenizer.fingerprint:
            raise UserError(
                f'the checkpoints in {workdir} have another tokenizer; choose another '
                '--config.workdir'
            )
        if metadata.get('train_digest', self._train_digest) != self._train_digest:
            raise UserError(
                f'{workdir} holds a run on other training examples than data.train has now; '
                'restore them or choose another --config.workdir'
            )
        stored_labels = tuple(metadata['labels'])
        finetuning_data.check_label_order(stored_labels, self.problem.setup.labels, workdir)

    def init(self, key: Key) -> Params:
        batch = self._source.batch(0, np.arange(1))
        params: Params = self.model.model.init(key, self.model.rows(batch))['params']
        return params

    def terms(self, params: Params, batch: Batch, key: Key, train: bool) -> averages.Terms:
        """Return the loss terms; dropout depends only on `key` and the index of the row."""
        seeds_R = None
        if train:
            keys_R = jax.vmap(jax.random.fold_in, (None, 0))(key, batch['example_index'])
            seeds_R = jax.vmap(jax.random.bits)(keys_R)
        return self.problem.loss.terms(self.model.outputs(params, batch, seeds_R), batch)

    def evaluate(self, params: Params, stage: Stage) -> dict[str, float]:
        """Tune thresholds, if any, on the dev split; return its metrics and losses."""
        if 'dev' not in self.held_out:
            return {}
        predictions, metrics = self._evaluate(params, 'dev')
        self._last_dev = params, (predictions, metrics)
        return metrics

    def compile_evaluation(self, params: Params, stage: Stage) -> jax.stages.Compiled | None:
        if 'dev' not in self.held_out:
            return None
        items, shape = self.held_out['dev'].items, self._evaluation_shape()
        shape = shape._replace(slots=evaluation_slots(items, shape))
        batch, _ = next(evaluation_batches(items, shape))
        sharded = sharding.batch_sharding(self._mesh)
        abstract = {
            name: jax.ShapeDtypeStruct(array.shape, array.dtype, sharding=sharded)
            for name, array in batch.items()
        }
        return self._step.lower(params, abstract).compile()

    def _evaluation_shape(self) -> BatchShape:
        """Return the shape of a batch for evaluation, as many rows as a micro-batch of training."""
        shape = self._source.shape
        return shape._replace(rows=shape.rows // self.config.training.accumulation)

    def _evaluate(self, params: Params, split: str) -> SplitResult:
        """Return predictions and metrics of a split; no metrics if it has no labels."""
        encoded, shape = self.held_out[split], self._evaluation_shape()
        examples, decoder = encoded.examples, self.problem.decoder
        parts, references, terms = finetuning_model.predict(self._predict, params, encoded, shape)
        if split == 'dev':
            self._thresholds = decoder.tune_thresholds(examples, parts)
        calibration = Calibration(self._thresholds, references)
        predictions = finetuning_model.decode_all(self.problem, examples, parts, calibration)
        if not all(map(is_labeled, examples)):
            return predictions, {}
        self.scores[split] = decoder.score(examples, predictions)
        means = averages.means(terms)
        losses = {f'{name}_loss': means[name] for name in self.weights if name in means}
        return predictions, self.scores[split].metrics | losses

    def _predict(self, params: Params, batch: Batch) -> Tree:
        """Run the prediction step with rows distributed over the mesh."""
        return self._step(params, jax.device_put(batch, sharding.batch_sharding(self._mesh)))

    def report(self, params: Params, results: JsonObject) -> None:
        """Write predictions and scores of the held-out splits, and the card, to the workdir."""
        workdir = paths.local(self.config.workdir)
        scored: dict[str, finetuning_card.SplitScores] = {}
        with jax.set_mesh(self._mesh), nn.logical_axis_rules(self.config.sharding_rules):
            for split, encoded in self.held_out.items():
                evaluated_params, result = self._last_dev
                if split != 'dev' or evaluated_params is not params:
                    result = self._evaluate(params, split)
                predictions, metrics = result
                records = list(map(self.problem.decoder.to_record, encoded.examples, predictions))
                if jax.process_index() == 0:
                    if metrics:
                        scored[split] = self._split_scores(split, predictions)
                    with writing(f'workdir {workdir}'):
                        self._save(workdir / split, split, records, scored.get(split))
                    shown = ', '.join(f'{name} {value:.4g}' for name, value in metrics.items())
                    unknown = sum(not is_labeled(example) for example in encoded.examples)
                    none = 'no labels, predictions only'
                    if unknown < len(records):
                        none = f'predictions only, {unknown:,} of {len(records):,} have no label'
                    progress.say(f'{split}: {shown or none}')
        if jax.process_index() == 0:
            results['warnings'] = self._warnings(scored)
            num_train = len(self.splits.train)
            pictures = [
                path.relative_to(workdir).as_posix()
                for pattern in ('loss.png', *(f'{split}/*.png' for split in self.held_out))
                for path in sorted(workdir.glob(pattern))
            ]
            card = finetuning_card.finetuned(
                self.config,
                results,
                num_train,
                scored,
                sys.argv,
                initialization.license_of(self.config.init_from),
                pictures,
            )
            with writing(f'workdir {workdir}'):
                seen_examples.save(self.splits.train, workdir)
                (workdir / 'README.md').write_text(card, encoding='utf-8')

    def _split_scores(
        self, split: str, predictions: Sequence[object]
    ) -> finetuning_card.SplitScores:
        """Return the scores of a split with intervals, and those of a blind guess."""
        examples, decoder = self.held_out[split].examples, self.problem.decoder
        guesses = decoder.blind_guesses(self.splits.train, examples)
        return finetuning_card.SplitScores(
            len(examples),
            self.scores[split].metrics,
            intervals.of_rows(decoder.score_rows(examples, predictions), len(examples)),
            decoder.score(examples, guesses).metrics if guesses else {},
        )

    def _warnings(self, scored: Mapping[str, finetuning_card.SplitScores]) -> list[str]:
        """Return warnings about splits: no better than a blind guess, or trained on."""
        found = {split: scores.weakness(lower_is_better) for split, scores in scored.items()}
        advice = (
            f'train longer or with another schedule.learning_rate (this run: '
            f'{self.learning_rate:.3g}), or compare rates with sweep.learning_rates'
        )
        warnings = [
            f'{split}: {weakness}; {advice}' for split, weakness in found.items() if weakness
        ]
        warnings += self._copies.values()
        for warning in warnings:
            warn(warning)
        return warnings

    def _save(
        self,
        folder: pathlib.Path,
        split: str,
        records: list[JsonObject],
        scored: finetuning_card.SplitScores | None,
    ) -> None:
        """Write predictions, scores, and the file for the scorer of GLUE or GAP, if it applies."""
        tables.save_predictions(records, folder)
        if self.config.data.columns.candidate_labels:
            tables.save_candidates(records, self.config.data.columns.candidate_labels, folder)
        if scored:
            title = f'{self.config.task}, {split}'
            tables.save_scores(self.scores[split], folder, title, scored.intervals)
        if test_set := glue.test_set(self.config.data.dataset, split):
            predicted = {record['id']: record['predicted'] for record in records}
            glue.write_submission(test_set, predicted, folder)

    def readable_batch(self, stage: Stage, number: int, step: int) -> Iterator[JsonObject]:
        batch = stage.source.batch(number)
        for row in range(stage.source.batch_size):
            yield show_batch.packed_row(batch, row, self.problem)

    def next_commands(self) -> list[str]:
        examples, texts = self.splits.train[:100], []
        takes_text = TextExample | DistilledExample | TaggedExample | SpansExample
        if isinstance(examples[0], takes_text):  # a short text, because the command is printed
            texts = min(map(texts_of, examples), key=lambda texts: sum(map(len, texts)))
        task = problems.find(self.config.task).predict_task
        return next_commands.after_fine_tuning(self.config.workdir, task, texts)

    def references(self) -> dict[str, float]:
        return {}
