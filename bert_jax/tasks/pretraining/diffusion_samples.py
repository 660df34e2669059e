"""Samples of a run of masked diffusion: held-out examples, continued by the model."""

import jax
import jax.numpy as jnp
import numpy as np

from bert_jax import markdown
from bert_jax.models.model import Model
from bert_jax.models.rows import Rows
from bert_jax.objectives.unmasking import Schedule, unmask
from bert_jax.tokenizers import Tokenizer
from bert_jax.types import Params

TEMPERATURE = 0.7
_PROMPT = 1 / 3  # share of each example that is given


def samples(model: Model, params: Params, clean: Rows, tokenizer: Tokenizer) -> tuple[str, str]:
    """Return a title, and a line for each example: its first third, and in bold what is written.

    The tokens are written one a step, in the order of their probability, at TEMPERATURE.

    Args:
        model: a model with the head `mlm`.
        params: its parameters.
        clean: the examples, NumPy arrays, with [CLS] first and [SEP] last.
        tokenizer: the tokenizer of the model.
    """
    ids_BT, lengths_B = np.array(clean.input_ids_BT), np.sum(clean.attention_mask_BT, axis=1)
    first_B = np.maximum(1, (lengths_B * _PROMPT).astype(int))
    places = [np.arange(first, last - 1) for first, last in zip(first_B, lengths_B, strict=True)]
    used = [(row, positions) for row, positions in enumerate(places) if len(positions)]
    rows = [row for row, _ in used]
    for row, positions in used:
        ids_BT[row, positions] = tokenizer.mask_id
    arrays = {
        'positions': [positions for _, positions in used],
        'block': [np.zeros(len(positions)) for _, positions in used],
        **_schedules([len(positions) for _, positions in used]),
    }
    batch = {name: _stack(values) for name, values in arrays.items()} | {
        'input_ids': jnp.asarray(ids_BT[rows]),
        'attention_mask': jnp.asarray(np.asarray(clean.attention_mask_BT)[rows]),
        'seed': jnp.arange(len(rows), dtype=jnp.int32)[:, None],
    }
    banned_V = np.ones(model.architecture.padded_vocab_size, bool)
    banned_V[: tokenizer.vocab_size] = [not token for token in tokenizer.vocab]
    banned_V[list(tokenizer.special_ids)] = True
    reader = model.with_heads('mlm')
    written = jax.device_get(unmask(reader, 'confidence', TEMPERATURE, banned_V, params, batch))
    lines = []
    for number, (row, positions) in enumerate(used):
        given = ids_BT[row, 1 : positions[0]].tolist()
        new = written['ids'][number, : len(positions)].tolist()
        # A space inside the asterisks, which byte-level tokens have, would end the bold text.
        prompt, text = (markdown.escape(tokenizer.decode(ids).strip()) for ids in (given, new))
        lines.append(f'> {prompt} **{text}**\n')
    title = f'Samples (held-out; in bold what the model wrote at temperature {TEMPERATURE:g})'
    return title, '\n'.join(lines)


def _schedules(numbers: list[int]) -> dict[str, list[np.ndarray]]:
    """Return the arrays of `Schedule` for these numbers of hidden tokens, by their names."""
    made = [Schedule.of(number) for number in numbers]
    return {
        'block_of_step': [schedule.block_S for schedule in made],
        'reveal': [schedule.reveal_S for schedule in made],
        'hide': [schedule.hide_S for schedule in made],
    }


def _stack(rows: list[np.ndarray]) -> jax.Array:
    """Stack rows of different lengths, padded with 0: int32 [B, longest]."""
    longest = max(map(len, rows))
    return jnp.array([np.pad(row, (0, longest - len(row))) for row in rows], jnp.int32)
