"""The section of the model card on linguistic evaluation, and its curves."""

import json

from bert_jax.analyze.measures import linguistic_curves

UNIGRAM = {'pairs': 0.4, 'pairs/islands': 0.3}
METRICS = {'mlm_loss': 4.0, 'pairs': 0.6, 'pairs/islands': 0.7, 'mean_cosine/1': 0.2}


def test_the_section_has_all_metrics_beside_token_frequencies():
    text = linguistic_curves.markdown(METRICS | {'pos_accuracy': 0.8}, UNIGRAM)
    for row in (
        '| mean of the paradigms | 0.6000 | 0.4000 |',
        '| islands | 0.7000 | 0.3000 |',
        '| part-of-speech probe | 0.8000 |',
        '| mean cosine, layer 1 | 0.2000 |',
    ):
        assert row in text
    assert 'mlm_loss' not in text
    assert linguistic_curves.markdown({'mlm_loss': 4.0}, {}) == ''


def test_curves_are_drawn_from_the_evaluations_of_a_run(tmp_path):
    records = [
        {'kind': 'held_out', 'step': 0, 'mlm_loss': 9.0},  # of another objective's evaluation
        {'kind': 'train', 'step': 5, 'mlm_loss': 6.0},
        *({'kind': 'held_out', 'step': step} | METRICS for step in (5, 10)),
    ]
    (tmp_path / 'metrics.jsonl').write_text('\n'.join(map(json.dumps, records)))
    read = linguistic_curves.read_records(tmp_path)
    assert [record['step'] for record in read] == [5, 10]
    linguistic_curves.plot({'a': read, 'b': read, 'c': []}, UNIGRAM, tmp_path / 'curves')
    assert {'curves.png', 'curves.pdf'} <= {path.name for path in tmp_path.iterdir()}
