"""The study of noises: equal time, and the questions that are written."""

import argparse
import json

from experiments.studies import step_times
from experiments.studies.comparison.run import config_of
from experiments.studies.denoising import run

SENTENCES = 'a\tThe red fox slept .\nb\tA dog saw it .\n'
ROW = '{}\t1\t0\t0\t1\t{}\t{}\t1:3\t1:3\n'


def test_encoders_get_the_time_of_the_encoder_decoders(monkeypatch):
    seconds = {run.INFILLING_AND_PERMUTATION: [0.3], 'MLM': [0.1], 'left to right': [0.2]}
    monkeypatch.setattr(step_times, 'measure', lambda configs, path: seconds)
    steps = run.find_steps(argparse.Namespace(texts='novels/*.txt', steps=100))
    assert steps.keys() == run.VARIANTS.keys()
    assert (steps['MLM'], steps['left to right'], steps['rotation']) == (300, 150, 100)
    assert steps[run.NOT_TRAINED] == 1


def test_every_variant_is_a_config_of_its_own():
    configs = {
        name: config_of(run.pretraining_keys(name, 20), 'novels/*.txt').to_json()
        for name in run.VARIANTS
    }
    assert len(set(configs.values())) == len(run.VARIANTS)
    assert all(json.loads(text)['schedule']['warmup_steps'] == 2 for text in configs.values())


def test_questions_are_split_by_sentence(tmp_path):
    folder = tmp_path / 'qamr'
    folder.mkdir()
    (folder / 'wiki-sentences.tsv').write_text(SENTENCES, encoding='utf-8')
    rows = [ROW.format('a', 'Who slept?', '1 2'), ROW.format('b', 'What saw it?', '1')]
    (folder / 'dev.tsv').write_text(''.join(rows), encoding='utf-8')
    run.write_questions(tmp_path, tmp_path / 'questions')
    train, dev = (
        [
            json.loads(line)
            for line in (tmp_path / f'questions/{split}.jsonl').read_text().splitlines()
        ]
        for split in ('train', 'dev')
    )
    assert dev == [{'text': 'red fox | The red fox slept .', 'target': 'Who slept?'}]
    assert train == [{'text': 'dog | A dog saw it .', 'target': 'What saw it?'}]
