"""Word sense disambiguation by nearest neighbors, compared with the most frequent sense."""

import dataclasses
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import jax
import numpy as np

from bert_jax import figures
from bert_jax.analyze import layers
from bert_jax.analyze.base import Analysis, AnalyzedModel, Results, inputs
from bert_jax.analyze.layers import Layer
from bert_jax.analyze.measures import isotropy, word_senses
from bert_jax.analyze.measures.word_senses import Guesses, Labeled, SenseWords, WordVectors
from bert_jax.analyze.readers import sense_corpora, wordnet
from bert_jax.analyze.readers.sense_corpora import SenseSentence
from bert_jax.analyze.wordnet_senses import WordNetSenses
from bert_jax.errors import UserError
from bert_jax.flag_parser import flag
from bert_jax.labels.formats import expand_globs
from bert_jax.training import runtime
from bert_jax.types import JsonObject, JsonRecord

if TYPE_CHECKING:
    from matplotlib.figure import Figure
_EVERY = 5
_LAYERS = f'{layers.OF_WORDS},last'


@dataclasses.dataclass(frozen=True, kw_only=True)
class WordSenses(Analysis):
    """Nearest centroid and nearest instance; see analyze/measures/word_senses.py."""

    description = 'Accuracy of choosing the sense of a word by its nearest neighbors'
    limits = (
        'Lemma and part of speech are gold: a word is only compared with words that share both.',
        'Training and test texts are of the same kind; frequent senses differ in other texts.',
        'Intervals are over test documents; the training documents are fixed.',
    )

    input: tuple[str, ...] = inputs(
        'files with labeled senses: SemCor as XML, NAME.data.xml, or JSON lines'
    )
    test: tuple[str, ...] = flag(
        'files of the test documents (default: see --every)', (), form='repeated'
    )
    every: int | None = flag(
        f'without --test: test on every N-th document, starting with the first (default: {_EVERY})',
        None,
        '[2, inf)',
    )
    layers: str | None = layers.declare(_LAYERS)
    wordnet: str | None = flag(
        'folder of WordNet 3.0 (index.sense, data.noun, …): also choose among all WordNet senses '
        'of a lemma, with back-off',
        None,
    )
    sense_map: str | None = flag(
        'file of SENSE<tab>KEY,KEY lines: the WordNet keys of each sense', None, needs='wordnet'
    )

    def check(self) -> None:
        """See `Analysis.check`."""
        if self.test and self.every:
            raise UserError('--every has no effect with --test; leave one of them out')

    def run(self, model: AnalyzedModel) -> Results:
        """See `Analysis.run`."""
        names = layers.parse(self.layers, model, _LAYERS)
        if self.wordnet:
            wordnet.check(self.wordnet)
        parts = _split(self)
        train, test = map(_labeled, parts)
        train_states, test_states = (_encode(model, part, names) for part in parts)
        jax.clear_caches()  # frees about 7 MB for each compiled batch shape
        runtime.return_freed_memory()
        model.stage('neighbors')
        in_wordnet = None
        if self.wordnet:  # read only now, because it takes 150 MB
            in_wordnet = WordNetSenses(wordnet.read(self.wordnet), self.sense_map, train, test)
        counts = word_senses.count_senses(train)
        guesses: Guesses = {word_senses.BASELINE: word_senses.most_frequent(test.lemmas, counts)}
        for variant, train_vectors, test_vectors in _variants(names, train_states, test_states):
            if in_wordnet:
                in_wordnet.add(variant, train_vectors, test_vectors)
            train_words = SenseWords(*train[:2], train_vectors)
            test_words = SenseWords(*test[:2], test_vectors)
            guesses[f'centroid, {variant}'] = word_senses.nearest_centroid(
                test_words,
                lambda lemma: list(counts.get(lemma, ())),
                word_senses.centroids(train_words).get,
            )
            guesses[f'nearest instance, {variant}'] = word_senses.nearest_instance(
                test_words, train_words
            )
        num_senses = np.array([len(counts.get(lemma, ())) for lemma in test.lemmas])
        if num_senses.max() < 2:
            raise UserError(
                'no test word has several senses in the training documents; give more of them'
            )
        scored = word_senses.score(guesses, test, num_senses)
        values: JsonRecord = {
            'words': {'train': len(train.lemmas), 'test': len(test.lemmas)},
            'ambiguous_senses': float(num_senses[num_senses > 1].mean()),
            'methods': scored,
        }
        tables = {'Senses of the training documents': word_senses.table(scored)}
        if in_wordnet:
            values['wordnet'], wordnet_tables = in_wordnet.results()
            tables |= wordnet_tables
        return Results(values, tables, {'senses': _plot(scored)}, _notes(num_senses))


def _split(analysis: WordSenses) -> tuple[list[SenseSentence], list[SenseSentence]]:
    """Read the sentences; split them into training and test documents."""
    sentences = _read(analysis.input)
    if analysis.test:
        return sentences, _read(analysis.test)
    documents = list(dict.fromkeys(sentence.document for sentence in sentences))
    if len(documents) < 2:
        raise UserError(f'--input has one document ({documents[0]}); add --test for other files')
    test_documents = set(documents[:: analysis.every or _EVERY])
    parts: tuple[list[SenseSentence], list[SenseSentence]] = ([], [])
    for sentence in sentences:
        parts[sentence.document in test_documents].append(sentence)
    return parts


def _read(patterns: Sequence[str]) -> list[SenseSentence]:
    sentences = [
        sentence for path in expand_globs(patterns) for sentence in sense_corpora.read(path)
    ]
    if not sentences:
        raise UserError(f'{", ".join(patterns)}: no word has a sense')
    return sentences


def _labeled(sentences: Sequence[SenseSentence]) -> Labeled:
    numbers: dict[str, int] = {}
    rows = [
        ((target.lemma, target.pos), target.senses, numbers.setdefault(s.document, len(numbers)))
        for s in sentences
        for target in s.targets
    ]
    lemmas, senses, documents = zip(*rows, strict=True)
    return Labeled(list(lemmas), list(senses), np.array(documents))


def _encode(
    model: AnalyzedModel, sentences: Sequence[SenseSentence], names: tuple[Layer, ...]
) -> np.ndarray:
    """The states of the labeled words, float16 [N, K, D]."""
    model.stage('states')
    located = [(s.text, tuple(target.span for target in s.targets)) for s in sentences]
    return model.word_states(located, names, np.float16)


def _variants(
    names: tuple[Layer, ...], train_NKD: np.ndarray, test_MKD: np.ndarray
) -> Iterator[tuple[str, WordVectors, WordVectors]]:
    """Yield a name and the training and test vectors for each layer, raw and z-scored."""
    for k, name in enumerate(names):
        layer, train_ND, test_MD = layers.describe(name), train_NKD[:, k], test_MKD[:, k]
        yield layer, WordVectors(train_ND), WordVectors(test_MD)
        moments = isotropy.moments(train_ND.shape[1])
        for rows_ND in np.array_split(train_ND, 16):  # less memory than all words as float32
            moments.add(rows_ND.astype(np.float32))
        scale = moments.scale()
        if scale.is_dead_D.all():
            raise UserError(f'all dimensions of {layer} are dead: all words have the same vector')
        yield f'{layer}, z-scored', WordVectors(train_ND, scale), WordVectors(test_MD, scale)


def _notes(num_senses: np.ndarray) -> list[str]:
    is_seen, is_ambiguous = num_senses > 0, num_senses > 1
    return [
        f'{is_seen.mean():.1%} of the test words are seen: the training documents have their lemma '
        'and part of speech. All other words count as wrong.',
        f'{is_ambiguous.mean():.1%} are ambiguous in the training documents, with '
        f'{num_senses[is_ambiguous].mean():.1f} senses on average.',
    ]


def _plot(scored: dict[str, JsonObject]) -> 'Figure':
    """The accuracy of each method on ambiguous words."""
    figure = figures.new(7, 1.2 + 0.3 * len(scored))
    axes = figure.subplots()
    for row, subsets in enumerate(scored.values()):
        ambiguous = subsets['ambiguous']
        accuracy = ambiguous['accuracy']
        if accuracy is None:
            continue
        low, high = ambiguous['interval'] or (accuracy, accuracy)
        axes.plot([low, high], [row, row], color='tab:blue', alpha=0.5, linewidth=4)
        axes.plot(accuracy, row, 'o', color='tab:blue')
    baseline = scored[word_senses.BASELINE]['ambiguous']['accuracy']
    if baseline is not None:
        axes.axvline(baseline, color='gray', linewidth=1, linestyle='--')
        axes.set_title(f'Word senses; dashed: {word_senses.BASELINE}')
    axes.set_yticks(range(len(scored)), list(scored))
    axes.invert_yaxis()
    axes.set_xlabel('accuracy on words with several senses')
    axes.grid(axis='x', alpha=0.3)
    return figure
