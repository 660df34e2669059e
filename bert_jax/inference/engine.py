"""A loaded model and how its rows are computed, which all inference shares."""

import copy
import functools
import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Self

import jax
import jax.numpy as jnp

from bert_jax.errors import UserError
from bert_jax.inference.batching import TokenizedText
from bert_jax.inference.generate_options import GENERATORS
from bert_jax.inference.text_rows import TextRows
from bert_jax.loaded.loaded_model import LoadedModel
from bert_jax.models.architecture import Compute
from bert_jax.models.model import Model
from bert_jax.types import Tree


class Engine:
    """A loaded model: its parameters, its tokenizer and the tasks that it can answer.

    Attributes:
        tasks: names of the methods that this model supports; others raise UserError.
        name: the name of the model in error messages.
        max_length: the longest row of tokens, with special tokens.
        tokenizer: the tokenizer of the model.
        architecture: the architecture of the model.
        is_causal: whether positions do not attend to later positions.
        is_known_writer: whether the model was trained to write text.
        learned_end: whether a causal model has learned to predict the token after a text.
        generator: key of GENERATORS; '' if the model does not write text.
        has_prefix: whether positions of a causal model see the whole prompt of what it writes.
        counts: number of texts that were truncated, split into windows, and so on.
        params: its parameters, on the device.
        rows: makes rows of token ids from texts, and runs functions on them.
        compute: precision and kernels.
        sentence_modules: modules after the encoder in a sentence-transformers folder.
        overlap, batch_tokens, advance: as for `bert_jax.load`.
    """

    def __init__(
        self,
        model: LoadedModel,
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
        self.sentence_modules = modules
        self.advance = advance or (lambda num_rows: None)
        self.is_causal, self.learned_end = model.is_causal, model.learned_end
        self._writes_causally = model.is_generative and self.architecture.prediction.shift
        is_writer = model.is_causal or model.architecture.decoder is not None
        self.is_known_writer = model.is_generative or is_writer
        self.has_prefix = model.has_prefix
        self.compute, self.overlap, self.batch_tokens = Compute(dtype), overlap, batch_tokens
        self.max_length = max_length
        # Of several heads that predict tokens, one is used: 'mlm', which serves the most tasks.
        self.tasks: tuple[str, ...] = ('embed',)
        self.generator, heads = '', tuple[str, ...]()
        if 'mlm' in model.heads:
            self.tasks, heads = ('fill_mask', 'embed', 'pseudo_likelihood'), ('mlm',)
            self.tasks += ('likelihood_bound',)
        elif self.is_causal and 'clm' in model.heads:
            self.tasks, heads = ('embed', 'pseudo_likelihood'), ('clm',)
        elif 'seq2seq' in model.heads:
            heads = ('seq2seq',)
        if generates := GENERATORS.keys() & {*heads}:
            self.generator = 'clm' if self._writes_causally else generates.pop()
            self.tasks += ('generate',)
        if modules and modules.late:
            self.tasks += ('embed_late',)
        self._model = Model(
            self.architecture, self.compute, dict.fromkeys(heads, {}), self.is_causal
        )
        self.params = jax.tree.map(jnp.asarray, model.params)
        self._usage = (model.usage.to_json(), model.labels, model.activation_fn, model.learned_end)
        self.counts: Counter[str] = Counter()
        self.rows = TextRows(
            self.tokenizer, max_length, overlap, batch_tokens, self.advance, self.counts
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
        from bert_jax.loaded import tuned

        modules = self.sentence_modules
        settings = (
            *(tuned.digest(self.params[part]) for part in ('encoder', *heads)),
            self.tokenizer.fingerprint,
            repr((self.architecture, self.compute, self.is_causal)),
            repr((self.max_length, self.overlap)),
            modules.digest() if modules else '',
        )
        return hashlib.sha256('\n'.join(settings).encode()).hexdigest()

    @property
    def fingerprint(self) -> str:
        """SHA-256 of everything but their arguments that answers depend on."""
        heads = sorted(self.params.keys() - {'encoder'})
        settings = f'{self.digest(*heads)} {heads} {self.generator} {self._usage}'
        return hashlib.sha256(settings.encode()).hexdigest()

    def require(self, task: str) -> None:
        """Raise UserError unless the model can answer a task."""
        if task in ('respond', 'chat') and task not in self.tasks:
            raise UserError(
                f'{self.name} was not fine-tuned on instructions, so it cannot {task} '
                '(docs/instructions.md)'
            )
        if task not in self.tasks:
            raise UserError(
                f'{self.name} has no head for {task}; it can answer {", ".join(self.tasks)}'
            )

    def run(
        self,
        function: Callable[..., Tree],
        *options: object,
        rows: Iterable[Iterable[TokenizedText]],
    ) -> list[list[tuple[TokenizedText, Tree]]]:
        """Run a function of `computation` on the rows of each text; see `TextRows.run`."""
        function = functools.partial(function, self._model, *options, self.params)
        return self.rows.run(function, rows)

    @property
    def prompts(self) -> Mapping[str, str]:
        """The prompts that `embed` can put before texts, by name."""
        return self.sentence_modules.prompts if self.sentence_modules else {}

    @property
    def is_sparse(self) -> bool:
        """Whether the model was trained to make sparse vectors (`embed_sparse`)."""
        return self.sentence_modules is not None and self.sentence_modules.sparse is not None

    @property
    def is_late(self) -> bool:
        """Whether the model was trained to make a vector for each token (`embed_late`)."""
        return self.sentence_modules is not None and self.sentence_modules.late is not None

    @property
    def compared_by(self) -> str:
        """How vectors are compared, as the folder or the run says: 'cosine', 'dot', 'maxsim', …."""
        return self.sentence_modules.similarity if self.sentence_modules else 'cosine'

    def as_writer(self) -> Self:
        """Return the model that writes text: with causal attention where it learned to.

        The head of a masked language model that was trained with a shift predicts the next token.
        """
        if not self._writes_causally:
            return self
        causal = copy.copy(self)
        causal.is_causal, causal.learned_end = True, False
        causal._model = Model(self.architecture, self.compute, {'clm': {}}, True)
        causal.params = {'encoder': self.params['encoder'], 'clm': self.params['mlm']}
        return causal
