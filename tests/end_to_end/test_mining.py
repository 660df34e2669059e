"""predict --task=mine: negatives near a query, compared with a loop over all texts."""

import json

import numpy as np
import pytest
from sentence_transformers import SentenceTransformer

from bert_jax import predict
from tests.end_to_end import small
from tests.interop import published
from tests.interop.test_sentence_modules import add_modules, legacy

WORDS = [word for topic in small.TOPICS.values() for word in topic]
TEXTS = [f'the {first} and the {second}' for first, second in zip(WORDS, WORDS[3:], strict=False)]
PAIRS = [(TEXTS[0], TEXTS[4]), (f'a {WORDS[5]}', TEXTS[9]), (f'a {WORDS[5]}', TEXTS[12])]


@pytest.fixture(scope='module')
def model(tmp_path_factory):
    bert = published.folder(tmp_path_factory.mktemp('model') / 'bert', 'BertModel')
    return add_modules(bert, legacy('mean'), ['Normalize'])


@pytest.fixture(scope='module')
def scores(model):
    """Cosines of queries and texts by sentence-transformers, [queries][text]."""
    reference = SentenceTransformer(str(model), device='cpu')
    queries = list(dict.fromkeys(query for query, _ in PAIRS))
    products_QN = reference.encode(queries) @ reference.encode(TEXTS).T
    return {
        q: dict(zip(TEXTS, row.tolist(), strict=True))
        for q, row in zip(queries, products_QN, strict=True)
    }


def mine(model, folder, lines=None, **flags):
    (folder / 'texts.txt').write_text('\n'.join([*TEXTS, TEXTS[7]]) + '\n')  # one text twice
    lines = ['\t'.join(pair) for pair in PAIRS] if lines is None else lines
    (folder / 'pairs.tsv.txt').write_text('\n'.join(lines) + '\n')
    words = {'vectors': folder / 'vectors', 'documents': folder / 'texts.txt'} | flags
    predict.main(
        [
            f'--model={model}',
            '--task=mine',
            f'--input={folder}/pairs.tsv.txt',
            f'--output={folder}/out.jsonl',
            '--overwrite',
            *(f'--{name}={value}' for name, value in words.items()),
        ]
    )
    return [json.loads(line) for line in (folder / 'out.jsonl').read_text().splitlines()]


def expected(scores, query, limit=np.inf, first=1, last=100):
    positives = [positive for known, positive in PAIRS if known == query]
    others = [text for text in TEXTS if text != query and text not in positives]
    ranked = sorted(others, key=lambda text: -scores[query][text])[first - 1 : last]
    return [text for text in ranked if scores[query][text] <= limit]


def test_negatives_are_the_nearest_texts_that_are_not_known_answers(model, scores, tmp_path):
    found = mine(model, tmp_path, negatives=5)
    assert [(record['query'], record['positive']) for record in found] == PAIRS
    for record in found:
        query = record['query']
        assert record['negatives'] == expected(scores, query)[:5]
        documents = [record['positive'], *record['negatives']]
        values = [scores[query][text] for text in documents]
        np.testing.assert_allclose(record['scores'], values, atol=1e-6)


def test_ranks_and_margins_leave_out_likely_answers(model, scores, tmp_path, capsys):
    query = PAIRS[1][0]
    lowest = min(scores[query][TEXTS[9]], scores[query][TEXTS[12]])
    found = mine(model, tmp_path, negatives=4, first_rank=3, last_rank=9)[1]
    assert found['negatives'] == expected(scores, query, first=3, last=9)[:4]
    found = mine(model, tmp_path, absolute_margin=0.02)[1]
    assert found['negatives'] == expected(scores, query, lowest - 0.02)[:3]
    found = mine(model, tmp_path, relative_margin=0.05)[1]
    assert found['negatives'] == expected(scores, query, lowest - 0.05 * abs(lowest))[:3]
    capsys.readouterr()
    found = mine(model, tmp_path, highest_score=-1)
    assert found[0]['negatives'] == []
    assert '2 queries with fewer than 3 negatives' in capsys.readouterr().err


def test_random_negatives_depend_on_the_seed_alone(model, scores, tmp_path):
    first, again, other = (
        mine(model, tmp_path, choice='random', last_rank=20, seed=seed) for seed in (1, 1, 2)
    )
    assert first == again != other
    assert {*first[0]['negatives']} <= {*expected(scores, PAIRS[0][0], last=20)}


@pytest.mark.parametrize(
    ('lines', 'flags', 'message'),
    [
        (['only a query'], {}, "input 1: 'positives' must be a list of at least one string"),
        (['{"query": "a", "positives": []}'], {}, "input 1: 'positives' must be a list"),
        (None, {'first_rank': 5, 'last_rank': 2}, '--first_rank=5 is above --last_rank=2'),
        (None, {'seed': 1}, '--seed has no effect with --choice=top'),
        (None, {'documents': ''}, '--task=mine needs --documents'),
    ],
)
def test_bad_input_is_one_line(lines, flags, message, model, tmp_path, capsys):
    with pytest.raises(SystemExit):
        mine(model, tmp_path, lines, **flags)
    (line,) = capsys.readouterr().err.splitlines()
    assert message in line
