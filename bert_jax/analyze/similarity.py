"""Similarity of words in context: of pairs, and neighbors of a word in texts."""

import argparse
import heapq
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from bert_jax import figures
from bert_jax.analyze import layers, occurrences
from bert_jax.analyze.base import Analysis, Model, Results, read_lines, read_texts
from bert_jax.analyze.layers import Layer
from bert_jax.analyze.occurrences import Occurrence
from bert_jax.data.labeled import word_spans
from bert_jax.errors import UserError
from bert_jax.evaluation import intervals, metrics
from bert_jax.evaluation.scores import Table
from bert_jax.evaluation.word_senses import unit
from bert_jax.inference.word_states import stream_words

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_LISTED = 30  # pairs in the table
_WIDTH = 30  # characters of context in tables
Pair = tuple[Occurrence, Occurrence]


class Similarity(Analysis):
    """Cosines of pairs of words in context, or the nearest words to one in context."""

    description = 'Cosine of words in context: of pairs, or the neighbors of a word in texts'
    input_help = (
        'pairs, TEXT<tab>TEXT[<tab>LABEL] with the words marked as [[word]], or JSON lines with '
        '"text", "text2", and "word" or "marks"; with --query texts, one a line'
    )
    limits = (
        'A cosine has no scale of its own: compare it with others of the same layer.',
        'Words with the same form are more similar than others, whatever they mean.',
    )

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add --layers, --query and --top."""
        layers.add_argument(parser, 'mean_last_4')
        add = parser.add_argument
        add('--query', help='text with a word marked as [[word]]: find its neighbors in the input')
        add('--top', type=int, default=20, help='number of neighbors (default 20)')

    def run(self, flags: argparse.Namespace, model: Model) -> Results:
        """See `Analysis.run`."""
        names = layers.parse(flags.layers, model)
        return _neighbors(flags, model, names) if flags.query else _pairs(flags, model, names)


def _pairs(flags: argparse.Namespace, model: Model, names: tuple[Layer, ...]) -> Results:
    pairs, labels = _read_pairs(flags.input)
    both = [occurrence for pair in pairs for occurrence in pair]
    vectors_NKD, scales = occurrences.encode(model.predictor, both, names)
    cosines: dict[str, np.ndarray] = {}
    for k, name in enumerate(names):
        for suffix, own_ND in (
            ('', vectors_NKD[:, k]),
            (', z-scored', scales[k].standardize(vectors_NKD[:, k])),
        ):
            unit_ND = unit(own_ND)
            cosines[f'{layers.describe(name)}{suffix}'] = (unit_ND[0::2] * unit_ND[1::2]).sum(1)
    contexts = [(a.context(_WIDTH), b.context(_WIDTH)) for a, b in pairs]
    values: dict[str, Any] = {'pairs': len(pairs), 'cosines': cosines}
    tables = {}
    if labels is not None:
        gold_P = _as_numbers(labels)
        values['scores'] = {name: _score(own_P, gold_P) for name, own_P in cosines.items()}
        values['majority'] = max(map(labels.count, set(labels))) / len(labels)
        tables['Agreement with the labels'] = _score_table(values['scores'], values['majority'])
    shown = [
        (
            *contexts[i],
            *(() if labels is None else (labels[i],)),
            *(float(own[i]) for own in cosines.values()),
        )
        for i in range(min(len(pairs), _LISTED))
    ]
    columns = ('first', 'second', *(() if labels is None else ('label',)), *cosines)
    tables[f'Cosines of the first {len(shown)} pairs'] = Table(columns, shown)
    return Results(values, tables, {'similarity': _plot(cosines, labels)})


def _read_pairs(patterns: Sequence[str]) -> tuple[list[Pair], list[str] | None]:
    """The pairs, and their labels if all have one."""
    pairs: list[Pair] = []
    labels: list[str] = []
    for place, line in read_lines(patterns):
        if line.startswith('{'):
            given = occurrences.parse_json(line, place)
            pairs.append(
                (occurrences.from_json(given, 0, place), occurrences.from_json(given, 1, place))
            )
            label = given.get('label')
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
        raise UserError(f'{len(labels)} of {len(pairs)} pairs have a label; give all or none')
    if labels and len(set(labels)) == 1:
        raise UserError(f'all pairs have the label {labels[0]!r}, so there is nothing to compare')
    return pairs, labels or None


def _as_numbers(labels: Sequence[str]) -> np.ndarray:
    """Labels as numbers: as they are, or 0 and 1 in alphabetical order ('different', 'same')."""
    try:
        return np.array([float(label) for label in labels])
    except ValueError:
        kinds = sorted({label.lower() for label in labels})
        if len(kinds) != 2:
            raise UserError(
                f'labels must be numbers or of two kinds, not {", ".join(kinds[:5])}'
            ) from None
        return np.array([kinds.index(label.lower()) for label in labels], float)


def _score(cosines_P: np.ndarray, gold_P: np.ndarray) -> dict[str, Any]:
    """Measure name → value and interval over pairs: AUC and accuracy, or rank correlation."""
    measures: dict[str, Callable[[Any, Any], float]] = {'spearman': metrics.spearman}
    if len(set(gold_P)) == 2:
        measures = {'auc': metrics.auc, 'accuracy': _accuracy}
    found: dict[str, Any] = {}
    for name, measure in measures.items():

        def resampled(weights_P: np.ndarray, measure: Any = measure) -> np.ndarray:
            rows = np.repeat(np.arange(len(gold_P)), weights_P.astype(int))
            is_mixed = len(set(gold_P[rows])) > 1
            return np.array(measure(cosines_P[rows], gold_P[rows]) if is_mixed else np.nan)

        ends = intervals.of_documents(resampled, len(gold_P))
        found[name] = {
            'value': float(measure(cosines_P, gold_P)),
            'interval': None if ends is None or np.isnan(ends).any() else [float(e) for e in ends],
        }
    return found


def _accuracy(cosines_P: np.ndarray, gold_P: np.ndarray) -> float:
    """The accuracy of a threshold chosen on the even pairs and used on the odd, and back."""
    is_same_P, right = gold_P == gold_P.max(), 0
    for fold in (0, 1):
        chosen, tested = np.arange(fold, len(gold_P), 2), np.arange(1 - fold, len(gold_P), 2)
        order = chosen[np.argsort(cosines_P[chosen], kind='stable')]
        # With the threshold before the i-th: i different ones and the same ones after it are right.
        before = np.concatenate([[0], np.cumsum(~is_same_P[order])])
        after = is_same_P[order].sum() - np.concatenate([[0], np.cumsum(is_same_P[order])])
        best = int((before + after).argmax())
        ends_P = np.concatenate([[-np.inf], cosines_P[order], [np.inf]])
        threshold = (ends_P[best] + ends_P[best + 1]) / 2
        right += ((cosines_P[tested] >= threshold) == is_same_P[tested]).sum()
    return right / len(gold_P)


def _score_table(scores: dict[str, dict[str, Any]], majority: float) -> Table:
    names = list(next(iter(scores.values())))
    columns = ('layer', *(part for name in names for part in (name, f'interval of {name}')))
    rows: list[tuple] = []
    for layer, own in scores.items():
        cells = [(own[n]['value'], intervals.cell(own[n]['interval'])) for n in names]
        rows.append((layer, *(part for cell in cells for part in cell)))
    if 'accuracy' in names:
        rows.append(('majority label', 0.5, '–', majority, '–'))
    return Table(columns, rows)


def _plot(cosines: dict[str, np.ndarray], labels: list[str] | None) -> 'Figure':
    """The distribution of cosines of each layer, by label if they are few."""
    kinds = sorted(set(labels or ['']))
    kinds = kinds if len(kinds) <= 6 else ['']
    figure = figures.new(7, 1.3 + 0.5 * len(cosines) * max(1, len(kinds) / 2))
    axes = figure.subplots()
    boxes, names, colors = [], [], []
    for name, own_P in cosines.items():
        for number, kind in enumerate(kinds):
            chosen = [kind == '' or label == kind for label in labels or [''] * len(own_P)]
            boxes.append(own_P[chosen])
            names.append(f'{name}: {kind}' if kind else name)
            colors.append(f'C{number}')
    drawn = axes.boxplot(boxes, orientation='horizontal', patch_artist=True, widths=0.6)
    for box, color in zip(drawn['boxes'], colors, strict=True):
        box.set(facecolor=color, alpha=0.5)
    axes.set_yticks(range(1, len(names) + 1), names, parse_math=False)
    axes.invert_yaxis()
    axes.set_xlabel('cosine of the two words')
    axes.grid(axis='x', alpha=0.3)
    return figure


def _neighbors(flags: argparse.Namespace, model: Model, names: tuple[Layer, ...]) -> Results:
    """The words of the texts with the largest cosine to the query, once for each form and text."""
    query = occurrences.find_marked(flags.query, '--query')
    (wanted_KD,) = model.predictor.embed_words([query.text], [(query.span,)], layer=names)[0]
    located = [(text, word_spans.split_words(text)) for text in read_texts(flags.input)]
    best: list[list[tuple[float, int, Occurrence]]] = [[] for _ in names]
    count = 0
    for (text, spans), states_WKD in zip(
        located, stream_words(model.predictor, located, layer=names), strict=True
    ):
        for k in range(len(names)):
            cosines_W = unit(states_WKD[:, k]) @ unit(wanted_KD[k])
            for word in np.argsort(-cosines_W, kind='stable')[: flags.top]:
                count += 1
                entry = (float(cosines_W[word]), -count, Occurrence(text, spans[word]))
                push = heapq.heappush if len(best[k]) < flags.top else heapq.heappushpop
                push(best[k], entry)
    values, tables = {}, {}
    for name, heap in zip(names, best, strict=True):
        found = [(cosine, own) for cosine, _, own in sorted(heap, reverse=True)]
        values[layers.describe(name)] = [
            {'cosine': cosine, 'word': own.word, 'text': own.text, 'span': own.span}
            for cosine, own in found
        ]
        rows = [(own.word, cosine, own.context(_WIDTH)) for cosine, own in found]
        title = f'Neighbors of {query.context(_WIDTH)} in {layers.describe(name)}'
        tables[title] = Table(('word', 'cosine', 'context'), rows)
    cosines = {name: np.array([own['cosine'] for own in found]) for name, found in values.items()}
    return Results(
        {'query': flags.query, 'neighbors': values}, tables, {'similarity': _plot(cosines, None)}
    )
