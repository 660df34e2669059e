"""Batching keeps the order of rows of any length and computes few shapes."""

import numpy as np
import pytest

from bert_jax.inference.batching import LENGTHS, TokenizedText, run


def collect(lengths, batch_tokens=256, max_length=600, seen=None):
    rng = np.random.default_rng(0)
    rows = [
        TokenizedText(rng.integers(1, 9, n), {'positions': np.arange(i % 3 + 1)})
        for i, n in enumerate(lengths)
    ]
    done = []

    def function(batch):
        if seen is not None:
            seen.append(batch)
        sums = (batch['input_ids'] * batch['attention_mask']).sum(1)
        return {'sum': sums, 'length': batch['attention_mask'].sum(1)}

    results = run(
        function,
        rows,
        batch_tokens=batch_tokens,
        max_length=max_length,
        pad_id=7,
        advance=done.append,
    )
    assert sum(done) == len(rows)
    return rows, results


@pytest.mark.parametrize('lengths', [[], [5], [3, 200, 1, 1, 40], list(range(1, 301)), [600, 513]])
def test_results_are_in_the_order_of_the_rows(lengths):
    rows, results = collect(lengths)
    assert [result['length'] for result in results] == lengths
    assert [result['sum'] for result in results] == [row.ids.sum() for row in rows]


def test_there_are_few_shapes_and_little_padding():
    lengths = np.random.default_rng(1).geometric(0.05, 5000).clip(2, 300).tolist()
    seen = []
    collect(lengths, batch_tokens=2048, seen=seen)
    shapes = {batch['input_ids'].shape for batch in seen}
    assert len(shapes) <= len(LENGTHS) + 1
    tokens = sum(batch['input_ids'].size for batch in seen)
    assert sum(lengths) > 0.8 * tokens
    assert all(batch['positions'].shape[1] in (1, 2, 4) for batch in seen)
    real = sum((batch['input_ids'] != 7).sum() for batch in seen)
    assert real <= sum(lengths)  # everything else is pad_id


def test_a_length_never_exceeds_the_maximum():
    seen = []
    collect([19, 18, 3], max_length=19, seen=seen)
    assert max(batch['input_ids'].shape[1] for batch in seen) == 19
