"""Three inputs of an exported model, with the outputs that bert_jax computes for them."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from bert_jax.data.finetune_batches import BatchShape, Items, TokenSequence
from bert_jax.data.special_token_layout import SpecialTokenLayout
from bert_jax.data.tokenizers import Tokenizer
from bert_jax.inference.predictor import Predictor
from bert_jax.interop import pretrained
from bert_jax.interop.pretrained import Pretrained
from bert_jax.models.architecture import Compute
from bert_jax.tasks.finetuning_model import FineTuningModel, apply_model
from bert_jax.tasks.problems.base import Problem

_TEXTS = (
    'The ship left at dawn, and nobody saw it leave.',
    'Good news!',
    'Anna Lind moved from Oslo to Bern in 1994; her café is still open.',
)
_SECOND = 'Who left the harbor?'


class Rows(NamedTuple):
    """Three texts, or pairs of texts, as padded rows.

    Attributes:
        texts: Each a text or a list of two; empty if the rows are not those of plain texts.
        batch: as made by `Items.batch`, one sequence a row.
    """

    texts: list[Any]
    batch: Mapping[str, np.ndarray]


def rows_of_texts(layout: SpecialTokenLayout, suffix: str = '', prompt: str = '') -> Rows:
    """The rows of single texts, each between a prompt and a suffix."""
    tokenizer = layout.tokenizer
    ends = tokenizer.encode_batch([prompt + suffix], special=True).ids[0]
    room = layout.max_text_tokens(1) - len(ends)
    texts = [text + suffix for text in _short_texts(tokenizer, room)]
    ids = tokenizer.encode_batch([prompt + text for text in texts], special=True).ids
    laid_out = [layout.lay_out(own[: layout.max_text_tokens(1)]) for own in ids]
    sequences = [TokenSequence(own.ids, own.token_type_ids, {}, {}) for own in laid_out]
    return Rows(list(texts), _batch(sequences, tokenizer.pad_id))


def rows_of_problem(problem: Problem, num_texts: int | None) -> Rows:
    """The rows of examples of a fine-tuning problem.

    Args:
        num_texts: 2 for a problem that was trained on pairs.
    """
    texts = _short_texts(problem.tokenizer, (problem.layout.max_length - 5) // 2)
    sequences, plain = [], []
    for number, text in enumerate(texts):
        first, last = text.split()[0], text.split()[-1]
        marks = [[0, len(first)], [len(text) - len(last), len(text)]]
        given = {'text': text, 'premise': text, 'context': text, 'marks': marks}
        given |= {'question': _SECOND, 'choices': [_SECOND]}
        if num_texts == 2:
            given |= {'text2': _SECOND, 'marks': [marks[0], [0, 3]]}
        (sequence, *_), *_ = problem.encode(problem.parse_input(f'sample {number}', given))
        sequences.append(sequence)
        plain += _plain_texts(problem, sequence, (text, [text, _SECOND], [_SECOND, text]))
    return Rows(
        plain if len(plain) == len(texts) else [], _batch(sequences, problem.tokenizer.pad_id)
    )


def _plain_texts(problem: Problem, sequence: TokenSequence, candidates: Sequence[Any]) -> list[Any]:
    """The candidate with the ids of a sequence, if there is one."""
    for candidate in candidates:
        texts = [candidate] if isinstance(candidate, str) else candidate
        laid_out = problem.layout.lay_out(*problem.tokenizer.encode_batch(texts).ids)
        if np.array_equal(laid_out.ids, sequence.ids):
            return [candidate]
    return []


def expected_of_task(
    model: Pretrained, predictor: Predictor, task: str, rows: Rows
) -> dict[str, np.ndarray]:
    """What `predict` computes for texts: the outputs of 'embed' or 'fill_mask'."""
    batch = rows.batch
    if task == 'fill_mask':
        inputs = (batch['input_ids'], batch['attention_mask'], batch['token_type_ids'])
        found = pretrained.outputs(model.architecture, Compute(), model.params, *inputs)
        return {'logits': at_tokens(np.asarray(found['mlm_logits']), batch)}
    prompt = model.sentence_modules.prompt if model.sentence_modules else ''
    states_BTD = np.zeros((*batch['input_ids'].shape, model.architecture.hidden_size), np.float32)
    for row_TD, own_TD in zip(
        states_BTD, predictor.embed([prompt + text for text in rows.texts], 'tokens'), strict=True
    ):
        row_TD[: len(own_TD)] = own_TD
    embedding = np.stack(predictor.embed(rows.texts))
    return {'embedding': embedding, 'states': at_tokens(states_BTD, batch)}


def expected_of_problem(model: Pretrained, problem: Problem, rows: Rows) -> dict[str, np.ndarray]:
    """What `predict` computes from packed rows, before it is decoded."""
    module = FineTuningModel(model.architecture, Compute(), problem)

    @jax.jit
    def compute(params: Any, batch: Any) -> Any:
        return problem.exported_outputs(apply_model(module, params, batch), batch)

    params = {**model.params, **model.other_parts}
    found = jax.device_get(compute(params, dict(rows.batch)))
    per_token = {name: at_tokens(array, rows.batch) for name, array in found.per_token.items()}
    return {name: array[:, 0] for name, array in found.per_sequence.items()} | per_token


def at_tokens(array_BTX: np.ndarray, batch: Mapping[str, np.ndarray]) -> np.ndarray:
    """float32, NaN at padding."""
    is_token_BT = batch['attention_mask'] > 0
    is_token_BTX = is_token_BT.reshape(*is_token_BT.shape, *[1] * (array_BTX.ndim - 2))
    return np.where(is_token_BTX, array_BTX, np.nan).astype(np.float32)


def _batch(sequences: Sequence[TokenSequence], pad_id: int) -> dict[str, np.ndarray]:
    number, longest = len(sequences), max(len(own.ids) for own in sequences)
    items = Items([(own,) for own in sequences], pad_id)
    return items.batch(np.arange(number), np.arange(number), BatchShape(number, longest, 1))


def _short_texts(tokenizer: Tokenizer, room: int) -> list[str]:
    """_TEXTS, with as many of their words as fit into `room` tokens, but at least one."""
    found = []
    for text in _TEXTS:
        words = text.split()
        while len(words) > 1 and len(tokenizer.encode_batch([' '.join(words)]).ids[0]) > room:
            words = words[: len(words) // 2]
        found.append(' '.join(words))
    return found
