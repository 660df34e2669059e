"""The last evaluation of a training and `bert_jax.evaluate` of its run on the same file agree."""

import json
import pathlib

import pytest

import bert_jax
from bert_jax import evaluate, main, tokenizers
from bert_jax.interop import huggingface_export
from bert_jax.loaded import loaded_model
from bert_jax.loaded.loaded_model import LoadedModel
from bert_jax.models import architectures
from bert_jax.models.architecture_parts import DecoderStack
from bert_jax.problems import PROBLEMS
from configs import finetune

SIZES = dict(hidden_size=16, num_layers=1, num_heads=2, intermediate_size=24)
WORDS = ('good', 'bad', 'soup', 'dog', 'rain', 'train', 'music', 'glass', 'tea', 'road')
SAMPLES = pathlib.Path(bert_jax.__file__).parent / 'labels/samples'
STEPS = {
    'training.epochs': 0.0,
    'training.steps': 2,
    'training.batch_size': 8,
    'training.sequence_length': 64,
    'schedule.learning_rate': 0.03,
    'schedule.warmup_steps': 0,
    'evaluation.every_steps': 2,
}
# Data of kinds without a sample.
ROWS = {
    'sparse_embedding': [{'query': f'a {word}', 'document': f'{word} .'} for word in WORDS],
    'late_interaction': [{'query': f'a {word}', 'document': f'{word} .'} for word in WORDS],
    'reranking': [
        {'query': f'a {word}', 'documents': [f'{word} .', 'the cow'], 'scores': [1.0, 0.0]}
        for word in WORDS
    ],
    'prompt_regression': [{'text': word, 'label': place / 9} for place, word in enumerate(WORDS)],
}
WEIGHTS = {'problem.class_weights': 'balanced'}
# Name → config, head of the weights that it starts from, and keys that differ.
CASES = {
    'classification': ('sample_sentiment', 'mlm', WEIGHTS),
    'regression': ('sample_similarity', 'mlm', {}),
    'multi_label': ('sample_topics', 'mlm', WEIGHTS | {'problem.thresholds': 'per_class'}),
    'multi_regression': ('sample_ratings', 'mlm', {}),
    'multiple_choice': ('sample_choice', 'mlm', {}),
    'relation': ('sample_relation', 'mlm', {}),
    'word_in_context': ('sample_wic', 'mlm', {}),
    'coreference': ('sample_coreference', 'mlm', {}),
    'tagging': ('sample_entities', 'mlm', {'problem.crf': True, 'problem.label_pieces': 'first'}),
    'semantic_roles': ('sample_roles', 'mlm', WEIGHTS),
    'parsing': ('sample_trees', 'mlm', {}),
    'constituency': ('sample_constituents', 'mlm', WEIGHTS),
    'spans': ('sample_spans', 'mlm', WEIGHTS | {'problem.decoding': 'threshold'}),
    'embedding': ('sample_embedding', 'mlm', {}),
    'embedding in batches': ('sample_embedding', 'mlm', {'problem.loss': 'in_batch'}),
    'question_answering': ('sample_questions', 'mlm', {}),
    'sparse_embedding': ('sparse_embedding', 'mlm', {'data.columns.texts': ('query', 'document')}),
    'late_interaction': ('late_interaction', 'mlm', {'data.columns.texts': ('query', 'document')}),
    'reranking': (
        'reranking',
        'mlm',
        {'data.columns.texts': ('query', 'documents'), 'data.columns.scores': ('scores',)},
    ),
    'prompt_regression': (
        'prompt_regression',
        'mlm',
        {
            'problem.template': '{text} It was [MASK].',
            'problem.answers': ('low=bad', 'high=good'),
        },
    ),
    'prompt': (
        'prompt',
        'mlm',
        {
            'data.train': ('sample:sentiment.tsv',),
            'data.format': 'tsv',
            'problem.template': '{text} It was [MASK].',
            'problem.answers': ('positive=good', 'negative=bad|very bad'),
            'problem.demonstrations': 1,
        },
    ),
    'generation': ('sample_summaries', 'clm', {'problem.label_smoothing': 0.1}),
    'generation by a decoder': ('sample_summaries', 'seq2seq', {'problem.beams': 2}),
    'instructions': ('sample_instructions', 'clm', {}),
    'instructions by diffusion': ('sample_instructions', 'mlm', {}),
}
QUICK = ('instructions', 'generation', 'multi_label', 'embedding in batches')


@pytest.fixture(scope='module')
def base(tmp_path_factory):
    """A function of a head: a folder of newly initialized weights with this head."""
    folder = tmp_path_factory.mktemp('bases')
    text = ' '.join(path.read_text() for path in sorted(SAMPLES.glob('*.tsv')))
    tokenizer = tokenizers.train('wordpiece:300', [text])

    def make(head):
        path = folder / head
        if not path.exists():
            decoder = {'decoder': DecoderStack(1, 'pad')} if head == 'seq2seq' else {}
            name = 't5' if decoder else 'bert'
            sizes = SIZES | decoder | dict(vocab_size=tokenizer.vocab_size)
            architecture = architectures.build(name, **sizes, max_position_embeddings=64)
            params, _ = loaded_model.fill({}, architecture, (head,))
            model = LoadedModel(name, architecture, params, tokenizer, is_causal=head == 'clm')
            huggingface_export.save(model, path)
        return str(path)

    return make


def write(path, lines):
    path.write_text(''.join(f'{line}\n' for line in lines))
    return str(path)


def train(recipe, base, folder, changes):
    config = finetune.get_config(recipe).unlock()
    train = changes.get('data.train', config.data.train)
    if recipe in ROWS:
        train = (write(folder.with_suffix('.jsonl'), map(json.dumps, ROWS[recipe])),)
    elif train[0].endswith('.jsonl'):  # a few of many examples
        lines = (SAMPLES / train[0].removeprefix('sample:')).read_text().splitlines()
        train = (write(folder.with_suffix('.jsonl'), lines[:12]),)
    places = {'workdir': str(folder), 'init_from': base, 'data.train': train, 'data.dev': train}
    config.update_from_flattened_dict(STEPS | {'data.dev_fraction': 0.0} | changes | places)
    main.run(config.lock())
    return train


def lines_of(folder):
    return list(map(json.loads, (folder / 'predictions.jsonl').read_text().splitlines()))


def check_same(folder, files, *flags):
    """Score a run by its command; every metric and loss is that of the last evaluation."""
    inputs = [f'--input={file}' for file in files]
    evaluate.main([f'--model={folder}', *inputs, f'--output={folder}/again', *flags])
    first, again = (
        json.loads((folder / name / 'metrics.json').read_text()) for name in ('dev', 'again')
    )
    for part in ('metrics', 'losses', 'intervals'):
        assert list(again[part]) == list(first[part])
        for name, value in first[part].items():
            assert again[part][name] == pytest.approx(value, rel=2e-4, abs=2e-5), name
    for records in zip(lines_of(folder / 'dev'), lines_of(folder / 'again'), strict=True):
        for text in ('answer', 'written', 'predicted'):
            former, new = (record.get(text) for record in records)
            assert former == new or not isinstance(former, str)
    held_out = json.loads((folder / 'results.json').read_text())['held_out']
    assert held_out.keys() >= {*again['metrics'], *again['losses']}
    return again


def test_there_is_a_case_of_every_kind():
    assert {finetune.get_config(recipe).task for recipe, _, _ in CASES.values()} == {*PROBLEMS}


@pytest.mark.parametrize(
    'case', [pytest.param(case, marks=[pytest.mark.slow] * (case not in QUICK)) for case in CASES]
)
def test_all_metrics_and_losses_are_the_same(case, base, tmp_path):
    recipe, head, changes = CASES[case]
    files = train(recipe, base(head), tmp_path / 'run', changes)
    scored = check_same(tmp_path / 'run', files)
    assert scored['losses'] or case == 'embedding'
    if 'instructions' in case:
        assert 'exact_match' in scored['metrics']
