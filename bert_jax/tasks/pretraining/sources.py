"""The data of a pretraining run: the corpus, and the examples made from its documents."""

import functools
import hashlib
import json
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import NamedTuple

from bert_jax import lazy_table, progress
from bert_jax.corpus import source_files
from bert_jax.corpus.corpus import Corpus, read_manifest
from bert_jax.corpus.corpus import settings as corpus_settings
from bert_jax.errors import UserError, nearest
from bert_jax.examples.example_source import ExampleSource
from bert_jax.examples.text_example_source import RowSettings, TextExampleSource
from bert_jax.storage import paths
from bert_jax.training import multihost
from bert_jax.types import Config, JsonObject

_SENTENCE_PAIRS = 'bert_jax.examples.sentence_pairs:SentencePairs'
_PUBLISHED_PAIRS = 'bert_jax.examples.published_pairs:PublishedPairs'
_SINGLE_SEGMENTS = 'bert_jax.examples.single_segments:SingleSegments'
_SPLIT_SEGMENTS = 'bert_jax.examples.single_segments:SplitSegments'
_FULL_SENTENCES = 'bert_jax.examples.full_sentences:FullSentences'


def _make(settings: RowSettings, data: Config, name: str, **options: bool) -> ExampleSource:
    make: Callable[..., ExampleSource] = lazy_table.load(name)
    return make(settings, **options)


def _pairs(settings: RowSettings, data: Config, swapped: bool) -> ExampleSource:
    make: Callable[..., ExampleSource] = lazy_table.load(
        _PUBLISHED_PAIRS if data.faithful_negatives else _SENTENCE_PAIRS
    )
    return make(settings, data.short_sequence_probability, swapped, fixed_lengths=data.pack)


class Segments(NamedTuple):
    """An entry of SEGMENTS.

    Attributes:
        source: Makes the source of examples from the settings of rows and the config's `data`.
        options: Config keys that it reads, apart from keys that all entries read.
        mixes_texts: Whether an example may have sentences of two documents, to be told apart.
    """

    source: Callable[[RowSettings, Config], ExampleSource]
    options: tuple[str, ...] = ()
    mixes_texts: bool = False


_SHORT = 'data.short_sequence_probability'
# data.segments → how examples are made from documents.
SEGMENTS = {
    'pairs': Segments(
        functools.partial(_pairs, swapped=False), (_SHORT, 'data.faithful_negatives'), True
    ),
    'ordered_pairs': Segments(
        functools.partial(_pairs, swapped=True), (_SHORT, 'data.faithful_negatives')
    ),
    'single': Segments(functools.partial(_make, name=_SINGLE_SEGMENTS)),
    'two_segments': Segments(functools.partial(_make, name=_SPLIT_SEGMENTS)),
    'full_sentences': Segments(functools.partial(_make, name=_FULL_SENTENCES)),
    'doc_sentences': Segments(
        functools.partial(_make, name=_FULL_SENTENCES, within_documents=True)
    ),
}


# Setting of a corpus (see `corpus.settings`) → key in the config's `data`.
CORPUS_KEYS = {
    'sources': 'sources',
    'tokenizer': 'tokenizer',
    'lowercase': 'lowercase',
    'strip_accents': 'strip_accents',
    'held_out_fraction': 'held_out_fraction',
    'language_alpha': 'tokenizer_language_alpha',
    'tokenizer_characters': 'tokenizer_characters',
}


def follow_corpus(data: Config, user_keys: Collection[str]) -> None:
    """Make the settings of the text and the folder of the corpus fit each other.

    If the command line names an existing corpus, its settings are adopted. If it changes the text
    but names no corpus, the corpus gets a folder of its own beside the recipe's.

    Args:
        data: The config's `data`; updated.
        user_keys: Keys of `data` that the user set, which keep their values.

    Raises:
        UserError: The corpus has no text of the user's, and its name looks mistyped.
    """
    changed = [key for key in CORPUS_KEYS.values() if key in user_keys]
    if 'corpus' not in user_keys:
        if changed:
            _choose_folder(data, changed)
        return
    if is_missing(data):
        if 'sources' not in user_keys:
            _check_name(data)
        return
    made_from = read_manifest(paths.path(data.corpus))['made_from']
    for setting, key in CORPUS_KEYS.items():
        value = tuple(made_from[setting]) if key == 'sources' else made_from[setting]
        if key not in user_keys and data[key] != value:
            progress.say(f'data.{key} = {value!r}, as in {data.corpus}')
            data[key] = value


def _choose_folder(data: Config, changed: Collection[str]) -> None:
    """Name the corpus after its settings, unless the recipe's corpus was made with them."""
    wanted = corpus_settings(**{setting: data[key] for setting, key in CORPUS_KEYS.items()})
    if not is_missing(data) and read_manifest(paths.path(data.corpus))['made_from'] == wanted:
        return
    digest = hashlib.sha256(json.dumps(wanted, sort_keys=True).encode()).hexdigest()[:8]
    data.corpus = f'{data.corpus}_{digest}'
    keys = ' and '.join(f'data.{key}' for key in changed)
    progress.say(
        f'data.corpus = {data.corpus!r}, because {keys} differs from the recipe; set '
        '--config.data.corpus to give it another name'
    )


def _check_name(data: Config) -> None:
    """Raise UserError if another corpus has nearly the name of a corpus that does not exist."""
    folder = paths.path(data.corpus)
    if not folder.parent.is_dir():
        return
    corpora = {path.parent.name: path.parent for path in folder.parent.glob('*/manifest.json')}
    if close := nearest(folder.name, corpora):
        raise UserError(
            f'data.corpus is {data.corpus!r}, which does not exist; did you mean '
            f'{str(corpora[close])!r}? To prepare the text of the recipe there, also set '
            f'--config.data.sources={",".join(data.sources)!r}'
        )


def is_missing(data: Config) -> bool:
    """Whether the corpus of a config has to be prepared."""
    return not (paths.path(data.corpus) / 'manifest.json').exists()


def open_corpus(data: Config) -> Corpus:
    """Open the corpus of a config. Host 0 first prepares it, or verifies an existing one.

    Raises:
        UserError: If the corpus was made from other text or with another tokenizer, or is damaged.
    """
    settings = {setting: data[key] for setting, key in CORPUS_KEYS.items()}
    folder = paths.path(data.corpus)

    def prepare_if_missing() -> bool:
        if not is_missing(data):
            source_files.report_changes(folder)
            return False
        from bert_jax.corpus.preparation import prepare

        progress.say(f'preparing {data.corpus} from {", ".join(data.sources)}')
        prepare(
            **settings,
            output=folder,
            max_bad_share=data.max_bad_share,
            workers=data.prepare_workers,
        )
        return True

    is_new = multihost.run_on_host0(prepare_if_missing)
    cache = paths.CacheSettings(data.cache_folder, int(data.cache_gigabytes * 1e9))
    corpus = Corpus.open(folder, cache)
    corpus.check_settings(**settings)
    if data.verify_corpus and not is_new:
        multihost.run_on_host0(lambda: _verify(corpus))
    multihost.check_same('corpus', lambda: corpus.fingerprint)
    return corpus


def _verify(corpus: Corpus) -> None:
    """Verify a corpus: all files or, in a bucket, the files that are read as a whole.

    Arrays in a bucket are read in blocks. Their sizes are checked, and the token ids in each batch.
    """
    files = corpus.manifest['files']
    if not corpus.is_mapped:
        whole = [name for name in files if name.endswith(('tokenizer.json', 'unigram.npy'))]
        corpus.verify(whole)
    else:
        corpus.verify()


class Marks(NamedTuple):
    """Additional arrays of the batches.

    Attributes:
        sentences: Whether the first token of each sentence is marked; see `RowSettings`.
        language_ids: Language of the corpus → the value of the array `language`; None: no array.
    """

    sentences: bool = False
    language_ids: Mapping[str, int] | None = None


_NO_MARKS = Marks()


def train_source(
    corpus: Corpus,
    data: Config,
    shape: tuple[int, int],
    seed: int,
    marks: Marks = _NO_MARKS,
    part: int = 0,
) -> ExampleSource:
    """Return training examples, with languages mixed in shares ∝ p^language_alpha.

    Args:
        corpus: The text.
        data: The config's `data`.
        shape: (batch size, sequence length).
        seed: Seed of the order of the data.
        marks: Additional arrays of the batches.
        part: Part of the run, for `data.language_alphas`.

    Raises:
        UserError: If `data.language_alphas` is set, but the corpus has one language.
    """

    def make(language: str | None, seed: int) -> ExampleSource:
        return source(corpus, 'train', language, data, shape, seed, marks)

    languages = list(corpus.split('train').languages)
    if len(languages) == 1:
        if data.language_alphas:
            raise UserError(
                f'data.language_alphas is {data.language_alphas}, but the corpus has only the '
                f'language {languages[0]!r}; leave it out'
            )
        return make(None, seed)
    alpha = data.language_alphas[part] if data.language_alphas else data.language_alpha
    mix_languages = lazy_table.load('bert_jax.examples.language_mixture:mix_languages')
    examples: ExampleSource = mix_languages(make, languages, alpha, shape[0], seed)
    return examples


def held_out_sources(
    corpus: Corpus, data: Config, shape: tuple[int, int], seed: int, marks: Marks = _NO_MARKS
) -> dict[str | None, ExampleSource]:
    """Return language → its held-out examples; None → the examples of all languages.

    With a single language there is only the entry None. For the arguments see `train_source`.

    Raises:
        UserError: If no examples can be made from the held-out text in a language.
    """
    names = list(corpus.split('held_out').languages)
    sources = {}
    for language in [None, *(names if len(names) > 1 else [])]:
        try:
            sources[language] = _held_out_source(corpus, language, names, data, shape, seed, marks)
        except UserError as error:
            place = f' in language {language!r}' if language else ''
            raise UserError(f'the held-out text{place} cannot be evaluated: {error}') from None
    return sources


def _held_out_source(
    corpus: Corpus,
    language: str | None,
    names: Sequence[str],
    data: Config,
    shape: tuple[int, int],
    seed: int,
    marks: Marks,
) -> ExampleSource:
    """Return the held-out examples of a language, or of all in their natural shares."""
    if language or len(names) < 2 or marks.language_ids is None:
        return source(corpus, 'held_out', language, data, shape, seed, marks)
    mix_languages = lazy_table.load('bert_jax.examples.language_mixture:mix_languages')

    def make(name: str, seed: int) -> ExampleSource:
        return source(corpus, 'held_out', name, data, shape, seed, marks)

    examples: ExampleSource = mix_languages(make, names, 1.0, shape[0], seed)
    return examples


def source(
    corpus: Corpus,
    split: str,
    language: str | None,
    data: Config,
    shape: tuple[int, int],
    seed: int,
    marks: Marks = _NO_MARKS,
) -> ExampleSource:
    """Return the examples of a split; `language` None: all languages in their natural shares.

    For the other arguments see `train_source`.

    Raises:
        UserError: If the rows of `data.segments` cannot be packed.
    """
    batch_size, sequence_length = shape
    text = corpus.split(split, language)
    language_id = None
    if marks.language_ids is not None:
        language_id = marks.language_ids[language or next(iter(text.languages))]
    settings = RowSettings(
        text, corpus.tokenizer, sequence_length, batch_size, seed, marks.sentences, language_id
    )
    examples = SEGMENTS[data.segments].source(settings, data)
    if not data.pack:
        return examples
    if not isinstance(examples, TextExampleSource):
        raise UserError(
            f'data.pack is True, but rows of data.segments={data.segments!r} cannot be packed; set '
            'data.pack=False'
        )
    packed_rows: Callable[..., ExampleSource] = lazy_table.load(
        'bert_jax.examples.packing:PackedRows'
    )
    return packed_rows(examples, seed)


def describe(examples: ExampleSource, number: int) -> list[str]:
    """Return log lines about the first `number` examples: epochs, counts, shares of languages."""
    statistics = examples.statistics()
    left_out = {name: statistics.pop(f'{name}_left_out', 0) for name in ('documents', 'tokens')}
    total = statistics.pop('tokens', 0)
    counts = ', '.join(
        f'{value:,} {name.replace("_", " ")}'
        for name, value in statistics.items()
        if value and name != 'documents'
    )
    lines = [f'{number / examples.num_examples:.2g} epochs ({counts})']
    if left_out['documents']:
        lines.append(
            f'left out: {left_out["documents"]:,} documents of one sentence, with '
            f'{left_out["tokens"]:,} of {total:,} tokens ({left_out["tokens"] / total:.1%}): they '
            'have no second segment; data.faithful_negatives=True gives them a random one'
        )
    if by_language := examples.language_shares(number):
        shares = ', '.join(
            f'{name} {share:.2%} ({target:.2%})' for name, (share, target) in by_language.items()
        )
        lines.append(f'languages, share of the examples (target): {shares}')
    return lines


def held_out_masking(config: Config) -> JsonObject | None:
    """Return the values of `config.masking` for held-out text; None: those of the training."""
    scheme, rate = config.evaluation.masking_scheme, config.evaluation.masking_rate
    if not scheme and rate is None:
        return None
    masking = config.masking
    at_end = masking.rate if masking.end_rate is None else masking.end_rate
    rate = at_end if rate is None else rate
    return {'scheme': scheme or masking.scheme, 'rate': rate, 'end_rate': None}
