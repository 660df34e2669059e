"""Vectors of texts and words, and attention, from the encoder of a loaded model."""

from collections.abc import Sequence

import numpy as np
from scipy import sparse

from bert_jax.errors import UserError, unknown
from bert_jax.inference import computation, word_states
from bert_jax.inference.batching import TokenizedText
from bert_jax.inference.computation import Layers
from bert_jax.inference.engine import Engine
from bert_jax.inference.text_rows import check_list, check_texts
from bert_jax.labels.word_spans import WordOffsets
from bert_jax.metrics.scored_rows import add_special
from bert_jax.models import head_states, layer_names
from bert_jax.models.pooling import POOLINGS
from bert_jax.models.sparse_pooling import SparsePooling

_SPARSE_TEXTS = 256  # texts whose weights of all terms are in memory at a time
_TOKENS = 'tokens'  # a vector for each token, instead of a pooling


def embed(
    engine: Engine,
    texts: Sequence[str],
    pooling: str | None = None,
    layer: Layers = 'last',
    long_texts: str | None = None,
    prompt: str | None = None,
    dimensions: int | None = None,
) -> np.ndarray | list[np.ndarray]:
    """See `Predictor.embed`."""
    modules = engine.sentence_modules if pooling is None else None
    prompts = engine.prompts if modules else {}
    if prompt is not None and prompt not in prompts:
        raise unknown(f'prompt of {engine.name}', prompt, prompts)
    known = (*POOLINGS, _TOKENS)
    if pooling is not None and pooling not in known:
        raise unknown('pooling', pooling, known)
    if engine.is_causal and (pooling == 'cls' or (modules and 'cls' in modules.pooling)):
        raise UserError(
            f"the pooling is 'cls', but {engine.name} is causal: its first token has seen no "
            "other token of a text; set pooling to 'lasttoken', 'mean' or 'max'"
        )
    if modules and 'cls' in modules.pooling and engine.tokenizer.is_cls_last:
        raise UserError(
            f"{engine.name} pools with 'cls', the first position, which may be padding, because "
            "this tokenizer pads before a text and ends it with [CLS]; set pooling to 'cls' for "
            "the state of [CLS], or to 'mean'"
        )
    layer = layers(engine, layer)
    if dimensions is not None and modules is None:
        raise UserError(
            'dimensions are for models with a pooling of their own: a run of the problem '
            "'embedding' or a sentence-transformers folder, with pooling=None"
        )
    if modules is None:
        encoded = engine.rows.encode(texts, long_texts)
        if pooling == _TOKENS:
            rows = [list(engine.rows.of_spans(ids)) for ids in encoded]
            return _token_states(engine, rows, layer)
        return _pool(engine, encoded, pooling or 'mean', layer)
    if modules.late:
        raise UserError(
            f'{engine.name} makes a vector for each token: use embed_late or similarity '
            f'(--task=search), or set pooling to one of {", ".join(known)}'
        )
    if modules.sparse:
        raise UserError(
            f'{engine.name} makes sparse vectors: use embed_sparse (--task=terms or search), or '
            f'set pooling to one of {", ".join(known)}'
        )
    if modules.unsupported:
        raise UserError(
            f'{engine.name}: modules.json has {modules.unsupported}, which is not supported; '
            f'set pooling to one of {", ".join(known)}'
        )
    before = modules.prompt if prompt is None else prompts[prompt]
    prompted = [before + text for text in check_texts(texts)]
    encoded = engine.rows.encode(prompted, long_texts or 'truncate')
    parts = [_pool(engine, encoded, mode, layer) for mode in modules.pooling]
    vectors_ND = modules.apply(np.concatenate(parts, axis=-1))
    return modules.shorten(vectors_ND, dimensions) if dimensions else vectors_ND


def embed_sparse(
    engine: Engine, texts: Sequence[str], long_texts: str | None = None, prompt: str | None = None
) -> sparse.csr_array:
    """See `Predictor.embed_sparse`."""
    engine.require('fill_mask')
    modules = engine.sentence_modules
    pooling = modules.sparse if modules and modules.sparse else SparsePooling()
    if prompt is not None and prompt not in engine.prompts:
        raise unknown(f'prompt of {engine.name}', prompt, engine.prompts)
    before = engine.prompts[prompt] if prompt else (modules.prompt if modules else '')
    prompted = [before + text for text in check_texts(texts)]
    encoded = engine.rows.encode(prompted, long_texts or 'truncate')
    blocks = [sparse.csr_array((0, engine.architecture.vocab_size), dtype=np.float32)]
    for first in range(0, len(encoded), _SPARSE_TEXTS):
        part = encoded[first : first + _SPARSE_TEXTS]
        rows = [[TokenizedText(row, {}) for _, row in engine.rows.windows(ids)] for ids in part]
        reduce = np.max if pooling.strategy == 'max' else np.sum
        found = engine.run(computation.sparse, pooling, rows=rows)
        weights_NV = np.stack([reduce([w_V for _, w_V in own], axis=0) for own in found])
        blocks.append(sparse.csr_array(_largest(weights_NV, pooling.max_active)))
    return sparse.csr_array(sparse.vstack(blocks))


def embed_words(
    engine: Engine,
    texts: Sequence[str | Sequence[str]],
    spans: Sequence[WordOffsets] | None = None,
    *,
    pooling: str = 'mean',
    layer: Layers = 'last',
    split: str = 'whitespace',
) -> list[np.ndarray]:
    """See `Predictor.embed_words`."""
    layer = layers(engine, layer)
    if pooling not in word_states.POOLINGS:
        raise unknown('pooling of words', pooling, word_states.POOLINGS)
    located = word_states.locate(check_list(texts), spans, split)
    aligned = [word_states.align(engine.tokenizer, *words) for words in located]
    engine.rows.count([text.ids for text in aligned], 'windows')
    size = engine.rows.size
    rows = [
        list(engine.rows.of_spans(text.ids, split_points=text.split_points(size)))
        for text in aligned
    ]
    states, start = _token_states(engine, rows, layer), engine.tokenizer.text_start
    return [
        word_states.pool(states_TX[start : start + len(text.ids)], text.ranges, pooling)
        for text, states_TX in zip(aligned, states, strict=True)
    ]


def _token_states(
    engine: Engine, rows: Sequence[Sequence[TokenizedText]], layer: Layers
) -> list[np.ndarray]:
    """The states of the tokens of each text, [CLS] and [SEP] included, from its rows."""
    results = engine.run(computation.states, layer, rows=rows)
    return [
        np.concatenate([states_TD[slice(*row.extras['span'])] for row, states_TD in windows])
        for windows in results
    ]


def _pool(engine: Engine, encoded: Sequence[np.ndarray], mode: str, layer: Layers) -> np.ndarray:
    """The pooled states of each text, float32 [N, …]; see `SentenceModules.pooling`."""
    texts = encoded or [np.zeros(0, np.int32)]  # an empty text tells the shape without texts
    pooling = POOLINGS[mode]
    rows = [list(engine.rows.of_spans(ids, pooling.tokens)) for ids in texts]
    results = engine.run(computation.pooled, layer, pooling, rows=rows)
    vectors = [
        pooling.combine(
            [vector_X for _, vector_X in windows],
            sum(int(np.ptp(row.extras['span'])) for row, _ in windows),
        )
        for windows in results
    ]
    return np.stack(vectors)[: len(encoded)]


def attention(engine: Engine, text: str) -> tuple[list[str], np.ndarray]:
    """See `Predictor.attention`."""
    (ids,) = engine.rows.encode([text])
    (_, row), *others = engine.rows.windows(ids)
    if others:
        raise UserError(
            f'the text has {len(ids)} tokens; attention supports up to {engine.rows.size}'
        )
    rows = [[TokenizedText(row, {})]]
    (((_, weights_LHTT),),) = engine.run(computation.attention, rows=rows)
    return [engine.rows.token(i) for i in row], weights_LHTT[..., : len(row), : len(row)]


def attention_of_words(
    engine: Engine, texts: Sequence[str], spans: Sequence[WordOffsets]
) -> list[np.ndarray | None]:
    """See `Predictor.attention_of_words`."""
    located = word_states.locate(check_list(texts), spans, 'whitespace')
    aligned = [word_states.align(engine.tokenizer, *words) for words in located]
    rows = [
        [TokenizedText(add_special(engine.tokenizer, text.ids), {})]
        if len(text.ids) <= engine.rows.size
        else []
        for text in aligned
    ]
    results = engine.run(computation.attention, rows=rows)
    return [
        word_states.pool_attention(windows[0][1], text, engine.tokenizer.text_start)
        if windows
        else None
        for text, windows in zip(aligned, results, strict=True)
    ]


def lstm_layers(engine: Engine) -> tuple[str, ...]:
    """Names of the layers of the LSTM that the fine-tuned head reads; () without one."""
    if head_states.with_lstm(engine.params) is None:
        return ()
    return tuple(f'lstm_{i + 1}' for i in range(engine.architecture.head_lstm.layers))


def layers(engine: Engine, layer: Layers) -> Layers:
    """Find layers: numbers from 0 to L, and names of combinations and of layers of the LSTM.

    Raises:
        UserError: the model has no such layer, or layers of a tuple have different sizes.
    """
    others = lstm_layers(engine)
    num_layers = engine.architecture.num_layers
    if not isinstance(layer, tuple):
        return layer_names.resolve(layer, num_layers, engine.name, (*others, 'all'))
    found = tuple(layer_names.resolve(one, num_layers, engine.name, others) for one in layer)
    width(engine, found)
    return found


def width(engine: Engine, layers: tuple[int | str, ...]) -> int:
    """The number of values of a state of `layers`. Raises UserError if they differ."""
    size = engine.architecture.hidden_size
    others: dict[int | str, int] = {'concat_last_4': 4 * size}
    others |= dict.fromkeys(lstm_layers(engine), 2 * engine.architecture.head_lstm.size)
    widths = {name: others.get(name, size) for name in layers}
    if len({*widths.values()}) > 1:
        listed = ', '.join(f'{name}: {width}' for name, width in widths.items())
        raise UserError(
            f'these layers of {engine.name} have states of different sizes ({listed}); ask for '
            'them one by one'
        )
    return next(iter(widths.values()))


def _largest(weights_NV: np.ndarray, number: int | None) -> np.ndarray:
    """Set all but the largest weights of each text to 0."""
    if number is None or number >= weights_NV.shape[1]:
        return weights_NV
    smaller_NX = np.argsort(-weights_NV, axis=1, kind='stable')[:, number:]
    kept_NV = weights_NV.copy()
    np.put_along_axis(kept_NV, smaller_NX, 0, axis=1)
    return kept_NV
