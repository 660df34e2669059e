"""Command-line flags for generation."""

import dataclasses
import sys

from bert_jax.flag_parser import flag
from bert_jax.types import JsonObject

TASKS = ('generate', 'respond', 'chat')
_ONLY = ('task', TASKS)  # of predict
_ALSO_WRITE = ('task', (*TASKS, 'write'))
# Flag → the setting of a run of the problem 'generation'.
_SETTINGS = {
    'new_tokens': 'target_tokens',
    **{n: n for n in ('beams', 'length_penalty', 'no_repeat_ngrams', 'min_new_tokens')},
}
_EARLY_STOPPING = {'true': True, 'false': False, 'never': 'never'}


@dataclasses.dataclass(frozen=True, kw_only=True)
class GenerateFlags:
    """The flags of generation, which are named as the options of `Predictor.generate`."""

    new_tokens: int | None = flag(
        'number of tokens to write after each text (default: 0, only gaps are filled); write, '
        'respond and chat: maximum number of tokens (default: as in training)',
        None,
        '[1, inf)',
        only=_ALSO_WRITE,
    )
    temperature: float | None = flag(
        'of sampling (default: 1; respond and chat: 0); 0 takes the most probable tokens',
        None,
        '[0, inf)',
        only=_ONLY,
    )
    seed: int | None = flag(
        'another number draws other samples, masks or negatives (default: 0)',
        None,
        '[0, 4294967295]',
        only=('task', (*TASKS, 'likelihood_bound', 'mine')),
    )
    stop: tuple[str, ...] = flag(
        'strings that end what is written after a text', (), form='repeated', only=_ONLY
    )
    steps: int | None = flag(
        'unmasking: steps for each text (default: one for each hidden token)',
        None,
        '[1, inf)',
        only=_ONLY,
    )
    order: str | None = flag(
        'unmasking: which tokens are kept first: confidence (default), random or left_to_right',
        None,
        only=_ONLY,
    )
    block: int | None = flag(
        'unmasking: number of tokens that are filled before the next (default: all); chat shows an '
        'answer block by block',
        None,
        '[1, inf)',
        only=_ONLY,
    )
    remask: float | None = flag(
        'unmasking: share of the tokens of a block that are hidden again after each step '
        '(default: 0)',
        None,
        '[0, 1)',
        only=_ONLY,
    )

    top_k: int | None = flag(
        'left to right: sample from this many tokens (default: all)', None, '[1, inf)', only=_ONLY
    )
    top_p: float | None = flag(
        'left to right: sample from the most probable tokens that together have this probability '
        '(default: 1)',
        None,
        '(0, 1]',
        only=_ONLY,
    )
    min_p: float | None = flag(
        'left to right: sample from tokens with this share of the largest probability (default: 0)',
        None,
        '[0, 1)',
        only=_ONLY,
    )
    beams: int | None = flag(
        'left to right: number of beams (default: 1, no beam search)',
        None,
        '[1, inf)',
        only=_ALSO_WRITE,
    )
    length_penalty: float | None = flag(
        'left to right: scores of beams are divided by length to this power (default: 1)',
        None,
        only=_ALSO_WRITE,
    )
    early_stopping: str | None = flag(
        'left to right: beams stop when as many texts have ended (true), when no text of the '
        'current length can be better (false, default), or when no longer text can (never)',
        None,
        choices=tuple(_EARLY_STOPPING),
        only=_ONLY,
    )
    no_repeat_ngrams: int | None = flag(
        'left to right: length of the sequences of tokens that occur once (default: 0, any)',
        None,
        '[0, inf)',
        only=_ALSO_WRITE,
    )
    min_new_tokens: int | None = flag(
        'left to right: tokens before a text may end (default: 0)',
        None,
        '[0, inf)',
        only=_ALSO_WRITE,
    )

    target_language: str | None = flag(
        'language of the text that a decoder writes, such as en_XX, for mBART', None, only=_ONLY
    )

    stream: bool = flag(
        'left to right: show the text on stderr while it is written; for one line of input',
        False,
        only=('task', ('generate',)),
    )
    system: str = flag('the system message, before the conversation', '', only=('task', ('chat',)))

    def generate_options(self) -> JsonObject:
        """Return the options that are given, by name."""
        names = [one.name for one in dataclasses.fields(GenerateFlags) if one.name != 'system']
        given = {name: getattr(self, name) for name in names}
        options: JsonObject = {n: value for n, value in given.items() if value not in (None, ())}
        if self.early_stopping:
            options['early_stopping'] = _EARLY_STOPPING[self.early_stopping]
        if not options.pop('stream'):
            return options
        return options | {'stream': _show}

    def write_settings(self) -> JsonObject:
        """Return the given settings of a run of the problem 'generation', by name."""
        given = {setting: getattr(self, flag) for flag, setting in _SETTINGS.items()}
        return {name: value for name, value in given.items() if value is not None}


def _show(text: str) -> None:
    """Show a piece of a text at once."""
    print(text, end='', file=sys.stderr, flush=True)
