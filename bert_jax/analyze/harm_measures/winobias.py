"""WinoBias: which pronoun refers to an occupation? (Zhao et al. 2018)

Parallel lines differ in the pronoun: one agrees with the share of women in the occupation, the
other does not. All marked pronouns of a line are masked; the first one is predicted.
"""

import argparse
import pathlib
import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from bert_jax.analyze.base import Model, Results, read_lines
from bert_jax.analyze.harm_measures.base import Measure, Share, grouped, plot, table, token_of
from bert_jax.data.labeled.formats import expand_globs
from bert_jax.errors import UserError
from bert_jax.evaluation.scored_rows import ScoredRow
from bert_jax.inference import scoring

GENDERS = dict.fromkeys(('he', 'him', 'his'), 'he') | dict.fromkeys(('she', 'her', 'hers'), 'she')
_NUMBER, _MARKED = re.compile(r'^\d+\s+'), re.compile(r'\[([^][]*)\]')
Span = tuple[int, int]


class Sentence(NamedTuple):
    """A sentence without its brackets.

    Attributes:
        place: 'file:line'.
        text: the sentence.
        occupation: characters of the noun phrase that the pronouns refer to.
        pronouns: characters of each marked pronoun.
    """

    place: str
    text: str
    occupation: Span
    pronouns: list[Span]

    @property
    def word(self) -> str:
        """The first pronoun."""
        return self.text[slice(*self.pronouns[0])].lower()


def run(flags: argparse.Namespace, model: Model) -> Results:
    """Return the accuracies on both kinds of lines and the log-odds, by type of sentence."""
    types, pairs = _read(flags.input)
    odds_N22 = _log_odds(model, pairs)
    is_right_N2 = (odds_N22[:, :, 0] > 0).astype(float)
    genders = [f'the stereotype is {GENDERS[own.word]}' for own, _ in pairs]

    def share(values_N: np.ndarray) -> dict[str, Share]:
        return grouped(types, values_N, 'both types') | grouped(genders, values_N, 'both types')

    pro, anti, gap, log_odds = map(
        share,
        (
            is_right_N2[:, 0],
            is_right_N2[:, 1],
            is_right_N2[:, 0] - is_right_N2[:, 1],
            odds_N22[:, 0, 0] - odds_N22[:, 0, 1],
        ),
    )
    return Results(
        values={'pro': pro, 'anti': anti, 'gap': gap, 'log_odds': log_odds},
        tables={
            'Pronouns of occupations': table(
                gap,
                'sentences',
                'pro − anti',
                pro_stereotypical=[own.value for own in pro.values()],
                anti_stereotypical=[own.value for own in anti.values()],
                corrected_log_odds=[own.value for own in log_odds.values()],
            )
        },
        figures={
            'winobias': plot(gap, 'accuracy, pro-stereotypical − anti-stereotypical', 0, (-1, 1))
        },
        notes=[
            'A line is right if its pronoun is likelier than that of the parallel line. Without '
            'a preference for stereotypes the accuracies are equal.',
            'They are equal as well for a model that always prefers "he": then the rows of the two '
            'stereotypes differ. The log-odds of the stereotypical pronoun (nats) are corrected by '
            'those with the occupation masked (Kurita et al. 2019).',
            'Two pronouns, and one stereotype of each occupation, in English templates.',
        ],
    )


def _log_odds(model: Model, pairs: Sequence[tuple[Sentence, Sentence]]) -> np.ndarray:
    """log P(own pronoun) − log P(that of the other line) in nats, float64 [N, 2, 2].

    For the pro- and the anti-stereotypical line; with the occupation visible and masked.
    """
    rows = (
        row
        for pro, anti in pairs
        for sentence, other in ((pro, anti), (anti, pro))
        for row in _rows(model, sentence, other.word)
    )
    log_p_N222 = np.array(list(scoring.of_rows(model.predictor, rows)), np.float64)
    log_p_N222 = log_p_N222.reshape(-1, 2, 2, 2)
    return log_p_N222[..., 0] - log_p_N222[..., 1]


def _rows(model: Model, sentence: Sentence, other: str) -> Iterator[ScoredRow]:
    """The sentence with its pronouns masked, and with its occupation masked too."""
    ids, first = scoring.locate(model.predictor, sentence.text, sentence.pronouns[0])
    words = [token_of(model, word, sentence.place) for word in (sentence.word, other)]
    for spans in (sentence.pronouns, [*sentence.pronouns, sentence.occupation]):
        masked = ids.copy()
        for span in spans:
            _, slot = scoring.locate(model.predictor, sentence.text, span)
            masked[slot] = model.predictor.tokenizer.mask_id
        yield ScoredRow(masked, np.array([first.start] * 2, np.int32), np.array(words, np.int32))


def _read(patterns: Sequence[str]) -> tuple[list[str], list[tuple[Sentence, Sentence]]]:
    """The type and the pro- and anti-stereotypical sentence of each pair of lines."""
    types, pairs = [], []
    paths = {pathlib.Path(path).name: path for path in expand_globs(patterns)}
    for name in sorted(name for name in paths if name.startswith('pro_')):
        other = 'anti_' + name.removeprefix('pro_')
        if other not in paths:
            raise UserError(f'{paths[name]} needs the file {other} in --input, too')
        pro, anti = (_sentences(paths[own]) for own in (name, other))
        if len(pro) != len(anti):
            raise UserError(f'{name} has {len(pro)} lines, but {other} has {len(anti)}')
        for own, parallel in zip(pro, anti, strict=True):
            if GENDERS[own.word] == GENDERS[parallel.word]:
                raise UserError(f'{own.place} and {parallel.place} have the same gender')
            pairs.append((own, parallel))
        kind = re.search(r'type\d', name)
        types += [kind.group() if kind else name.removeprefix('pro_')] * len(pro)
    if not pairs:
        raise UserError('winobias needs --input files whose names begin with pro_ and anti_')
    return types, pairs


def _sentences(path: str) -> list[Sentence]:
    return [_parse(line, place) for place, line in read_lines([path])]


def _parse(line: str, place: str) -> Sentence:
    """Read 'NUMBER words [occupation] words [pronoun] words'; stray brackets are left out."""
    text, plain, end = _NUMBER.sub('', line.strip()), '', 0
    spans: list[Span] = []
    for match in _MARKED.finditer(text):
        plain += re.sub(r'[][]', '', text[end : match.start()])
        spans.append((len(plain), len(plain) + len(match.group(1))))
        plain, end = plain + match.group(1), match.end()
    plain += re.sub(r'[][]', '', text[end:])
    pronouns = [span for span in spans if plain[slice(*span)].lower() in GENDERS]
    others = [span for span in spans if span not in pronouns]
    if not pronouns or not others:
        raise UserError(f'{place}: needs an [occupation] and a [pronoun] in brackets')
    return Sentence(place, plain, others[0], pronouns)


MEASURE = Measure(run, 'the files pro_… and anti_… of WinoBias, one sentence a line')
