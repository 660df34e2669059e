"""Generation from left to right: greedy decoding, sampling and beam search.

A causal model writes after a text. A decoder writes a text for a source.
"""

import functools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from bert_jax.errors import InvalidText, UserError, unknown
from bert_jax.inference import beam_search
from bert_jax.inference.batching import TokenizedText
from bert_jax.inference.beam_search import BeamSearch
from bert_jax.inference.causal_options import CausalOptions
from bert_jax.inference.decoding import Constraints
from bert_jax.inference.generate_options import (
    Generated,
    Generator,
    Writer,
    WritingModel,
    find_stop,
    never_written,
    row_seeds,
)
from bert_jax.inference.next_tokens import (
    CausalPredict,
    Predict,
    TargetPredict,
    Texts,
    read_prompts,
    start_targets,
    write_token,
)
from bert_jax.inference.watch import Shown, TextOf, Watch, target_text, text_after
from bert_jax.models.architecture import Architecture
from bert_jax.models.model import Model
from bert_jax.models.rows import Rows
from bert_jax.tokenizers import Tokenizer
from bert_jax.tokenizers.special_token_layout import SpecialTokenLayout
from bert_jax.types import Batch, Params, Tree


def generate(model: Writer, texts: Sequence[str], options: CausalOptions) -> list[Generated]:
    """Write after texts. The result for a text does not depend on the other texts.

    A text that occurs several times gets a different sample each time.

    Raises:
        UserError: a text is too long for what is to be written after it.
    """
    if options.stream and len(texts) != 1:
        raise UserError(f'stream shows one text, but there are {len(texts)}')
    if model.architecture.decoder is not None:
        target_start(model.architecture, model.tokenizer, options.target_language)
        prompts = _sources(model, texts, options.new_tokens)
    elif options.target_language:
        raise UserError(f'target_language has no effect with {model.name}, which has no decoder')
    else:
        prompts = _prompts(model, texts, options.new_tokens)
    is_target = model.architecture.decoder is not None
    text_of = functools.partial(target_text if is_target else text_after, model.tokenizer)
    results = write_after(model, prompts, options, text_of)
    return [
        _finish(model, '' if is_target else text, prompt, result, options, text_of)
        for text, prompt, result in zip(texts, prompts, results, strict=True)
    ]


def _written(result: dict[str, np.ndarray]) -> np.ndarray:
    return result['ids'][: int(result['length'])]


def write_after(
    model: Writer,
    prompts: Sequence[np.ndarray],
    options: CausalOptions,
    text_of: TextOf,
) -> list[dict[str, np.ndarray]]:
    """Write after prompts of token ids, int32 [T] each; see `write_batch` for the results.

    Args:
        text_of: the text in which stop strings are looked for, and which is streamed.
    """
    seeds = row_seeds(prompts, options.seed)
    rows = [
        [TokenizedText(ids, {'seed': seed, 'is_text': np.ones(1, np.int32)})]
        for ids, seed in zip(prompts, seeds, strict=True)
    ]
    shown = Shown(options.stream, options.stop) if options.stream else None
    watch = Watch(text_of, options.stop, shown)
    function = functools.partial(
        write_batch,
        options,
        model.tokenizer,
        constraints_of(model, options),
        watch,
        has_prefix=model.has_prefix,
    )
    return [result for ((_, result),) in model.run(function, rows=rows)]


def _prompts(model: Writer, texts: Sequence[str], new_tokens: int) -> list[np.ndarray]:
    """The tokens of each prompt.

    Raises:
        UserError: a prompt leaves no room for the new tokens.
    """
    tokenizer, prompts = model.tokenizer, []
    start = [tokenizer.cls_id] if tokenizer.starts_texts else []
    for number, ids in enumerate(tokenizer.encode_batch(texts, special=True).ids, 1):
        prompt = np.array([*start, *ids] or [tokenizer.cls_id], np.int32)
        if len(prompt) + new_tokens > model.max_length:
            raise InvalidText(
                number,
                f'has {len(prompt)} tokens; with {new_tokens} new tokens it exceeds the '
                f'{model.max_length} tokens of {model.name}',
            )
        prompts.append(prompt)
    return prompts


def _sources(model: Writer, texts: Sequence[str], new_tokens: int) -> list[np.ndarray]:
    """The tokens of each source of a decoder.

    Raises:
        UserError: a source is too long, or more is to be written than the decoder can.
    """
    if new_tokens >= model.architecture.max_length:
        raise UserError(
            f'new_tokens is {new_tokens}, but {model.name} writes at most '
            f'{model.architecture.max_length - 1} tokens (max_position_embeddings)'
        )
    types = model.architecture.type_vocab_size
    layout = SpecialTokenLayout(model.tokenizer, model.max_length, types)
    sources = []
    for number, ids in enumerate(model.tokenizer.encode_batch(texts, special=True).ids, 1):
        source = layout.lay_out(ids).ids
        if len(source) > model.max_length:
            raise InvalidText(
                number,
                f'has {len(source)} tokens; {model.name} reads up to {model.max_length}',
            )
        sources.append(source)
    return sources


def constraints_of(model: WritingModel, options: CausalOptions) -> Constraints:
    """What may be written; see `never_written`."""
    ends = (model.tokenizer.sep_id,) if model.learned_end else ()
    suppressed = tuple(index for index in never_written(model) if index not in ends)
    return Constraints(
        options.new_tokens,
        ends,
        options.min_new_tokens,
        suppressed,
        options.no_repeat_ngrams,
        *_forced_tokens(model),
    )


def _forced_tokens(model: WritingModel) -> tuple[int | None, int | None]:
    """The first token of each text, and the last of one that does not end before; None: any.

    In fairseq, BART starts with </s> <s> and ends with </s>, and mBART ends so. In transformers the
    folder says so (`DecoderStack.forced_first`, `forced_last`).
    """
    decoder, tokenizer = model.architecture.decoder, model.tokenizer
    if decoder is None or decoder.start not in ('sep', 'language'):
        return None, None
    is_first = decoder.forced_first and decoder.start == 'sep' and tokenizer.starts_texts
    return (
        tokenizer.cls_id if is_first else None,
        tokenizer.sep_id if decoder.forced_last else None,
    )


def target_start(architecture: Architecture, tokenizer: Tokenizer, language: str = '') -> int:
    """Return the token before the first token of a target.

    Args:
        architecture: of the model.
        tokenizer: of the model.
        language: of the target; '' if texts do not start with a language.

    Raises:
        UserError: a language is missing, unknown, or has no effect.
    """
    assert architecture.decoder is not None
    start = architecture.decoder.start
    if start != 'language' and language:
        raise UserError(f'target_language is {language!r}, but texts do not start with a language')
    if start != 'language':
        return tokenizer.role_ids[start]
    if language not in tokenizer.language_ids:
        raise unknown('target_language', language, tokenizer.language_ids)
    return tokenizer.language_ids[language]


def write_batch(
    options: CausalOptions,
    tokenizer: Tokenizer,
    constraints: Constraints,
    watch: Watch,
    model: Model,
    params: Params,
    batch: Batch,
    *,
    has_prefix: bool = False,
) -> dict[str, Any]:
    """Write after the prompts of a batch.

    Args:
        options: how texts are written.
        tokenizer: of the model.
        constraints: what may be written.
        watch: reads the texts while they are written.
        model: a causal model, or one with a decoder, whose sources the rows are.
        params: its parameters.
        batch: input_ids and attention_mask, of rows padded at the end; 'seed', int32 [B, 1];
            'is_text', int32 [B, 1], 0 for empty rows.
        has_prefix: whether all positions see the whole prompt.

    Returns:
        'ids' int32 and 'log_p' fp32 [B, new tokens], and 'length' int32 [B].
    """
    predict, fixed, texts, length_B = _start(model, params, batch, options, tokenizer, has_prefix)
    texts = texts.replace(done_B=jnp.asarray(batch['is_text'][:, 0] == 0))
    if options.search is not None:
        return _search(predict, fixed, texts, constraints, options.search)
    keys_B = jax.vmap(functools.partial(jax.random.key, impl='threefry2x32'))(batch['seed'][:, 0])
    for step in range(constraints.max_tokens):
        texts = write_token(predict, fixed, texts, constraints, options.sampling, keys_B)
        if (done_B := watch.check(texts, length_B, step + 1)) is not None:
            texts = texts.replace(done_B=jnp.asarray(done_B))
        if (constraints.end_ids or watch.is_active) and np.all(texts.done_B):
            break
    after_BN = length_B[:, None] + np.arange(constraints.max_tokens)
    ids_BN = jnp.take_along_axis(texts.ids_BT, after_BN, axis=1, mode='clip')
    return {'ids': ids_BN, 'log_p': texts.log_p_BN, 'length': texts.length_B - length_B}


def _start(
    model: Model,
    params: Params,
    batch: Batch,
    options: CausalOptions,
    tokenizer: Tokenizer,
    has_prefix: bool,
) -> tuple[Predict, Tree, Texts, np.ndarray]:
    """Read prompts or sources.

    Returns:
        The function that predicts the next token, its argument `fixed`, the texts so far, and the
        numbers of their tokens, int32 [B].
    """
    length_B = np.asarray(batch['attention_mask']).sum(axis=1, dtype=np.int32)
    if model.architecture.decoder is None:
        arguments = (model, params, batch['input_ids'], length_B, options.new_tokens)
        texts = read_prompts(*arguments, prefix_lm=has_prefix)
        return CausalPredict(model), params, texts, length_B
    start = target_start(model.architecture, tokenizer, options.target_language)
    start_B = np.full_like(length_B, start)
    sources = Rows(batch['input_ids'], batch['attention_mask'])
    texts, fixed = start_targets(model, params, sources, start_B, options.new_tokens)
    return TargetPredict(model), fixed, texts, np.ones_like(length_B)


def _search(
    predict: Predict, fixed: Tree, texts: Texts, constraints: Constraints, search: BeamSearch
) -> dict[str, Any]:
    """Write after the prompts of a batch by beam search; returns the best text of each."""
    beams = beam_search.start(texts, search)
    while not np.all(beams.done(constraints, search)):
        beams = beam_search.advance(predict, fixed, beams, constraints, search)
    best = beams.finished
    after_BN = beams.prompt_length_B[:, None] + jnp.arange(constraints.max_tokens)
    ids_BN = jnp.take_along_axis(best.ids_BCT[:, 0], after_BN, axis=1, mode='clip')
    return {'ids': ids_BN, 'log_p': best.log_p_BCI[:, 0], 'length': best.length_BC[:, 0]}


def _finish(
    model: Writer,
    text: str,
    prompt: np.ndarray,
    result: dict[str, np.ndarray],
    options: CausalOptions,
    text_of: TextOf,
) -> Generated:
    """Return the text of a row, cut at a stop string."""
    tokenizer, ids = model.tokenizer, _written(result)
    length, written = len(ids), text_of(prompt, ids)
    written = written[: find_stop(written, options.stop, model.counts)]
    tokens = [tokenizer.vocab[index] for index in ids]
    if model.learned_end and not options.stop:
        is_open = length == options.new_tokens and ids[-1] != tokenizer.sep_id
        model.counts[f'texts that did not end within {options.new_tokens} tokens'] += is_open
    steps = np.arange(length, dtype=np.int32)
    return Generated(text + written, [written], tokens, result['log_p'][:length], steps)


CAUSAL = Generator(CausalOptions, generate)
