"""Attention heads that attend to syntactic heads or dependents, compared with fixed offsets."""

import argparse
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from bert_jax import figures
from bert_jax.analyze.base import Analysis, Model, Results
from bert_jax.data.labeled import treebank, word_spans
from bert_jax.data.labeled.treebank import Tree
from bert_jax.errors import UserError
from bert_jax.evaluation import attention_heads, intervals
from bert_jax.evaluation.attention_heads import DIRECTIONS, OFFSETS, HeadCounts
from bert_jax.evaluation.scores import Table
from bert_jax.inference.word_states import stream_attention

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_GROUPS = 200  # of documents, at most, whose counts are kept for the intervals
_SKIPPED = ('root', 'punct')  # relations
_ALL = 'all'
_PICTURED = range(6, 15)  # words of a sentence that is shown by default


class Heads(Analysis):
    """For each relation the head of attention that finds it most often."""

    description = 'Attention heads that find syntactic relations, and the best fixed offset'
    input_help = 'sentences with dependency trees, as CoNLL-U'
    limits = (
        'A head that attends to a word need not use it: attention is not an explanation.',
        'The best of many heads is chosen by these trees, on other documents than it is scored on.',
    )

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add --limit, --least, --head and --text."""
        add = parser.add_argument
        add('--limit', type=int, help='number of sentences (default: all)')
        add('--least', type=int, default=100, help='occurrences of a relation (default 100)')
        add('--head', help='LAYER-HEAD from 1-1 on, to draw (default: the best for all relations)')
        add('--text', help='text to draw it for (default: a sentence of the input)')

    def run(self, flags: argparse.Namespace, model: Model) -> Results:
        """See `Analysis.run`."""
        architecture = model.pretrained.architecture
        shape = architecture.num_layers, architecture.num_heads
        drawn = _parse_head(flags.head, shape) if flags.head else None
        trees = treebank.read(flags.input, flags.limit)
        relations = _relations(trees, flags.least)
        counts = attention_heads.no_counts(_GROUPS, len(relations), *shape)
        skipped = _count(model, trees, relations, counts)
        found = {
            f'{relation}, {direction}': _choose(counts, number, k)
            for number, relation in enumerate(relations)
            for k, direction in enumerate(DIRECTIONS)
        }
        values = {'relations': found, 'layers': shape[0], 'heads': shape[1]}
        if drawn is None:
            first = max(DIRECTIONS, key=lambda name: found[f'{_ALL}, {name}']['accuracy'])
            drawn = tuple(found[f'{_ALL}, {first}']['head'])
        pictures = {'heads': _plot_relations(found)}
        pictures[f'head_{drawn[0]}-{drawn[1]}'] = _plot_head(
            model, drawn, _example(flags.text, trees)
        )
        notes = [f'{skipped} sentences are longer than the model takes.'] if skipped else []
        return Results(values, {'Best head of each relation': _table(found)}, pictures, notes)


def _parse_head(text: str, shape: tuple[int, int]) -> tuple[int, int]:
    layer, _, head = text.partition('-')
    if not (layer.isdecimal() and head.isdecimal()) or not (
        1 <= int(layer) <= shape[0] and 1 <= int(head) <= shape[1]
    ):
        raise UserError(f'--head={text} is not LAYER-HEAD from 1-1 to {shape[0]}-{shape[1]}')
    return int(layer), int(head)


def _relations(trees: Sequence[Tree], least: int) -> list[str]:
    """'all', and the relations (without subtypes) that occur often enough, most frequent first."""
    counts = Counter(_plain(name) for tree in trees for name in tree.tags['deprel'])
    names = [n for n, number in counts.most_common() if number >= least and n not in _SKIPPED]
    if not names:
        raise UserError(f'no relation occurs {least} times; see --least')
    return [_ALL, *names]


def _plain(relation: str) -> str:
    return relation.partition(':')[0]


def _count(
    model: Model, trees: Sequence[Tree], relations: Sequence[str], counts: HeadCounts
) -> int:
    """Count all sentences; return how many are too long."""
    model.stage('attention: ')
    numbers = {name: number for number, name in enumerate(relations)}
    streamed = stream_attention(model.predictor, [(tree.text, tree.words) for tree in trees])
    skipped = 0
    for tree, attention_LHWW in zip(trees, streamed, strict=True):
        if attention_LHWW is None:
            skipped += 1
            continue
        plain = [_plain(name) for name in tree.tags['deprel']]
        own = [numbers.get(name, -1) for name in plain]
        every = [-1 if name in _SKIPPED else 0 for name in plain]
        for labels in (own, every):
            counts.add(tree.document % _GROUPS, attention_LHWW, tree.heads, labels)
    if skipped == len(trees):
        raise UserError('all sentences are longer than the model takes; set --max_length')
    return skipped


def _choose(counts: HeadCounts, relation: int, direction: int) -> dict[str, Any]:
    """The best head and offset on even documents, scored on odd ones; all heads on all."""
    hits_GLH = counts.hits_GRKLH[:, relation, direction]
    offset_hits_GO = counts.offset_hits_GRKO[:, relation, direction]
    totals_G = counts.totals_GR[:, relation]
    is_scored_G = np.arange(len(totals_G)) % 2 == 1
    if not totals_G[is_scored_G].sum() or not totals_G[~is_scored_G].sum():
        is_scored_G = np.ones(len(totals_G), bool)  # a single document
    chosen_G = ~is_scored_G | is_scored_G.all()
    head = np.unravel_index(hits_GLH[chosen_G].sum(0).argmax(), hits_GLH.shape[1:])
    offset = int(offset_hits_GO[chosen_G].sum(0).argmax())
    scored_GK = np.stack([hits_GLH[:, *head], offset_hits_GO[:, offset]], axis=1)
    used_G = is_scored_G & (totals_G > 0)
    ends = intervals.of_shares(scored_GK[used_G], np.stack([totals_G[used_G]] * 2, axis=1))
    accuracy_2 = scored_GK[used_G].sum(0) / totals_G[used_G].sum()
    return {
        'dependencies': int(totals_G.sum()),
        'head': [int(own) + 1 for own in head],
        'accuracy': float(accuracy_2[0]),
        'interval': None if ends is None else [float(end[0]) for end in ends],
        'offset': OFFSETS[offset],
        'offset_accuracy': float(accuracy_2[1]),
        'all_heads': hits_GLH.sum(0) / totals_G.sum(),
    }


def _table(found: dict[str, dict[str, Any]]) -> Table:
    columns = ('relation', 'dependencies', 'head', 'accuracy', 'interval', 'offset', 'of offset')
    rows = [
        (
            name,
            own['dependencies'],
            '{}-{}'.format(*own['head']),
            own['accuracy'],
            intervals.cell(own['interval']),
            f'{own["offset"]:+}',
            own['offset_accuracy'],
        )
        for name, own in found.items()
    ]
    return Table(columns, rows)


def _plot_relations(found: dict[str, dict[str, Any]]) -> 'Figure':
    """The accuracy of the best head and of the best offset for each relation."""
    relations = list(dict.fromkeys(name.partition(', ')[0] for name in found))
    figure = figures.new(10, 1.2 + 0.28 * len(relations))
    for axes, direction in zip(figure.subplots(1, 2, sharey=True), DIRECTIONS, strict=True):
        own = [found[f'{relation}, {direction}'] for relation in relations]
        rows = np.arange(len(own))
        axes.barh(rows, [one['accuracy'] for one in own], color='C0', alpha=0.6, label='best head')
        axes.plot(
            [one['offset_accuracy'] for one in own], rows, 'k|', markersize=10, label='best offset'
        )
        axes.set_yticks(rows, relations)
        axes.set(title=direction, xlabel='accuracy', xlim=(0, 1))
        axes.grid(axis='x', alpha=0.3)
    axes.invert_yaxis()
    axes.legend(fontsize=8)
    return figure


def _example(text: str | None, trees: Sequence[Tree]) -> tuple[str, Any]:
    if text is not None:
        if not text.strip():
            raise UserError('--text has no words')
        return text, word_spans.split_words(text)
    short = (tree for tree in trees if len(tree.words) in _PICTURED)
    tree = next(short, min(trees, key=lambda tree: len(tree.words)))
    return tree.text, tree.words


def _plot_head(model: Model, head: tuple[int, ...], example: tuple[str, Any]) -> 'Figure':
    """The attention between the words of a text in one head."""
    text, spans = example
    (attention,) = model.predictor.attention_of_words([text], [spans])
    if attention is None:
        raise UserError(f'the text to draw is longer than the model takes: {text[:40]!r}')
    weights_WW = attention[head[0] - 1, head[1] - 1]
    words = [text[slice(*span)] for span in spans]
    size = 2 + 0.32 * len(words)
    figure = figures.new(size + 1, size)
    axes = figure.subplots()
    image = axes.imshow(weights_WW, cmap='Blues', vmin=0)
    figure.colorbar(image, label='attention', shrink=0.6)
    axes.set_xticks(range(len(words)), words, rotation=90, parse_math=False)
    axes.set_yticks(range(len(words)), words, parse_math=False)
    axes.set(xlabel='to', ylabel='from', title=f'layer {head[0]}, head {head[1]}')
    return figure
