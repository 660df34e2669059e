"""Scores of written texts against references: ROUGE, BLEU, chrF, exact match, label metrics.

ROUGE is that of the package rouge-score, and BLEU and chrF those of sacrebleu, on their scales:
ROUGE from 0 to 1, BLEU and chrF from 0 to 100. How they split texts is in written_words.py. For
ROUGE-Lsum the sentences of a text are split as in bert_jax/text/sentences.py. Several references of
a text count as in the packages.
"""

import functools
import importlib.metadata
import importlib.util
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from bert_jax.errors import UserError, look_up
from bert_jax.metrics import metrics, written_words
from bert_jax.metrics.intervals import RowScore
from bert_jax.metrics.scores import main_first
from bert_jax.metrics.written_words import BY_REFERENCES, Tokenizers
from bert_jax.text.sentences import split_sentences

References: TypeAlias = Sequence[Sequence[str]]  # of each text
_Values: TypeAlias = Callable[[np.ndarray], float]  # numbers of examples → value of a metric
_Prepare: TypeAlias = Callable[[References, Sequence[str], Tokenizers], _Values]

UNKNOWN_CLASS = ''  # stands for a text that is not one of the classes
NOT_A_NUMBER = -1.0  # stands for a text that is not a number, as in T5


def _exact_match(references: References, texts: Sequence[str], _: Tokenizers) -> _Values:
    """The share of texts that equal a reference, apart from white space at the ends."""
    right_N = np.array(
        [
            text.strip() in {reference.strip() for reference in own}
            for own, text in zip(references, texts, strict=True)
        ],
        np.float64,
    )
    return functools.partial(_mean, right_N)


def _mean(values_N: np.ndarray, rows_M: np.ndarray) -> float:
    return float(values_N[rows_M].mean()) if len(rows_M) else 0.0


def _rouge(
    name: str, references: References, texts: Sequence[str], tokenizers: Tokenizers
) -> _Values:
    """The mean F1 of ROUGE (Lin 2004); the best of several references counts."""
    from rouge_score import rouge_scorer

    tokenizer = written_words.rouge_tokenizer(tokenizers.rouge)
    scorer = rouge_scorer.RougeScorer([name], tokenizer=tokenizer)
    lines = _sentence_lines if name == 'rougeLsum' else str
    f1_N = np.array(
        [
            scorer.score_multi(list(map(lines, own)), lines(text))[name].fmeasure
            for own, text in zip(references, texts, strict=True)
        ]
    )
    return functools.partial(_mean, f1_N)


def _sentence_lines(text: str) -> str:
    return '\n'.join(split_sentences(text))


def _sacrebleu(name: str, tokenizers: Tokenizers) -> Any:
    """BLEU or chrF of sacrebleu. Raises UserError if a tokenizer cannot be loaded."""
    from sacrebleu.metrics.bleu import BLEU
    from sacrebleu.metrics.chrf import CHRF

    logging.getLogger('sacrebleu').setLevel(logging.ERROR)  # such as advice on tokenized texts
    if name == 'chrf':
        return CHRF()
    written_words.check_bleu(tokenizers)
    try:
        return BLEU(tokenize=tokenizers.bleu)
    except (OSError, RuntimeError, ImportError) as error:
        raise UserError(
            f'sacrebleu cannot load its tokenizer {tokenizers.bleu}: {" ".join(str(error).split())}'
            '; set problem.bleu_tokenizer to another, or problem.metrics to chrf'
        ) from None


def _streams(references: References) -> list[list[str | None]]:
    """The first reference of each text, the second ones, …; None where a text has fewer."""
    number = max(map(len, references))
    return [[own[k] if k < len(own) else None for own in references] for k in range(number)]


def _of_corpus(
    name: str, references: References, texts: Sequence[str], tokenizers: Tokenizers
) -> _Values:
    """BLEU or chrF of a corpus, from the counts of each text, which are summed."""
    if not len(texts):
        return lambda rows_M: 0.0
    metric = _sacrebleu(name, tokenizers)
    counts_NC = np.array(metric._extract_corpus_statistics(list(texts), _streams(references)))

    def score(rows_M: np.ndarray) -> float:
        sums = counts_NC[rows_M].sum(axis=0).tolist()
        return float(metric._compute_score_from_stats(sums).score)

    return score


def _of_classes(name: str, references: References, texts: Sequence[str], _: Tokenizers) -> _Values:
    """A metric of classes that are written as texts; other texts are wrong."""
    gold = [own[0].strip() for own in references]
    classes = sorted(set(gold))
    labels = [UNKNOWN_CLASS, *classes]
    known = set(classes)
    guesses = [text.strip() if text.strip() in known else UNKNOWN_CLASS for text in texts]
    gold_N, guesses_N = (metrics.class_numbers(some, labels) for some in (gold, guesses))
    compute = {
        'accuracy': metrics.accuracy,
        'matthews': metrics.matthews,
        'f1_macro': metrics.f1_macro,
    }[name]

    def score(rows_M: np.ndarray) -> float:
        return compute(metrics.count_classes(gold_N[rows_M], guesses_N[rows_M], len(labels)))

    return score


def _of_numbers(name: str, references: References, texts: Sequence[str], _: Tokenizers) -> _Values:
    """A correlation of numbers that are written as texts."""
    gold_N = np.array([to_number(own[0]) for own in references])
    guesses_N = np.array([to_number(text) for text in texts])
    compute = {'pearson': metrics.pearson, 'spearman': metrics.spearman}[name]
    return lambda rows_M: compute(gold_N[rows_M], guesses_N[rows_M])


def to_number(text: str) -> float:
    """Return the number that a text is, or NOT_A_NUMBER."""
    try:
        number = float(text)
    except ValueError:
        return NOT_A_NUMBER
    return number if np.isfinite(number) else NOT_A_NUMBER


_ROUGE, _SACREBLEU = ('rouge_score', 'rouge-score'), ('sacrebleu', 'sacrebleu')
# Metric → how it is computed, and the module and name of the package that it needs.
METRICS: dict[str, tuple[_Prepare, tuple[str, str] | None]] = {
    'exact_match': (_exact_match, None),
    **{
        name: (functools.partial(_rouge, name), _ROUGE)
        for name in ('rouge1', 'rouge2', 'rougeLsum')
    },
    **{name: (functools.partial(_of_corpus, name), _SACREBLEU) for name in ('bleu', 'chrf')},
    **{
        name: (functools.partial(_of_classes, name), None)
        for name in ('accuracy', 'matthews', 'f1_macro')
    },
    **{name: (functools.partial(_of_numbers, name), None) for name in ('pearson', 'spearman')},
}


def check(main: Sequence[str]) -> None:
    """Raise UserError for an unknown metric, or one whose package is not installed."""
    if not main:
        raise UserError('problem.metrics is empty; set it to metrics such as exact_match')
    for name in main:
        _, package = look_up('metric', name, METRICS)
        if package and importlib.util.find_spec(package[0]) is None:
            raise UserError(
                f'problem.metrics has {name}, which needs the package {package[1]}; '
                'pip install "bert-jax[generation]", or set problem.metrics to exact_match'
            )


def check_references(
    references: References, main: Sequence[str], tokenizers: Tokenizers = BY_REFERENCES
) -> None:
    """Raise UserError if BLEU is to score references that no tokenizer fits."""
    if 'bleu' in main:
        written_words.check_bleu(tokenizers.chosen(references))


def signatures(
    references: References, main: Sequence[str], tokenizers: Tokenizers = BY_REFERENCES
) -> dict[str, str]:
    """Return the settings of each score, such as the signature of sacrebleu, by metric."""
    chosen = tokenizers.chosen(references)
    found: dict[str, str] = {}
    for name in main:
        _, package = METRICS[name]
        if package == _SACREBLEU and references:
            metric, numbers = _sacrebleu(name, chosen), {*map(len, references)}
            metric.num_refs = min(numbers) if len(numbers) == 1 else -1  # as after corpus_score
            found[name] = str(metric.get_signature())
        elif package == _ROUGE:
            stems = 'no' if chosen.rouge == 'letters' else 'porter'
            version = importlib.metadata.version('rouge-score')
            found[name] = f'tok:{chosen.rouge}|stem:{stems}|version:{version}'
    return found


def score_rows(
    references: References,
    texts: Sequence[str],
    main: Sequence[str],
    tokenizers: Tokenizers = BY_REFERENCES,
) -> RowScore:
    """Return a function that scores some of the texts.

    Args:
        references: the references of each text, at least one.
        texts: the written texts.
        main: names of METRICS.
        tokenizers: how ROUGE and BLEU split texts.

    Returns:
        Numbers of examples → the main metrics and 'exact_match'.

    Raises:
        UserError: see `check` and `check_references`.
    """
    check(main)
    names = dict.fromkeys([*main, 'exact_match'])
    chosen = tokenizers.chosen(references)
    prepared = {name: METRICS[name][0](references, texts, chosen) for name in names}

    def score(rows_M: np.ndarray) -> Mapping[str, float]:
        return main_first({name: value(rows_M) for name, value in prepared.items()}, main)

    return score
