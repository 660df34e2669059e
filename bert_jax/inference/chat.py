"""A conversation on the terminal with an instruction-tuned model."""

from collections.abc import Callable, Iterable

from bert_jax.errors import UserError
from bert_jax.inference.responses import Responder
from bert_jax.labels.conversations import make_conversation


def chat(
    responder: Responder,
    lines: Iterable[str],
    show: Callable[[str], object],
    note: Callable[[str], object],
    system: str = '',
) -> None:
    """Answer each line, given the lines and answers before it, until the lines end.

    Args:
        responder: writes the answers.
        lines: what the user says; blank lines are skipped.
        show: called with each piece of an answer while it is written, and a line feed after it.
        note: called with remarks: that old turns were left out, or that a line was not answered.
        system: the system message; '' for none.
    """
    start = [('system', system)] if system.strip() else []
    turns: list[tuple[str, str]] = []
    for line in lines:
        if not line.strip():
            continue
        question = ('user', line.strip())
        try:
            example = make_conversation([*start, *turns, question], 'this line')
            prompt, dropped = responder.prompt(example)
        except UserError as error:
            note(str(error))
            continue
        if dropped:
            note(f'the oldest {dropped} turns are left out: they no longer fit into the sequence')
            turns = turns[dropped:]
        answer = responder.stream(prompt, show)
        show('\n')
        if answer:
            turns += [question, ('assistant', answer)]
        else:
            note('the answer is empty, so this line is left out of the conversation')
