"""Pretraining as a task: corrupt a batch, encode it, and sum the terms of every objective."""

import dataclasses
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any, cast

import jax
import numpy as np

from bert_jax import averages, objectives
from bert_jax.data.example_source import ExampleSource
from bert_jax.errors import UserError
from bert_jax.evaluation import model_card
from bert_jax.evaluation import pretraining as evaluation
from bert_jax.models.architecture import Compute
from bert_jax.objectives import OBJECTIVES
from bert_jax.objectives.corruption import Corrupted
from bert_jax.objectives.masking import Masked, Masking, mask_tokens
from bert_jax.objectives.model import PretrainingModel
from bert_jax.tasks import initialization, pretraining_data
from bert_jax.training import batches, multihost
from bert_jax.training.step import step_key
from bert_jax.training.task import Stage
from bert_jax.types import Batch, Config, Key, Params

HELD_OUT_SEED = 0  # the same held-out examples and masks in every run
_STAGE_KEYS = ('steps', 'sequence_length', 'batch_size', 'accumulation', 'max_predictions')


class Pretraining:
    """The task of pretraining an encoder; training/task.py says what the loop asks of a task.

    Raises:
        UserError: For a config that cannot be trained.
    """

    def __init__(self, config: Config) -> None:
        self.config = config
        names = objectives.enabled(config.objectives)
        corruption = objectives.common_corruption(names, config.masking.scheme)
        if config.data.pack and not corruption.allows_packing:
            raise UserError(
                f'data.pack is True, but the objectives {", ".join(names)} need {corruption.label} '
                'text, which moves tokens from one example of a row into another; set '
                'data.pack=False'
            )
        self.objectives = {name: OBJECTIVES[name] for name in names}
        self.weights = objectives.loss_weights(config.objectives)
        self.corpus = pretraining_data.open_corpus(config.data)
        tokenizer = self.corpus.tokenizer
        self.start = initialization.initialize(
            config, initialization.load_weights(config), tokenizer, names
        )
        self.architecture = self.start.architecture
        self.compute = Compute(**config.compute.to_dict())
        options = {name: kind.read_options(name, config) for name, kind in self.objectives.items()}
        self.model = PretrainingModel(self.architecture, self.compute, names, options)
        masking = Masking(
            **config.masking.to_dict(),
            mask_id=tokenizer.mask_id,
            special_ids=tokenizer.special_ids,
            unigram_counts=self.corpus.split('train').unigram_counts,
            is_word_start=tokenizer.is_word_start,
        )
        stages = _stage_settings(config.stages)
        self.corruption = corruption(masking, _num_predictions(stages), tokenizer.pad_id, options)
        self.stages = tuple(map(self._make_stage, stages))
        self.metadata: dict[str, Any] = {
            'task': 'pretraining',
            'family': self.start.family,
            'architecture': dataclasses.asdict(self.architecture),
            'tokenizer': tokenizer.to_json(),
            'tokenizer_fingerprint': tokenizer.fingerprint,
            'corpus_fingerprint': self.corpus.fingerprint,
        }
        self._held_out_step = jax.jit(
            lambda params, batch: self.terms(
                params, batch, jax.random.key(HELD_OUT_SEED), train=False
            )
        )

    def _make_stage(self, settings: Mapping[str, int]) -> Stage:
        batch_size, length = settings['batch_size'], settings['sequence_length']
        if length > self.architecture.max_length:
            raise UserError(
                f'stages.sequence_length {length} exceeds the '
                f'{self.architecture.max_length} positions of the model; set '
                'model.max_position_embeddings'
            )
        tokens = batch_size * length
        source = pretraining_data.train_source(
            self.corpus,
            self.config.data,
            (batch_size, length),
            self.config.seed,
            **self._source_options(),
        )
        self._check_batch_keys(source)
        return Stage(
            source=source,
            steps=settings['steps'],
            accumulation=settings['accumulation'],
            tokens_per_step=tokens,
            flops_per_step=tokens * self.model.flops_per_token(length, settings['max_predictions']),
        )

    def _source_options(self) -> dict[str, bool]:
        """Options of the source of examples that the objectives require."""
        keys = {key for kind in self.objectives.values() for key in kind.batch_keys}
        return {'mark_sentences': 'sentence_start' in keys}

    def _check_batch_keys(self, source: ExampleSource) -> None:
        batch = source.batch(0, np.arange(1))
        for name, kind in self.objectives.items():
            for key in kind.batch_keys:
                if key not in batch:
                    raise UserError(
                        f'objective {name!r} needs {key!r} in its batches, which '
                        f'data.segments={self.config.data.segments!r} does not provide'
                    )

    def describe(self) -> list[str]:
        """Return lines for the start of the log: the model, the corpus and the stages."""
        sizes = self.architecture
        train, held_out = self.corpus.split('train'), self.corpus.split('held_out')
        lines = [
            f'{self.config.model.architecture} {sizes.num_layers} × {sizes.hidden_size}, '
            f'vocabulary {sizes.vocab_size:,}; ' + ', '.join(self.weights),
            f'{self.config.data.corpus}: {train.num_tokens:,} tokens in {train.num_documents:,} '
            f'documents; held out {held_out.num_tokens:,} in {held_out.num_documents:,}',
        ]
        for number, stage in enumerate(self.stages, start=1):
            source = cast(ExampleSource, stage.source)
            first, *others = pretraining_data.describe(source, stage.steps * source.batch_size)
            lines += [f'stage {number}: {stage.steps:,} steps, {first}', *others]
        return lines

    def check(self, metadata: Mapping[str, Any]) -> None:
        """Compare the metadata of a checkpoint with this task's.

        Raises:
            UserError: If the checkpoint was made with another tokenizer or corpus.
        """
        for part in ('tokenizer', 'corpus'):
            key = f'{part}_fingerprint'
            if metadata[key] != self.metadata[key]:
                raise UserError(
                    f'{self.config.data.corpus} has another {part} ({self.metadata[key][:12]}) '
                    f'than the checkpoints in {self.config.workdir} ({metadata[key][:12]}); '
                    'restore that corpus or choose another --config.workdir'
                )

    def init(self, key: Key) -> Params:
        """Initialize the parameters, float32 with logical axis names."""
        batch = self.stages[0].source.batch(0, np.arange(1))
        corrupted = self.corruption(jax.random.split(key, 1), batch)
        return self.model.init(key, batch, corrupted)['params']

    def terms(self, params: Params, batch: Batch, key: Key, train: bool) -> averages.Terms:
        """Compute the terms of a batch.

        Corruption and dropout depend on `key` and the index of each example alone.
        """
        corruption_keys_B, dropout_keys_B = _example_keys(key, batch)
        corrupted = self.corruption(corruption_keys_B, batch)
        seeds_B = jax.vmap(jax.random.bits)(dropout_keys_B) if train else None
        terms: Any = self.model.apply({'params': params}, batch, corrupted, seeds_B)
        return terms

    def corrupted_batch(self, stage: Stage, number: int, step: int) -> tuple[Batch, Corrupted]:
        """Return batch `number` of a stage, clean and as corrupted in training step `step`."""
        batch = stage.source.batch(number)
        key = step_key(jax.random.key(self.config.seed), step)
        return batch, jax.jit(self.corruption)(_example_keys(key, batch)[0], batch)

    def evaluate(self, params: Params, stage: Stage) -> dict[str, float]:
        """Compute the held-out metrics, with baselines that ignore the context.

        With several languages, also the losses of each, such as `mlm_loss/cy`, over an equal share
        of the examples.
        """
        held_out, number = self.corpus.split('held_out'), self.config.evaluation.examples
        means = self._held_out_means(params, self.held_out_source(stage), number)
        metrics = evaluation.add_baselines(means, held_out.unigram_counts)
        if len(held_out.languages) > 1:
            share = number // len(held_out.languages)
            for language in held_out.languages:
                source = self.held_out_source(stage, language)
                means = self._held_out_means(params, source, share)
                metrics |= {f'{name}/{language}': means[name] for name in self.weights}
        return metrics

    def _held_out_means(
        self, params: Params, source: ExampleSource, number: int
    ) -> dict[str, float]:
        num_batches = min(number, source.num_examples) // source.batch_size
        total: averages.Terms = {}
        for batch in batches.read(source, 0, max(1, num_batches), self.config.data.reading_threads):
            total = averages.add(total, jax.device_get(self._held_out_step(params, batch)))
        return {name: float(averages.mean(term)) for name, term in total.items()}

    def held_out_source(self, stage: Stage, language: str | None = None) -> ExampleSource:
        """Return held-out examples in the shape of a stage, of one language or all of them."""
        batch_size = stage.source.batch_size
        return pretraining_data.source(
            self.corpus,
            'held_out',
            language,
            self.config.data,
            (batch_size, stage.tokens_per_step // batch_size),
            HELD_OUT_SEED,
            **self._source_options(),
        )

    def cloze(self, params: Params, number: int) -> tuple[Masked, Batch, np.ndarray]:
        """Predict the masked tokens of held-out examples, with every chosen token as [MASK].

        Args:
            params: Parameters of the model.
            number: Maximum number of examples N.

        Returns:
            The masked batch, the clean batch, and probabilities, float32 [N, P, V]; NumPy arrays.
        """
        stage = self.stages[-1]
        source = self.held_out_source(stage)
        batch = source.batch(0, np.arange(min(number, stage.source.batch_size)))
        all_masked = dataclasses.replace(self.corruption.masking, mask=1.0, random=0.0)
        num_predictions = self.corruption.num_predictions[batch['input_ids'].shape[1]]

        def predict(params: Params, batch: Batch) -> tuple[Masked, jax.Array]:
            keys_B = jax.random.split(jax.random.key(HELD_OUT_SEED), len(batch['input_ids']))
            masked = mask_tokens(
                all_masked, keys_B, batch['input_ids'], batch['attention_mask'], num_predictions
            )
            logits_BPV: Any = self.model.apply(
                {'params': params}, batch, masked, method=PretrainingModel.predictions
            )
            return masked, jax.nn.softmax(logits_BPV)

        masked, probabilities_BPV = jax.device_get(jax.jit(predict)(params, batch))
        return masked, batch, probabilities_BPV

    def report(self, params: Params, results: dict[str, Any]) -> None:
        """Write cloze.md and the model card into the workdir."""
        params = multihost.fetch(params)
        if jax.process_index():
            return
        workdir = pathlib.Path(self.config.workdir)
        examples = ''
        if self.model.mask_filler() and self.config.evaluation.cloze_examples:
            filled = self.cloze(params, self.config.evaluation.cloze_examples)
            examples = evaluation.cloze_markdown(self.corpus.tokenizer, *filled)
            (workdir / 'cloze.md').write_text(examples, encoding='utf-8')
            print(examples)
        card = model_card.pretrained(self.config, self.architecture, self.corpus, results, examples)
        (workdir / 'README.md').write_text(card, encoding='utf-8')

    def references(self) -> dict[str, float]:
        """Return horizontal lines for the loss plot: the loss of guessing by frequency."""
        entropy = evaluation.unigram_entropy(self.corpus.split('held_out').unigram_counts)
        return {'unigram entropy of the held-out text': entropy}


def _example_keys(key: Key, batch: Batch) -> tuple[Key, Key]:
    """Return a corruption key and a dropout key for each example, from its index alone."""
    example_keys = jax.vmap(jax.random.fold_in, (None, 0))(key, batch['example_index'])
    keys = jax.vmap(jax.random.split)(example_keys)
    return keys[:, 0], keys[:, 1]


def _stage_settings(stages: Config) -> list[dict[str, int]]:
    """Return _STAGE_KEYS → value for each stage."""
    lengths = {key: len(stages[key]) for key in _STAGE_KEYS}
    if len(set(lengths.values())) > 1:
        raise UserError(f'stages: the numbers of values differ ({lengths}); give one per stage')
    for key in _STAGE_KEYS:
        if any(not isinstance(value, int) or value < 1 for value in stages[key]):
            raise UserError(f'stages.{key} is {stages[key]}; all values must be integers above 0')
    columns = zip(*(stages[key] for key in _STAGE_KEYS), strict=True)
    return [dict(zip(_STAGE_KEYS, values, strict=True)) for values in columns]


def _num_predictions(stages: Sequence[Mapping[str, int]]) -> dict[int, int]:
    """Return sequence length → max_predictions.

    Inside the jitted step only the shape of a batch is known, so stages of equal length must agree.
    """
    by_length: dict[int, int] = {}
    for stage in stages:
        length, number = stage['sequence_length'], stage['max_predictions']
        if by_length.setdefault(length, number) != number:
            raise UserError(
                f'stages.max_predictions is {by_length[length]} and {number} in stages of the same '
                f'sequence_length {length}; give them the same value'
            )
        if number > length:
            raise UserError(
                f'stages.max_predictions {number} exceeds the sequence_length {length}; lower it'
            )
    return by_length
