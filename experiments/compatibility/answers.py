r"""Records what bert_jax.predict writes on tiny random models, to compare two checkouts.

    python -m experiments.compatibility.answers --models=/tmp/models --output=/tmp/before
    python -m experiments.compatibility.answers --models=/tmp/models --output=/tmp/after \
        --compare=/tmp/before

The first command makes the models, with one step of training for each kind of problem, and asks
every task in every format of its input. The second one, in another checkout, reads the same models
and compares its output, its messages and its exit status byte by byte.
"""

import argparse
import contextlib
import io
import json
import pathlib
import shutil
import sys

import numpy as np

import bert_jax
from bert_jax import main as training
from bert_jax import predict
from experiments.compatibility import questions

_SIZES = {
    'vocab_size': 131,
    'hidden_size': 20,
    'num_hidden_layers': 2,
    'num_attention_heads': 4,
    'intermediate_size': 28,
    'max_position_embeddings': 40,
}
_GPT2 = {'vocab_size': 131, 'n_embd': 20, 'n_layer': 2, 'n_head': 4, 'n_positions': 40}
_STACKS = ('encoder', 'decoder')
_BART = {
    'vocab_size': 131,
    'd_model': 20,
    **{f'{stack}_layers': 2 for stack in _STACKS},
    **{f'{stack}_attention_heads': 4 for stack in _STACKS},
    **{f'{stack}_ffn_dim': 28 for stack in _STACKS},
    'max_position_embeddings': 40,
    'decoder_start_token_id': 3,
}
# Folder → class of transformers and its sizes.
_FOLDERS = {
    'mlm': ('BertForMaskedLM', _SIZES),
    'clm': ('GPT2LMHeadModel', _GPT2),
    'bart': ('BartForConditionalGeneration', _BART),
    'classes': ('BertForSequenceClassification', _SIZES | {'num_labels': 3}),
    'scores': ('BertForSequenceClassification', _SIZES | {'num_labels': 1}),
    'tags': ('BertForTokenClassification', _SIZES | {'num_labels': 4}),
    'qa': ('BertForQuestionAnswering', _SIZES),
    'sentences': ('BertModel', _SIZES),
}
_SAMPLES = (
    *('sentiment', 'pairs', 'similarity', 'topics', 'ratings', 'choice', 'entities', 'trees'),
    *('spans', 'relation', 'wic', 'coreference', 'questions', 'summaries', 'instructions'),
    'embedding',
)
_TEXTS = ['the cow and the barn', 'the ship near the wave', 'a star', 'the moon', 'the hen', 'gull']
_ROWS = {  # problems without a sample
    'reranking': [
        {'query': text, 'documents': _TEXTS[:2], 'scores': [1.0, 0.0]} for text in _TEXTS
    ],
    'sparse_embedding': [{'query': text, 'document': text} for text in _TEXTS],
    'prompt': [{'text': text, 'label': str(n % 2)} for n, text in enumerate(_TEXTS)],
}
_KEYS = {
    'reranking': {
        'data.columns.texts': ('query', 'documents'),
        'data.columns.scores': ('scores',),
    },
    'sparse_embedding': {'data.columns.texts': ('query', 'document')},
    'prompt': {
        'problem.template': '{text} is [MASK] .',
        'problem.answers': ('0=cow', '1=ship|moon'),
    },
}


def _vocabulary() -> list[str]:
    words = 'ship wave salt sail gull cow barn wheat field hen star orbit moon comet dust street'
    letters = 'abcdefghijklmnopqrstuvwxyz'
    tokens = ['[PAD]', '[UNK]', '[CLS]', '[SEP]', '[MASK]', 'the', 'and', 'near', '.']
    tokens += [*words.split(), *letters, *(f'##{letter}' for letter in letters)]
    return tokens + [f'[unused{i}]' for i in range(131 - len(tokens))]


def _make_folder(folder: pathlib.Path, published: str, sizes: dict) -> None:
    """Save a model of transformers with random weights that are large enough to matter."""
    import torch
    import transformers

    kind = getattr(transformers, published)
    model = kind(kind.config_class(**sizes)).eval()
    generator = torch.Generator().manual_seed(len(published))
    with torch.no_grad():
        for name, value in model.named_parameters():
            is_scale = value.ndim == 1 and name.endswith('weight')
            value.normal_(1.0 if is_scale else 0.0, 0.2, generator=generator)
    model.save_pretrained(folder)
    (folder / 'vocab.txt').write_text('\n'.join(_vocabulary()) + '\n')
    if folder.name == 'sentences':
        names = ['Transformer', 'Pooling', 'Normalize']
        modules = [
            {'path': f'{i}_{name}' if i else '', 'type': f'sentence_transformers.models.{name}'}
            for i, name in enumerate(names)
        ]
        (folder / 'modules.json').write_text(json.dumps(modules))
        (folder / '1_Pooling').mkdir()
        pooling = {'word_embedding_dimension': 20, 'pooling_mode_cls_token': True}
        (folder / '1_Pooling/config.json').write_text(json.dumps(pooling))


def _train(folder: pathlib.Path, base: str, recipe: str, **values) -> None:
    """Train one step."""
    from bert_jax import recipes

    config = recipes.load(recipes.locate(f'configs/finetune.py:{recipe}')).unlock()
    steps = {'training.epochs': 0.0, 'training.steps': 1, 'training.batch_size': 4}
    limits = {'training.sequence_length': 40, 'evaluation.every_steps': 0}
    own = {'init_from': base, 'workdir': str(folder), 'schedule.warmup_steps': 0}
    rate = {'schedule.learning_rate': 0.01}
    config.update_from_flattened_dict(steps | limits | own | rate | values)
    training.run(config.lock())


def make_models(folder: pathlib.Path) -> None:
    """Make the models that are not in the folder yet."""
    for name, (published, sizes) in _FOLDERS.items():
        if not (folder / name).exists():
            _make_folder(folder / name, published, sizes)
    base = str(folder / 'mlm')
    for name in _SAMPLES:
        if not (folder / name / 'results.json').exists():
            bases = {'instructions': 'clm', 'summaries': 'bart'}
            _train(folder / name, str(folder / bases.get(name, 'mlm')), f'sample_{name}')
    for rank in (2, 3):
        if not (folder / f'lora{rank}/results.json').exists():
            tuned = {'transfer.method': 'lora', 'transfer.rank': rank}
            _train(folder / f'lora{rank}', base, 'sample_sentiment', **tuned)
    for problem, rows in _ROWS.items():
        if not (folder / problem / 'results.json').exists():
            keys = {'training.steps': 1, 'training.epochs': 0.0, 'training.batch_size': 2}
            keys |= {'evaluation.every_steps': 0, 'workdir': str(folder / problem)}
            bert_jax.finetune(rows, base, problem, dev=rows, **keys | _KEYS[problem])


def ask(arguments: list[str], output: pathlib.Path) -> None:
    """Run predict; write what it says and returns to files that start with `output`."""
    stdout, stderr = io.TextIOWrapper(io.BytesIO(), 'utf-8'), io.StringIO()
    status: object = 0
    with contextlib.redirect_stdout(stdout), contextlib.redirect_stderr(stderr):
        try:
            predict.main(arguments)
        except SystemExit as stopped:
            status = stopped.code
        except Exception as error:  # what ends with a traceback
            status = repr(error)
    stdout.flush()
    lines = [line for line in stderr.getvalue().splitlines() if ' windows [' not in line]
    said = '\n'.join([str(status), *lines]).replace(str(output.parent), 'OUTPUT')
    output.with_suffix('.stdout').write_bytes(stdout.buffer.getvalue())
    output.with_suffix('.said').write_text(said)


def record(models: pathlib.Path, output: pathlib.Path) -> None:
    """Ask all questions and keep the answers."""
    shutil.rmtree(output, ignore_errors=True)
    output.mkdir(parents=True)
    inputs = models / 'inputs'
    questions.write_inputs(inputs)
    for name, question in questions.QUESTIONS.items():
        for vectors in models.glob('*/vectors'):
            shutil.rmtree(vectors)
        ask(question.arguments(models, inputs, str(output / 'answer')), output / name)
        written = output / f'answer{question.suffix}'
        if question.suffix and written.exists():
            written.rename(output / f'{name}.written')


def compare(before: pathlib.Path, after: pathlib.Path) -> list[str]:
    """Return what differs."""
    names = sorted({path.name for folder in (before, after) for path in folder.iterdir()})
    different = []
    for name in names:
        both = [folder / name for folder in (before, after)]
        if not all(path.exists() for path in both):
            different.append(f'{name}: only in {next(p for p in both if p.exists()).parent}')
        elif both[0].read_bytes() != both[1].read_bytes():
            different.append(f'{name}: {_first_difference(*both)}')
    return different


def _first_difference(first: pathlib.Path, second: pathlib.Path) -> str:
    if first.read_bytes()[:2] == b'PK':
        with np.load(first) as one, np.load(second) as other:
            shapes = [{name: file[name].shape for name in file} for file in (one, other)]
        return f'{shapes[0]} before, {shapes[1]} after'
    lines = [path.read_text().splitlines() for path in (first, second)]
    pairs = ((a, b) for a, b in zip(*lines, strict=False) if a != b)
    numbers = f'{len(lines[0])} and {len(lines[1])} lines'
    return '\n    - {}\n    + {}'.format(*next(pairs, (numbers, 'are equal as far as they go')))


def main() -> None:
    """Record, and compare if wanted."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument('--models', type=pathlib.Path, required=True, help='folder of the models')
    parser.add_argument('--output', type=pathlib.Path, required=True, help='folder to write')
    parser.add_argument('--compare', type=pathlib.Path, help='an earlier output')
    options = parser.parse_args()
    options.models.mkdir(parents=True, exist_ok=True)
    make_models(options.models)
    record(options.models, options.output)
    print(f'{len(questions.QUESTIONS)} questions')
    if options.compare:
        different = compare(options.compare, options.output)
        print('\n'.join([*different, f'{len(different)} files differ']))
        sys.exit(bool(different))


if __name__ == '__main__':
    main()
