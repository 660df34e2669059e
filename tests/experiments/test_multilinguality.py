"""The study of multilinguality: the runs, their tokens per language, and its table."""

import json

from experiments.studies import runner
from experiments.studies.multilinguality import run
from experiments.studies.novels import config as novels


def test_each_language_has_the_same_tokens_and_vocabulary_in_every_run():
    runs = run.variants('novels/*.txt', 'bibles', 10)
    assert list(runs) == ['13 languages', '6 languages', '3 languages', *run.MEASURED]
    tokenizers = [keys['data.tokenizer'] for keys in runs.values()]
    assert tokenizers[0].startswith('train:')
    assert len({*tokenizers[1:]}) == 1
    for keys in runs.values():
        config = novels.get_config('novels/*.txt').unlock()
        config.update_from_flattened_dict(runner.COMMON | keys)
        number = len(config.data.sources)
        assert config.training.steps == (10 * number,)
        assert config.data.language_alpha == (0 if number > 1 else 1)
    three = runs['3 languages']['data.sources']
    assert {runs[name]['data.sources'][0] for name in run.MEASURED} == {*three}
    assert {*three} < {*runs['6 languages']['data.sources']}


def test_the_table_has_the_loss_of_languages_alone_and_in_mixtures():
    alone = {name: [{'mlm_loss': 1.0 + n}] for n, name in enumerate(run.MEASURED)}
    mixed = {f'mlm_loss/{name}': 5.0 for name in run.MEASURED} | {'mlm_loss': 9.0}
    rows = run.by_number(alone | {f'{number} languages': [mixed] for number in run.MIXTURES})
    assert list(rows) == ['1 language', '3 languages', '6 languages', '13 languages']
    assert rows['1 language'] == [{'mean': 2.0, 'en': 1.0, 'swh': 2.0, 'ukr': 3.0}]
    assert rows['13 languages'][0]['mean'] == 5.0


def test_the_results_have_the_settings_of_each_run(tmp_path, monkeypatch):
    commands = {}

    def train(folder, command, folder_flag):
        commands[folder.name] = command
        languages = {f'mlm_loss/{name}': 1.0 for name in run.MEASURED}
        folder.mkdir(parents=True)
        results = {'held_out': {'mlm_loss': 1.0} | languages}
        (folder / 'results.json').write_text(json.dumps(results), encoding='utf-8')

    monkeypatch.setattr(runner, 'run_once', train)
    flags = ['--texts=t', '--bibles=b', '--steps=10', f'--runs={tmp_path}/runs']
    monkeypatch.setattr('sys.argv', ['run', *flags, f'--output={tmp_path}/output'])
    run.main()
    settings = json.loads((tmp_path / 'output/results.json').read_text())['settings']
    assert settings['13 languages']['training.steps'] == [130]
    for name, keys in settings.items():
        command = commands[f'{runner.slug(name)}_0']
        for key in ('data.corpus', 'training.batch_size', 'schedule.learning_rate'):
            value = tuple(keys[key]) if isinstance(keys[key], list) else keys[key]
            assert f'--config.{key}={value}' in command
