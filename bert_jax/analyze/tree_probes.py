"""Structural probes of all layers on a treebank, and their scores."""

import math
from collections.abc import Sequence

import numpy as np

from bert_jax.analyze.measures import dependency_trees, structural_probes
from bert_jax.analyze.measures.structural_probes import ParsedSentence, StructuralSettings
from bert_jax.analyze.readers.treebank import TreebankSentence
from bert_jax.errors import UserError
from bert_jax.metrics import intervals
from bert_jax.metrics.scores import Table
from bert_jax.types import JsonObject, JsonRecord


def measure(
    settings: StructuralSettings,
    max_words: int,
    train_trees: Sequence[TreebankSentence],
    dev_trees: Sequence[TreebankSentence],
    train_NLD: np.ndarray,
    dev_NLD: np.ndarray,
) -> JsonRecord:
    """Train structural probes; return metric → value by layer, of dev sentences of any length."""
    train = _sentences(train_trees, train_NLD, max_words)
    dev = _sentences(dev_trees, dev_NLD)
    if not train or not dev:
        raise UserError(f'no sentence has 2 to {max_words} words; see --max_words')
    params = structural_probes.train(train, dev, settings)
    predicted = [structural_probes.predict(params, sentence.states_WLD) for sentence in dev]
    of_layers = [
        _score(dev_trees, dev, [(d_LWW[k], h_LW[k]) for d_LWW, h_LW in predicted])
        for k in range(dev_NLD.shape[1])
    ]
    return {metric: [scores[metric] for scores in of_layers] for metric in of_layers[0]}


def linear_chain(dev_trees: Sequence[TreebankSentence]) -> JsonRecord:
    """The scores of trees that connect each word with the next, with the first word as root."""
    num_words = sum(len(tree.words) for tree in dev_trees)
    dev = _sentences(dev_trees, np.zeros((num_words, 0, 0)))
    predicted = []
    for sentence in dev:
        positions_W = np.arange(len(sentence.states_WLD))
        predicted.append((np.abs(positions_W[:, None] - positions_W), positions_W))
    return _score(dev_trees, dev, predicted)


def _sentences(
    trees: Sequence[TreebankSentence], states_NLD: np.ndarray, max_words: float = math.inf
) -> list[ParsedSentence]:
    """The trees of 2 to `max_words` words, with the states of their words."""
    sentences, start = [], 0
    for tree in trees:
        end = start + len(tree.words)
        if 2 <= len(tree.words) <= max_words:
            gold = dependency_trees.from_heads(tree.heads, tree.is_punctuation)
            sentences.append(ParsedSentence(states_NLD[start:end], gold))
        start = end
    return sentences


def _score(
    trees: Sequence[TreebankSentence],
    sentences: Sequence[ParsedSentence],
    predicted: Sequence[tuple[np.ndarray, np.ndarray]],
) -> JsonRecord:
    """UUAS with its interval over documents, DSpr, accuracy of roots, and NSpr.

    Args:
        trees: all trees; `sentences` lacks trees of a single word.
        sentences: N sentences.
        predicted: distances [W, W] and depths [W] of each sentence.
    """
    documents = [tree.document for tree in trees if len(tree.words) > 1]
    _, group_N = np.unique(documents, return_inverse=True)
    pairs = list(zip(sentences, predicted, strict=True))
    correct_N, edges_N, distance_ranks = zip(
        *(dependency_trees.score_distances(s.gold, d_WW) for s, (d_WW, _) in pairs), strict=True
    )
    is_correct_N, has_root_N, depth_ranks = zip(
        *(dependency_trees.score_depths(s.gold, h_W) for s, (_, h_W) in pairs), strict=True
    )
    lengths = [len(sentence.gold.depths_W) for sentence in sentences]
    hits_G, totals_G = np.bincount(group_N, correct_N), np.bincount(group_N, edges_N)
    return {
        'uuas': float(hits_G.sum() / max(totals_G.sum(), 1)),
        'uuas_interval': intervals.of_share(hits_G, totals_G),
        'dspr': dependency_trees.mean_over_lengths(lengths, distance_ranks),
        'root': sum(is_correct_N) / max(sum(has_root_N), 1),
        'nspr': dependency_trees.mean_over_lengths(lengths, depth_ranks),
    }


def table(values: JsonObject) -> Table:
    """The scores by layer, the UUAS of the untrained encoder, and the linear chain."""
    columns = ('layer', 'UUAS', 'interval', 'DSpr', 'root', 'NSpr', 'UUAS, untrained')
    trained, untrained = values['trained']['trees'], values['untrained']['trees']
    rows: list[tuple[object, ...]] = [
        (
            name,
            trained['uuas'][number],
            intervals.cell(trained['uuas_interval'][number]),
            *(trained[key][number] for key in ('dspr', 'root', 'nspr')),
            untrained['uuas'][number],
        )
        for number, name in enumerate(values['layers'])
    ]
    chain = values['linear_chain']
    cell = intervals.cell(chain['uuas_interval'])
    rows.append(
        ('linear chain', chain['uuas'], cell, chain['dspr'], chain['root'], chain['nspr'], '–')
    )
    return Table(columns, rows)
