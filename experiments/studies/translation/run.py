"""Translates one Bible into another, with and without denoising pretraining in both languages.

    python -m experiments.studies.translation.run --bibles=bible_small_langs

A BART with 2 + 2 layers of width 128 learns to translate Latvian into Ukrainian: newly initialized,
and after pretraining with mBART's noise on both translations. Every tenth chapter is held out from
all training. `--pretraining` are the steps of pretraining, `--steps` those of translation. With
`--long_seeds`, 'not pretrained, as long' learns to translate for the steps of both.
"""

import argparse
import json
import pathlib

from experiments.studies import runner
from experiments.studies.claims import Claim

SOURCE, TARGET = ('Latvian-NT', 'lav'), ('Ukranian-NT', 'ukr')
MOST_CHARACTERS = 100  # of a verse to translate, in either language
HELD_OUT = 10  # every tenth chapter
LENGTH, BATCH = 48, 32
CORPUS = 'corpora/translation'
PRETRAINED, SCRATCH, LONG = 'pretrained', 'not pretrained', 'not pretrained, as long'
COLUMNS = {'loss': 'loss, nats per token', 'bleu': 'BLEU', 'chrf': 'chrF'}
COMMON = {
    'model.architecture': 'bart_base',
    'model.hidden_size': 128,
    'model.num_layers': 2,
    'model.num_heads': 4,
    'model.intermediate_size': 512,
    'model.max_position_embeddings': 66,
    'model.initializer_range': 0.08,
    'model.hidden_dropout': 0.0,
    'model.attention_dropout': 0.0,
    'model.decoder.num_layers': 2,
    'schedule.learning_rate': 2e-3,
    'optimizer.clip_norm': 1.0,
    'logging.every_steps': 50,
}

Chapters = list[list[str]]
CLAIMS = (
    Claim(
        'translation/results.json',
        default_seeds=3,
        settings={'': {'steps': 1000, 'pretraining': 1500}},
        ran={'*pretrained_?': {'transfer.trainable': 'all', 'task': 'generation'}},
        predates=True,
    ),
)


def read_chapters(path: pathlib.Path) -> Chapters:
    """Read the verses of each chapter; an empty line separates chapters."""
    parts = path.read_text(encoding='utf-8').strip().split('\n\n')
    return [part.splitlines() for part in parts]


def pairs_of(sources: Chapters, targets: Chapters, is_held_out: bool) -> list[dict[str, str]]:
    """Return the verses of equal number in chapters with equally many verses, if they are short."""
    return [
        {'text': source, 'target': target}
        for number, (one, other) in enumerate(zip(sources, targets, strict=True))
        if len(one) == len(other) and (number % HELD_OUT == HELD_OUT - 1) == is_held_out
        for source, target in zip(one, other, strict=True)
        if max(len(source), len(target)) <= MOST_CHARACTERS
    ]


def write_data(bibles: pathlib.Path, folder: pathlib.Path) -> dict[str, int]:
    """Write the text of pretraining and the pairs; return the numbers of pairs."""
    folder.mkdir(parents=True, exist_ok=True)
    chapters = [read_chapters(bibles / f'{name}.txt') for name, _ in (SOURCE, TARGET)]
    for (_, language), own in zip((SOURCE, TARGET), chapters, strict=True):
        kept = [one for number, one in enumerate(own) if number % HELD_OUT != HELD_OUT - 1]
        text = '\n\n'.join('\n'.join(verses) for verses in kept) + '\n'
        (folder / f'{language}.txt').write_text(text, encoding='utf-8')
    numbers = {}
    for name, is_held_out in (('train', False), ('dev', True)):
        pairs = pairs_of(*chapters, is_held_out)
        lines = (json.dumps(pair, ensure_ascii=False) + '\n' for pair in pairs)
        (folder / f'{name}.jsonl').write_text(''.join(lines), encoding='utf-8')
        numbers[name] = len(pairs)
    return numbers


def pretrain(options: argparse.Namespace) -> pathlib.Path:
    """Pretrain unless it is done; return the folder of the run."""
    folder = pathlib.Path(options.runs)
    sources = tuple(
        f'text:{folder}/data/{language}.txt;documents=blank_line;language={language}'
        for _, language in (SOURCE, TARGET)
    )
    keys = COMMON | {
        'data.sources': sources,
        'data.corpus': CORPUS,
        'data.tokenizer': 'train:unigram:2000',
        'data.lowercase': False,
        'noise.mask': 0.35,
        'noise.poisson_lambda': 3.5,
        'training.steps': (options.pretraining,),
        'training.sequence_length': (LENGTH,),
        'training.batch_size': (BATCH,),
        'training.max_predictions': (LENGTH,),
        'evaluation.every_steps': options.pretraining,
    }
    run = folder / 'pretraining'
    runner.run_once(run, runner.main_command('configs/bart.py:tiny', keys), '--config.workdir')
    return run


def translate(options: argparse.Namespace, name: str, seed: int) -> runner.Measures:
    """Learn to translate unless it is done; return loss, BLEU and chrF of held-out verses."""
    pretrained, data = pretrain(options), f'{options.runs}/data'
    steps = options.steps + (options.pretraining if name == LONG else 0)
    keys: dict[str, object] = {
        'seed': seed,
        'data.train': f'{data}/train.jsonl',
        'data.dev': f'{data}/dev.jsonl',
        'problem.metrics': ('bleu', 'chrf'),
        'problem.target_tokens': LENGTH,
        'training.epochs': 0.0,
        'training.steps': steps,
        'training.batch_size': BATCH,
        'training.sequence_length': LENGTH,
        'evaluation.every_steps': steps,
        **{key: value for key, value in COMMON.items() if not key.startswith('model.')},
    }
    if name == PRETRAINED:
        keys['init_from'] = str(pretrained)
    else:
        models = {key: value for key, value in COMMON.items() if key.startswith('model.')}
        keys |= models | {'data.tokenizer': f'{CORPUS}/tokenizer.json'}
    folder = runner.run_folder(options, name, seed)
    command = runner.main_command('configs/finetune.py:generation', keys)
    runner.run_once(folder, command, '--config.workdir')
    found = runner.read_results(folder)['held_out']
    return {'loss': found['generation_loss'], 'bleu': found['bleu'], 'chrf': found['chrf']}


def main() -> None:
    parser = runner.argument_parser('translation', __doc__, steps=1000, seeds=3, reads_novels=False)
    parser.add_argument('--bibles', required=True, help='folder of the Bible translations')
    parser.add_argument('--pretraining', type=int, default=1500, help='steps of pretraining')
    parser.add_argument('--long_seeds', type=int, default=0, help=f'seeds of {LONG!r}')
    options = parser.parse_args()
    numbers = write_data(pathlib.Path(options.bibles), pathlib.Path(options.runs) / 'data')
    seeds = {PRETRAINED: options.seeds, SCRATCH: options.seeds, LONG: options.long_seeds}
    results = {}
    for name, number in seeds.items():
        if number:
            results |= runner.for_all_seeds(number, [name], lambda *run: translate(options, *run))
    denoising = runner.read_results(pathlib.Path(options.runs) / 'pretraining')['held_out']
    settings = {'steps': options.steps, 'pretraining': options.pretraining, 'pairs': numbers}
    settings |= {'denoising': denoising}
    runner.write(options, results, COLUMNS, settings=settings)


if __name__ == '__main__':
    main()
