"""Vectors of texts and words, and attention, from the encoder of a loaded model."""

from collections.abc import Mapping, Sequence
from typing import Literal, overload

import numpy as np
from scipy import sparse

from bert_jax.errors import UserError, unknown
from bert_jax.inference import computation, word_states
from bert_jax.inference.base_predictor import BasePredictor
from bert_jax.inference.batching import TokenizedText
from bert_jax.inference.computation import Layers
from bert_jax.inference.text_rows import check_list, check_texts
from bert_jax.labels.word_spans import WordOffsets
from bert_jax.metrics.scored_rows import add_special
from bert_jax.models import head_states, layer_names
from bert_jax.models.pooling import POOLINGS
from bert_jax.models.sparse_pooling import SparsePooling

_SPARSE_TEXTS = 256  # texts whose weights of all terms are in memory at a time
_TOKENS = 'tokens'  # a vector for each token, instead of a pooling


class EncoderPredictor(BasePredictor):
    """What every model can do, with or without a head: vectors and attention."""

    @property
    def prompts(self) -> Mapping[str, str]:
        """The prompts that `embed` can put before texts, by name."""
        return self._sentence_modules.prompts if self._sentence_modules else {}

    @property
    def is_sparse(self) -> bool:
        """Whether the model was trained to make sparse vectors (`embed_sparse`)."""
        return self._sentence_modules is not None and self._sentence_modules.sparse is not None

    @property
    def similarity(self) -> str:
        """How vectors are compared, as the folder or the run says: 'cosine', 'dot', …."""
        return self._sentence_modules.similarity if self._sentence_modules else 'cosine'

    @overload
    def embed(  # type: ignore[overload-overlap]
        self,
        texts: Sequence[str],
        pooling: Literal['tokens'],
        layer: Layers = 'last',
        long_texts: str | None = None,
        prompt: str | None = None,
        dimensions: int | None = None,
    ) -> list[np.ndarray]: ...

    @overload
    def embed(
        self,
        texts: Sequence[str],
        pooling: str | None = None,
        layer: Layers = 'last',
        long_texts: str | None = None,
        prompt: str | None = None,
        dimensions: int | None = None,
    ) -> np.ndarray: ...

    def embed(
        self,
        texts: Sequence[str],
        pooling: str | None = None,
        layer: Layers = 'last',
        long_texts: str | None = None,
        prompt: str | None = None,
        dimensions: int | None = None,
    ) -> np.ndarray | list[np.ndarray]:
        """The vectors of texts, float32 [N, D], or of the tokens of each, a list of [T, D].

        Args:
            pooling: 'mean' or 'max' over all tokens, [CLS] and [SEP] included; 'cls', the state of
                [CLS], or 'lasttoken' (averaged over windows); 'tokens', one vector for each token,
                [CLS] and [SEP] included, as a list with one array for each text. None: the pooling,
                dense layers, normalization and prompt of a sentence-transformers folder; 'mean' for
                other models.
            layer: 0 (embeddings) to the number of layers, or negative from the last; 'last';
                'sum_last_4', 'mean_last_4' or 'concat_last_4', which combine the last four layers;
                'lstm_1' to 'lstm_N', the layers of the LSTM that a fine-tuned head reads
                (`model.head_lstm`); 'all', the vectors of all layers of the encoder:
                [N, L + 1, D] instead of [N, D]; or a tuple of K of the others, of one size:
                [N, K, D].
            long_texts: 'windows' (the default), or 'truncate' (the default for a
                sentence-transformers folder and for a run of the problem 'embedding').
            prompt: name of a prompt of the model, such as 'query' or 'document'; None: its default
                prompt, which is 'document' for a run with prompts.
            dimensions: return only as many numbers of each vector, normalized again if the model
                normalizes (Matryoshka embeddings).

        Raises:
            UserError: an argument is not valid, or the model has no such prompt.
        """
        modules = self._sentence_modules if pooling is None else None
        prompts = self.prompts if modules else {}
        if prompt is not None and prompt not in prompts:
            raise unknown(f'prompt of {self.name}', prompt, prompts)
        known = (*POOLINGS, _TOKENS)
        if pooling is not None and pooling not in known:
            raise unknown('pooling', pooling, known)
        if self.is_causal and (pooling == 'cls' or (modules and 'cls' in modules.pooling)):
            raise UserError(
                f"the pooling is 'cls', but {self.name} is causal: its first token has seen no "
                "other token of a text; set pooling to 'lasttoken', 'mean' or 'max'"
            )
        layer = self.layers(layer)
        if dimensions is not None and modules is None:
            raise UserError(
                'dimensions are for models with a pooling of their own: a run of the problem '
                "'embedding' or a sentence-transformers folder, with pooling=None"
            )
        if modules is None:
            encoded = self._rows.encode(texts, long_texts)
            if pooling == _TOKENS:
                rows = [list(self._rows.of_spans(ids)) for ids in encoded]
                return self._token_states(rows, layer)
            return self._pool(encoded, pooling or 'mean', layer)
        if modules.sparse:
            raise UserError(
                f'{self.name} makes sparse vectors: use embed_sparse (--task=terms or search), or '
                f'set pooling to one of {", ".join(known)}'
            )
        if modules.unsupported:
            raise UserError(
                f'{self.name}: modules.json has {modules.unsupported}, which is not supported; '
                f'set pooling to one of {", ".join(known)}'
            )
        before = modules.prompt if prompt is None else prompts[prompt]
        prompted = [before + text for text in check_texts(texts)]
        encoded = self._rows.encode(prompted, long_texts or 'truncate')
        parts = [self._pool(encoded, mode, layer) for mode in modules.pooling]
        vectors_ND = modules.apply(np.concatenate(parts, axis=-1))
        return modules.shorten(vectors_ND, dimensions) if dimensions else vectors_ND

    def embed_sparse(
        self, texts: Sequence[str], long_texts: str | None = None, prompt: str | None = None
    ) -> sparse.csr_array:
        """The weights of the terms of the vocabulary in each text, float32 [N, V].

        They are as the SparseEncoder folder of the model says, or those of SPLADE v2 for another
        model with a masked-language-model head.

        Args:
            long_texts: 'truncate' (the default), or 'windows', whose weights are pooled.
            prompt: name of a prompt of the model; None: its default prompt.

        Raises:
            UserError: the model predicts no masked tokens, or has no such prompt.
        """
        self.require('fill_mask')
        modules = self._sentence_modules
        pooling = modules.sparse if modules and modules.sparse else SparsePooling()
        if prompt is not None and prompt not in self.prompts:
            raise unknown(f'prompt of {self.name}', prompt, self.prompts)
        before = self.prompts[prompt] if prompt else (modules.prompt if modules else '')
        prompted = [before + text for text in check_texts(texts)]
        encoded = self._rows.encode(prompted, long_texts or 'truncate')
        blocks = [sparse.csr_array((0, self.architecture.vocab_size), dtype=np.float32)]
        for first in range(0, len(encoded), _SPARSE_TEXTS):
            part = encoded[first : first + _SPARSE_TEXTS]
            rows = [[TokenizedText(row, {}) for _, row in self._rows.windows(ids)] for ids in part]
            reduce = np.max if pooling.strategy == 'max' else np.sum
            found = self.run(computation.sparse, pooling, rows=rows)
            weights_NV = np.stack([reduce([w_V for _, w_V in own], axis=0) for own in found])
            blocks.append(sparse.csr_array(_largest(weights_NV, pooling.max_active)))
        return sparse.csr_array(sparse.vstack(blocks))

    def embed_words(
        self,
        texts: Sequence[str | Sequence[str]],
        spans: Sequence[WordOffsets] | None = None,
        *,
        pooling: str = 'mean',
        layer: Layers = 'last',
        split: str = 'whitespace',
    ) -> list[np.ndarray]:
        """A vector for each word or span of each text, float32 [W, D], pooled over its subwords.

        In long texts, the vector of a word is from the window in which it has most context.

        Args:
            texts: strings, or lists of words, which are joined by spaces.
            spans: for each text, the first character and end (exclusive) of its spans, which may
                overlap; None: the words.
            pooling: 'mean', 'sum' or 'first' of the subwords.
            layer: as for `embed`.
            split: how strings are split into words: at 'whitespace'; at 'punctuation' too; or, as
                'characters', also within Hangul and text without spaces.

        Raises:
            UserError: a span is empty or outside its text, or an argument is not valid.
        """
        layer = self.layers(layer)
        if pooling not in word_states.POOLINGS:
            raise unknown('pooling of words', pooling, word_states.POOLINGS)
        located = word_states.locate(check_list(texts), spans, split)
        aligned = [word_states.align(self.tokenizer, *words) for words in located]
        self._rows.count([text.ids for text in aligned], 'windows')
        size = self._rows.size
        rows = [
            list(self._rows.of_spans(text.ids, split_points=text.split_points(size)))
            for text in aligned
        ]
        states, start = self._token_states(rows, layer), self.tokenizer.text_start
        return [
            word_states.pool(states_TX[start : start + len(text.ids)], text.ranges, pooling)
            for text, states_TX in zip(aligned, states, strict=True)
        ]

    def _token_states(
        self, rows: Sequence[Sequence[TokenizedText]], layer: Layers
    ) -> list[np.ndarray]:
        """The states of the tokens of each text, [CLS] and [SEP] included, from its rows."""
        results = self.run(computation.states, layer, rows=rows)
        return [
            np.concatenate([states_TD[slice(*row.extras['span'])] for row, states_TD in windows])
            for windows in results
        ]

    def _pool(self, encoded: Sequence[np.ndarray], mode: str, layer: Layers) -> np.ndarray:
        """The pooled states of each text, float32 [N, …]; see `SentenceModules.pooling`."""
        texts = encoded or [np.zeros(0, np.int32)]  # an empty text tells the shape without texts
        pooling = POOLINGS[mode]
        rows = [list(self._rows.of_spans(ids, pooling.tokens)) for ids in texts]
        results = self.run(computation.pooled, layer, pooling, rows=rows)
        vectors = [
            pooling.combine(
                [vector_X for _, vector_X in windows],
                sum(int(np.ptp(row.extras['span'])) for row, _ in windows),
            )
            for windows in results
        ]
        return np.stack(vectors)[: len(encoded)]

    def attention(self, text: str) -> tuple[list[str], np.ndarray]:
        """The tokens of a text and the attention between them, float32 [L, H, T, T].

        Entry [l, h, t, u] is the weight of token u for token t in head h of layer l; each row sums
        to 1. [CLS] and [SEP] are included.

        Raises:
            UserError: the text is longer than the model's input.
        """
        (ids,) = self._rows.encode([text])
        (_, row), *others = self._rows.windows(ids)
        if others:
            raise UserError(
                f'the text has {len(ids)} tokens; attention supports up to {self._rows.size}'
            )
        rows = [[TokenizedText(row, {})]]
        (((_, weights_LHTT),),) = self.run(computation.attention, rows=rows)
        return [self._rows.token(i) for i in row], weights_LHTT[..., : len(row), : len(row)]

    def attention_of_words(
        self, texts: Sequence[str], spans: Sequence[WordOffsets]
    ) -> list[np.ndarray | None]:
        """The attention between the words of each text, float32 [L, H, W, W].

        Attention to a word is summed over its subwords, attention from it is averaged (Clark et
        al. 2019, section 4.1). [CLS] and [SEP] are left out, so rows sum to less than 1. Texts
        longer than the model's input have None.

        Args:
            texts: strings.
            spans: for each text, the first character and end (exclusive) of its words.
        """
        located = word_states.locate(check_list(texts), spans, 'whitespace')
        aligned = [word_states.align(self.tokenizer, *words) for words in located]
        rows = [
            [TokenizedText(add_special(self.tokenizer, text.ids), {})]
            if len(text.ids) <= self._rows.size
            else []
            for text in aligned
        ]
        results = self.run(computation.attention, rows=rows)
        return [
            word_states.pool_attention(windows[0][1], text, self.tokenizer.text_start)
            if windows
            else None
            for text, windows in zip(aligned, results, strict=True)
        ]

    @property
    def lstm_layers(self) -> tuple[str, ...]:
        """Names of the layers of the LSTM that the fine-tuned head reads; () without one."""
        if head_states.with_lstm(self._params) is None:
            return ()
        return tuple(f'lstm_{i + 1}' for i in range(self.architecture.head_lstm.layers))

    def layers(self, layer: Layers) -> Layers:
        """Find layers: numbers from 0 to L, and names of combinations and of layers of the LSTM.

        Raises:
            UserError: the model has no such layer, or layers of a tuple have different sizes.
        """
        others = self.lstm_layers
        num_layers = self.architecture.num_layers
        if not isinstance(layer, tuple):
            return layer_names.resolve(layer, num_layers, self.name, (*others, 'all'))
        found = tuple(layer_names.resolve(one, num_layers, self.name, others) for one in layer)
        self.width(found)
        return found

    def width(self, layers: tuple[int | str, ...]) -> int:
        """The number of values of a state of `layers`. Raises UserError if they differ."""
        size = self.architecture.hidden_size
        others: dict[int | str, int] = {'concat_last_4': 4 * size}
        others |= dict.fromkeys(self.lstm_layers, 2 * self.architecture.head_lstm.size)
        widths = {name: others.get(name, size) for name in layers}
        if len({*widths.values()}) > 1:
            listed = ', '.join(f'{name}: {width}' for name, width in widths.items())
            raise UserError(
                f'these layers of {self.name} have states of different sizes ({listed}); ask for '
                'them one by one'
            )
        return next(iter(widths.values()))


def _largest(weights_NV: np.ndarray, number: int | None) -> np.ndarray:
    """Set all but the largest weights of each text to 0."""
    if number is None or number >= weights_NV.shape[1]:
        return weights_NV
    smaller_NX = np.argsort(-weights_NV, axis=1, kind='stable')[:, number:]
    kept_NV = weights_NV.copy()
    np.put_along_axis(kept_NV, smaller_NX, 0, axis=1)
    return kept_NV
