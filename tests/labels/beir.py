"""A small test set of retrieval in BEIR's layout."""

import json

DOCUMENTS = {
    'd1': ('', 'the ship and the wave near the harbour'),
    'd2': ('cow', 'the barn and the milk'),
    'd3': ('', 'a rocket near the moon'),
    'd4': ('', 'the storm and the ship'),
    'd5': ('', 'the tram near the bridge'),
    'd10': ('', 'the tram near the bridge'),  # the same score as d5
}
QUERIES = {
    'q1': 'the ship',
    'q2': 'milk of a cow',
    'q3': 'moon and star',
    'q4': 'tram',
    'q5': 'hen',
}
JUDGMENTS = [
    ('q1', 'd1', 1),
    ('q1', 'd4', 2),
    ('q2', 'd2', 1),
    ('q3', 'd3', 1),
    ('q3', 'd5', 0),
    ('q4', 'd5', 1),
    ('q4', 'd10', 1),
]


def write(folder, documents=None, queries=None, judgments=None, split='test'):
    """Write the files of a test set, by default of the one above; return the folder."""
    (folder / 'qrels').mkdir(parents=True, exist_ok=True)
    rows = [
        {'_id': name, 'title': title, 'text': text}
        for name, (title, text) in (documents or DOCUMENTS).items()
    ]
    (folder / 'corpus.jsonl').write_text(''.join(json.dumps(row) + '\n' for row in rows))
    rows = [{'_id': name, 'text': text} for name, text in (queries or QUERIES).items()]
    (folder / 'queries.jsonl').write_text(''.join(json.dumps(row) + '\n' for row in rows))
    lines = ['\t'.join(map(str, row)) for row in judgments or JUDGMENTS]
    header = 'query-id\tcorpus-id\tscore\n'
    (folder / f'qrels/{split}.tsv').write_text(header + '\n'.join(lines) + '\n')
    return folder
