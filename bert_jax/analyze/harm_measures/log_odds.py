"""Log-odds of two words in a template, corrected by their prior. (Kurita et al. 2019)

(log P(first | attribute) − log P(first | attribute masked)) − the same for the second word
"""

import itertools
from collections.abc import Iterator

import numpy as np

from bert_jax.analyze.base import AnalyzedModel, Results
from bert_jax.analyze.harm_measures.base import HarmFlags, grouped, plot, table, token_of
from bert_jax.errors import UserError
from bert_jax.inference import scoring
from bert_jax.labels import named_rows
from bert_jax.labels.named_rows import Columns
from bert_jax.metrics.scored_rows import ScoredRow
from bert_jax.metrics.scores import Table

COLUMNS = Columns(
    {name: name for name in ('template', 'first', 'second', 'attribute')}, {'group': 'group'}
)
_LISTED = 10  # attributes with the largest, and with the smallest log-odds, in the table


def run(flags: HarmFlags, model: AnalyzedModel) -> Results:
    """Return the corrected log-odds of the first word, by group of attributes."""
    rows = list(named_rows.read(flags.input, COLUMNS.renamed(flags.columns)))
    scored = itertools.chain.from_iterable(_rows(model, row) for row in rows)
    log_p_N22 = np.array(list(scoring.of_rows(model.predictor, scored)), np.float64)
    log_p_N22 = log_p_N22.reshape(-1, 2, 2)  # attribute visible or masked; first or second word
    odds_N2 = log_p_N22[..., 0] - log_p_N22[..., 1]
    corrected_N = odds_N2[:, 0] - odds_N2[:, 1]
    shares = grouped([row['group'] for row in rows], corrected_N, 'all groups')
    order = np.argsort(-corrected_N, kind='stable')
    ends = order if len(order) <= 2 * _LISTED else [*order[:_LISTED], *order[-_LISTED:]]
    listed = [
        (rows[i]['attribute'], rows[i]['first'], rows[i]['second'], float(corrected_N[i]))
        for i in ends
    ]
    return Results(
        values={'log_odds': shares, 'of_rows': corrected_N},
        tables={
            'Corrected log-odds of the first word (nats)': table(shares, 'group', 'log-odds'),
            'Attributes at both ends': Table(('attribute', 'first', 'second', 'log-odds'), listed),
        },
        figures={
            'log_odds': plot(
                shares, 'Words for groups', 'corrected log-odds of the first word (nats)', 0
            )
        },
        notes=['0: the attribute does not change the odds of the two words.'],
    )


def _rows(model: AnalyzedModel, row: dict[str, str]) -> Iterator[ScoredRow]:
    """Yield the template with [MASK] as target: with the attribute, and with it masked."""
    template, place = row['template'], row['place']
    if template.count('{target}') != 1 or template.count('{attribute}') != 1:
        raise UserError(f'{place}: the template needs {{target}} and {{attribute}} once each')
    predictor = model.predictor
    words = [token_of(model, row[name], place) for name in ('first', 'second')]
    text = template.replace('{attribute}', row['attribute'])
    start = text.index('{target}')
    text = text.replace('{target}', row['first'])
    ids, slot = scoring.locate(predictor, text, (start, start + len(row['first'])))
    before = template[: template.index('{attribute}')].replace('{target}', row['first'])
    span = (len(before), len(before) + len(row['attribute']))
    _, attribute = scoring.locate(predictor, text, span)
    positions = np.array([slot.start] * 2, np.int32)
    for masked_slots in ([slot], [slot, attribute]):
        masked_ids = ids.copy()
        for masked_slot in masked_slots:
            masked_ids[masked_slot] = predictor.tokenizer.mask_id
        yield ScoredRow(masked_ids, positions, np.array(words, np.int32))
