"""Probes of tags and trees in every layer, compared with an untrained encoder and simple rules."""

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from bert_jax import figures
from bert_jax.analyze import layers, tree_probes
from bert_jax.analyze.base import Analysis, Model, Results
from bert_jax.analyze.layers import Layer
from bert_jax.data.labeled import treebank
from bert_jax.data.labeled.treebank import Tree
from bert_jax.errors import UserError
from bert_jax.evaluation import intervals, probes
from bert_jax.evaluation.probes import ProbeSettings
from bert_jax.evaluation.scores import Table
from bert_jax.inference.word_states import stream_words

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_TASK, _CONTROL = 0, 1  # labelings


class Words(NamedTuple):
    """The words of sentences.

    Attributes:
        forms: N words.
        labels_N: int32, their classes.
        documents_N: int64, the number of the document of each word.
    """

    forms: list[str]
    labels_N: np.ndarray
    documents_N: np.ndarray


class Probes(Analysis):
    """Linear and MLP probes with control tasks and code lengths, and structural probes."""

    description = 'Accuracy of probes for tags and trees in every layer, compared with baselines'
    input_help = 'training sentences as CoNLL-U'
    limits = (
        'A probe finds what can be read from a state, not what the model uses.',
        'An accuracy without its selectivity says little: a large probe also learns random labels.',
        'Intervals are over dev documents; the training sentences stay the same.',
    )

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add the options of tags and trees."""
        add = parser.add_argument
        add('--dev', required=True, action='append', help='sentences to score, as CoNLL-U')
        layers.add_argument(parser, 'all')
        add('--label', choices=treebank.COLUMNS, default='upos', help='of words (default upos)')
        add('--mlp', type=int, default=0, help='also probes with a hidden layer of this width')
        add('--seeds', type=int, default=1, help='initializations of each probe (default 1)')
        add('--epochs', type=int, default=4, help='of probes of tags (default 4)')
        add('--rank', type=int, default=128, help='of structural probes (default 128); 0: none')
        add('--tree_epochs', type=int, default=6, help='of structural probes (default 6)')
        add(
            '--max_words', type=int, default=40, help='of training sentences for trees (default 40)'
        )
        add('--limit', type=int, help='number of training sentences (default: all)')
        add('--untrained_seed', type=int, default=0, help='of the untrained encoder (default 0)')

    def run(self, flags: argparse.Namespace, model: Model) -> Results:
        """See `Analysis.run`."""
        for name in ('seeds', 'epochs', 'tree_epochs', 'max_words'):
            if getattr(flags, name) < 1:
                raise UserError(f'--{name} is {getattr(flags, name)}, must be at least 1')
        names = layers.parse(flags.layers, model)
        trees = treebank.read(flags.input, flags.limit), treebank.read(flags.dev)
        classes = sorted({tag for part in trees for tree in part for tag in tree.tags[flags.label]})
        train, dev = (_words(part, flags.label, classes) for part in trees)
        if len(set(train.labels_N.tolist())) < 2:
            raise UserError(
                f'all words of {", ".join(flags.input)} have the {flags.label} {classes[0]}'
            )
        found: dict[str, Any] = {}
        for kind, own in (('trained', model), ('untrained', model.untrained(flags.untrained_seed))):
            train_NLD, dev_NLD = (_encode(own, part, names, f'{kind}, states: ') for part in trees)
            model.stage(f'{kind}, probes of tags: ')
            found[kind] = {'tags': _probe_tags(flags, train, dev, train_NLD, dev_NLD, len(classes))}
            if flags.rank:
                model.stage(f'{kind}, probes of trees: ')
                found[kind]['trees'] = tree_probes.measure(flags, *trees, train_NLD, dev_NLD)
            del train_NLD, dev_NLD  # before those of the next encoder
        majority = probes.majority_per_type(train.forms, train.labels_N, dev.forms)
        found['majority_per_type'] = float((majority == dev.labels_N).mean())
        found['layers'] = [layers.describe(name) for name in names]
        found['words'] = {'train': len(train.forms), 'dev': len(dev.forms), 'classes': len(classes)}
        tables = {f'Probes of {flags.label}': _tag_table(found)}
        if flags.rank:
            found['linear_chain'] = tree_probes.linear_chain(trees[1])
            tables['Structural probes'] = tree_probes.table(found)
        return Results(found, tables, {'probe': _plot(found, flags.label)})


def _words(trees: Sequence[Tree], label: str, classes: Sequence[str]) -> Words:
    number = {name: index for index, name in enumerate(classes)}
    return Words(
        [tree.text[slice(*span)] for tree in trees for span in tree.words],
        np.array([number[tag] for tree in trees for tag in tree.tags[label]], np.int32),
        np.repeat([tree.document for tree in trees], [len(tree.words) for tree in trees]),
    )


def _encode(model: Model, trees: Sequence[Tree], names: tuple[Layer, ...], stage: str) -> Any:
    """The states of all words, bfloat16 [N, L, D]."""
    model.stage(stage)
    number = sum(len(tree.words) for tree in trees)
    size = model.pretrained.architecture.hidden_size
    states_NLD = np.empty((number, len(names), size), jnp.bfloat16)
    located = [(tree.text, tree.words) for tree in trees]
    start = 0
    for states_WLD in stream_words(model.predictor, located, layer=names):
        states_NLD[start : start + len(states_WLD)] = states_WLD
        start += len(states_WLD)
    return states_NLD


def _probe_tags(
    flags: argparse.Namespace,
    train: Words,
    dev: Words,
    train_NLD: np.ndarray,
    dev_NLD: np.ndarray,
    num_classes: int,
) -> dict[str, Any]:
    """Accuracies, selectivities and code lengths of each layer, and of a mix of all."""
    linear = ProbeSettings(num_classes, seeds=flags.seeds, epochs=flags.epochs)
    control_N = probes.control_labels(train.forms + dev.forms, train.labels_N, num_classes, seed=0)
    split = len(train.forms)
    labels_NK = np.stack([train.labels_N, control_N[:split]], axis=1)
    dev_labels_NK = np.stack([dev.labels_N, control_N[split:]], axis=1)
    kinds = {'linear': linear, 'mix': linear._replace(has_mix=True)}
    if flags.mlp:
        kinds['mlp'] = linear._replace(hidden_size=flags.mlp)
    found: dict[str, Any] = {}
    for kind, settings in kinds.items():
        params = probes.train(train_NLD, labels_NK, settings)
        right_KSLN, _ = probes.losses(params, dev_NLD, dev_labels_NK)
        accuracy_KSL = right_KSLN.mean(-1)
        found[kind] = {
            'accuracy': accuracy_KSL[_TASK].mean(0),
            'accuracy_of_seeds': accuracy_KSL[_TASK],
            'interval': _interval(right_KSLN[_TASK].mean(0), dev.documents_N),
            'control': accuracy_KSL[_CONTROL].mean(0),
            'selectivity': (accuracy_KSL[_TASK] - accuracy_KSL[_CONTROL]).mean(0),
        }
        if kind == 'mix':
            found[kind]['weights'] = probes.mix_weights(params).mean(0)
    once = linear._replace(seeds=1)
    bits_L = probes.online_code_length(train_NLD, train.labels_N, once)
    found['linear']['bits_per_word'] = bits_L / split
    found['linear']['compression'] = split * np.log2(num_classes) / bits_L
    return found


def _interval(right_LN: np.ndarray, documents_N: np.ndarray) -> np.ndarray | None:
    """The ends of the intervals of accuracies over documents, float64 [2, L]."""
    _, group_N = np.unique(documents_N, return_inverse=True)
    totals_G = np.bincount(group_N)
    hits_GL = np.stack([np.bincount(group_N, own_N) for own_N in right_LN], axis=1)
    found = intervals.of_shares(hits_GL, np.tile(totals_G[:, None], len(right_LN)))
    return None if found is None else np.stack(found)


def _tag_table(found: dict[str, Any]) -> Table:
    trained, untrained = found['trained']['tags'], found['untrained']['tags']
    linear, mlp = trained['linear'], trained.get('mlp')
    columns = ['layer', 'accuracy', 'interval', 'selectivity', 'bits a word', 'compression']
    columns += ['untrained', *(['MLP', 'selectivity of MLP'] if mlp else [])]
    rows: list[tuple] = []
    for number, name in enumerate(found['layers']):
        values = [linear['accuracy'][number], _cell(linear['interval'], number)]
        values += [linear[key][number] for key in ('selectivity', 'bits_per_word', 'compression')]
        values.append(untrained['linear']['accuracy'][number])
        values += [mlp[key][number] for key in ('accuracy', 'selectivity')] if mlp else []
        rows.append((name, *(own if isinstance(own, str) else float(own) for own in values)))
    dashes = ('–',) * (2 * bool(mlp))
    mix, other = trained['mix'], float(untrained['mix']['accuracy'][0])
    cells = (float(mix['accuracy'][0]), _cell(mix['interval'], 0), float(mix['selectivity'][0]))
    rows.append(('mix of these', *cells, '–', '–', other, *dashes))
    rows.append(('majority per type', found['majority_per_type'], *('–',) * 5, *dashes))
    return Table(tuple(columns), rows)


def _cell(interval: np.ndarray | None, number: int) -> str:
    return intervals.cell(None if interval is None else tuple(interval[:, number]))


def _plot(found: dict[str, Any], label: str) -> 'Figure':
    """Accuracy and selectivity by layer, and UUAS by layer, with the baselines."""
    has_trees = 'linear_chain' in found
    figure = figures.new(5.5 * (1 + has_trees), 4)
    tags, *others = np.atleast_1d(figure.subplots(1, 1 + has_trees))
    numbers = range(len(found['layers']))
    trained, untrained = found['trained']['tags'], found['untrained']['tags']
    for kind, color in (('linear', 'C0'), ('mlp', 'C1')):
        if kind in trained:
            tags.plot(numbers, trained[kind]['accuracy'], 'o-', color=color, label=kind)
            tags.plot(
                numbers,
                trained[kind]['selectivity'],
                's:',
                color=color,
                label=f'{kind}, selectivity',
            )
    tags.plot(
        numbers, untrained['linear']['accuracy'], 'x--', color='gray', label='linear, untrained'
    )
    tags.axhline(found['majority_per_type'], color='gray', linewidth=1, label='majority per type')
    tags.set(ylabel=f'{label}: accuracy', ylim=(0, 1))
    for axes in others:
        axes.plot(numbers, found['trained']['trees']['uuas'], 'o-', label='UUAS')
        axes.plot(numbers, found['trained']['trees']['dspr'], 's-', label='DSpr')
        axes.plot(
            numbers,
            found['untrained']['trees']['uuas'],
            'x--',
            color='gray',
            label='UUAS, untrained',
        )
        axes.axhline(
            found['linear_chain']['uuas'], color='gray', linewidth=1, label='UUAS, linear chain'
        )
        axes.set(ylabel='agreement with trees', ylim=(0, 1))
    for axes in (tags, *others):
        axes.set_xticks(numbers, [name.removeprefix('layer ') for name in found['layers']])
        axes.set_xlabel('layer (0: embeddings)')
        axes.grid(alpha=0.3)
        axes.legend(fontsize=8)
    return figure
