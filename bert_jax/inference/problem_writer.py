"""The model of a fine-tuning problem as it writes texts, in training and after it."""

import dataclasses
import functools
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Self

from bert_jax.errors import UserError
from bert_jax.inference import batching, generation
from bert_jax.inference.batching import TokenizedText
from bert_jax.inference.causal_options import CausalOptions
from bert_jax.inference.responses import Responder
from bert_jax.inference.text_rows import TextRows
from bert_jax.inference.watch import target_text
from bert_jax.labels.examples import ConversationExample, TargetExample
from bert_jax.models.architecture import Architecture
from bert_jax.models.model import Model
from bert_jax.problems.base import AnyProblem, WrittenTokens
from bert_jax.problems.generation.encoding import TargetEncoding
from bert_jax.problems.instructions.encoding import InstructionEncoding
from bert_jax.progress import Bars
from bert_jax.tokenizers import Tokenizer
from bert_jax.types import Params, Tree

_NO_ROOM = 'prompts that leave no room for an answer, which count as wrong'


@dataclasses.dataclass(frozen=True, eq=False)
class ProblemWriter:
    """An `ExampleWriter` of problems/base.py, and a `Writer` of generate_options.py.

    Attributes:
        name: the name of the model in error messages.
        model: a model with the head of the problem.
        params: its parameters.
        tokenizer: of the model.
        has_prefix: whether positions of a causal model see the whole prompt.
        max_length: the longest row of tokens.
        batch_tokens: tokens of the prompts of a batch, padding included.
        bars: show how many texts are left.
        counts: number of texts that did not end, and so on.
        concurrent_batches: batches that are written at the same time.
        learned_end: whether the model has learned the token after a text.
    """

    name: str
    model: Model
    params: Params
    tokenizer: Tokenizer
    has_prefix: bool
    max_length: int
    batch_tokens: int
    bars: Bars
    counts: Counter[str]
    concurrent_batches: int = batching.CONCURRENT_BATCHES
    learned_end: bool = True

    @classmethod
    def of(
        cls,
        problem: AnyProblem,
        model: Model,
        params: Params,
        batch_tokens: int,
        bars: Bars,
        name: str = 'the model',
        concurrent_batches: int = batching.CONCURRENT_BATCHES,
    ) -> Self:
        """Return the writer of a problem, which counts where its encoding does."""
        return cls(
            name,
            model,
            params,
            problem.encoding.tokenizer,
            problem.loss.has_prefix,
            model.architecture.max_length,
            batch_tokens,
            bars,
            problem.setup.counts,
            concurrent_batches,
        )

    @property
    def architecture(self) -> Architecture:
        """The architecture of the model."""
        return self.model.architecture

    def run(
        self,
        function: Callable[..., Tree],
        *options: object,
        rows: Iterable[Iterable[TokenizedText]],
    ) -> list[list[tuple[TokenizedText, Tree]]]:
        """Apply a function of (model, *options, params, batch) to the rows of texts, in batches."""
        rows_of_texts = [list(rows_of_text) for rows_of_text in rows]
        function = functools.partial(function, self.model, *options, self.params)
        with self.bars(sum(map(len, rows_of_texts)), ' texts') as advance:
            return TextRows(
                self.tokenizer,
                self.max_length,
                0.0,
                self.batch_tokens,
                advance,
                self.counts,
                self.concurrent_batches,
            ).run(function, rows_of_texts)

    def write_targets(
        self, encoding: TargetEncoding, examples: Sequence[TargetExample]
    ) -> list[WrittenTokens]:
        """Write a text for each example; a text does not depend on the other examples.

        The sources are counted when the examples are encoded, so they are not counted again.
        """
        options, sources = options_of(encoding), encoding.uncounted()
        writer = dataclasses.replace(
            self,
            batch_tokens=max(1, self.batch_tokens // options.beams),
            max_length=self.max_length - (options.new_tokens if encoding.is_causal else 0),
        )
        results = generation.write_after(
            writer,
            list(map(sources.source_ids, examples)),
            options,
            functools.partial(target_text, self.tokenizer),
        )
        return [
            {name: result[name][: int(result['length'])] for name in ('ids', 'log_p')}
            for result in results
        ]

    def respond(
        self, encoding: InstructionEncoding, examples: Sequence[ConversationExample]
    ) -> list[str]:
        """Write the most probable answer to each conversation; '' without room for an answer."""
        responder, prompts = Responder.of(self, encoding.uncounted(), {}), {}
        for number, example in enumerate(examples):
            try:
                prompts[number], _ = responder.prompt(example)
            except UserError:
                self.counts[_NO_ROOM] += 1
        answers = dict(zip(prompts, responder.respond(list(prompts.values())), strict=True))
        return [answers.get(number, '') for number in range(len(examples))]


def options_of(encoding: TargetEncoding) -> CausalOptions:
    """Return the options of generation that the config's `problem` has."""
    settings = encoding.settings
    names = ('beams', 'length_penalty', 'no_repeat_ngrams', 'min_new_tokens', 'target_language')
    chosen = {name: settings[name] for name in names}
    if settings.beams == 1:
        del chosen['length_penalty']
        chosen['temperature'] = 0.0
    return CausalOptions(new_tokens=settings.target_tokens, **chosen)
