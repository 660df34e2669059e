"""A picture of the occurrences of a word in two dimensions, colored by sense or language."""

import dataclasses
from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from bert_jax import figures
from bert_jax.analyze import layers, occurrences
from bert_jax.analyze.base import Analysis, AnalyzedModel, Results, inputs, read_lines
from bert_jax.analyze.measures.word_senses import unit
from bert_jax.analyze.occurrences import Occurrence
from bert_jax.analyze.readers import sense_corpora
from bert_jax.errors import UserError
from bert_jax.flag_parser import flag
from bert_jax.labels.formats import expand_globs
from bert_jax.metrics import intervals
from bert_jax.metrics.scores import Table
from bert_jax.text import text_files
from bert_jax.types import JsonObject

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_MIN_OCCURRENCES = 3
_MAX_COLORS = 10  # the most frequent labels get a color, all other labels are gray
_MAX_CONTEXTS = 14  # points shown with their context
_WIDTH = 24  # characters of context on either side
_SEED = 0


@dataclasses.dataclass(frozen=True, kw_only=True)
class Picture(Analysis):
    """Projection of the vectors of a word, and how often nearest neighbors have the same label."""

    description = 'Picture of the occurrences of a word in context, colored by sense or language'
    limits = (
        'Two dimensions preserve only part of the distances, and t-SNE and UMAP can show clusters '
        'that do not exist. The nearest-neighbor accuracy uses all dimensions.',
    )

    input: tuple[str, ...] = inputs(
        'lines TEXT or LABEL<tab>TEXT; or files with senses, as for the analysis senses'
    )
    word: str = flag(
        'word to look for, or its lemma in files with senses; comma-separated for several forms; '
        'or marked, for words marked as [[word]]'
    )
    method: str = flag(
        'pca; tsne or umap, which need the extra "pictures"',
        'pca',
        choices='bert_jax.analyze.picture:METHODS',
    )
    limit: int = flag('maximal number of occurrences', 2000, '[1, inf)')
    layers: str | None = layers.declare()

    def run(self, model: AnalyzedModel) -> Results:
        """See `Analysis.run`."""
        names = layers.parse(self.layers, model)
        words = _find(self)[: self.limit]
        if len(words) < _MIN_OCCURRENCES:
            raise UserError(
                f'{self.word!r} occurs {len(words)} times in {", ".join(self.input)}; a picture '
                f'needs {_MIN_OCCURRENCES} occurrences'
            )
        vectors_NKD, _ = occurrences.encode(model.predictor, words, names)
        labels = [word.label for word in words]
        values: JsonObject = {'occurrences': len(words), 'labels': Counter(labels)}
        pictures, rows = {}, []
        for k, name in enumerate(names):
            layer = layers.describe(name)
            points_N2 = METHODS[self.method](vectors_NKD[:, k])
            agreement = _agreement(unit(vectors_NKD[:, k]), labels)
            values[layer] = {'points': points_N2, **agreement}
            title = f'States of {self.word!r} in its contexts: {layer}, {self.method}'
            pictures[f'picture_{name}'] = _plot(points_N2, words, title)
            interval = intervals.cell(agreement['interval'], len(words))
            rows.append((layer, agreement['accuracy'], interval, agreement['majority']))
        tables = {}
        if len(set(labels)) > 1:
            columns = ('layer', 'label of the nearest neighbor', 'interval', 'majority')
            tables['Agreement of nearest neighbors'] = Table(columns, rows)
        tables['Occurrences'] = Table(('label', 'occurrences'), Counter(labels).most_common())
        return Results(values, tables, pictures)


def _find(picture: Picture) -> list[Occurrence]:
    words = picture.word.split(',')
    found: list[Occurrence] = []
    for path in expand_globs(picture.input):
        if text_files.uncompressed_name(path).endswith(('.xml', '.jsonl', '.ndjson')):
            found += [
                Occurrence(sentence.text, target.span, target.senses[0].rpartition('/')[2])
                for sentence in sense_corpora.read(path)
                for target in sentence.targets
                if target.lemma in words
            ]
            continue
        for place, line in read_lines([path]):
            label, tab, text = line.partition('\t')
            text, label = (text, label) if tab else (line, '')
            if words == ['marked']:
                found.append(occurrences.find_marked(text, place, label))
            else:
                for word in words:
                    found += occurrences.find_word(text, word, label)
    return found


def _agreement(unit_ND: np.ndarray, labels: Sequence[str]) -> JsonObject:
    """How often the nearest other occurrence has the same label, and the majority baseline."""
    cosines_NN = unit_ND @ unit_ND.T
    np.fill_diagonal(cosines_NN, -np.inf)
    labels_N = np.array(labels)
    is_same_N = (labels_N == labels_N[cosines_NN.argmax(1)]).astype(float)
    return {
        'accuracy': float(is_same_N.mean()),
        'interval': intervals.of_share(is_same_N),
        'majority': Counter(labels).most_common(1)[0][1] / len(labels),
    }


def pca(vectors_ND: np.ndarray) -> np.ndarray:
    """The first two principal components: float32 [N, 2]."""
    centered_ND = vectors_ND - vectors_ND.mean(0)
    _, _, axes_KD = np.linalg.svd(centered_ND, full_matrices=False)
    return np.asarray(centered_ND @ axes_KD[:2].T)


def tsne(vectors_ND: np.ndarray) -> np.ndarray:
    """t-SNE of cosine distances (van der Maaten and Hinton 2008): float32 [N, 2]."""
    try:
        from sklearn.manifold import TSNE
    except ImportError:
        raise UserError(
            '--method=tsne needs scikit-learn: pip install "bert-jax[pictures]"'
        ) from None
    perplexity = min(30.0, (len(vectors_ND) - 1) / 3)
    method = TSNE(metric='cosine', init='random', perplexity=perplexity, random_state=_SEED)
    return np.asarray(method.fit_transform(vectors_ND))


def umap(vectors_ND: np.ndarray) -> np.ndarray:
    """UMAP of cosine distances (McInnes et al. 2018): float32 [N, 2]."""
    try:
        from umap import UMAP
    except ImportError:
        raise UserError(
            '--method=umap needs umap-learn: pip install "bert-jax[pictures]"'
        ) from None
    neighbors = min(15, len(vectors_ND) - 1)
    method = UMAP(metric='cosine', n_neighbors=neighbors, random_state=_SEED)
    return np.asarray(method.fit_transform(vectors_ND))


METHODS: dict[str, Callable[[np.ndarray], np.ndarray]] = {'pca': pca, 'tsne': tsne, 'umap': umap}


def _plot(points_N2: np.ndarray, words: Sequence[Occurrence], title: str) -> 'Figure':
    """Points colored by label; the contexts of numbered points are listed next to the plot."""
    figure = figures.new(11, 6)
    axes = figure.subplots()
    labels = [label for label, _ in Counter(word.label for word in words).most_common()]
    colors = {label: f'C{number}' for number, label in enumerate(labels[:_MAX_COLORS])}
    rows_of = {
        label: [row for row, word in enumerate(words) if word.label == label] for label in labels
    }
    for label, rows in rows_of.items():
        legend_label = f'{label} ({len(rows)})' if label and label in colors else None
        color = colors.get(label, 'lightgray')
        axes.plot(*points_N2[rows].T, 'o', color=color, markersize=5, alpha=0.6, label=legend_label)
    numbered = _choose(points_N2, [rows_of[label] for label in labels[: _MAX_CONTEXTS // 2]])
    line_height = 1 / (_MAX_CONTEXTS + _MAX_COLORS + 3)  # in heights of the axes
    style: dict[str, Any] = {'fontsize': 8, 'parse_math': False}
    for number, row in enumerate(numbered, start=1):
        color = colors.get(words[row].label, 'gray')
        x, y = points_N2[row]
        axes.text(x, y, f' {number}', fontsize=9, weight='bold')
        context = f'{number}  {words[row].context(_WIDTH)}'
        position = (1.02, (len(numbered) - number) * line_height)
        axes.text(*position, context, color=color, transform=axes.transAxes, **style)
    if labels != ['']:
        legend = axes.legend(fontsize=8, loc='upper left', bbox_to_anchor=(1.0, 1.0))
        for text in legend.get_texts():
            text.set_parse_math(False)
    axes.set_title(title, parse_math=False)
    axes.set(xticks=[], yticks=[], xlabel='first dimension', ylabel='second dimension')
    return figure


def _choose(points_N2: np.ndarray, rows_of_labels: Sequence[Sequence[int]]) -> list[int]:
    """Choose the central point of each label, then points far from all chosen points."""
    chosen = []
    for rows in rows_of_labels:
        distances = np.linalg.norm(points_N2[rows] - points_N2[rows].mean(0), axis=1)
        chosen.append(rows[int(distances.argmin())])
    while len(chosen) < min(_MAX_CONTEXTS, len(points_N2)):
        distances = [np.linalg.norm(points_N2 - points_N2[row], axis=1) for row in chosen]
        chosen.append(int(np.min(distances, axis=0).argmax()))
    return chosen
