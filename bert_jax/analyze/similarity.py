"""Similarity of words in context: cosines of pairs, or the nearest neighbors of a word."""

import dataclasses
import heapq
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from bert_jax import figures
from bert_jax.analyze import layers, occurrences, static_neighbors
from bert_jax.analyze.base import Analysis, AnalyzedModel, Results, inputs, read_lines, read_texts
from bert_jax.analyze.layers import Layer
from bert_jax.analyze.measures.word_senses import unit
from bert_jax.analyze.occurrences import Occurrence
from bert_jax.analyze.static_neighbors import Neighbors
from bert_jax.errors import UserError
from bert_jax.flag_parser import flag
from bert_jax.inference.streams import stream_words
from bert_jax.labels import word_spans
from bert_jax.metrics import intervals, metrics
from bert_jax.metrics.scores import Table
from bert_jax.types import JsonObject, JsonRecord

Correlation: TypeAlias = Callable[[np.ndarray, np.ndarray], float]

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_MAX_LISTED = 30  # pairs in the table
_FEWEST_FOR_BOX = 5  # values that are drawn as a box plot; fewer are points
_WIDTH = 30  # characters of context on either side, in tables
Pair = tuple[Occurrence, Occurrence]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Similarity(Analysis):
    """Cosines of pairs of words in context, or with --query the nearest neighbors of a word."""

    description = 'Cosine of words in context: of pairs, or the neighbors of a word in texts'
    limits = (
        'A cosine has no absolute scale: compare it only with cosines of the same layer.',
        'Words with the same form are more similar than other words, whatever they mean.',
        'Static neighbors are different words, each once; neighbors in context are occurrences.',
    )

    input: tuple[str, ...] = inputs(
        'pairs, TEXT<tab>TEXT[<tab>LABEL] with the words marked as [[word]], or JSON lines with '
        '"text", "text2", and "word" or "marks"; with --query: texts, one per line'
    )
    layers: str | None = layers.declare()
    query: str = flag('text with a word marked as [[word]]: find its neighbors in the input', '')
    top: int = flag('number of neighbors', 20, '[1, inf)', needs='query')
    static: tuple[str, ...] = flag(
        'vectors in the text format of word2vec or GloVe, to find static neighbors too; may be '
        'repeated',
        (),
        form='repeated',
        needs='query',
    )

    def run(self, model: AnalyzedModel) -> Results:
        """See `Analysis.run`."""
        names = layers.parse(self.layers, model)
        return _neighbors(self, model, names) if self.query else _pairs(self, model, names)


def _pairs(analysis: Similarity, model: AnalyzedModel, names: tuple[Layer, ...]) -> Results:
    pairs, labels = _read_pairs(analysis.input)
    words = [word for pair in pairs for word in pair]
    vectors_NKD, scales = occurrences.encode(model.predictor, words, names)
    cosines: dict[str, np.ndarray] = {}
    for k, name in enumerate(names):
        raw_ND = vectors_NKD[:, k]
        for suffix, vectors_ND in ('', raw_ND), (', z-scored', scales[k].standardize(raw_ND)):
            unit_ND = unit(vectors_ND)
            cosines[f'{layers.describe(name)}{suffix}'] = (unit_ND[0::2] * unit_ND[1::2]).sum(1)
    values: JsonObject = {'pairs': len(pairs), 'cosines': cosines}
    tables = {}
    if labels:
        gold_P = _as_numbers(labels)
        values['scores'] = {name: _score(cos_P, gold_P) for name, cos_P in cosines.items()}
        values['majority'] = max(map(labels.count, set(labels))) / len(labels)
        tables['Agreement with the labels'] = _score_table(values['scores'], values['majority'])
    listed = [
        (
            *(word.context(_WIDTH) for word in pair),
            *labels[i : i + 1],  # nothing without labels
            *(float(cos_P[i]) for cos_P in cosines.values()),
        )
        for i, pair in enumerate(pairs[:_MAX_LISTED])
    ]
    columns = ('first', 'second', *(['label'] if labels else []), *cosines)
    tables[f'Cosines of the first {len(listed)} pairs'] = Table(columns, listed)
    title = 'Similarity of the marked words of each pair'
    return Results(values, tables, {'similarity': _plot(cosines, title, labels)})


def _read_pairs(patterns: Sequence[str]) -> tuple[list[Pair], list[str]]:
    """Read pairs and their labels; the labels are empty if the pairs have none."""
    pairs: list[Pair] = []
    labels: list[str] = []
    for place, line in read_lines(patterns):
        if line.startswith('{'):
            record = occurrences.parse_json(line, place)
            pairs.append(
                (occurrences.from_json(record, 0, place), occurrences.from_json(record, 1, place))
            )
            label = record.get('label')
        else:
            first, second, label, *_ = [*line.split('\t'), None, None, None]
            if second is None:
                raise UserError(f'{place} is not TEXT<tab>TEXT')
            pairs.append(
                (occurrences.find_marked(first, place), occurrences.find_marked(second, place))
            )
        if label is not None:
            labels.append(str(label))
    if labels and len(labels) < len(pairs):
        raise UserError(
            f'{len(labels)} of {len(pairs)} pairs have a label; label all pairs or none'
        )
    if len(set(labels)) == 1:
        raise UserError(f'all pairs have the label {labels[0]!r}, so there is nothing to compare')
    return pairs, labels


def _as_numbers(labels: Sequence[str]) -> np.ndarray:
    """Convert labels to float64 [P]; two classes become 0 and 1 in alphabetical order."""
    try:
        return np.array([float(label) for label in labels])
    except ValueError:
        classes = sorted({label.lower() for label in labels})
        if len(classes) != 2:
            raise UserError(
                f'labels must be numbers or two classes, not {", ".join(classes[:5])}'
            ) from None
        return np.array([classes.index(label.lower()) for label in labels], float)


def _score(cosines_P: np.ndarray, gold_P: np.ndarray) -> JsonRecord:
    """Metric → value and interval over pairs: AUC and accuracy, or Spearman's correlation."""
    functions: dict[str, Correlation] = {'spearman': metrics.spearman}
    if len(set(gold_P)) == 2:
        functions = {'auc': metrics.auc, 'accuracy': _accuracy}
    scores: JsonRecord = {}
    for name, function in functions.items():

        def resampled(weights_P: np.ndarray, function: Correlation = function) -> np.ndarray:
            rows = np.repeat(np.arange(len(gold_P)), weights_P.astype(int))
            is_mixed = len(set(gold_P[rows])) > 1
            return np.array(function(cosines_P[rows], gold_P[rows]) if is_mixed else np.nan)

        ends = intervals.of_documents(resampled, len(gold_P))
        scores[name] = {
            'value': float(function(cosines_P, gold_P)),
            'interval': None if ends is None or np.isnan(ends).any() else [float(e) for e in ends],
        }
    return scores


def _accuracy(cosines_P: np.ndarray, gold_P: np.ndarray) -> float:
    """Accuracy of a cosine threshold, by two-fold cross-validation over even and odd pairs."""
    is_same_P, num_correct = gold_P == gold_P.max(), 0
    for fold in (0, 1):
        train, test = np.arange(fold, len(gold_P), 2), np.arange(1 - fold, len(gold_P), 2)
        order = train[np.argsort(cosines_P[train], kind='stable')]
        # A threshold before the i-th pair is correct for the different pairs before it and for the
        # same pairs after it.
        before = np.concatenate([[0], np.cumsum(~is_same_P[order])])
        after = is_same_P[order].sum() - np.concatenate([[0], np.cumsum(is_same_P[order])])
        best = int((before + after).argmax())
        ends = np.concatenate([[-np.inf], cosines_P[order], [np.inf]])
        threshold = (ends[best] + ends[best + 1]) / 2
        num_correct += ((cosines_P[test] >= threshold) == is_same_P[test]).sum()
    return num_correct / len(gold_P)


def _score_table(scores: dict[str, JsonObject], majority: float) -> Table:
    names = list(next(iter(scores.values())))
    columns = ['layer']
    for name in names:
        columns += [name, f'interval of {name}']
    rows: list[tuple[object, ...]] = []
    for layer, of_layer in scores.items():
        cells: list[object] = []
        for name in names:
            cells += [of_layer[name]['value'], intervals.cell(of_layer[name]['interval'])]
        rows.append((layer, *cells))
    if 'accuracy' in names:
        rows.append(('majority label', 0.5, '–', majority, '–'))
    return Table(tuple(columns), rows)


def _plot(cosines: dict[str, np.ndarray], title: str, labels: Sequence[str] = ()) -> 'Figure':
    """The cosines of each layer, split by label if there are at most six labels.

    Many cosines are a box plot, few are points.
    """
    classes = sorted(set(labels))
    if not 1 <= len(classes) <= 6:
        classes = ['']
    figure = figures.new(7, 1.3 + 0.5 * len(cosines) * max(1, len(classes) / 2))
    axes = figure.subplots()
    boxes, names, colors = [], [], []
    for layer, cosines_P in cosines.items():
        for number, label in enumerate(classes):
            boxes.append(cosines_P[np.array(labels) == label] if label else cosines_P)
            names.append(f'{layer}: {label}' if label else layer)
            colors.append(f'C{number}')
    for row, (values, color) in enumerate(zip(boxes, colors, strict=True), start=1):
        if len(values) < _FEWEST_FOR_BOX:
            axes.plot(values, [row] * len(values), 'o', color=color, alpha=0.7)
            continue
        box = {'facecolor': color, 'alpha': 0.5}
        axes.boxplot(
            [values],
            positions=[row],
            orientation='horizontal',
            patch_artist=True,
            widths=0.6,
            boxprops=box,
            manage_ticks=False,
        )
    axes.set_yticks(range(1, len(names) + 1), names, parse_math=False)
    axes.set_ylim(len(names) + 0.6, 0.4)
    axes.set_xlabel('cosine of the two words')
    axes.set_title(title, parse_math=False)
    axes.grid(axis='x', alpha=0.3)
    return figure


def _neighbors(analysis: Similarity, model: AnalyzedModel, names: tuple[Layer, ...]) -> Results:
    """The words of the texts with the largest cosines to the query, for each layer."""
    query, top = occurrences.find_marked(analysis.query, '--query'), analysis.top
    texts = read_texts(analysis.input)
    static = _static_neighbors(analysis, model, query.word, texts)
    (query_KD,) = model.predictor.embed_words([query.text], [(query.span,)], layer=names)[0]
    located = [(text, word_spans.split_words(text)) for text in texts]
    # The best words of each layer, a heap of (cosine, −count, word): ties keep the earlier word.
    heaps: list[list[tuple[float, int, Occurrence]]] = [[] for _ in names]
    count = 0
    for (text, spans), states_WKD in zip(
        located, stream_words(model.predictor, located, layer=names), strict=True
    ):
        for k, heap in enumerate(heaps):
            cosines_W = unit(states_WKD[:, k]) @ unit(query_KD[k])
            for index in np.argsort(-cosines_W, kind='stable')[:top]:
                count += 1
                entry = (float(cosines_W[index]), -count, Occurrence(text, spans[index]))
                push = heapq.heappush if len(heap) < top else heapq.heappushpop
                push(heap, entry)
    neighbors, tables, cosines = {}, {}, {}
    for name, heap in zip(names, heaps, strict=True):
        layer = layers.describe(name)
        best = [(cosine, neighbor) for cosine, _, neighbor in sorted(heap, reverse=True)]
        neighbors[layer] = [
            {'cosine': cosine, 'word': neighbor.word, 'text': neighbor.text, 'span': neighbor.span}
            for cosine, neighbor in best
        ]
        cosines[layer] = np.array([cosine for cosine, _ in best])
        title = f'Neighbors of {query.context(_WIDTH)} in {layer}'
        tables[title] = Table(
            ('word', 'cosine', 'context'),
            [(neighbor.word, cosine, neighbor.context(_WIDTH)) for cosine, neighbor in best],
        )
    title = f'Similarity of {query.word!r} and its {top} nearest words'
    values = {'query': analysis.query, 'neighbors': neighbors}
    values['static'] = {source: found.to_json() for source, found in static.items()}
    tables |= {found.title(query.word, source): found.table() for source, found in static.items()}
    return Results(values, tables, {'similarity': _plot(cosines, title)})


def _static_neighbors(
    analysis: Similarity, model: AnalyzedModel, query: str, texts: Sequence[str]
) -> dict[str, Neighbors]:
    """Source of static vectors → neighbors of the query; files are read before the model runs."""
    words = static_neighbors.different_words(texts, query)
    of_files = {
        path: static_neighbors.of_file(path, query, words, analysis.top) for path in analysis.static
    }
    of_model = static_neighbors.of_model(model.predictor, query, words, analysis.top)
    return {'the embeddings of the model': of_model} | of_files
