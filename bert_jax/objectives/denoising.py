"""Denoising: an encoder reads a noised text, and a decoder writes what is missing.

Sources: BART (Lewis et al. 2020, arXiv 1910.13461), mBART (Liu et al. 2020, arXiv 2001.08210) and
T5 (Raffel et al. 2020, arXiv 1910.10683). Local letters: S positions of the source, U of the
target.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TypeAlias

import jax
import jax.numpy as jnp

from bert_jax.averages import Term, Terms
from bert_jax.errors import UserError, unknown
from bert_jax.models.model import HeadOptions, ModelOutput
from bert_jax.models.rows import Rows, Targets
from bert_jax.objectives import Objective
from bert_jax.objectives.corruption import Corruption, TargetLayout, Vocabulary
from bert_jax.objectives.mlm import prediction_terms
from bert_jax.objectives.noise import BartNoise, Noised, Text
from bert_jax.objectives.span_corruption import PrefixNoise, SpanCorruption
from bert_jax.types import Array, Config, Key

Noise: TypeAlias = BartNoise | SpanCorruption | PrefixNoise
# Value of `noise.kind` → the noise, whose fields are keys of `config.noise`.
NOISES: dict[str, type[Noise]] = {'bart': BartNoise, 't5': SpanCorruption, 'prefix': PrefixNoise}


def options(kind: type[Noise]) -> tuple[str, ...]:
    """Return the keys of `config.noise` that a noise reads."""
    return tuple(field.name for field in dataclasses.fields(kind))


@dataclasses.dataclass(frozen=True, eq=False)
class NoisedText(Corruption):
    """The noised text, with the target of the decoder.

    The special tokens around a text stay as they are. Of the clean rows, whose length is T, the
    first and the last token are special, so T − 2 tokens are noised.

    Attributes:
        noise: Changes a text.
        layout: Special tokens around source and target.
    """

    noise: Noise
    layout: TargetLayout

    masking_keys = ('unknown', 'word_starts', 'unspaced')
    hides_tokens = False  # prefixes and sentinels need no [MASK]; `build` checks
    allows_packing = False

    @classmethod
    def build(
        cls, config: Config, vocabulary: Vocabulary, num_predictions: Mapping[int, int]
    ) -> 'NoisedText':
        """Return the corruption with the noise of the config.

        Raises:
            UserError: The vocabulary lacks tokens or marks that the noise needs.
        """
        assert vocabulary.layout is not None  # checked with the objective
        values = config.noise
        if values.kind not in NOISES:
            raise unknown('noise.kind', values.kind, NOISES)
        kind = NOISES[values.kind]
        noise = kind(**{name: values[name] for name in options(kind)})
        made = cls(vocabulary, noise, vocabulary.layout)
        if isinstance(noise, SpanCorruption):
            needed = max(noise.num_sentinels(length - 2) for length in num_predictions)
            if needed > len(vocabulary.sentinel_ids):
                raise UserError(
                    f"noise.kind 't5' needs {needed} sentinels <extra_id_0>, … for rows of "
                    f'{max(num_predictions)} tokens, but the tokenizer has '
                    f'{len(vocabulary.sentinel_ids)}; train it with sentinels, as in '
                    f'train:unigram:8000:sentinels={needed}, or raise noise.mean_span'
                )
        if isinstance(noise, BartNoise):
            _check_bart(noise, vocabulary)
        return made

    @classmethod
    def reads_words(cls, config: Config) -> bool:
        """Whether spans consist of words."""
        values = config.noise
        return bool(values.kind == 'bart' and values.mask and values.whole_words)

    def source_length(self, length: int) -> int:
        return self.noise.source_slots(length - 2) + self.layout.num_special

    def target_length(self, length: int) -> int:
        return self.noise.target_slots(length - 2) + self.layout.of_target.num_special

    def __call__(self, keys_B: Key, rows: Rows) -> Rows:
        """Noise each row; the label `cut` counts inserted tokens without a place."""
        length_B = jnp.maximum(rows.is_token_BT.sum(1) - 2, 0)
        starts_BN = jnp.asarray(rows.labels['sentence_start'])[:, 1:-1] > 0
        texts = Text(jnp.asarray(rows.input_ids_BT)[:, 1:-1], length_B, starts_BN)
        made: Noised = jax.vmap(lambda key, text: self.noise(key, text, self.vocabulary))(
            keys_B, texts
        )
        language_B = rows.labels['language'] if self.layout.has_language else None
        source_BS, is_source_BS = self._lay_out(made.source, self.layout, length_B > 0, language_B)
        target_BU, is_target_BU = self._lay_out(
            made.target, self.layout.of_target, length_B > 0, language_B
        )
        start_B = self.layout.start_id if language_B is None else language_B
        start_B1 = jnp.broadcast_to(jnp.asarray(start_B, jnp.int32), length_B.shape)[:, None]
        mask_BU = is_target_BU.astype(jnp.int32)
        target = Rows(
            jnp.concatenate([start_B1, target_BU[:, :-1]], axis=1),
            mask_BU,
            targets=Targets.of_first(target_BU, mask_BU.astype(jnp.float32)),
        )
        labels = {name: x for name, x in rows.labels.items() if name != 'sentence_start'}
        return Rows(
            source_BS,
            is_source_BS.astype(jnp.int32),
            labels={**labels, 'cut': made.num_cut},
            target=target,
        )

    def _lay_out(
        self, text: Text, layout: TargetLayout, is_row_B: jax.Array, language_B: Array | None
    ) -> tuple[jax.Array, jax.Array]:
        """Put special tokens around texts: ids and which of them are tokens, [B, N + 1 to 3]."""
        first, pad_id = len(layout.cls_ids), self.vocabulary.pad_id
        num_slots = text.ids_N.shape[1] + layout.num_special
        index_L = jnp.arange(num_slots)
        sep_B1 = first + text.length[:, None]
        ids_BL = jnp.pad(text.ids_N, ((0, 0), (first, num_slots - first - text.ids_N.shape[1])))
        if first:
            ids_BL = ids_BL.at[:, 0].set(layout.cls_ids[0])
        ids_BL = jnp.where(index_L == sep_B1, layout.sep_id, ids_BL)
        if language_B is not None:
            ids_BL = jnp.where(index_L == sep_B1 + 1, jnp.asarray(language_B)[:, None], ids_BL)
        is_token_BL = index_L < text.length[:, None] + layout.num_special
        is_token_BL &= is_row_B[:, None]
        return jnp.where(is_token_BL, ids_BL, pad_id).astype(jnp.int32), is_token_BL

    def describe(self, rows: Rows, row: int, vocab: Sequence[str]) -> dict[str, list[object]]:
        """Return the tokens of the source and of the target."""
        assert rows.target is not None
        _, ids_BU, weights_BU = rows.target.chosen
        source = rows.input_ids_BT[row][rows.attention_mask_BT[row] > 0]
        target = ids_BU[row][weights_BU[row] > 0]
        return {
            'source': [vocab[index] for index in source],
            'target': [vocab[index] for index in target],
        }


def _check_bart(noise: BartNoise, vocabulary: Vocabulary) -> None:
    if not (noise.mask or noise.permute_sentences or noise.insert or noise.rotate):
        raise UserError(
            'the noise changes nothing: set noise.mask, noise.permute_sentences, noise.insert or '
            'noise.rotate above 0'
        )
    if vocabulary.mask_id < 0 and (noise.mask or noise.insert):
        raise UserError(
            "noise.kind 'bart' needs a mask token or a sentinel, which the tokenizer lacks; train "
            'it with sentinels, as in train:unigram:8000:sentinels=1'
        )
    if noise.mask and noise.whole_words and vocabulary.is_word_start_V is None:
        raise UserError(
            'noise.whole_words is True, but the vocabulary does not mark where words start; set '
            'noise.whole_words=False'
        )


class Denoising(Objective):
    """Cross-entropy of the tokens of the target, given the source and the target before them."""

    corruptions = ('noised',)
    reads_decoder = True
    is_generative = True
    predicts_tokens = True
    batch_keys = ('sentence_start',)

    def heads(self) -> Mapping[str, HeadOptions]:
        return {'seq2seq': {}}

    def terms(self, output: ModelOutput, clean: Rows) -> Terms:
        """Return the loss and metrics.

        Terms: `denoising_loss` (nats per token of the target, special tokens included),
        `denoising_accuracy`, and `denoising_cut`, inserted tokens per row that found no place in
        the source.
        """
        _, ids_BU, weights_BU = output.head_rows.chosen
        terms = prediction_terms('denoising', output.heads['seq2seq'], ids_BU, weights_BU)
        num_rows = jnp.any(output.rows.is_token_BT, axis=1).sum()
        cut = Term(
            output.rows.labels['cut'].sum().astype(jnp.float32), num_rows.astype(jnp.float32)
        )
        return terms | {'denoising_cut': cut}
