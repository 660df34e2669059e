"""Inference with the head of a pretrained model: masked tokens, likelihoods, generation."""

import copy
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from bert_jax.errors import UserError, warn
from bert_jax.inference import computation, likelihood_bound
from bert_jax.inference.batching import TokenizedText
from bert_jax.inference.encoder_predictor import EncoderPredictor
from bert_jax.inference.generate_options import GENERATORS, Generated
from bert_jax.inference.likelihood_bound import LikelihoodBound
from bert_jax.inference.text_rows import check_texts
from bert_jax.metrics.scored_rows import RowMaker, ScoredRow, add_special
from bert_jax.models.model import Model


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


class PretrainedPredictor(EncoderPredictor):
    """What a model with the head of its pretraining can do: `require` names the head."""

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

    def _check_row(self, row: ScoredRow) -> TokenizedText:
        if len(row.ids) > self.max_length:
            raise UserError(
                f'a text has {len(row.ids)} tokens; {self.name} supports up to {self.max_length}'
            )
        return TokenizedText(row.ids, {'positions': row.positions, 'targets': row.targets})
