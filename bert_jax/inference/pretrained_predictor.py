"""Inference with a pretrained model: masked tokens, embeddings, attention, likelihoods."""

import copy
import functools
import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from scipy import sparse

from bert_jax.errors import UserError, unknown, warn
from bert_jax.inference import computation, likelihood_bound, word_states
from bert_jax.inference.batching import TokenizedText
from bert_jax.inference.computation import Layers
from bert_jax.inference.generate_options import GENERATORS, Generated
from bert_jax.inference.likelihood_bound import LikelihoodBound
from bert_jax.inference.text_rows import TextRows, check_list, check_texts
from bert_jax.interop import tuned
from bert_jax.interop.pretrained import Pretrained
from bert_jax.labels.word_spans import WordOffsets
from bert_jax.metrics.scored_rows import RowMaker, ScoredRow, add_special
from bert_jax.models.architecture import Compute
from bert_jax.models.head_states import COMBINATIONS
from bert_jax.models.model import Model
from bert_jax.models.sparse_pooling import SparsePooling
from bert_jax.types import Tree

_SPARSE_TEXTS = 256  # texts whose weights of all terms are in memory at a time
POOLINGS = ('mean', 'cls', 'max', 'tokens')


class Guess(NamedTuple):
    """A token for a [MASK], and its probability."""

    token: str
    probability: float


class Likelihood(NamedTuple):
    """The tokens of a text and their log probabilities in nats, float32 [tokens]."""

    tokens: list[str]
    log_probabilities: np.ndarray

    @property
    def total(self) -> float:
        """The pseudo-log-likelihood of the text, in nats."""
        return float(sum(self.log_probabilities.tolist()))


class PretrainedPredictor:
    """What every model can do, with or without a masked-language-model head.

    Attributes:
        tasks: names of the methods that this model supports; others raise UserError.
        name: the name of the model in error messages.
        max_length: the longest row of tokens, with special tokens.
        tokenizer: the tokenizer of the model.
        architecture: the architecture of the model.
        is_causal: whether positions do not attend to later positions.
        learned_end: whether a causal model has learned to predict the token after a text.
        has_prefix: whether positions of a causal model see the whole prompt of what it writes.
        counts: number of texts that were truncated, split into windows, and so on.
    """

    def __init__(
        self,
        model: Pretrained,
        *,
        name: str = 'the model',
        dtype: str = 'float32',
        max_length: int | None = None,
        overlap: float = 0.25,
        batch_tokens: int = 1024,
        advance: Callable[[int], object] | None = None,
    ) -> None:
        """Prepare inference; nothing is compiled until the first call.

        Args:
            model: parameters, architecture and tokenizer.
            name: the name of the model in error messages.
            dtype, max_length, overlap, batch_tokens, advance: as for `bert_jax.load`.

        Raises:
            UserError: a setting is not valid, or the model has no tokenizer.
        """
        self.architecture = model.architecture
        longest = model.architecture.max_length
        modules = model.sentence_modules
        if max_length is None:
            max_length = min(longest, (modules and modules.max_length) or longest)
        if not 3 <= max_length <= longest:
            raise UserError(
                f'max_length is {max_length}; it must be from 3 to {longest}, the longest input of '
                f'{name}'
            )
        if not 0 <= overlap < 1:
            raise UserError(f'overlap is {overlap}; it must be at least 0 and below 1')
        if model.tokenizer is None:
            raise UserError(f'{name} has no tokenizer; add its tokenizer.json or vocab.txt')
        self.tokenizer, self.name = model.tokenizer, name
        self._sentence_modules = modules
        self._advance = advance or (lambda num_rows: None)
        self.is_causal, self.learned_end = model.is_causal, model.learned_end
        self._writes_causally = model.is_generative and self.architecture.prediction.shift
        is_writer = model.is_causal or model.architecture.decoder is not None
        self._warns_generate = not (model.is_generative or is_writer)
        self.has_prefix = model.has_prefix
        self._compute, self._overlap, self._batch_tokens = Compute(dtype), overlap, batch_tokens
        self.max_length = max_length
        self.tasks: tuple[str, ...] = ('embed',)
        heads: tuple[str, ...] = ()
        if 'mlm' in model.heads:
            self.tasks, heads = ('fill_mask', 'embed', 'pseudo_likelihood'), ('mlm',)
            self.tasks += ('likelihood_bound',)
        elif self.is_causal and 'clm' in model.heads:
            self.tasks, heads = ('embed', 'pseudo_likelihood'), ('clm',)
        elif 'seq2seq' in model.heads:
            heads = ('seq2seq',)
        if generates := GENERATORS.keys() & {*heads}:
            self._generator = 'clm' if self._writes_causally else generates.pop()
            self.tasks += ('generate',)
        self._model = Model(
            self.architecture, self._compute, dict.fromkeys(heads, {}), self.is_causal
        )
        self._params = jax.tree.map(jnp.asarray, model.params)
        self.counts: Counter[str] = Counter()
        self._unsupported: str | None = None  # why a model with a classifier cannot classify
        self._rows = TextRows(
            self.tokenizer, max_length, overlap, batch_tokens, self._advance, self.counts
        )

    def __repr__(self) -> str:
        sizes = self.architecture
        return (
            f'{type(self).__name__}({self.name!r}: {sizes.num_layers} layers × '
            f'{sizes.hidden_size}, {sizes.vocab_size:,} tokens, up to {self.max_length} per text; '
            f'{", ".join(self.tasks)})'
        )

    def digest(self, *heads: str) -> str:
        """SHA-256 of everything but the arguments of `embed` that vectors of texts depend on.

        Args:
            heads: the heads that the vectors depend on: 'mlm' for `embed_sparse`.
        """
        modules = self._sentence_modules
        settings = (
            *(tuned.digest(self._params[part]) for part in ('encoder', *heads)),
            self.tokenizer.fingerprint,
            repr((self.architecture, self._compute, self.is_causal)),
            repr((self.max_length, self._overlap)),
            modules.digest() if modules else '',
        )
        return hashlib.sha256('\n'.join(settings).encode()).hexdigest()

    @property
    def prompts(self) -> Mapping[str, str]:
        """The prompts that `embed` can put before texts, by name."""
        return self._sentence_modules.prompts if self._sentence_modules else {}

    @property
    def is_sparse(self) -> bool:
        """Whether the model was trained to make sparse vectors (`embed_sparse`)."""
        return self._sentence_modules is not None and self._sentence_modules.sparse is not None

    def require(self, task: str) -> None:
        """Raise UserError unless the model can answer a task."""
        if task == 'classify' and self._unsupported:
            raise UserError(f'{self.name} cannot classify: {self._unsupported}')
        if task in ('respond', 'chat') and task not in self.tasks:
            raise UserError(
                f'{self.name} was not fine-tuned on instructions, so it cannot {task} '
                '(docs/instructions.md)'
            )
        if task not in self.tasks:
            raise UserError(
                f'{self.name} has no head for {task}; it can answer {", ".join(self.tasks)}'
            )

    def fill_mask(self, texts: Sequence[str], top_k: int = 5) -> list[list[list[Guess]]]:
        """The most probable tokens, best first, for each [MASK] of each text."""
        self.require('fill_mask')
        encoded = self.tokenizer.encode_batch(check_texts(texts), special=True).ids
        self._rows.count(encoded, 'windows')
        top_k = min(top_k, self.architecture.vocab_size)
        results = self.run(computation.guesses, top_k, rows=map(self._rows.of_masks, encoded))
        guesses: list[list[list[Guess]]] = []
        for windows in results:
            guesses.append([])
            for row, (probabilities_PK, ids_PK) in windows:
                for slot in range(len(row.extras['positions'])):
                    pairs = zip(ids_PK[slot], probabilities_PK[slot], strict=True)
                    guesses[-1].append([Guess(self._rows.token(i), float(p)) for i, p in pairs])
        return guesses

    def embed(
        self,
        texts: Sequence[str],
        pooling: str | None = None,
        layer: Layers = -1,
        long_texts: str | None = None,
        prompt: str | None = None,
        dimensions: int | None = None,
    ) -> list[np.ndarray]:
        """A vector for each text, float32 [D], or for each of its tokens, float32 [T, D].

        Args:
            pooling: 'mean' or 'max' over all tokens, [CLS] and [SEP] included; 'cls', the state of
                [CLS] (averaged over windows); 'tokens', one vector for each token, [CLS] and [SEP]
                included. None: the pooling, dense layers, normalization and prompt of a
                sentence-transformers folder; 'mean' for other models.
            layer: 0 (embeddings) to the number of layers, or negative from the last; or
                'sum_last_4', 'mean_last_4' or 'concat_last_4', which combine the last four layers;
                or 'all', the vectors of all layers: [L + 1, D] instead of [D]; or a tuple of K of
                the others: [K, D].
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
        if pooling is not None and pooling not in POOLINGS:
            raise unknown('pooling', pooling, POOLINGS)
        self._check_layer(layer)
        if dimensions is not None and modules is None:
            raise UserError(
                'dimensions are for models with a pooling of their own: a run of the problem '
                "'embedding' or a sentence-transformers folder, with pooling=None"
            )
        if modules is None:
            encoded = self._rows.encode(texts, long_texts)
            if pooling == 'tokens':
                rows = [list(self._rows.of_spans(ids, 'tokens')) for ids in encoded]
                return self._token_states(rows, layer)
            return self._pool(encoded, pooling or 'mean', layer)
        if modules.sparse:
            raise UserError(
                f'{self.name} makes sparse vectors: use embed_sparse (--task=terms or search), or '
                f'set pooling to one of {", ".join(POOLINGS)}'
            )
        if modules.unsupported:
            raise UserError(
                f'{self.name}: modules.json has {modules.unsupported}, which is not supported; '
                f'set pooling to one of {", ".join(POOLINGS)}'
            )
        before = modules.prompt if prompt is None else prompts[prompt]
        prompted = [before + text for text in check_texts(texts)]
        encoded = self._rows.encode(prompted, long_texts or 'truncate')
        parts = zip(*(self._pool(encoded, mode, layer) for mode in modules.pooling), strict=True)
        vectors = [modules.apply(np.concatenate(own, axis=-1)) for own in parts]
        return [modules.shorten(own, dimensions) for own in vectors] if dimensions else vectors

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
        layer: Layers = -1,
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
        self._check_layer(layer)
        if pooling not in word_states.POOLINGS:
            raise unknown('pooling of words', pooling, word_states.POOLINGS)
        located = word_states.locate(check_list(texts), spans, split)
        aligned = [word_states.align(self.tokenizer, *words) for words in located]
        self._rows.count([text.ids for text in aligned], 'windows')
        size = self._rows.size
        rows = [
            list(self._rows.of_spans(text.ids, 'tokens', text.split_points(size)))
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

    def _pool(self, encoded: Sequence[np.ndarray], mode: str, layer: Layers) -> list[np.ndarray]:
        """The pooled states of each text, float32 [D]; see `SentenceModules.pooling`."""
        rows = [list(self._rows.of_spans(ids, mode)) for ids in encoded]
        results = self.run(computation.pooled, layer, mode, rows=rows)
        if mode == 'max':
            return [np.max([max_D for _, max_D in windows], axis=0) for windows in results]
        power = 0.5 if mode == 'mean_sqrt_len_tokens' else 1.0
        return [
            sum(sum_D for _, sum_D in windows)
            / np.float32(sum(np.ptp(row.extras['span']) for row, _ in windows) ** power)
            for windows in results
        ]

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

    def pseudo_likelihood(
        self, texts: Sequence[str], long_texts: str | None = None, variant: str = 'tokens'
    ) -> list[Likelihood]:
        """Log probability of each token when it is masked; see metrics/scored_rows.py.

        A causal model gives the log probability of each token given the tokens to its left.

        Args:
            long_texts: 'windows' (the default), or 'truncate'.
            variant: 'tokens', or 'word_l2r', where the later subwords of its word are masked too.
        """
        maker = RowMaker.of(self.tokenizer, variant, self.is_causal)
        encoded = self._rows.encode(texts, long_texts)
        scores = self.log_probabilities([self._rows.of_tokens(ids, maker) for ids in encoded])
        return [
            Likelihood([self._rows.token(i) for i in ids], np.concatenate([[], *rows]).astype('f4'))
            for ids, rows in zip(encoded, scores, strict=True)
        ]

    def likelihood_bound(
        self, texts: Sequence[str], draws: int = 128, seed: int = 0
    ) -> list[LikelihoodBound]:
        """A lower bound on the log likelihood of each text; see inference/likelihood_bound.py.

        Args:
            draws: number of masked rows for each text; more have a smaller error.
            seed: another number draws other rows.

        Raises:
            UserError: a text is longer than the model's input, because the bounds of its windows
                would not add up to a bound.
        """
        self.require('likelihood_bound')
        rows = []
        for number, ids in enumerate(self._rows.encode(texts), 1):
            if len(ids) > self._rows.size:
                raise UserError(
                    f'text {number} has {len(ids) + 2} tokens; likelihood_bound of {self.name} '
                    f'supports up to {self.max_length}'
                )
            rows.append(add_special(self.tokenizer, ids))
        mask_id = self.tokenizer.mask_id
        return list(likelihood_bound.bounds(self.log_probabilities, rows, mask_id, draws, seed))

    def log_probabilities(self, rows: Iterable[Iterable[ScoredRow]]) -> list[list[np.ndarray]]:
        """The log probabilities in nats of the targets of each row of each text, float32 [P].

        Args:
            rows: the rows of each text; see metrics/scored_rows.py.

        Raises:
            UserError: the model predicts no tokens, or a row is longer than its input.
        """
        self.require('pseudo_likelihood')
        texts = [list(map(self._check_row, text_rows)) for text_rows in rows]
        results = self.run(computation.log_probabilities, rows=texts)
        return [
            [log_p[: len(row.extras['targets'])] for row, log_p in text_rows]
            for text_rows in results
        ]

    def generate(self, texts: Sequence[str], **options: object) -> list[Generated]:
        """Fill the gaps of each text, or write after it.

        A masked language model unmasks: it fills '[MASK]' and, for five tokens, '[MASK:5]' anywhere
        in a text. It should be trained with the objective diffusion. A causal model writes after
        a text, from left to right. A model with a decoder writes a text for each source.

        Args:
            texts: strings of any language that the vocabulary covers, at most as long as the
                model's input, with what is written.
            options: see `GenerateOptions`, and `UnmaskingOptions` for masked language models or
                `CausalOptions` for causal models.

        Raises:
            UserError: an option or a text that this model does not support.
        """
        self.require('generate')
        if self._warns_generate:
            warn(f'{self.name} is not known to be trained to write text: expect little of it')
            self._warns_generate = False
        generator = GENERATORS[self._generator]
        writer = self._as_causal() if self._writes_causally else self
        return generator.generate(writer, check_texts(texts), generator.read(options))

    def _as_causal(self) -> 'PretrainedPredictor':
        """Return the model with causal attention; the same head predicts the next token."""
        causal = copy.copy(self)
        causal.is_causal, causal.learned_end = True, False
        causal._model = Model(self.architecture, self._compute, {'clm': {}}, True)
        causal._params = {'encoder': self._params['encoder'], 'clm': self._params['mlm']}
        return causal

    def run(
        self,
        function: Callable[..., Tree],
        *options: object,
        rows: Iterable[Iterable[TokenizedText]],
    ) -> list[list[tuple[TokenizedText, Tree]]]:
        """Run a function of `computation` on the rows of each text; see `TextRows.run`."""
        function = functools.partial(function, self._model, *options, self._params)
        return self._rows.run(function, rows)

    def _check_row(self, row: ScoredRow) -> TokenizedText:
        if len(row.ids) > self.max_length:
            raise UserError(
                f'a text has {len(row.ids)} tokens; {self.name} supports up to {self.max_length}'
            )
        return TokenizedText(row.ids, {'positions': row.positions, 'targets': row.targets})

    def _check_layer(self, layer: Layers) -> None:
        num_layers = self.architecture.num_layers
        if isinstance(layer, tuple):
            for single in layer:
                if single in ('all', 'concat_last_4'):
                    raise UserError(f'{single} cannot be one of several layers')
                self._check_layer(single)
        elif isinstance(layer, str):
            if layer not in COMBINATIONS:
                raise unknown('layer', layer, ('a number', *COMBINATIONS))
            if num_layers < 4 and layer != 'all':
                raise UserError(f'{layer} needs 4 layers, but {self.name} has {num_layers}')
        elif not -num_layers - 1 <= layer <= num_layers:
            raise UserError(f'layer is {layer}; it must be from 0 (embeddings) to {num_layers}')


def _largest(weights_NV: np.ndarray, number: int | None) -> np.ndarray:
    """Set all but the largest weights of each text to 0."""
    if number is None or number >= weights_NV.shape[1]:
        return weights_NV
    smaller_NX = np.argsort(-weights_NV, axis=1, kind='stable')[:, number:]
    kept_NV = weights_NV.copy()
    np.put_along_axis(kept_NV, smaller_NX, 0, axis=1)
    return kept_NV
