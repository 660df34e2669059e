"""Fine-tuning on demonstrations from its command to the answers of the finished run."""

import itertools
import json
import random

import jax
import numpy as np
import pytest

import bert_jax
from bert_jax import main, tokenizers
from bert_jax.interop import huggingface_export
from bert_jax.loaded import checkpoint_arrays, loaded_model
from bert_jax.loaded.loaded_model import LoadedModel
from bert_jax.models import architectures
from bert_jax.training.run import NO_HOOKS, Hooks, Paused
from configs import finetune

WORDS = ('cat', 'dog', 'bird', 'fish', 'tree', 'stone', 'river', 'cloud', 'apple', 'horse')
HEADS = {'causal': 'clm', 'diffusion': 'mlm'}
SIZES = dict(hidden_size=64, num_layers=2, num_heads=4, intermediate_size=128)


def demonstrations(number):
    """Requests to repeat one to three words, in random order."""
    chosen = [words for size in (1, 2, 3) for words in itertools.permutations(WORDS, size)]
    random.Random(0).shuffle(chosen)
    return [
        {'prompt': f'Repeat: {" ".join(words)}', 'answer': ' '.join(words)}
        for words in chosen[:number]
    ]


@pytest.fixture(
    scope='module', params=['causal', pytest.param('diffusion', marks=pytest.mark.slow)]
)
def base(request, tmp_path_factory):
    """A folder of a newly initialized model of each kind."""
    folder = tmp_path_factory.mktemp('base') / request.param
    text = f'User: Repeat: {" ".join(WORDS)} Assistant: '
    tokenizer = tokenizers.train('wordpiece:200', [text * 3])
    sizes = SIZES | dict(vocab_size=tokenizer.vocab_size, max_position_embeddings=32)
    dropout = dict(hidden_dropout=0.0, attention_dropout=0.0, initializer_range=0.1, pooler=False)
    architecture = architectures.build('bert', **sizes).changed(dropout)
    head = HEADS[request.param]
    params, _ = loaded_model.fill({}, architecture, (head,))
    model = LoadedModel('bert', architecture, params, tokenizer, is_causal=head == 'clm')
    huggingface_export.save(model, folder)
    return folder


def run(base, folder, steps, number=600, hooks=NO_HOOKS, **more):
    """Train on `number` demonstrations; '__' in `more` stands for '.'."""
    data = folder.parent / f'{number}.jsonl'
    data.write_text(''.join(json.dumps(line) + '\n' for line in demonstrations(number)))
    config = finetune.get_config('instructions').unlock()
    given = {
        'workdir': str(folder),
        'init_from': str(base),
        'data.train': (str(data),),
        'data.dev_fraction': 0.15,
        'problem.answer_tokens': 6,
        'training.steps': steps,
        'training.epochs': 0.0,
        'training.batch_size': 64,
        'training.sequence_length': 32,
        'schedule.learning_rate': 3e-3,
        'evaluation.every_steps': 1000,
        'logging.every_steps': 50,
    }
    more = {name.replace('__', '.'): value for name, value in more.items()}
    config.update_from_flattened_dict(given | more)
    return main.run(config.lock(), hooks=hooks)


@pytest.mark.slow
def test_words_that_were_not_in_training_are_repeated(base, tmp_path):
    results = run(base, tmp_path / 'run', 1500)
    assert results['held_out']['answer_loss'] < 0.5
    records = [
        json.loads(line)
        for line in (tmp_path / 'run/dev/predictions.jsonl').read_text().splitlines()
    ]
    prompts = [record['messages'][0]['content'] for record in records]
    answers = bert_jax.load(tmp_path / 'run').respond(prompts)
    hits = [one['answer'] == record['gold'] for one, record in zip(answers, records, strict=True)]
    assert len(hits) == 90
    assert np.mean(hits) >= 0.95


@pytest.mark.slow  # test_tuning.py stops and resumes another fine-tuning run
def test_a_run_resumes_bit_for_bit(base, tmp_path):
    more = dict(number=40, training__batch_size=8, checkpoint__every_steps=2)
    run(base, tmp_path / 'whole', 4, **more)
    with pytest.raises(Paused):
        run(base, tmp_path / 'stopped', 4, hooks=Hooks(pause_at=2), **more)
    run(base, tmp_path / 'stopped', 4, **more)
    ours, theirs = (
        jax.tree.leaves_with_path(checkpoint_arrays.load(tmp_path / name)[1])
        for name in ('stopped', 'whole')
    )
    for (path, own), (_, other) in zip(ours, theirs, strict=True):
        np.testing.assert_array_equal(own, other, err_msg=str(path))


def test_lora_trains_and_answers_and_the_card_has_the_baseline(base, tmp_path):
    run(base, tmp_path / 'run', 2, number=40, transfer__method='lora')
    assert 'answer' in bert_jax.load(tmp_path / 'run').respond(['Repeat: cat'])[0]
    card = (tmp_path / 'run/README.md').read_text()
    assert 'pipeline_tag: "text-generation"' in card
    (row,) = [line for line in card.splitlines() if line.startswith('| answer_loss')]
    assert '–' not in row.split('|')[-2]
