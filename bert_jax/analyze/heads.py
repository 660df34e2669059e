"""Attention heads that find syntactic heads or dependents, compared with fixed offsets."""

import dataclasses
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from bert_jax import figures
from bert_jax.analyze.base import Analysis, AnalyzedModel, Results, inputs
from bert_jax.analyze.measures import attention_heads
from bert_jax.analyze.measures.attention_heads import DIRECTIONS, OFFSETS, HeadCounts
from bert_jax.analyze.readers import treebank
from bert_jax.analyze.readers.treebank import TreebankSentence
from bert_jax.errors import UserError
from bert_jax.flag_parser import flag
from bert_jax.inference.streams import stream_attention
from bert_jax.labels import word_spans
from bert_jax.labels.word_spans import WordOffsets
from bert_jax.metrics import intervals
from bert_jax.metrics.scores import Table
from bert_jax.storage.names import is_number
from bert_jax.types import JsonObject

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_GROUPS = 200  # groups of documents that are resampled for the intervals
_IGNORED = ('root', 'punct')  # relations
_ALL = 'all'
_DRAWN_LENGTHS = range(6, 15)  # words of the sentence that is drawn by default


@dataclasses.dataclass(frozen=True, kw_only=True)
class Heads(Analysis):
    """For each syntactic relation, the attention head that finds it most often."""

    description = 'Attention heads that find syntactic relations, and the best fixed offset'
    limits = ('A head that attends to a word need not use it: attention is not an explanation.',)

    input: tuple[str, ...] = inputs('sentences with dependency trees, as CoNLL-U', ())
    text: str | None = flag('text to draw the head for (default: a sentence of the input)', None)
    head: str | None = flag(
        'head to draw: LAYER-HEAD, from 1-1 (default: best for all relations; without --input, all '
        'heads)',
        None,
    )
    limit: int | None = flag('number of sentences (default: all)', None, '[1, inf)', needs='input')
    least: int = flag('minimal count of a relation', 100, '[1, inf)', needs='input')

    def check(self) -> None:
        """See `Analysis.check`."""
        if not self.input and self.text is None:
            raise UserError('give --input or --text')

    def run(self, model: AnalyzedModel) -> Results:
        """See `Analysis.run`."""
        architecture = model.pretrained.architecture
        shape = architecture.num_layers, architecture.num_heads
        head = _parse_head(self.head, shape) if self.head else None
        if not self.input and self.text is not None:
            return _of_text(model, self.text, head)
        trees = treebank.read(self.input, self.limit)
        relations = _relations(trees, self.least)
        counts = attention_heads.no_counts(_GROUPS, len(relations), *shape)
        skipped = _count(model, trees, relations, counts)
        best = {
            f'{relation}, {direction}': _best_head(counts, number, k)
            for number, relation in enumerate(relations)
            for k, direction in enumerate(DIRECTIONS)
        }
        if head is None:
            directions = [best[f'{_ALL}, {direction}'] for direction in DIRECTIONS]
            head = tuple(max(directions, key=lambda of_all: of_all['accuracy'])['head'])
        words, attention_LHWW = _attend(model, *_example(self.text, trees))
        notes = [f'{skipped} sentences are longer than the model takes.'] if skipped else []
        notes.append('The best heads are chosen on other documents of the same data.')
        return Results(
            values={'relations': best, 'layers': shape[0], 'heads': shape[1]},
            tables={'Best head of each relation': _table(best)},
            figures={'heads': _plot_relations(best)} | _plot_head(attention_LHWW, words, head),
            notes=notes,
        )


def _of_text(model: AnalyzedModel, text: str, head: tuple[int, int] | None) -> Results:
    """The attention between the words of a text: a picture of one head or of all."""
    words, attention_LHWW = _attend(model, *_split(text))
    shares_OLH = [
        np.trace(attention_LHWW, offset, 2, 3) / attention_LHWW.sum((2, 3)) for offset in (-1, 0, 1)
    ]
    rows = [
        (f'{layer + 1}-{number + 1}', *(float(share_LH[layer, number]) for share_LH in shares_OLH))
        for layer, number in np.ndindex(*attention_LHWW.shape[:2])
    ]
    columns = ('head', 'to the word before', 'to the word itself', 'to the word after')
    plots = _plot_head(attention_LHWW, words, head) if head else _plot_heads(attention_LHWW)
    return Results(
        values={'words': words, 'attention': attention_LHWW},
        tables={'Share of the attention between words': Table(columns, rows)},
        figures=plots,
    )


def _parse_head(text: str, shape: tuple[int, int]) -> tuple[int, int]:
    layer, _, head = text.partition('-')
    if not (is_number(layer) and is_number(head)) or not (
        1 <= int(layer) <= shape[0] and 1 <= int(head) <= shape[1]
    ):
        raise UserError(f'--head={text} is not LAYER-HEAD from 1-1 to {shape[0]}-{shape[1]}')
    return int(layer), int(head)


def _relations(trees: Sequence[TreebankSentence], least: int) -> list[str]:
    """'all' and the relations with at least `least` occurrences, most frequent first."""
    counts = Counter(_main_type(name) for tree in trees for name in tree.tags['deprel'])
    names = [n for n, number in counts.most_common() if number >= least and n not in _IGNORED]
    if not names:
        raise UserError(f'no relation occurs {least} times; see --least')
    return [_ALL, *names]


def _main_type(relation: str) -> str:
    """A relation without its subtype: 'nmod' of 'nmod:poss'."""
    return relation.partition(':')[0]


def _count(
    model: AnalyzedModel,
    trees: Sequence[TreebankSentence],
    relations: Sequence[str],
    counts: HeadCounts,
) -> int:
    """Count the hits in all sentences; return the number of skipped sentences (too long)."""
    model.stage('attention')
    numbers = {name: number for number, name in enumerate(relations)}
    streamed = stream_attention(model.predictor, [(tree.text, tree.words) for tree in trees])
    skipped = 0
    for tree, attention_LHWW in zip(trees, streamed, strict=True):
        if attention_LHWW is None:
            skipped += 1
            continue
        names = [_main_type(name) for name in tree.tags['deprel']]
        of_relations = [numbers.get(name, -1) for name in names]
        of_all = [-1 if name in _IGNORED else 0 for name in names]
        for labels in (of_relations, of_all):
            counts.add(tree.document % _GROUPS, attention_LHWW, tree.heads, labels)
    if skipped == len(trees):
        raise UserError('all sentences are longer than the model takes; set --max_length')
    return skipped


def _best_head(counts: HeadCounts, relation: int, direction: int) -> JsonObject:
    """The best head and offset, chosen on even documents and scored on odd documents."""
    hits_GLH = counts.hits_GRKLH[:, relation, direction]
    offset_hits_GO = counts.offset_hits_GRKO[:, relation, direction]
    totals_G = counts.totals_GR[:, relation]
    is_scored_G = np.arange(len(totals_G)) % 2 == 1
    is_chosen_from_G = ~is_scored_G
    if not totals_G[is_scored_G].sum() or not totals_G[is_chosen_from_G].sum():
        # The relation occurs in a single document, which must do for both.
        is_scored_G = is_chosen_from_G = np.ones(len(totals_G), bool)
    head = np.unravel_index(hits_GLH[is_chosen_from_G].sum(0).argmax(), hits_GLH.shape[1:])
    offset = int(offset_hits_GO[is_chosen_from_G].sum(0).argmax())
    is_scored_G = is_scored_G & (totals_G > 0)
    hits_G, scored_totals_G = hits_GLH[is_scored_G][:, *head], totals_G[is_scored_G]
    num_scored = scored_totals_G.sum()
    return {
        'dependencies': int(totals_G.sum()),
        'head': [int(index) + 1 for index in head],
        'accuracy': float(hits_G.sum() / num_scored),
        'interval': intervals.of_share(hits_G, scored_totals_G),
        'offset': OFFSETS[offset],
        'offset_accuracy': float(offset_hits_GO[is_scored_G, offset].sum() / num_scored),
        'all_heads': hits_GLH.sum(0) / totals_G.sum(),  # on all documents
    }


def _table(best: dict[str, JsonObject]) -> Table:
    columns = ('relation', 'dependencies', 'head', 'accuracy', 'interval', 'offset', 'of offset')
    rows = [
        (
            name,
            relation['dependencies'],
            '{}-{}'.format(*relation['head']),
            relation['accuracy'],
            intervals.cell(relation['interval']),
            f'{relation["offset"]:+}',
            relation['offset_accuracy'],
        )
        for name, relation in best.items()
    ]
    return Table(columns, rows)


def _plot_relations(best: dict[str, JsonObject]) -> 'Figure':
    """The accuracy of the best head and of the best offset for each relation."""
    relations = list(dict.fromkeys(name.partition(', ')[0] for name in best))
    figure = figures.new(10, 1.2 + 0.28 * len(relations))
    for axes, direction in zip(figure.subplots(1, 2, sharey=True), DIRECTIONS, strict=True):
        results = [best[f'{relation}, {direction}'] for relation in relations]
        rows = np.arange(len(relations))
        accuracies = [result['accuracy'] for result in results]
        axes.barh(rows, accuracies, color='C0', alpha=0.6, label='best head')
        offset_accuracies = [result['offset_accuracy'] for result in results]
        axes.plot(offset_accuracies, rows, 'k|', markersize=10, label='best offset')
        axes.set_yticks(rows, relations)
        axes.set(title=direction, xlabel='accuracy', xlim=(0, 1))
        axes.grid(axis='x', alpha=0.3)
    axes.invert_yaxis()
    figure.suptitle('Dependency relations found by the most attended word of one head')
    handles = axes.get_legend_handles_labels()
    figure.legend(*handles, loc='outside lower center', ncols=2, fontsize=8)
    return figure


def _example(text: str | None, trees: Sequence[TreebankSentence]) -> tuple[str, WordOffsets]:
    """The text to draw, and the characters of its words."""
    if text is not None:
        return _split(text)
    short = (tree for tree in trees if len(tree.words) in _DRAWN_LENGTHS)
    tree = next(short, min(trees, key=lambda tree: len(tree.words)))
    return tree.text, tree.words


def _split(text: str) -> tuple[str, WordOffsets]:
    """The text of --text, and the characters of its words."""
    if not text.strip():
        raise UserError('--text has no words')
    return text, word_spans.split_words(text)


def _attend(model: AnalyzedModel, text: str, spans: WordOffsets) -> tuple[list[str], np.ndarray]:
    """The words of a text, and the attention between them in all heads, [L, H, W, W]."""
    (attention_LHWW,) = model.predictor.attention_of_words([text], [spans])
    if attention_LHWW is None:
        raise UserError(f'the text to draw is longer than the model takes: {text[:40]!r}')
    return [text[slice(*span)] for span in spans], attention_LHWW


def _plot_head(
    attention_LHWW: np.ndarray, words: Sequence[str], head: tuple[int, int]
) -> 'dict[str, Figure]':
    """The attention in one head; layers and heads count from 1."""
    layer, number = head
    size = 2 + 0.32 * len(words)
    figure = figures.new(size + 1, size)
    axes = figure.subplots()
    image = axes.imshow(attention_LHWW[layer - 1, number - 1], cmap='Blues', vmin=0)
    figure.colorbar(image, label='share of the attention', shrink=0.6)
    axes.set_xticks(range(len(words)), words, rotation=90, parse_math=False)
    axes.set_yticks(range(len(words)), words, parse_math=False)
    title = f'Attention between words: layer {layer}, head {number}'
    axes.set(xlabel='attended word', ylabel='attending word', title=title)
    return {f'head_{layer}-{number}': figure}


def _plot_heads(attention_LHWW: np.ndarray) -> 'dict[str, Figure]':
    """A small picture of the attention in each head, a row of pictures for each layer."""
    layers, heads = attention_LHWW.shape[:2]
    figure = figures.new(1 + 0.9 * heads, 1.2 + 0.9 * layers)
    for axes, weights_WW in zip(
        figure.subplots(layers, heads, squeeze=False).flat,
        attention_LHWW.reshape(-1, *attention_LHWW.shape[2:]),
        strict=True,
    ):
        axes.imshow(weights_WW, cmap='Blues', vmin=0)
        axes.set(xticks=[], yticks=[])
        place = axes.get_subplotspec()
        if place.is_first_row():
            axes.set_title(f'head {place.colspan.start + 1}', fontsize=8)
        if place.is_first_col():
            axes.set_ylabel(f'layer {place.rowspan.start + 1}', fontsize=8)
    figure.suptitle(
        'Attention between words (row: attending word, column: attended word)', fontsize=10
    )
    return {'heads_of_text': figure}
