"""The comparison with torch: batches, decoding and tables, with a randomly initialized BERT."""

import argparse
import json
import string

import pytest
import torch
import transformers

from bert_jax import problems
from configs import finetune
from experiments.finetuning import run, tasks, torch_problems, torch_side, tuning

SAMPLES = {
    'sample_pairs': 'accuracy',
    'sample_similarity': 'pearson',
    'sample_entities': 'f1',
    'sample_pos': 'accuracy',
    'sample_spans': 'f1',
    'sample_questions': 'f1',
}


@pytest.fixture(scope='module')
def weights(tmp_path_factory):
    """A folder with a BERT whose subwords are single characters."""
    folder = tmp_path_factory.mktemp('weights')
    characters = string.ascii_lowercase + string.digits + string.punctuation
    pieces = ['[PAD]', '[UNK]', '[CLS]', '[SEP]', '[MASK]', *characters]
    pieces += [f'##{character}' for character in characters]
    transformers.BertTokenizerFast(
        vocab={piece: number for number, piece in enumerate(pieces)}, do_lower_case=True
    ).save_pretrained(folder)
    (folder / 'vocab.txt').write_text('\n'.join(pieces) + '\n', encoding='utf-8')
    sizes = {'hidden_size': 16, 'num_hidden_layers': 1, 'num_attention_heads': 2}
    config = transformers.BertConfig(vocab_size=len(pieces), intermediate_size=32, **sizes)
    torch.manual_seed(0)
    transformers.BertModel(config).save_pretrained(folder)
    return folder


def settings(name, weights, **keys):
    config = finetune.get_config(name)
    keys = {
        'init_from': str(weights),
        'schedule.learning_rate': 2e-5,
        'training.sequence_length': 512,
        'training.epochs': 0.0,
    } | keys
    config.update_from_flattened_dict({'training.steps': 2, 'training.batch_size': 4} | keys)
    if config.task == 'question_answering':
        config.problem.answer_tokens = 300  # subwords are characters
    return config


def gold_rows(problem, batch):
    """Logits [B, …] that predict the targets of a batch."""
    if 'start_positions' in batch:
        ends = torch.stack([batch['start_positions'], batch['end_positions']], dim=-1)
        length = batch['input_ids'].shape[1]
        return torch.nn.functional.one_hot(ends, length).transpose(1, 2).float().numpy()
    labels = batch['labels']
    if labels.is_floating_point():
        return labels[:, None].numpy()
    number = len(problem.labels) + ('first' in batch)
    return 9 * torch.nn.functional.one_hot(labels.clamp(min=0), number).float().numpy()


@pytest.mark.parametrize('name', SAMPLES)
def test_torch_trains_on_the_gold_labels_and_scores_them_best(weights, name):
    config = settings(name, weights)
    found = torch_side.run(config)
    assert 0 < found['seconds_per_step'] < 5
    assert -1 <= found['held_out'][SAMPLES[name]] <= 1

    splits = problems.read(config.data, config.task)
    tokenizer = transformers.AutoTokenizer.from_pretrained(weights)
    problem = torch_problems.PROBLEMS[config.task](tokenizer, config, splits.train)
    answered = [one for one in splits.train if getattr(one, 'answers', True)]
    features = [problem.features(one) for one in answered]
    batch = torch_side.collate(problem, features)
    decoded = list(map(problem.decode, answered, features, gold_rows(problem, batch)))
    assert problem.score(answered, decoded)[SAMPLES[name]] == pytest.approx(1)
    wrong = list(map(problem.decode, answered, features, -gold_rows(problem, batch)))
    assert problem.score(answered, wrong)[SAMPLES[name]] < 0.7


@pytest.mark.parametrize(
    ('name', 'method'), [('sample_pairs', 'lora'), ('sample_pairs', 'ia3'), ('sample_pos', 'lora')]
)
def test_peft_trains_few_parameters(weights, name, method):
    found = torch_side.run(settings(name, weights), method=method)
    assert 0 < found['trained_percent'] < 25
    assert torch_side.run(settings(name, weights))['trained_percent'] == 100
    assert 0 <= found['held_out'][SAMPLES[name]] <= 1


def test_padding_does_not_change_the_loss(weights):
    """Checked for spans, which are gathered, and for tags, which are masked."""
    for name in ('sample_spans', 'sample_pos'):
        config = settings(name, weights)
        train = problems.read(config.data, config.task).train[:3]
        tokenizer = transformers.AutoTokenizer.from_pretrained(weights)
        problem = torch_problems.PROBLEMS[config.task](tokenizer, config, train)
        model = problem.model(weights).eval()
        features = [problem.features(one) for one in train]
        tight, padded = (torch_side.collate(problem, features, length) for length in (0, 400))
        assert padded['input_ids'].shape == (3, 400)
        assert tight['input_ids'].shape[1] == max(len(one['input_ids']) for one in features)
        losses = [model(**batch).loss.item() for batch in (tight, padded)]
        assert losses[0] == pytest.approx(losses[1], rel=1e-5)


def test_truncated_words_count_as_errors(weights):
    config = settings('sample_pos', weights, **{'training.sequence_length': 16})
    splits = problems.read(config.data, config.task)
    tokenizer = transformers.AutoTokenizer.from_pretrained(weights)
    problem = torch_problems.Tags(tokenizer, config, splits.train)
    features = [problem.features(one) for one in splits.train]
    rows = gold_rows(problem, torch_side.collate(problem, features))
    decoded = list(map(problem.decode, splits.train, features, rows))
    words = sum(len(one.words) for one in splits.train)
    seen = sum(len(feature['pieces']) for feature in features)
    assert 0 < seen < words
    assert problem.score(splits.train, decoded)['accuracy'] == pytest.approx(seen / words)


def test_padded_runs_only_measure_the_time(weights):
    found = torch_side.run(settings('sample_similarity', weights), padded=True)
    assert 'held_out' not in found
    assert found['seconds_per_step'] > 0


def test_an_epoch_has_every_example_once():
    drawn = list(torch_side.shuffled_batches([{'n': n} for n in range(8)], 4, 5, seed=1))
    epochs = [sorted(one['n'] for two in drawn[i : i + 2] for one in two) for i in (0, 2)]
    assert epochs == [list(range(8))] * 2
    assert drawn[:2] != drawn[2:4]


def test_the_tasks_set_existing_keys():
    for name, task in tasks.TASKS.items():
        config = tasks.make_config(task, tasks.config_keys(task, '/data', '/weights', steps=7))
        assert config.training.steps == 7, name
        assert all(path.startswith('/data/') for path in config.data.train)


def test_the_first_record_is_not_timed():
    records = [
        {'step': 10, 'tokens_per_second': 1.0},
        {'step': 20, 'tokens_per_second': 200.0},  # half a second per step
        {'step': 25, 'tokens_per_second': 100.0},  # one second per step
    ]
    assert run.seconds_per_step(records, 100.0) == pytest.approx(10 / 15)


def test_results_are_written_as_json_a_table_and_a_plot(tmp_path):
    found = {
        'qamr': {
            run.OURS: {'metric': [0.5, 0.7], 'seconds': [2.0, 2.0]},
            run.TORCH: {'metric': [0.5, 0.5], 'seconds': [3.0, 5.0]},
            run.PADDED: {'metric': [], 'seconds': [9.0]},
        },
        'wnut17': {run.OURS: {'metric': [0.25, 0.25], 'seconds': [1.0, 1.0]}},
    }
    run.write(tmp_path, {'seeds': 2}, found)
    table = (tmp_path / 'table.md').read_text()
    assert '| qamr | f1 | 0.6000 ± 0.1414 | range 0.5000 – 0.7000 | 0.5000 ± 0.0000 |' in table
    assert '| 2.0 ± 0.0 | 4.0 ± 1.4 | 9.0 |' in table
    assert (
        '| wnut17 | f1 | 0.2500 ± 0.0000 | 0.2500, all equal (n = 2) | – | – | 1.0 ± 0.0 | – | – |'
        in table
    )
    written = json.loads((tmp_path / 'results.json').read_text())
    assert written['figures']['qamr, torch']['metric']['values'] == [0.5, 0.5]
    assert (tmp_path / 'plot.png').read_bytes().startswith(b'\x89PNG')


def test_the_pooler_is_trained_only_where_the_head_reads_it():
    assert tuning.is_possible('banking77', 'lora_pooler')
    assert not tuning.is_possible('pos_ewt', 'lora_pooler')
    assert tuning.is_possible('pos_ewt', 'peft lora')


def test_results_of_tuning_are_written_as_json_a_table_and_a_plot(tmp_path):
    measures = {'metric': [0.5, 0.7], 'seconds': [2.0], 'trained': [1.5, 1.5], 'memory_GB': [0.8]}
    found = {
        'banking77': {'lora': measures | {'checkpoint_MB': [2.0, 2.0]}, 'peft lora': measures},
        'wnut17': {'lora': measures},
    }
    tuning.write(tmp_path, {'seeds': 2}, found)
    table = (tmp_path / 'table.md').read_text()
    row = '0.6000 ± 0.1414 | range 0.5000 – 0.7000 | 2.0 | 1.50 | 0.8 |'
    assert f'| banking77 | lora | {row} 2.0 |' in table
    assert f'| banking77 | peft lora | {row} – |' in table
    written = json.loads((tmp_path / 'results.json').read_text())
    assert written['figures']['wnut17, lora']['metric']['values'] == [0.5, 0.7]
    assert (tmp_path / 'plot.png').read_bytes().startswith(b'\x89PNG')


@pytest.mark.slow
def test_a_finished_run_of_the_command_line_is_not_repeated(weights, tmp_path, monkeypatch):
    task = tasks.TaskSettings(
        'classification', 'accuracy', 1e-3, 4, {'train': ('sample:sentiment.tsv',)}, batch_size=4
    )
    monkeypatch.setitem(tasks.TASKS, 'sts_stackexchange', task)
    options = argparse.Namespace(data='none', weights=str(weights), runs=tmp_path, steps=0, seeds=2)
    found = run.run_side(run.OURS, 'sts_stackexchange', options)
    assert len(found['metric']) == len(found['seconds']) == 2
    assert all(0 <= value <= 1 for value in found['metric'])
    assert all(0 < value < 5 for value in found['seconds'])
    assert run.run_side(run.OURS, 'sts_stackexchange', options) == found
