"""A folder in the layout of sentence-transformers/NanoBEIR-en."""

import random

from pyarrow import Table, parquet

WORDS = [
    *('ship', 'moon', 'cow', 'barn', 'wave', 'storm', 'star', 'tram', 'bridge', 'lamp', 'sea'),
    *('river', 'horse', 'milk'),
]


def write(folder, names=('NanoSciFact', 'NanoNQ'), documents=30, queries=6):
    """Write sets with random texts; a query has words of its documents."""
    chosen = random.Random(0)
    for name in names:
        texts = {
            f'd{number}': ' '.join(chosen.choices(WORDS, k=chosen.randint(3, 9)))
            for number in range(documents)
        }
        asked, judged = {}, []
        for number in range(queries):
            answers = chosen.sample(sorted(texts), chosen.randint(1, 3))
            asked[f'q{number}'] = ' '.join(chosen.sample(texts[answers[0]].split(), 2))
            judged += [(f'q{number}', answer) for answer in answers]
        tables = {
            'corpus': [{'_id': key, 'text': text} for key, text in texts.items()],
            'queries': [{'_id': key, 'text': text} for key, text in asked.items()],
            'qrels': [{'query-id': query, 'corpus-id': answer} for query, answer in judged],
        }
        for table, rows in tables.items():
            (folder / table).mkdir(parents=True, exist_ok=True)
            path = folder / table / f'{name}-00000-of-00001.parquet'
            parquet.write_table(Table.from_pylist(rows), path)
    return folder
