"""Structural probes of all layers on a treebank, and their scores."""

import argparse
from collections.abc import Sequence
from typing import Any

import numpy as np

from bert_jax.data.labeled.treebank import Tree
from bert_jax.errors import UserError
from bert_jax.evaluation import dependency_trees, intervals, structural_probes
from bert_jax.evaluation.scores import Table
from bert_jax.evaluation.structural_probes import Sentence, StructuralSettings


def measure(
    flags: argparse.Namespace,
    train_trees: Sequence[Tree],
    dev_trees: Sequence[Tree],
    train_NLD: np.ndarray,
    dev_NLD: np.ndarray,
) -> dict[str, Any]:
    """Train on sentences of at most --max_words; score dev sentences of any length."""
    train = _sentences(train_trees, train_NLD, flags.max_words)
    dev = _sentences(dev_trees, dev_NLD)
    if not train or not dev:
        raise UserError(f'no sentence has 2 to {flags.max_words} words; see --max_words')
    settings = StructuralSettings(flags.rank, flags.tree_epochs)
    params = structural_probes.train(train, dev, settings)
    layers = range(dev_NLD.shape[1])
    predicted = [structural_probes.predict(params, one.states_WLD) for one in dev]
    documents = np.array([tree.document for tree in dev_trees if len(tree.words) > 1])
    by_layer = [
        _score(dev, [(d_LWW[k], h_LW[k]) for d_LWW, h_LW in predicted], documents) for k in layers
    ]
    return {name: [own[name] for own in by_layer] for name in by_layer[0]}


def linear_chain(dev_trees: Sequence[Tree]) -> dict[str, Any]:
    """The scores of neighbors as edges, with the first word as root."""
    dev = _sentences(dev_trees, None)
    places = [np.arange(len(one.gold.depths_W)) for one in dev]
    predicted = [(np.abs(own[:, None] - own), own) for own in places]
    documents = np.array([tree.document for tree in dev_trees if len(tree.words) > 1])
    return _score(dev, predicted, documents)


def _sentences(
    trees: Sequence[Tree], states_NLD: np.ndarray | None, max_words: int | None = None
) -> list[Sentence]:
    found, start = [], 0
    for tree in trees:
        number = len(tree.words)
        own = np.zeros((number, 0, 0)) if states_NLD is None else states_NLD[start : start + number]
        if 2 <= number <= (max_words or number):
            gold = dependency_trees.from_heads(tree.heads, tree.is_punctuation)
            found.append(Sentence(own, gold))
        start += number
    return found


def _score(
    sentences: Sequence[Sentence],
    predicted: Sequence[tuple[np.ndarray, np.ndarray]],
    documents: np.ndarray,
) -> dict[str, Any]:
    """UUAS with its interval, DSpr, accuracy of roots, NSpr.

    Args:
        sentences: N sentences with their gold trees.
        predicted: distances [W, W] and depths [W] for each sentence.
        documents: document number of each sentence.
    """
    pairs = list(zip(sentences, predicted, strict=True))
    correct_N, edges_N, distance_ranks = zip(
        *(dependency_trees.score_distances(s.gold, d_WW) for s, (d_WW, _) in pairs), strict=True
    )
    is_correct_N, has_root_N, depth_ranks = zip(
        *(dependency_trees.score_depths(s.gold, h_W) for s, (_, h_W) in pairs), strict=True
    )
    lengths = [len(sentence.gold.depths_W) for sentence in sentences]
    _, group_N = np.unique(documents, return_inverse=True)
    hits_G, totals_G = np.bincount(group_N, correct_N), np.bincount(group_N, edges_N)
    return {
        'uuas': float(hits_G.sum() / max(totals_G.sum(), 1)),
        'uuas_interval': intervals.of_share(hits_G, totals_G),
        'dspr': dependency_trees.mean_over_lengths(lengths, distance_ranks),
        'root': sum(is_correct_N) / max(sum(has_root_N), 1),
        'nspr': dependency_trees.mean_over_lengths(lengths, depth_ranks),
    }


def table(found: dict[str, Any]) -> Table:
    """The scores by layer, the untrained encoder's UUAS, and the linear chain."""
    columns = ('layer', 'UUAS', 'interval', 'DSpr', 'root', 'NSpr', 'UUAS, untrained')
    trained, untrained = found['trained']['trees'], found['untrained']['trees']
    rows: list[tuple] = [
        (
            name,
            trained['uuas'][number],
            intervals.cell(trained['uuas_interval'][number]),
            *(trained[key][number] for key in ('dspr', 'root', 'nspr')),
            untrained['uuas'][number],
        )
        for number, name in enumerate(found['layers'])
    ]
    chain = found['linear_chain']
    cell = intervals.cell(chain['uuas_interval'])
    rows.append(
        ('linear chain', chain['uuas'], cell, chain['dspr'], chain['root'], chain['nspr'], '–')
    )
    return Table(columns, rows)
