"""Fine-tuning problem: write a target text for a source text."""

import functools
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from bert_jax.averages import Terms, weighted_sum
from bert_jax.labels.examples import TargetExample
from bert_jax.metrics import written_texts
from bert_jax.metrics.intervals import RowScore
from bert_jax.metrics.scores import Scores, Table
from bert_jax.metrics.written_words import Tokenizers
from bert_jax.models.model import HeadOptions
from bert_jax.models.rows import Rows, Targets
from bert_jax.objectives.mlm import cross_entropy, is_best
from bert_jax.problems import base
from bert_jax.problems.generation.encoding import TargetEncoding
from bert_jax.problems.generation.smoothing import smoothed_cross_entropy
from bert_jax.text.sentences import split_sentences
from bert_jax.types import Batch, JsonRecord, Tree

_LEAD_SENTENCES = 3


class Written(NamedTuple):
    """A text that the model has written.

    Attributes:
        text: without special tokens.
        log_probability: in nats, of all tokens, the one that ends the text included.
        has_ended: whether it ended by itself.
    """

    text: str
    log_probability: float = 0.0
    has_ended: bool = True


class TargetLoss(base.Loss):
    """Cross-entropy of the tokens of the target and of the token that ends it."""

    encoding: TargetEncoding
    weights = {'generation': 1.0}

    def heads(self) -> Mapping[str, HeadOptions]:
        return {'clm' if self.encoding.is_causal else 'seq2seq': {}}

    def corrupt(self, rows: Rows, dropout_seeds_R: base.Seeds) -> Rows:
        """Make the next token the target of each position before a token of a target."""
        if not self.encoding.is_causal:
            return rows.replace(target=self._decoder_rows(rows))
        targets = Targets.of_next(rows.input_ids_BT, rows.labels['is_target'])
        return rows.replace(targets=targets)

    def _decoder_rows(self, rows: Rows) -> Rows:
        """The targets of the S sequences of each row side by side, [R, S · U].

        A target reads the token before its first one, then its tokens but the last.
        """
        ids_RSU = jnp.asarray(rows.labels['target_ids'])
        length_RS = jnp.asarray(rows.labels['target_length'])
        num_rows, num_sequences, size = ids_RSU.shape
        read_RSU = jnp.pad(
            ids_RSU[..., :-1], [(0, 0), (0, 0), (1, 0)], constant_values=self.encoding.start_id
        )
        is_token_RSU = jnp.arange(size) < length_RS[..., None]
        ids_RX, read_RX, is_token_RX = (
            values.reshape(num_rows, -1) for values in (ids_RSU, read_RSU, is_token_RSU)
        )
        segment_RX = jnp.broadcast_to(
            jnp.repeat(jnp.arange(1, num_sequences + 1), size), ids_RX.shape
        )
        targets = Targets.of_first(ids_RX, is_token_RX.astype(jnp.float32))
        return Rows(
            read_RX, is_token_RX.astype(jnp.int32), segment_ids_BT=segment_RX, targets=targets
        )

    def outputs(self, heads: Mapping[str, Tree], rows: Rows) -> base.Outputs:
        """Return the logits, fp32 [R, P, V], the tokens to predict, and their weights."""
        (logits,) = heads.values()
        targets = (rows if rows.target is None else rows.target).chosen
        return {'logits': logits, 'ids': targets.ids_BP, 'weights': targets.weights_BP}

    def terms(self, outputs: base.Outputs, batch: Batch) -> Terms:
        """Return 'generation', smoothed, and 'nll', which is not, and the accuracy of tokens."""
        logits_RPV = outputs['logits'][..., : self.encoding.tokenizer.vocab_size]
        ids_RP, weights_RP = outputs['ids'], outputs['weights']
        settings = self.settings
        loss_RP = smoothed_cross_entropy(
            logits_RPV, ids_RP, settings.label_smoothing, settings.smoothing_form
        )
        terms = {
            'generation': weighted_sum(loss_RP, weights_RP),
            'token_accuracy': weighted_sum(is_best(logits_RPV, ids_RP), weights_RP),
        }
        if settings.label_smoothing:
            terms['nll'] = weighted_sum(cross_entropy(logits_RPV, ids_RP), weights_RP)
        return terms

    def host_outputs(self, outputs: base.Outputs, batch: Batch) -> base.HostOutputs:
        """Return nothing: texts are written token by token (`TargetDecoder.complete`)."""
        return base.HostOutputs({}, {})


class TargetDecoder(base.Decoder[TargetExample, Written]):
    """The text that the model writes, compared with the references."""

    encoding: TargetEncoding
    reads_outputs = False

    @property
    def tokenizers(self) -> Tokenizers:
        """What the metrics split texts by."""
        settings = self.settings
        return Tokenizers(
            settings.rouge_tokenizer, settings.bleu_tokenizer, settings.target_language
        )

    def check(self, examples: Sequence[TargetExample]) -> None:
        """Raise UserError if no tokenizer of BLEU fits the references."""
        references = list(map(self.references, examples))
        written_texts.check_references(references, self.settings.metrics, self.tokenizers)

    def decode(
        self, example: TargetExample, parts: base.ExampleOutputs, calibration: base.Calibration
    ) -> Written:
        """Return no text yet; `complete` writes it."""
        return Written('')

    def complete(
        self,
        examples: Sequence[TargetExample],
        predictions: Sequence[Written],
        writer: base.ExampleWriter,
    ) -> list[Written]:
        """Write a text for each example."""
        return list(map(self.written, writer.write_targets(self.encoding, examples)))

    def written(self, tokens: base.WrittenTokens) -> Written:
        """Return the text of written tokens."""
        tokenizer, ids = self.encoding.tokenizer, tokens['ids'].tolist()
        text = tokenizer.decode_text(ids)
        is_forced = len(ids) == self.settings.target_tokens and self.encoding.forces_end
        has_ended = ids[-1:] == [tokenizer.sep_id] and not is_forced
        return Written(text.rstrip(), float(tokens['log_p'].sum()), has_ended)

    def references(self, example: TargetExample) -> list[str]:
        """Return the references of an example as they are scored."""
        return [self.encoding.target_text(one, example.id) for one in example.targets or ()]

    def score(self, examples: Sequence[TargetExample], predictions: Sequence[Written]) -> Scores:
        """Return the metrics, and a table that compares the model with baselines."""
        rows_N = np.arange(len(examples))
        metrics = dict(self.score_rows(examples, predictions)(rows_N))
        if not len(examples):
            return Scores(metrics, {})
        references = list(map(self.references, examples))
        baselines = {name: texts_of(examples) for name, texts_of in BASELINES.items()}
        compared = {'model': metrics} | {
            name: self.score_rows(examples, texts)(rows_N) for name, texts in baselines.items()
        }
        words = {name: _mean_words(texts) for name, texts in baselines.items()}
        words['model'] = _mean_words(predictions)
        columns = ('texts', *metrics, 'words')
        cells = [(name, *values.values(), words[name]) for name, values in compared.items()]
        ended = sum(one.has_ended for one in predictions) / len(predictions)
        share = Table(('share of texts that ended by themselves',), [(ended,)])
        tables = {'Baselines': Table(columns, cells), 'Ends': share}
        signatures = written_texts.signatures(references, self.settings.metrics, self.tokenizers)
        return Scores(metrics, tables, signatures)

    def score_rows(
        self, examples: Sequence[TargetExample], predictions: Sequence[Written]
    ) -> RowScore:
        references = list(map(self.references, examples))
        texts = [one.text for one in predictions]
        return written_texts.score_rows(references, texts, self.settings.metrics, self.tokenizers)

    def blind_guesses(
        self, train: Sequence[TargetExample], examples: Sequence[TargetExample]
    ) -> list[Written]:
        """Return the best of: the first three sentences, the source, the most frequent target."""
        counts = Counter(self.references(example)[0] for example in train)
        frequent = [Written(counts.most_common(1)[0][0])] * len(examples)
        guesses = [*(texts_of(examples) for texts_of in BASELINES.values()), frequent]
        rows_N = np.arange(len(examples))

        def main_metric(texts: list[Written]) -> float:
            return next(iter(self.score_rows(examples, texts)(rows_N).values()))

        return max(guesses, key=main_metric)

    def to_record(self, example: TargetExample, prediction: Written) -> JsonRecord:
        return {
            'id': example.id,
            'texts': list(example.texts),
            'gold': None if example.targets is None else self.references(example),
            'written': prediction.text,
            'log_probability': prediction.log_probability,
            'ended': prediction.has_ended,
        }


def _lead(number: int, examples: Sequence[TargetExample]) -> list[Written]:
    """The first sentences of each source; of pairs, of the first text."""
    return [Written(' '.join(split_sentences(one.texts[0])[:number])) for one in examples]


def _copy(examples: Sequence[TargetExample]) -> list[Written]:
    return [Written(one.texts[0]) for one in examples]


# Name → what can be written without a model.
BASELINES: dict[str, Callable[[Sequence[TargetExample]], list[Written]]] = {
    'lead-3': functools.partial(_lead, _LEAD_SENTENCES),
    'copy': _copy,
}


def _mean_words(texts: Sequence[Written]) -> float:
    return sum(len(one.text.split()) for one in texts) / len(texts)


GENERATION = base.Parts(TargetEncoding, TargetLoss, TargetDecoder)
