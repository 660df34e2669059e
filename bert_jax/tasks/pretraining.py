"""Pretraining as a task: corrupt, encode, and sum the terms of every objective."""

import dataclasses
import pathlib

import jax
import numpy as np

from bert_jax import averages
from bert_jax.errors import UserError
from bert_jax.evaluation import model_card
from bert_jax.evaluation import pretraining as evaluation
from bert_jax.models.architecture import Compute
from bert_jax.objectives import OBJECTIVES, corruption
from bert_jax.objectives.edits import EDITS, Editing
from bert_jax.objectives.generator import Generation
from bert_jax.objectives.masking import Masking, mask_tokens
from bert_jax.objectives.model import PretrainingModel, flops_per_token
from bert_jax.objectives.sbo import Boundary
from bert_jax.tasks import initialization, pretraining_data
from bert_jax.training import feed, multihost
from bert_jax.training.loop import Stage
from bert_jax.training.step import step_key

HELD_OUT_SEED = 0  # the same held-out examples and masks in every run


class Pretraining:
    """The task of the training loop (see training/loop.py for what it asks of one)."""

    def __init__(self, config):
        self.config = config
        names = corruption.with_weight(config.objectives)
        form = corruption.common_form(names, config.masking.scheme)
        if form == 'edited' and config.data.pack:
            raise UserError(
                f'data.pack does not go with {", ".join(names)}: edits would move tokens from one '
                'example of a row into another; set data.pack=False'
            )
        self.weights = corruption.loss_weights(config.objectives)
        self.corpus = pretraining_data.open_corpus(config.data)
        self.marks = {'mark_sentences': 'permutation' in names}
        tokenizer = self.corpus.tokenizer
        self.start = initialization.begin(config, initialization.weights(config), tokenizer, names)
        self.architecture = self.start.architecture
        self.compute = Compute(**config.compute.to_dict())
        options = {'sbo': Boundary(**config.sbo), 'rtd': Generation(**config.rtd)}
        self.model = PretrainingModel(self.architecture, self.compute, names, options)
        masking = Masking(
            **config.masking.to_dict(),
            mask_id=tokenizer.mask_id,
            special_ids=tokenizer.special_ids,
            unigram_counts=self.corpus.split('train').unigram_counts,
            is_word_start=tokenizer.is_word_start,
        )
        edits = {name: config.editing[name] for name in EDITS if name in names}
        editing = Editing(edits, masking, tokenizer.pad_id)
        self.corruption = corruption.Corruption(
            form, masking, editing, _num_predictions(config.stages)
        )
        self.stages = tuple(self._stage(*stage) for stage in _stages(config.stages))
        self.metadata = {
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

    def _stage(self, steps, sequence_length, batch_size, accumulation, max_predictions) -> Stage:
        if sequence_length > self.architecture.max_length:
            raise UserError(
                f'stages.sequence_length {sequence_length} is longer than the '
                f'{self.architecture.max_length} positions of the model '
                '(model.max_position_embeddings)'
            )
        tokens = batch_size * sequence_length
        flops = flops_per_token(self.model, sequence_length, max_predictions)
        shape, data = (batch_size, sequence_length), self.config.data
        source = pretraining_data.train_source(
            self.corpus, data, shape, self.config.seed, **self.marks
        )
        self._check_needs(source)
        return Stage(
            source=source,
            steps=steps,
            accumulation=accumulation,
            tokens_per_step=tokens,
            flops_per_step=tokens * flops,
        )

    def _check_needs(self, source):
        given = source.batch(0, np.arange(1))
        for name in self.model.objectives:
            for key in OBJECTIVES[name].needs:
                if key not in given:
                    raise UserError(
                        f'objective {name!r} needs {key!r} in its batches, which '
                        f'data.segments={self.config.data.segments!r} does not give'
                    )

    def describe(self) -> list[str]:
        """Lines for the start of the log: what is trained, on what, for how long."""
        sizes = self.architecture
        train, held_out = self.corpus.split('train'), self.corpus.split('held_out')
        lines = [
            f'{self.config.model.architecture} {sizes.num_layers} × {sizes.hidden_size}, '
            f'vocabulary {sizes.vocab_size:,}; ' + ', '.join(self.weights),
            f'{self.config.data.corpus}: {train.num_tokens:,} tokens in {train.num_documents:,} '
            f'documents; held out {held_out.num_tokens:,} in {held_out.num_documents:,}',
        ]
        for number, stage in enumerate(self.stages, start=1):
            told = pretraining_data.describe(stage.source, stage.steps * stage.source.batch_size)
            lines.append(f'stage {number}: {stage.steps:,} steps, {told[0]}')
            lines += told[1:]
        return lines

    def check(self, metadata: dict):
        """Raises UserError if a checkpoint was made with another tokenizer or corpus."""
        for part in ('tokenizer', 'corpus'):
            key = f'{part}_fingerprint'
            if metadata[key] != self.metadata[key]:
                raise UserError(
                    f'{self.config.data.corpus} has another {part} ({self.metadata[key][:12]}) '
                    f'than the checkpoints in {self.config.workdir} ({metadata[key][:12]}); '
                    'restore that corpus or choose another --config.workdir'
                )

    def init(self, key):
        """Parameters with their logical axis names, float32."""
        batch = self.stages[0].source.batch(0, np.arange(1))
        corrupted = self.corruption(jax.random.split(key, 1), batch)
        return self.model.init(key, batch, corrupted)['params']

    def terms(self, params, batch, key, train: bool) -> averages.Terms:
        """The terms of a batch; masks and dropout depend on `key` and the example's index alone."""
        corruption_keys_B, dropout_keys_B = _keys(key, batch)
        corrupted = self.corruption(corruption_keys_B, batch)
        seeds_B = jax.vmap(jax.random.bits)(dropout_keys_B) if train else None
        return self.model.apply({'params': params}, batch, corrupted, seeds_B)

    def corrupted_batch(self, stage: Stage, number: int, step: int):
        """(batch, what the encoder is shown of it) for batch `number` of a stage, as trained on in
        the step before which there are `step`.
        """
        batch = stage.source.batch(number)
        key = step_key(jax.random.key(self.config.seed), step)
        return batch, jax.jit(self.corruption)(_keys(key, batch)[0], batch)

    def evaluate(self, params, stage: Stage) -> dict[str, float]:
        """Held-out loss, accuracy and perplexity beside what needs no context; with several
        languages also the losses of each, 'mlm_loss/cy', over an equal share of the examples."""
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

    def _held_out_means(self, params, source, number: int) -> dict[str, float]:
        num_batches = min(number, source.num_examples) // source.batch_size
        total = {}
        for batch in feed.batches(source, 0, max(1, num_batches), self.config.data.reading_threads):
            total = averages.add(total, jax.device_get(self._held_out_step(params, batch)))
        return {name: float(averages.mean(term)) for name, term in total.items()}

    def held_out_source(self, stage: Stage, language: str | None = None):
        """Held-out examples of the shape of a stage's, of all languages or one."""
        batch_size = stage.source.batch_size
        shape, data = (batch_size, stage.tokens_per_step // batch_size), self.config.data
        return pretraining_data.source(
            self.corpus, 'held_out', language, data, shape, HELD_OUT_SEED, **self.marks
        )

    def cloze(self, params, number: int):
        """`number` held-out examples with every chosen token behind [MASK].

        Returns NumPy (Masked, batch, probabilities float32 [number, P, V]).
        """
        stage = self.stages[-1]
        source = self.held_out_source(stage)
        batch = source.batch(0, np.arange(min(number, stage.source.batch_size)))
        all_hidden = dataclasses.replace(self.corruption.masking, mask=1.0, random=0.0)
        num_predictions = self.corruption.num_predictions[batch['input_ids'].shape[1]]

        def predict(params, batch):
            keys_B = jax.random.split(jax.random.key(HELD_OUT_SEED), len(batch['input_ids']))
            masked = mask_tokens(
                all_hidden, keys_B, batch['input_ids'], batch['attention_mask'], num_predictions
            )
            logits_BPV = self.model.apply(
                {'params': params}, batch, masked, method=PretrainingModel.predictions
            )
            return masked, jax.nn.softmax(logits_BPV)

        masked, probabilities_BPV = jax.device_get(jax.jit(predict)(params, batch))
        return masked, batch, probabilities_BPV

    def report(self, params, results: dict):
        """cloze.md and the model card, beside what the loop left in the workdir."""
        params = multihost.fetch(params)
        if jax.process_index():
            return
        workdir = pathlib.Path(self.config.workdir)
        examples = ''
        fills_gaps = 'mlm' in self.model.objectives and self.corruption.form == 'masked'
        if fills_gaps and self.config.evaluation.cloze_examples:
            filled = self.cloze(params, self.config.evaluation.cloze_examples)
            tokenizer = self.corpus.tokenizer
            examples = evaluation.cloze_markdown(evaluation.cloze_examples(tokenizer, *filled))
            (workdir / 'cloze.md').write_text(examples, encoding='utf-8')
            print(examples)
        card = model_card.pretrained(self.config, self.architecture, self.corpus, results, examples)
        (workdir / 'README.md').write_text(card, encoding='utf-8')

    def references(self) -> dict[str, float]:
        """Lines for the picture: the loss of guessing by frequency."""
        entropy = evaluation.unigram_entropy(self.corpus.split('held_out').unigram_counts)
        return {'unigram entropy of the held-out text': entropy}


def _keys(key, batch):
    """Keys of corruption and of dropout for each example, from its index alone."""
    example_keys = jax.vmap(jax.random.fold_in, (None, 0))(key, batch['example_index'])
    keys = jax.vmap(jax.random.split)(example_keys)
    return keys[:, 0], keys[:, 1]


def _stages(stages) -> list[tuple]:
    """(steps, sequence_length, batch_size, accumulation, max_predictions) of each stage."""
    keys = ('steps', 'sequence_length', 'batch_size', 'accumulation', 'max_predictions')
    lengths = {key: len(stages[key]) for key in keys}
    if len(set(lengths.values())) > 1:
        raise UserError(f'stages: every key needs one entry a stage, but they have {lengths}')
    for key in keys:
        if any(not isinstance(value, int) or value < 1 for value in stages[key]):
            raise UserError(f'stages.{key} is {stages[key]}; all must be whole numbers above 0')
    return list(zip(*(stages[key] for key in keys), strict=True))


def _num_predictions(stages) -> dict[int, int]:
    """Masked positions by sequence length: the one thing of a stage that only its shape tells."""
    by_length = {}
    for _, sequence_length, _, _, max_predictions in _stages(stages):
        if by_length.setdefault(sequence_length, max_predictions) != max_predictions:
            raise UserError(
                f'stages.max_predictions: two stages of length {sequence_length} must agree on it'
            )
        if max_predictions > sequence_length:
            raise UserError(
                f'stages.max_predictions {max_predictions} exceeds the length {sequence_length}'
            )
    return by_length
