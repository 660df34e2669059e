"""Answers to cloze prompts with the compiled functions of `fill_mask`, and to prefix prompts."""

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from bert_jax.examples.finetune_batches import Item, TokenSequence
from bert_jax.inference import batching, computation
from bert_jax.inference.batching import TokenizedText
from bert_jax.models.model import Model
from bert_jax.problems.base import ExampleOutputs
from bert_jax.problems.finetuning_model import ItemRunner
from bert_jax.problems.prompting.encoding import PromptEncoding
from bert_jax.types import Batch, JsonRecord, Params, Tree


def runner(
    encoding: PromptEncoding,
    model: Model,
    params: Params,
    batch_tokens: int,
    advance: Callable[[int], object],
) -> ItemRunner:
    """Return a function that computes the outputs of examples as NumPy arrays.

    In the same batches, probabilities of answers of one subword equal `fill_mask` bit for bit.

    Args:
        encoding: the encoding of the prompts.
        model: an encoder with the head 'mlm', or 'clm' for a causal model.
        params: of the encoder and the head.
        batch_tokens, advance: as for `bert_jax.load`.
    """

    if encoding.is_causal:
        return functools.partial(_score_answers, encoding, model, params, batch_tokens, advance)

    def compute(batch: Batch) -> JsonRecord:
        inputs = {name: batch[name] for name in ('input_ids', 'attention_mask', 'positions')}
        if np.any(batch['token_type_ids']):
            inputs['token_type_ids'] = batch['token_type_ids'][:, : batch['input_ids'].shape[1]]
        logits_BPV = computation.logits(model, params, inputs)
        p_BPV = computation.probabilities(logits_BPV)
        picked: dict[str, Tree] = computation.pick(logits_BPV, p_BPV, encoding.answers.pieces_AK)
        return picked

    def run(examples: Sequence[Any], items: Sequence[list[Item]]) -> list[ExampleOutputs]:
        sequences = [sequence for group in items for item in group for sequence in item]
        results = batching.run(
            compute,
            list(map(_row, sequences)),
            batch_tokens=batch_tokens,
            max_length=model.architecture.max_length,
            pad_id=encoding.tokenizer.pad_id,
            advance=advance,
        )
        pairs = zip(sequences, results, strict=True)
        return [[[_at_masks(*next(pairs)) for _ in item] for item in group] for group in items]

    return run


def _score_answers(
    encoding: PromptEncoding,
    model: Model,
    params: Params,
    batch_tokens: int,
    advance: Callable[[int], object],
    examples: Sequence[Any],
    items: Sequence[list[Item]],
) -> list[ExampleOutputs]:
    """The log probability of each piece of each answer after a prompt, given those before it."""
    sequences = [sequence for group in items for item in group for sequence in item]
    rows = [_answer_rows(encoding, sequence) for sequence in sequences]
    results = iter(
        batching.run(
            functools.partial(computation.log_probabilities, model, params),
            [row for rows_of_sequence in rows for row, _ in rows_of_sequence],
            batch_tokens=batch_tokens,
            max_length=model.architecture.max_length,
            pad_id=encoding.tokenizer.pad_id,
            advance=advance,
        )
    )
    outputs = []
    for rows_of_sequence in rows:
        log_p_AK = np.zeros(encoding.answers.pieces_AK.shape, np.float32)
        for (_, place), log_p_P in zip(rows_of_sequence, results, strict=False):
            log_p_AK[place] = log_p_P[: len(log_p_AK[place])]
        outputs.append({'log_p': log_p_AK})
    computed = iter(outputs)
    return [[[next(computed) for _ in item] for item in group] for group in items]


def _answer_rows(
    encoding: PromptEncoding, sequence: TokenSequence
) -> list[tuple[TokenizedText, Any]]:
    """Rows that score the answers with as many pieces as the sequence has masks.

    Returns:
        Rows, and where the log probabilities of each belong in [A, K].
    """
    (masks,) = np.nonzero(sequence.tokens['mask_slot'])
    number, prompt = len(masks), sequence.ids[: masks[0]]
    (answer_N,) = np.nonzero(encoding.answers.length_A == number)
    pieces_NK = encoding.answers.pieces_AK[answer_N, :number]
    if number == 1:  # one row for all answers
        positions = np.full(len(answer_N), len(prompt) - 1, np.int32)
        extras = {'positions': positions, 'targets': pieces_NK[:, 0]}
        return [(TokenizedText(prompt, extras), (answer_N, 0))]
    positions = np.arange(number, dtype=np.int32) + len(prompt) - 1
    return [
        (
            TokenizedText(
                np.append(prompt, pieces_K[:-1]), {'positions': positions, 'targets': pieces_K}
            ),
            (answer, slice(number)),
        )
        for answer, pieces_K in zip(answer_N, pieces_NK, strict=True)
    ]


def _row(sequence: TokenSequence) -> TokenizedText:
    """The row of a prompt, with the `positions` of its masks."""
    (positions,) = np.nonzero(sequence.tokens['mask_slot'])
    extras = {'positions': positions, 'token_type_ids': sequence.token_type_ids}
    return TokenizedText(sequence.ids, extras)


def _at_masks(sequence: TokenSequence, picked: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Values of piece k of each answer at mask k, [A, K], from those at all masks, [P, A, K]."""
    slots = sequence.tokens['mask_slot']
    outputs = {}
    for name, values_PAK in picked.items():
        outputs[name] = np.zeros(values_PAK.shape[1:], np.float32)
        for place, slot in enumerate(slots[slots > 0]):
            outputs[name][:, slot - 1] = values_PAK[place, :, slot - 1]
    return outputs
