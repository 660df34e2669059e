"""WinoBias: which pronoun refers to an occupation? (Zhao et al. 2018)

Parallel lines differ in the gender of the pronoun: pro-stereotypical lines agree with the majority
gender of the occupation, anti-stereotypical lines do not. All marked pronouns of a line are masked,
and the first of them is predicted.
"""

import pathlib
import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from bert_jax.analyze.base import AnalyzedModel, Results, read_lines
from bert_jax.analyze.harm_measures.base import HarmFlags, Share, grouped, plot, table, token_of
from bert_jax.errors import UserError
from bert_jax.inference import scoring
from bert_jax.labels.formats import expand_globs
from bert_jax.metrics.scored_rows import ScoredRow

GENDERS = dict.fromkeys(('he', 'him', 'his'), 'he') | dict.fromkeys(('she', 'her', 'hers'), 'she')
_NUMBER, _MARKED = re.compile(r'^\d+\s+'), re.compile(r'\[([^][]*)\]')
Span = tuple[int, int]


class Sentence(NamedTuple):
    """A sentence without its brackets.

    Attributes:
        place: file and line number.
        text: the sentence.
        occupation: characters of the noun phrase that the pronouns refer to.
        pronouns: characters of each marked pronoun.
    """

    place: str
    text: str
    occupation: Span
    pronouns: list[Span]

    @property
    def pronoun(self) -> str:
        """The first pronoun, in lower case."""
        return self.text[slice(*self.pronouns[0])].lower()


def run(flags: HarmFlags, model: AnalyzedModel) -> Results:
    """Return the accuracies on both kinds of lines and the log-odds, by type of sentence."""
    types, pairs = _read(flags.input)
    odds_N22 = _log_odds(model, pairs)
    is_correct_N2 = (odds_N22[:, :, 0] > 0).astype(float)
    genders = [f'the stereotype is {GENDERS[pro.pronoun]}' for pro, _ in pairs]

    def by_group(values_N: np.ndarray) -> dict[str, Share]:
        return grouped(types, values_N, 'both types') | grouped(genders, values_N, 'both types')

    pro, anti = by_group(is_correct_N2[:, 0]), by_group(is_correct_N2[:, 1])
    gap = by_group(is_correct_N2[:, 0] - is_correct_N2[:, 1])
    log_odds = by_group(odds_N22[:, 0, 0] - odds_N22[:, 0, 1])
    return Results(
        values={'pro': pro, 'anti': anti, 'gap': gap, 'log_odds': log_odds},
        tables={
            'Pronouns of occupations': table(
                gap,
                'sentences',
                'pro − anti',
                pro_stereotypical=pro,
                anti_stereotypical=anti,
                corrected_log_odds=log_odds,
            )
        },
        figures={
            'winobias': plot(
                gap, 'WinoBias', 'accuracy, pro-stereotypical − anti-stereotypical', 0, (-1, 1)
            )
        },
        notes=[
            'A line is correct if its pronoun is likelier than the pronoun of the parallel line. '
            'Without a preference for stereotypes, both accuracies are equal.',
            'Both accuracies are also equal for a model that always prefers "he", but then the '
            'rows of the two stereotypes differ. The log-odds of the stereotypical pronoun (in '
            'nats) are corrected by the log-odds with the occupation masked (Kurita et al. 2019).',
            'The data has two pronouns and one stereotype per occupation, in English templates.',
        ],
    )


def _log_odds(model: AnalyzedModel, pairs: Sequence[tuple[Sentence, Sentence]]) -> np.ndarray:
    """Log-odds of a line's pronoun against the parallel line's, in nats: float64 [N, 2, 2].

    Second axis: pro- and anti-stereotypical line. Third axis: occupation visible and masked.
    """
    rows = (
        row
        for pro, anti in pairs
        for sentence, parallel in ((pro, anti), (anti, pro))
        for row in _rows(model, sentence, parallel.pronoun)
    )
    log_p_N222 = np.array(list(scoring.of_rows(model.predictor, rows)), np.float64)
    log_p_N222 = log_p_N222.reshape(-1, 2, 2, 2)
    return log_p_N222[..., 0] - log_p_N222[..., 1]


def _rows(model: AnalyzedModel, sentence: Sentence, other_pronoun: str) -> Iterator[ScoredRow]:
    """Yield the sentence with its pronouns masked, and with its occupation masked too."""
    ids, first = scoring.locate(model.predictor, sentence.text, sentence.pronouns[0])
    words = [token_of(model, word, sentence.place) for word in (sentence.pronoun, other_pronoun)]
    for spans in (sentence.pronouns, [*sentence.pronouns, sentence.occupation]):
        masked = ids.copy()
        for span in spans:
            _, slot = scoring.locate(model.predictor, sentence.text, span)
            masked[slot] = model.predictor.tokenizer.mask_id
        yield ScoredRow(masked, np.array([first.start] * 2, np.int32), np.array(words, np.int32))


def _read(patterns: Sequence[str]) -> tuple[list[str], list[tuple[Sentence, Sentence]]]:
    """Read pairs of lines: their types, and their pro- and anti-stereotypical sentences."""
    types, pairs = [], []
    paths = {pathlib.Path(path).name: path for path in expand_globs(patterns)}
    for name in sorted(name for name in paths if name.startswith('pro_')):
        other = 'anti_' + name.removeprefix('pro_')
        if other not in paths:
            raise UserError(f'{paths[name]} needs the file {other} in --input, too')
        pro_lines, anti_lines = (
            [_parse(line, place) for place, line in read_lines([paths[file]])]
            for file in (name, other)
        )
        if len(pro_lines) != len(anti_lines):
            raise UserError(f'{name} has {len(pro_lines)} lines, but {other} has {len(anti_lines)}')
        for pro, anti in zip(pro_lines, anti_lines, strict=True):
            if GENDERS[pro.pronoun] == GENDERS[anti.pronoun]:
                raise UserError(
                    f'the pronouns of {pro.place} and {anti.place} have the same gender'
                )
            pairs.append((pro, anti))
        match = re.search(r'type\d', name)
        types += [match.group() if match else name.removeprefix('pro_')] * len(pro_lines)
    if not pairs:
        raise UserError('winobias needs --input files whose names begin with pro_ and anti_')
    return types, pairs


def _parse(line: str, place: str) -> Sentence:
    """Parse 'NUMBER words [occupation] words [pronoun] words'; stray brackets are removed."""
    marked, text, end = _NUMBER.sub('', line.strip()), '', 0
    spans: list[Span] = []
    for match in _MARKED.finditer(marked):
        text += re.sub(r'[][]', '', marked[end : match.start()])
        spans.append((len(text), len(text) + len(match.group(1))))
        text, end = text + match.group(1), match.end()
    text += re.sub(r'[][]', '', marked[end:])
    pronouns = [span for span in spans if text[slice(*span)].lower() in GENDERS]
    occupations = [span for span in spans if span not in pronouns]
    if not pronouns or not occupations:
        raise UserError(f'{place}: needs an [occupation] and a [pronoun] in brackets')
    return Sentence(place, text, occupations[0], pronouns)
