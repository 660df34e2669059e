"""Text that models write: after or into a text, as a target, as the answer of a conversation."""

import dataclasses
import hashlib
import sys
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, ClassVar

from bert_jax.answers.base import SLOW, Question
from bert_jax.answers.finetuned import LIKE_RUN, Finetuned
from bert_jax.answers.input_rows import TEXT, Fields, InputRow, texts_of
from bert_jax.errors import UserError, warn
from bert_jax.flag_parser import flag
from bert_jax.interop import MODEL_HELP
from bert_jax.types import JsonObject, JsonRecord

if TYPE_CHECKING:
    from bert_jax.inference.predictor import Predictor

_EARLY_STOPPING = {'true': True, 'false': False, 'never': 'never'}
_NEW_TOKENS = 'maximum number of tokens (default: as in training)'


@dataclasses.dataclass(frozen=True, kw_only=True)
class _BeamFlags:
    """How the tokens of a text are searched for."""

    new_tokens: int | None = flag(_NEW_TOKENS, None, '[1, inf)')
    beams: int | None = flag(
        'left to right: number of beams (default: 1, no beam search)', None, '[1, inf)'
    )
    length_penalty: float | None = flag(
        'left to right: scores of beams are divided by length to this power (default: 1)', None
    )
    no_repeat_ngrams: int | None = flag(
        'left to right: length of the sequences of tokens that occur once (default: 0, any)',
        None,
        '[0, inf)',
    )
    min_new_tokens: int | None = flag(
        'left to right: tokens before a text may end (default: 0)', None, '[0, inf)'
    )

    def given(self, flags: type) -> JsonRecord:
        """Return the flags of a class that are given, by name."""
        values = {one.name: getattr(self, one.name) for one in dataclasses.fields(flags)}
        return {name: value for name, value in values.items() if value not in (None, ())}


@dataclasses.dataclass(frozen=True, kw_only=True)
class _WritingFlags(_BeamFlags):
    """How the tokens of a text are chosen, named as the options of `Predictor.generate`."""

    default_temperature: ClassVar[float] = 0.0

    temperature: float | None = flag(
        'of sampling; 0 takes the most probable tokens (default)', None, '[0, inf)'
    )
    seed: int | None = flag('another number draws other samples', None, '[0, 4294967295]')
    stop: tuple[str, ...] = flag(
        'strings that end what is written after a text', (), form='repeated'
    )
    steps: int | None = flag(
        'unmasking: steps for each text (default: one for each hidden token)', None, '[1, inf)'
    )
    order: str | None = flag(
        'unmasking: which tokens are kept first: confidence (default), random or left_to_right',
        None,
    )
    block: int | None = flag(
        'unmasking: number of tokens that are filled before the next (default: all); chat shows an '
        'answer block by block',
        None,
        '[1, inf)',
    )
    remask: float | None = flag(
        'unmasking: share of the tokens of a block that are hidden again after each step '
        '(default: 0)',
        None,
        '[0, 1)',
    )
    top_k: int | None = flag(
        'left to right: sample from this many tokens (default: all)', None, '[1, inf)'
    )
    top_p: float | None = flag(
        'left to right: sample from the most probable tokens that together have this probability '
        '(default: 1)',
        None,
        '(0, 1]',
    )
    min_p: float | None = flag(
        'left to right: sample from tokens with this share of the largest probability (default: 0)',
        None,
        '[0, 1)',
    )
    early_stopping: str | None = flag(
        'left to right: beams stop when as many texts have ended (true), when no text of the '
        'current length can be better (false, default), or when no longer text can (never)',
        None,
        choices=tuple(_EARLY_STOPPING),
    )
    target_language: str | None = flag(
        'language of the text that a decoder writes, such as en_XX, for mBART', None
    )

    def options(self, first: int = 0) -> JsonRecord:
        """Return the options of generation that are given, by name.

        Args:
            first: number of the first of the rows that are answered together. Among them, equal
                texts get different samples; other numbers draw other samples.
        """
        options = self.given(_WritingFlags)
        if self.early_stopping:
            options['early_stopping'] = _EARLY_STOPPING[self.early_stopping]
        if first and self.is_random:
            text = f'{self.seed or 0} {first}'
            digest = hashlib.blake2b(text.encode(), digest_size=4).digest()
            options['seed'] = int.from_bytes(digest, 'little')
        return options

    @property
    def is_random(self) -> bool:
        """Whether what is written depends on the seed."""
        temperature = self.default_temperature if self.temperature is None else self.temperature
        return self.order == 'random' or (temperature > 0 and (self.beams or 1) == 1)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Generate(_WritingFlags, Question):
    """Texts that a pretrained model continues or fills."""

    summary = (
        'masked language models: fill the gaps of a text, [MASK] or [MASK:5] for five tokens, '
        'anywhere in it, and write --new_tokens after it; causal models: write --new_tokens after '
        'it; see docs/generation.md'
    )
    writes = (
        '{"prompt", "text", "written": ["...", ...], "tokens", "log_probabilities", "steps"}, the '
        'step in which each token was written'
    )
    rows_at_once = SLOW
    default_temperature = 1.0

    max_length: int | None = flag(
        'tokens of a text, with those that are written, at most (default: as the model)', None
    )
    new_tokens: int | None = flag(
        'number of tokens to write after each text (default: 0, only gaps are filled)',
        None,
        '[1, inf)',
    )
    temperature: float | None = flag(
        'of sampling (default: 1); 0 takes the most probable tokens', None, '[0, inf)'
    )
    stream: bool = flag(
        'left to right: show the text on stderr while it is written; for one line of input', False
    )

    def answer(self, model: 'Predictor', rows: Iterable[InputRow]) -> Iterator[JsonRecord]:
        rows = list(rows)
        prompts = texts_of(rows)
        options = self.options(rows[0].number) | ({'stream': _show_progress} if self.stream else {})
        for prompt, result in zip(prompts, model.generate(prompts, **options), strict=True):
            yield {
                'prompt': prompt,
                **result._asdict(),
                'log_probabilities': result.log_probabilities.tolist(),
                'steps': result.steps.tolist(),
            }


@dataclasses.dataclass(frozen=True, kw_only=True)
class Write(_BeamFlags, Finetuned):
    """The target text of each source."""

    summary = 'the target text of a source (problem generation)'
    reads = 'a text, or TEXT<tab>TEXT for templates with {text2}, a line'
    fields = Fields(('text', 'text2'), required=('text',))
    rows_at_once = SLOW

    def prepare(self, model: 'Predictor') -> 'Predictor':
        settings = self.given(_BeamFlags)
        if 'new_tokens' in settings:
            settings = {'target_tokens': settings.pop('new_tokens'), **settings}
        return model.with_settings(**settings) if settings else model


@dataclasses.dataclass(frozen=True, kw_only=True)
class Respond(_WritingFlags, Finetuned):
    """The answer to each prompt or conversation."""

    summary = 'the answer to a prompt or a conversation (problem instructions)'
    reads = (
        'a prompt, or {"prompt": "...", "system": "..."}, or {"messages": [{"role", "content"}, '
        '...]}, a line'
    )
    writes = LIKE_RUN
    fields = Fields(('prompt',))
    rows_at_once = SLOW

    def answer(self, model: 'Predictor', rows: Iterable[InputRow]) -> Iterator[JsonRecord]:
        rows = list(rows)
        options = self.options(rows[0].number)
        yield from model.respond([row.values for row in rows], **options)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Chat(_WritingFlags, Question):
    """A conversation on the terminal."""

    summary = 'a conversation (problem instructions)'
    reads = 'one message of the user a line'
    writes = 'the answers, on stdout'
    fields = TEXT
    rows_at_once = None
    shows_progress: ClassVar[bool] = False

    model: str = flag(MODEL_HELP)
    tuned: str = ''
    input: str = flag('file with a message a line; - for stdin or the terminal', '-')
    output: str = flag('- for stdout', '-')
    overwrite: bool = False
    system: str = flag('the system message, before the conversation', '')

    def check(self) -> None:
        if self.output != '-':
            raise UserError('chat answers on the terminal; leave --output out, or redirect')

    def read(self, model: 'Predictor') -> Iterator[InputRow]:
        """See `Question.read`; a terminal is asked for lines until its end (Ctrl-D)."""
        return _typed_rows() if self.input == '-' and sys.stdin.isatty() else super().read(model)

    def answer(self, model: 'Predictor', rows: Iterable[InputRow]) -> Iterator[JsonObject]:
        """Show the answers while they are written; there are no records."""
        from bert_jax.inference import chat  # imports JAX

        responder = model.responder(**self.options())
        lines = (row.values['text'] for row in rows)
        chat.chat(responder, lines, _show, warn, self.system)
        return iter(())


def _typed_rows() -> Iterator[InputRow]:
    while True:
        try:
            yield InputRow('stdin', {'text': input('> ')})
        except EOFError:
            return


def _show(piece: str) -> None:
    print(piece, end='', flush=True)


def _show_progress(text: str) -> None:
    print(text, end='', file=sys.stderr, flush=True)
