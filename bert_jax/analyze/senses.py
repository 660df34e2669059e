"""Word senses by nearest neighbors, compared with the most frequent sense."""

import argparse
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from bert_jax import figures
from bert_jax.analyze import layers
from bert_jax.analyze.base import Analysis, Model, Results
from bert_jax.analyze.layers import Layer
from bert_jax.analyze.wordnet_senses import WithWordNet
from bert_jax.data import wordnet
from bert_jax.data.labeled import sense_corpora
from bert_jax.data.labeled.formats import expand_globs
from bert_jax.data.labeled.sense_corpora import SenseSentence
from bert_jax.errors import UserError
from bert_jax.evaluation import isotropy, word_senses
from bert_jax.evaluation.word_senses import Guesses, Labeled, Words, WordVectors
from bert_jax.inference.word_states import stream_words
from bert_jax.training import runtime

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class WordSenses(Analysis):
    """Nearest centroid and nearest instance; see evaluation/word_senses.py."""

    description = 'Accuracy of choosing the sense of a word by its nearest neighbors'
    input_help = 'files with labeled senses: SemCor as XML, NAME.data.xml, or JSON lines'
    limits = (
        'Neighbors of the same lemma and part of speech are compared, and both are given.',
        'The texts of training and test are of one kind; other kinds have other frequent senses.',
        'Intervals are over test documents; the training documents stay the same.',
    )

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add --test, --every, --layers, --wordnet and --sense_map."""
        add = parser.add_argument
        add('--test', action='append', help='files of the test documents (default: see --every)')
        add(
            '--every',
            type=int,
            default=5,
            help='without --test, every fifth (default) document from the first one is for testing',
        )
        layers.add_argument(parser)
        add('--wordnet', help='folder of WordNet 3.0 (index.sense, data.noun, …): also choose '
            'among all its senses of a lemma, with back-off')  # fmt: skip
        add('--sense_map', help='file of SENSE<tab>KEY,KEY lines: keys of WordNet of each sense')

    def run(self, flags: argparse.Namespace, model: Model) -> Results:
        """See `Analysis.run`."""
        names = layers.parse(flags.layers, model)
        if flags.wordnet:
            wordnet.check(flags.wordnet)
        elif flags.sense_map:
            raise UserError('--sense_map needs --wordnet')
        train_part, test_part = _split(flags)
        train, test = _labeled(train_part), _labeled(test_part)
        vectors = [_encode(model, part, names) for part in (train_part, test_part)]
        jax.clear_caches()  # a program of 7 MB for each shape of a batch
        runtime.return_freed_memory()
        model.stage('neighbors: ')
        guesses: Guesses = {}
        with_wordnet = None
        if flags.wordnet:  # read now: 150 MB
            with_wordnet = WithWordNet(wordnet.read(flags.wordnet), flags.sense_map, train, test)
        counts = word_senses.count_senses(train)
        guesses[word_senses.BASELINE] = word_senses.most_frequent(test.lemmas, counts)
        for suffix, pair in _variants(names, *vectors):
            if with_wordnet:
                with_wordnet.add(suffix, *pair)
            found = _neighbors(train, test, pair, counts)
            guesses |= {f'{method}, {suffix}': own for method, own in found.items()}
        num_senses = np.array([len(counts.get(lemma, ())) for lemma in test.lemmas])
        scored = word_senses.score(guesses, test, num_senses)
        values: dict[str, Any] = {'words': {'train': len(train.lemmas), 'test': len(test.lemmas)}}
        values |= {'ambiguous_senses': float(num_senses[num_senses > 1].mean()), 'methods': scored}
        tables = {'Senses of the training documents': word_senses.table(scored)}
        if with_wordnet:
            values['wordnet'] = with_wordnet.values()
            tables |= with_wordnet.tables()
        return Results(values, tables, {'senses': _plot(scored)}, _notes(num_senses))


def _split(flags: argparse.Namespace) -> tuple[list[SenseSentence], list[SenseSentence]]:
    """The sentences of the training and of the test documents."""
    sentences = _read(flags.input)
    if flags.test:
        return sentences, _read(flags.test)
    if flags.every < 2:
        raise UserError(f'--every is {flags.every}, must be at least 2')
    documents = list(dict.fromkeys(sentence.document for sentence in sentences))
    if len(documents) < 2:
        raise UserError(f'--input has one document ({documents[0]}); add --test with another one')
    tested = set(documents[:: flags.every])
    parts: tuple[list[SenseSentence], list[SenseSentence]] = ([], [])
    for sentence in sentences:
        parts[sentence.document in tested].append(sentence)
    return parts


def _read(patterns: Sequence[str]) -> list[SenseSentence]:
    found = [sentence for path in expand_globs(patterns) for sentence in sense_corpora.read(path)]
    if not found:
        raise UserError(f'{", ".join(patterns)}: no word has a sense')
    return found


def _labeled(sentences: Sequence[SenseSentence]) -> Labeled:
    numbers: dict[str, int] = {}
    rows = [
        ((target.lemma, target.pos), target.senses, numbers.setdefault(one.document, len(numbers)))
        for one in sentences
        for target in one.targets
    ]
    lemmas, senses, documents = zip(*rows, strict=True)
    return Labeled(list(lemmas), list(senses), np.array(documents))


def _encode(
    model: Model, sentences: Sequence[SenseSentence], names: tuple[Layer, ...]
) -> dict[Layer, np.ndarray]:
    """Layer → the vectors of the labeled words, float16 [N, D]."""
    model.stage('states: ')
    located = ((one.text, tuple(target.span for target in one.targets)) for one in sentences)
    streamed = stream_words(model.predictor, located, layer=names)
    size = model.pretrained.architecture.hidden_size
    states_NKD = np.empty(
        (sum(len(one.targets) for one in sentences), len(names), size), np.float16
    )
    start = 0
    for states_WKD in streamed:
        states_NKD[start : start + len(states_WKD)] = states_WKD
        start += len(states_WKD)
    return {name: states_NKD[:, k] for k, name in enumerate(names)}


def _variants(
    names: tuple[Layer, ...], train: dict[Layer, np.ndarray], test: dict[Layer, np.ndarray]
) -> Iterator[tuple[str, tuple[WordVectors, WordVectors]]]:
    """The vectors of both parts for each layer, as they are and z-scored, with a name."""
    for name in names:
        described, pair = layers.describe(name), (train[name], test[name])
        yield described, (WordVectors(pair[0]), WordVectors(pair[1]))
        moments = isotropy.moments(pair[0].shape[1])
        for rows_ND in np.array_split(pair[0], 16):
            moments.add(rows_ND.astype(np.float32))
        scale = moments.scale()
        if scale.is_dead_D.all():
            raise UserError(f'all dimensions of {described} are dead')
        yield f'{described}, z-scored', (WordVectors(pair[0], scale), WordVectors(pair[1], scale))


def _neighbors(
    train: Labeled, test: Labeled, vectors: tuple[WordVectors, WordVectors], counts: Any
) -> Guesses:
    """The senses of test words among those of the training documents, by method."""
    trained, tested = Words(*train[:2], vectors[0]), Words(*test[:2], vectors[1])
    centroid_of = word_senses.centroids(trained)
    return {
        'centroid': word_senses.nearest_centroid(
            tested, lambda lemma: list(counts.get(lemma, ())), centroid_of.get
        ),
        'nearest instance': word_senses.nearest_instance(tested, trained),
    }


def _notes(num_senses: np.ndarray) -> list[str]:
    seen, ambiguous = num_senses > 0, num_senses > 1
    return [
        f'{seen.mean():.1%} of the test words are seen: their lemma and part of speech are in the '
        'training documents; the others count as wrong.',
        f'{ambiguous.mean():.1%} are ambiguous there, with {num_senses[ambiguous].mean():.1f} '
        'senses on average.',
    ]


def _plot(scored: dict[str, dict[str, Any]]) -> 'Figure':
    """The accuracy of each method on ambiguous words."""
    figure = figures.new(7, 1.2 + 0.3 * len(scored))
    axes = figure.subplots()
    for row, own in enumerate(scored.values()):
        ambiguous = own['ambiguous']
        accuracy = ambiguous['accuracy']
        if accuracy is None:
            continue
        low, high = ambiguous['interval'] or (accuracy, accuracy)
        axes.plot([low, high], [row, row], color='tab:blue', alpha=0.5, linewidth=4)
        axes.plot(accuracy, row, 'o', color='tab:blue')
    baseline = scored[word_senses.BASELINE]['ambiguous']['accuracy']
    if baseline is not None:
        axes.axvline(baseline, color='gray', linewidth=1, linestyle='--')
    axes.set_yticks(range(len(scored)), list(scored))
    axes.invert_yaxis()
    axes.set_xlabel('accuracy on words with several senses')
    axes.grid(axis='x', alpha=0.3)
    return figure
