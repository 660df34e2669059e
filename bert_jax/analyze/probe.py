"""Probes of tags and trees by layer, compared with an untrained encoder and baselines."""

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import jax.numpy as jnp
import numpy as np

from bert_jax import figures
from bert_jax.analyze import layers, tree_probes
from bert_jax.analyze.base import Analysis, AnalyzedModel, Results, inputs
from bert_jax.analyze.measures import probes
from bert_jax.analyze.measures.probes import ProbeSettings
from bert_jax.analyze.measures.structural_probes import StructuralSettings
from bert_jax.analyze.readers import treebank
from bert_jax.analyze.readers.treebank import TreebankSentence
from bert_jax.errors import UserError
from bert_jax.flag_parser import flag
from bert_jax.metrics import intervals
from bert_jax.metrics.scores import Table
from bert_jax.types import JsonObject

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_TASK, _CONTROL = 0, 1  # labelings that probes are trained on


class TreebankWords(NamedTuple):
    """The words of a treebank.

    Attributes:
        forms: N words.
        labels_N: int32, class of each word.
        documents_N: int64, document number of each word.
    """

    forms: list[str]
    labels_N: np.ndarray
    documents_N: np.ndarray


@dataclasses.dataclass(frozen=True, kw_only=True)
class Probes(Analysis):
    """Linear and MLP probes with control tasks and code lengths, and structural probes."""

    description = 'Accuracy of probes for tags and trees in every layer, compared with baselines'
    limits = (
        'A probe finds what can be read from a state, not what the model uses.',
        'An accuracy without its selectivity says little: a large probe also learns random labels.',
        'Intervals are over dev documents; the training sentences are fixed.',
    )

    input: tuple[str, ...] = inputs('training sentences as CoNLL-U')
    dev: tuple[str, ...] = flag('sentences to score, as CoNLL-U', form='repeated')
    layers: str | None = layers.declare('all')
    label: str = flag(
        f'tag to probe: {", ".join(treebank.COLUMNS)}', 'upos', choices=tuple(treebank.COLUMNS)
    )
    mlp: int = flag('also train MLP probes with this hidden width', 0)
    seeds: int = flag('initializations of each probe', 1, '[1, inf)')
    epochs: int = flag('epochs of tag probes', 4, '[1, inf)')
    rank: int = flag('rank of structural probes; 0: no structural probes', 128)
    tree_epochs: int = flag('epochs of structural probes', 6, '[1, inf)', needs='rank')
    max_words: int = flag(
        'longest sentence that structural probes are trained on', 40, '[1, inf)', needs='rank'
    )
    limit: int | None = flag('number of training sentences (default: all)', None, '[1, inf)')
    untrained_seed: int = flag('seed of the untrained encoder', 0)

    def run(self, model: AnalyzedModel) -> Results:
        """See `Analysis.run`."""
        names = layers.parse(self.layers, model, 'all')
        trees = treebank.read(self.input, self.limit), treebank.read(self.dev)
        classes = sorted({tag for part in trees for tree in part for tag in tree.tags[self.label]})
        train, dev = (_words(part, self.label, classes) for part in trees)
        if len(set(train.labels_N.tolist())) < 2:
            raise UserError(
                f'all words of {", ".join(self.input)} have the {self.label} {classes[0]}'
            )
        values: JsonObject = {}
        untrained = model.untrained(self.untrained_seed)
        for kind, encoder in (('trained', model), ('untrained', untrained)):
            model.stage(f'{kind}, states')
            # The states of all layers and words are in memory together: bfloat16 halves them.
            train_NLD, dev_NLD = (
                encoder.word_states([(tree.text, tree.words) for tree in part], names, jnp.bfloat16)
                for part in trees
            )
            model.stage(f'{kind}, tag probes')
            tags = _probe_tags(self, train, dev, train_NLD, dev_NLD, len(classes))
            values[kind] = {'tags': tags}
            if self.rank:
                model.stage(f'{kind}, structural probes')
                values[kind]['trees'] = tree_probes.measure(
                    StructuralSettings(self.rank, self.tree_epochs),
                    self.max_words,
                    *trees,
                    train_NLD,
                    dev_NLD,
                )
            del train_NLD, dev_NLD  # frees the memory before the next encoder
        majority = probes.majority_per_type(train.forms, train.labels_N, dev.forms)
        values['majority_per_type'] = float((majority == dev.labels_N).mean())
        values['layers'] = [layers.describe(name) for name in names]
        num_train, num_dev = len(train.forms), len(dev.forms)
        values['words'] = {'train': num_train, 'dev': num_dev, 'classes': len(classes)}
        tables = {f'Probes of {self.label}': _tag_table(values)}
        if self.rank:
            values['linear_chain'] = tree_probes.linear_chain(trees[1])
            tables['Structural probes'] = tree_probes.table(values)
        return Results(values, tables, {'probe': _plot(values, self.label)})


def _words(trees: Sequence[TreebankSentence], label: str, classes: Sequence[str]) -> TreebankWords:
    class_of = {name: number for number, name in enumerate(classes)}
    return TreebankWords(
        [tree.text[slice(*span)] for tree in trees for span in tree.words],
        np.array([class_of[tag] for tree in trees for tag in tree.tags[label]], np.int32),
        np.repeat([tree.document for tree in trees], [len(tree.words) for tree in trees]),
    )


def _probe_tags(
    analysis: Probes,
    train: TreebankWords,
    dev: TreebankWords,
    train_NLD: np.ndarray,
    dev_NLD: np.ndarray,
    num_classes: int,
) -> JsonObject:
    """Accuracies, selectivities and code lengths by layer, and of a mix of all layers."""
    linear = ProbeSettings(num_classes, seeds=analysis.seeds, epochs=analysis.epochs)
    control_N = probes.control_labels(train.forms + dev.forms, train.labels_N, num_classes, seed=0)
    split = len(train.forms)
    labels_NK = np.stack([train.labels_N, control_N[:split]], axis=1)
    dev_labels_NK = np.stack([dev.labels_N, control_N[split:]], axis=1)
    variants = {'linear': linear, 'mix': linear._replace(has_mix=True)}
    if analysis.mlp:
        variants['mlp'] = linear._replace(hidden_size=analysis.mlp)
    results: JsonObject = {}
    for name, settings in variants.items():
        params = probes.train(train_NLD, labels_NK, settings)
        is_correct_KSLN, _ = probes.losses(params, dev_NLD, dev_labels_NK)
        accuracy_KSL = is_correct_KSLN.mean(-1)
        results[name] = {
            'accuracy': accuracy_KSL[_TASK].mean(0),
            'accuracy_of_seeds': accuracy_KSL[_TASK],
            'interval': _interval(is_correct_KSLN[_TASK].mean(0), dev.documents_N),
            'control': accuracy_KSL[_CONTROL].mean(0),
            'selectivity': (accuracy_KSL[_TASK] - accuracy_KSL[_CONTROL]).mean(0),
        }
        if settings.has_mix:
            results[name]['weights'] = probes.mix_weights(params).mean(0)
    one_seed = linear._replace(seeds=1)
    bits_L = probes.online_code_length(train_NLD, train.labels_N, one_seed)
    results['linear']['bits_per_word'] = bits_L / split
    results['linear']['compression'] = split * np.log2(num_classes) / bits_L
    return results


def _interval(hits_LN: np.ndarray, documents_N: np.ndarray) -> np.ndarray | None:
    """The ends of the intervals of accuracies over documents, float64 [2, L]."""
    _, group_N = np.unique(documents_N, return_inverse=True)
    totals_G = np.bincount(group_N)
    hits_GL = np.stack([np.bincount(group_N, hits_N) for hits_N in hits_LN], axis=1)
    ends = intervals.of_shares(hits_GL, np.tile(totals_G[:, None], len(hits_LN)))
    return None if ends is None else np.stack(ends)


def _tag_table(values: JsonObject) -> Table:
    trained, untrained = values['trained']['tags'], values['untrained']['tags']
    linear, mlp, mix = trained['linear'], trained.get('mlp'), trained['mix']
    columns = ['layer', 'accuracy', 'interval', 'selectivity', 'bits a word', 'compression']
    columns += ['untrained', *(['MLP', 'selectivity of MLP'] if mlp else [])]
    rows: list[tuple[object, ...]] = []
    for number, layer in enumerate(values['layers']):
        cells = [float(linear['accuracy'][number]), _cell(linear['interval'], number)]
        cells += [float(linear[k][number]) for k in ('selectivity', 'bits_per_word', 'compression')]
        cells.append(float(untrained['linear']['accuracy'][number]))
        cells += [float(mlp[k][number]) for k in ('accuracy', 'selectivity')] if mlp else []
        rows.append((layer, *cells))
    dashes = ['–'] * (2 if mlp else 0)
    cells = [float(mix['accuracy'][0]), _cell(mix['interval'], 0), float(mix['selectivity'][0])]
    cells += ['–', '–', float(untrained['mix']['accuracy'][0]), *dashes]
    rows.append(('mix of these', *cells))
    rows.append(('majority per type', values['majority_per_type'], *['–'] * 5, *dashes))
    return Table(tuple(columns), rows)


def _cell(interval: np.ndarray | None, number: int) -> str:
    return intervals.cell(None if interval is None else tuple(interval[:, number]))


def _plot(values: JsonObject, label: str) -> 'Figure':
    """Accuracy and selectivity by layer, and UUAS and DSpr by layer, with the baselines."""
    has_trees = 'linear_chain' in values
    figure = figures.new(5.5 * (1 + has_trees), 4.8)
    all_axes = np.atleast_1d(figure.subplots(1, 1 + has_trees))
    numbers = range(len(values['layers']))
    gray: JsonObject = {'color': 'gray', 'linewidth': 1}
    trained, untrained, axes = values['trained']['tags'], values['untrained']['tags'], all_axes[0]
    for kind, color in (('linear', 'C0'), ('mlp', 'C1')):
        if kind in trained:
            axes.plot(numbers, trained[kind]['accuracy'], 'o-', color=color, label=kind)
            selectivity = trained[kind]['selectivity']
            axes.plot(numbers, selectivity, 's:', color=color, label=f'{kind}, selectivity')
    accuracy = untrained['linear']['accuracy']
    axes.plot(numbers, accuracy, 'x--', color='gray', label='linear, untrained')
    axes.axhline(values['majority_per_type'], label='majority per type', **gray)
    axes.set(ylabel='accuracy', ylim=(0, 1))
    axes.set_title(f'Linear probe of {label}', parse_math=False)
    if has_trees:
        trained, untrained, axes = values['trained'], values['untrained'], all_axes[1]
        axes.plot(numbers, trained['trees']['uuas'], 'o-', label='UUAS')
        axes.plot(numbers, trained['trees']['dspr'], 's-', label='DSpr')
        uuas = untrained['trees']['uuas']
        axes.plot(numbers, uuas, 'x--', color='gray', label='UUAS, untrained')
        axes.axhline(values['linear_chain']['uuas'], label='UUAS, linear chain', **gray)
        axes.set(ylabel='agreement', ylim=(0, 1))
        axes.set_title('Syntax trees in distances between states')
    for axes in all_axes:
        axes.set_xticks(numbers, [name.removeprefix('layer ') for name in values['layers']])
        axes.set_xlabel('layer (0: embeddings)')
        axes.grid(alpha=0.3)
        axes.legend(fontsize=8, loc='upper center', bbox_to_anchor=(0.5, -0.16), ncols=2)
    return figure
