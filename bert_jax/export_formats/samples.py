"""Three inputs of an exported model, with the outputs that bert_jax computes for them."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import jax
import numpy as np

from bert_jax.examples.finetune_batches import BatchShape, Items, TokenSequence
from bert_jax.inference.predictor import Predictor
from bert_jax.loaded import loaded_model
from bert_jax.loaded.loaded_model import LoadedModel
from bert_jax.models.architecture import Compute
from bert_jax.models.model import Model
from bert_jax.models.rows import Rows
from bert_jax.problems.base import AnyProblem, HostOutputs
from bert_jax.problems.finetuning_model import FineTuningModel
from bert_jax.tokenizers import Tokenizer
from bert_jax.tokenizers.special_token_layout import SpecialTokenLayout
from bert_jax.types import Batch, JsonRecord, Params

TEXTS = (
    'The ship left at dawn, and nobody saw it leave.',
    'Good news!',
    'Anna Lind moved from Oslo to Bern in 1994; her café is still open.',
)
_SECOND = 'Who left the harbor?'


class Samples(NamedTuple):
    """Texts, or pairs of texts, as padded rows.

    Attributes:
        texts: Plain texts that encode to the rows, each a text or a list of two; empty if none do.
        batch: As made by `Items.batch`, one sequence a row.
    """

    texts: Sequence[str | list[str]]
    batch: Mapping[str, np.ndarray]


def rows_of_texts(
    layout: SpecialTokenLayout, suffix: str = '', prompt: str = '', texts: Sequence[str] = TEXTS
) -> Samples:
    """The rows of single texts, each between a prompt and a suffix; long texts are halved."""
    tokenizer, max_tokens = layout.tokenizer, layout.max_text_tokens(1)
    affix_ids = tokenizer.encode_batch([prompt + suffix], special=True).ids[0]
    texts = [text + suffix for text in _short_texts(texts, tokenizer, max_tokens - len(affix_ids))]
    ids = tokenizer.encode_batch([prompt + text for text in texts], special=True).ids
    rows = [layout.lay_out(text_ids[:max_tokens]) for text_ids in ids]
    sequences = [TokenSequence(row.ids, row.token_type_ids, {}, {}) for row in rows]
    # Other tokenizers of left-to-right models put no tokens around a text.
    return Samples(texts if tokenizer.starts_texts else [], _batch(sequences, tokenizer.pad_id))


def rows_of_problem(
    problem: AnyProblem, num_texts: int | None, max_length: int, texts: Sequence[str] = TEXTS
) -> Samples:
    """The rows of examples of a fine-tuning problem.

    Args:
        num_texts: 2 for a problem that was trained on pairs.
        max_length: number of tokens of the longest row.
        texts: texts of the examples; long ones are halved.
    """
    texts = _short_texts(texts, problem.encoding.tokenizer, (max_length - 5) // 2)
    sequences: list[TokenSequence] = []
    plain_texts: list[str | list[str]] = []
    for number, text in enumerate(texts):
        first, last = text.split()[0], text.split()[-1]
        marks = [[0, len(first)], [len(text) - len(last), len(text)]]
        example: JsonRecord = {'text': text, 'premise': text, 'context': text, 'marks': marks}
        example |= {'question': _SECOND, 'choices': [_SECOND]}
        example |= {'query': text, 'documents': [_SECOND], 'predicate': 0}
        if num_texts == 2:
            example |= {'text2': _SECOND, 'marks': [marks[0], [0, 3]]}
        (sequence, *_), *_ = problem.encoding.encode(
            problem.encoding.parse_input(f'sample {number}', example)
        )
        sequences.append(sequence)
        plain_texts += _plain_texts(problem, sequence, (text, [text, _SECOND], [_SECOND, text]))
    if len(plain_texts) < len(texts):
        plain_texts = []
    return Samples(plain_texts, _batch(sequences, problem.encoding.tokenizer.pad_id))


def _plain_texts(
    problem: AnyProblem, sequence: TokenSequence, candidates: Sequence[str | list[str]]
) -> list[str | list[str]]:
    """The candidate with the token ids and types of the sequence, in a list; [] without one."""
    for candidate in candidates:
        texts = [candidate] if isinstance(candidate, str) else candidate
        row = problem.setup.layout.lay_out(
            *problem.encoding.tokenizer.encode_batch(texts, special=True).ids
        )
        if np.array_equal(row[:2], (sequence.ids, sequence.token_type_ids)):
            return [candidate]
    return []


def expected_of_task(
    model: LoadedModel, predictor: Predictor, task: str, samples: Samples
) -> dict[str, np.ndarray]:
    """The outputs of `predict` for the task 'embed' or 'fill_mask'."""
    batch = samples.batch
    if task == 'fill_mask':
        rows = Rows.of(batch)
        outputs = loaded_model.outputs(model.architecture, Compute(), model.params, rows)
        return {'logits': at_tokens(np.asarray(outputs['mlm_logits']), batch)}
    prompt = model.sentence_modules.prompt if model.sentence_modules else ''
    texts = [text for text in samples.texts if isinstance(text, str)]  # no pairs in these tasks
    token_vectors = predictor.embed([prompt + text for text in texts], 'tokens')
    states_BTD = np.zeros((*batch['input_ids'].shape, model.architecture.hidden_size), np.float32)
    for row_TD, text_TD in zip(states_BTD, token_vectors, strict=True):
        row_TD[: len(text_TD)] = text_TD
    embedding = predictor.embed(texts)
    return {
        'last_hidden_state': at_tokens(states_BTD, batch),
        'sentence_embedding': embedding,
    }


def expected_of_problem(
    model: LoadedModel, problem: AnyProblem, samples: Samples
) -> dict[str, np.ndarray]:
    """The outputs of `predict` for a fine-tuning problem, before decoding."""
    heads = problem.loss.heads()
    module = FineTuningModel(problem, Model(model.architecture, Compute(), heads, model.is_causal))

    @jax.jit
    def compute(params: Params, batch: Batch) -> HostOutputs:
        return problem.loss.exported_outputs(module.outputs(params, batch), batch)

    params = {**model.params, **model.other_parts}
    outputs = jax.device_get(compute(params, dict(samples.batch)))
    per_token = {name: at_tokens(array, samples.batch) for name, array in outputs.per_token.items()}
    return {name: array[:, 0] for name, array in outputs.per_sequence.items()} | per_token


def at_tokens(array_BTX: np.ndarray, batch: Mapping[str, np.ndarray]) -> np.ndarray:
    """The array in float32, with NaN at padding."""
    is_token_BT = batch['attention_mask'] > 0
    is_token_BTX = is_token_BT.reshape(*is_token_BT.shape, *[1] * (array_BTX.ndim - 2))
    return np.where(is_token_BTX, array_BTX, np.nan).astype(np.float32)


def _batch(sequences: Sequence[TokenSequence], pad_id: int) -> dict[str, np.ndarray]:
    number, longest = len(sequences), max(len(sequence.ids) for sequence in sequences)
    items = Items([(sequence,) for sequence in sequences], pad_id)
    return items.batch(np.arange(number), np.arange(number), BatchShape(number, longest, 1))


def _short_texts(texts: Sequence[str], tokenizer: Tokenizer, max_tokens: int) -> list[str]:
    """The texts, each halved until it fits into `max_tokens` tokens or is a single word."""
    short = []
    for text in texts:
        words = text.split()
        while len(words) > 1 and _num_tokens(tokenizer, ' '.join(words)) > max_tokens:
            words = words[: len(words) // 2]
        short.append(' '.join(words))
    return short


def _num_tokens(tokenizer: Tokenizer, text: str) -> int:
    return len(tokenizer.encode_batch([text], special=True).ids[0])
