"""GLUE from folders of made-up files in the layouts that circulate, and its table."""

import json
import shutil

import pyarrow
import pyarrow.parquet
import pytest

from bert_jax import problems
from bert_jax.errors import UserError
from bert_jax.files import write_json
from bert_jax.metrics.scores import main_first
from bert_jax.reports import glue
from configs import finetune
from experiments.glue import layouts, run

FIRST, SECOND = 'A "quoted word is here.', 'Another text.'
NAMES = {'RTE': 'not_entailment', 'QNLI': 'not_entailment', 'MNLI': 'neutral'}
HEADERS = {  # folder → header of train.tsv
    'SST-2': 'sentence label',
    'MRPC': 'Quality,#1 ID,#2 ID,#1 String,#2 String',
    'STS-B': 'index genre filename year old_index source1 source2 sentence1 sentence2 score',
    'QQP': 'id qid1 qid2 question1 question2 is_duplicate',
    'MNLI': 'index promptID sentence1_parse sentence1 sentence2 label1 gold_label',
    'QNLI': 'index question sentence label',
    'RTE': 'index sentence1 sentence2 label',
    'WNLI': 'index sentence1 sentence2 label',
}
HUB_COLUMNS = {
    'cola': ('sentence',),
    'sst2': ('sentence',),
    'mrpc': ('sentence1', 'sentence2'),
    'stsb': ('sentence1', 'sentence2'),
    'qqp': ('question1', 'question2'),
    'mnli': ('premise', 'hypothesis'),
    'qnli': ('question', 'sentence'),
    'rte': ('sentence1', 'sentence2'),
    'wnli': ('sentence1', 'sentence2'),
}
SECOND_CLASS = {'cola': 'acceptable', 'sst2': 'positive', 'mrpc': 'equivalent', 'stsb': 1.0}
SECOND_CLASS |= {'qqp': 'duplicate', 'mnli': 'neutral', 'wnli': 'entailment'}
SECOND_CLASS |= {'rte': 'not_entailment', 'qnli': 'not_entailment'}


def official_row(folder, header):
    """A row whose class is the second one."""
    texts = {name for name in header if 'sentence' in name or 'question' in name or 'St' in name}
    values = {name: FIRST if name[-1] in '1e' or name[1] == '1' else SECOND for name in texts}
    values['question'] = FIRST
    values['sentence'] = SECOND if folder == 'QNLI' else FIRST
    values['#2 String'] = SECOND
    label = NAMES.get(folder, '1')
    values |= dict.fromkeys(('label', 'Quality', 'score', 'is_duplicate', 'gold_label'), label)
    return [values.get(name, '0') for name in header]


@pytest.fixture(scope='module')
def official(tmp_path_factory):
    """A folder as gluebenchmark.com has it."""
    data = tmp_path_factory.mktemp('official')
    cola = data / 'CoLA'
    cola.mkdir()
    for split in ('train', 'dev'):
        (cola / f'{split}.tsv').write_text(f'gj04\t1\t\t{FIRST}\n' * 2, encoding='utf-8')
    for folder, text in HEADERS.items():
        header = text.split(',') if ',' in text else text.split()
        lines = ['\t'.join(header), *['\t'.join(official_row(folder, header))] * 2]
        (data / folder).mkdir()
        dev = ('dev_matched', 'dev_mismatched') if folder == 'MNLI' else ('dev',)
        for split in ('train', *dev):
            (data / folder / f'{split}.tsv').write_text('\n'.join(lines) + '\n', encoding='utf-8')
    return data


def hub_table(name):
    rows = {
        column: [text] * 2 for column, text in zip(HUB_COLUMNS[name], (FIRST, SECOND), strict=False)
    }
    score = pyarrow.array([1.0, 1.0]) if name == 'stsb' else pyarrow.array([1, 1])
    return pyarrow.table(rows | {'label': score, 'idx': [0, 1]})


@pytest.fixture(scope='module')
def hub(tmp_path_factory):
    """Parquet files as on the Hub, and for CoLA a folder of save_to_disk."""
    data = tmp_path_factory.mktemp('hub')
    for name in HUB_COLUMNS:
        dev = ('matched', 'mismatched') if name == 'mnli' else ('',)
        for split in ('train', *(f'validation_{one}'.rstrip('_') for one in dev)):
            path = data / name / f'{split}-00000-of-00001.parquet'
            path.parent.mkdir(exist_ok=True)
            pyarrow.parquet.write_table(hub_table(name), path)
    shutil.rmtree(data / 'cola')
    for split in ('train', 'validation'):
        folder = data / 'cola' / split
        folder.mkdir(parents=True)
        table = hub_table('cola')
        with pyarrow.ipc.new_stream(str(folder / 'data.arrow'), table.schema) as writer:
            writer.write_table(table)
        write_json(folder / 'state.json', {'_data_files': [{'filename': 'data.arrow'}]})
    return data


def read(name, found, options):
    config = finetune.get_config(found.kind)
    config.update_from_flattened_dict(run.keys_of(name, found, options))
    return problems.read(config.data, config.task)


class Options:
    init_from, seeds, set = 'weights', 2, []


@pytest.mark.parametrize('layout', ['official', 'hub'])
def test_every_task_is_read_in_every_layout(layout, request):
    data = request.getfixturevalue(layout)
    for name, found in layouts.find(data).items():
        assert isinstance(found, layouts.Found), found
        splits = read(name, found, Options)
        for split in (splits.train, splits.dev, *([splits.test] if name == 'mnli' else [])):
            assert len(split) == 2
            texts = (FIRST, SECOND) if len(HUB_COLUMNS[name]) == 2 else (FIRST,)
            assert (split[0].texts, split[0].label) == (texts, SECOND_CLASS[name])
    kinds = {one.layout for one in layouts.find(data).values()}
    assert kinds == ({'tsv'} if layout == 'official' else {'parquet', 'datasets'})


def test_what_is_missing_is_said(official, tmp_path):
    with pytest.raises(UserError, match='has no task of GLUE'):
        layouts.find(tmp_path)
    for folder in ('RTE', 'rte', 'WNLI'):
        shutil.copytree(official / folder.upper(), tmp_path / folder)
    (tmp_path / 'WNLI/dev.tsv').unlink()
    shutil.copytree(official / 'SST-2', tmp_path / 'sst_2')
    found = layouts.find(tmp_path)
    assert [name for name, one in found.items() if isinstance(one, layouts.Found)] == ['sst2']
    missing = '\n'.join(layouts.describe_missing(found))
    assert 'RTE and rte are the same task' in missing
    assert 'WNLI has no dev or validation' in missing
    assert 'cola: no folder cola' in missing
    with pytest.raises(UserError, match='--tasks has cola, but no folder cola'):
        run.choose(found, 'cola')
    with pytest.raises(UserError, match="unknown task 'sst'"):
        run.choose(found, 'sst')
    with pytest.raises(UserError, match='--set cannot set init_from'):
        run.parse_keys(['init_from=x'])


def write_split(folder, values):
    metrics = main_first(values, tuple(values))
    write_json(
        folder / 'metrics.json',
        {
            'metrics': metrics,
            'intervals': {name: [value - 0.1, value + 0.1] for name, value in metrics.items()},
            'baseline': {name: value / 2 for name, value in metrics.items()},
        },
    )


def test_the_table_has_the_scores_of_the_seeds(tmp_path):
    for seed in range(2):
        for split in ('dev', 'test'):
            folder = tmp_path / f'mnli/seed_{seed}' / split
            folder.mkdir(parents=True)
            write_split(folder, {'accuracy': 0.6 + 0.1 * seed + 0.2 * (split == 'test')})
        folder = tmp_path / f'mrpc/seed_{seed}/dev'
        folder.mkdir(parents=True)
        write_split(folder, {'f1': 0.8, 'accuracy': 0.6 + 0.2 * seed})
    tasks = {name: run.read_task(name, tmp_path / name, 2) for name in ('mrpc', 'mnli')}
    run.write(tmp_path / 'out', {'not_found': ['cola: no folder']}, tasks)
    results = json.loads((tmp_path / 'out/results.json').read_text())['tasks']
    assert results['mrpc']['score']['values'] == pytest.approx([0.7, 0.8])
    assert results['mnli']['score']['values'] == pytest.approx([0.7, 0.8])
    assert set(results['mnli']['metrics']) == set(glue.GLUE['mnli'].sets)
    lines = (tmp_path / 'out/table.md').read_text().splitlines()
    assert '| mnli_mismatched | accuracy | 0.8500 ± 0.0707 |' in '\n'.join(lines)
    assert '| average of 2 tasks |  | 0.7500 |  |  | 0.3500 |' in lines
    assert lines[-1] == '- cola: no folder'
    assert (tmp_path / 'out/plot.png').is_file()
