"""Which noise of an encoder–decoder helps which task, compared with encoders in equal time.

python -m experiments.studies.denoising.run --texts='novels/*.txt' --data=FOLDER

Table 1 of BART (Lewis et al. 2020, arXiv 1910.13461) in small. All noises get --steps; MLM and
left to right get as many steps as take the same time, by step_times.json, which is measured first
if it is not there. FOLDER has qamr and med_nli.
"""

import argparse
import functools
import json
import pathlib
from collections.abc import Iterator, Mapping, Sequence

from bert_jax.errors import exit_cleanly, look_up
from experiments.studies import runner, step_times
from experiments.studies.claims import BOTH, LEFT_TO_RIGHT, Claim
from experiments.studies.comparison import downstream
from experiments.studies.comparison.run import config_of
from experiments.studies.race.entries import Keys

LENGTH = 64  # tokens of a row
COMMON: Keys = runner.COMMON | {
    'data.corpus': 'corpora/denoising',
    'data.tokenizer': 'train:bytebpe:4000:sentinels=20',
    'data.lowercase': False,
    'data.segments': 'doc_sentences',
    'objectives.mlm': 0.0,
    'optimizer.clip_norm': 1.0,
    'training.sequence_length': (LENGTH,),
    'training.batch_size': (16,),
    'training.max_predictions': (LENGTH,),
    'compute.dtype': 'float32',
    'evaluation.examples': 512,
    'checkpoint.keep': 1,
}
BART: Keys = {
    'objectives.denoising': 1.0,
    'model.architecture': 'bart_base',
    'model.decoder.num_layers': 2,
    'model.max_position_embeddings': LENGTH + 2,
}
INFILLING_AND_PERMUTATION = 'infilling and permutation'
_TOKENS: Keys = {'noise.whole_words': False, 'noise.poisson_lambda': 0.0}
_IN_ORDER: Keys = {'noise.permute_sentences': 0.0}
NOISES: dict[str, Keys] = {  # the rows of BART's table, and the noise of T5
    INFILLING_AND_PERMUTATION: {},
    'infilling': _IN_ORDER,
    'token masking': _IN_ORDER | _TOKENS,
    'token deletion': _IN_ORDER | _TOKENS | {'noise.replace_length': 0},
    'permutation': {'noise.mask': 0.0},
    'rotation': _IN_ORDER | {'noise.mask': 0.0, 'noise.rotate': 1.0},
    'spans of T5': {'noise.kind': 't5'},
    'prefix': {'noise.kind': 'prefix'},
}
ENCODERS: dict[str, Keys] = {  # one stack of two layers
    'MLM': {'objectives.mlm': 1.0, 'training.max_predictions': (10,)},
    'left to right': {'objectives.clm': 1.0},
}
NOT_TRAINED = 'not trained'  # one step with a learning rate near zero
VARIANTS: dict[str, Keys] = {
    **{name: BART | keys for name, keys in NOISES.items()},
    **ENCODERS,
    NOT_TRAINED: BART | {'schedule.learning_rate': 1e-12},
}
TASKS = ('QA', 'pairs')
QUESTION_TOKENS = 24
COLUMNS = {
    'QA': 'QA, F1',
    'pairs': 'pairs, accuracy',
    'question': 'writing a question, nats per token',
    'steps': 'steps',
}
CLAIMS = (
    Claim(
        'denoising/results.json',
        default_seeds=1,
        settings={'MLM': {'objectives.mlm': 1.0}},
        ran={
            'mlm_0/[Qp]*': {'transfer.trainable': 'all', 'attention': BOTH},
            '*/pairs': {'problem.pooling': 'mean'},
        },
        predates=True,
    ),
    Claim(
        'denoising/left_to_right/results.json',
        default_seeds=1,
        settings={'left to right': {'objectives.clm': 1.0}},
        ran={
            'left_to_right_0/*': {'transfer.trainable': 'all', 'attention': LEFT_TO_RIGHT},
            'left_to_right_0/pairs': {'problem.pooling': 'last'},
        },
    ),
)


def pretraining_keys(name: str, steps: int) -> Keys:
    """Return the config keys of a pretraining run with this number of steps."""
    fixed = {'training.steps': (steps,), 'evaluation.every_steps': steps}
    fixed |= {'checkpoint.every_steps': steps, 'schedule.warmup_steps': steps // 10}
    return {**COMMON, **VARIANTS[name], **fixed}


def find_steps(options: argparse.Namespace) -> dict[str, int]:
    """Return the steps of each variant: --steps, or as many as take the same time."""
    names = (INFILLING_AND_PERMUTATION, *ENCODERS)
    configs = {name: config_of(pretraining_keys(name, 1), options.texts) for name in names}
    path = pathlib.Path(__file__).with_name('step_times.json')
    times: Mapping[str, Sequence[float]] = step_times.measure(configs, path)
    budget = options.steps * times[INFILLING_AND_PERMUTATION][0]
    same_time = {name: round(budget / times[name][0]) for name in ENCODERS}
    return dict.fromkeys(VARIANTS, options.steps) | same_time | {NOT_TRAINED: 1}


def question_rows(data: pathlib.Path) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield the sentence's id, and the answer with its sentence and the question, of QAMR."""
    lines = (data / 'qamr/wiki-sentences.tsv').read_text(encoding='utf-8').splitlines()
    sentences = {name: words.split() for name, words in (line.split('\t') for line in lines)}
    for line in (data / 'qamr/dev.tsv').read_text(encoding='utf-8').splitlines():
        row = line.split('\t')
        words = sentences[row[0]]
        answer = ' '.join(words[int(index)] for index in row[6].split())
        yield row[0], {'text': f'{answer} | {" ".join(words)}', 'target': row[5]}


def write_questions(data: pathlib.Path, folder: pathlib.Path) -> None:
    """Write train.jsonl, and dev.jsonl with questions about every fifth sentence."""
    folder.mkdir(parents=True, exist_ok=True)
    rows = list(question_rows(data))
    held_out = set(sorted({name for name, _ in rows})[::5])
    for split, is_dev, every in (('train', False, 1), ('dev', True, 10)):
        kept = [json.dumps(row) + '\n' for name, row in rows if (name in held_out) == is_dev]
        (folder / f'{split}.jsonl').write_text(''.join(kept[::every]), encoding='utf-8')


def question_keys(options: argparse.Namespace, name: str, weights: pathlib.Path) -> Keys:
    """Return the keys of configs/finetune.py:generation that learn to write questions."""
    data = pathlib.Path(options.runs) / 'questions'
    return {
        'init_from': str(weights),
        'init_decoder': 'encoder' if name == 'MLM' else '',
        'data.train': f'{data}/train.jsonl',
        'data.dev': f'{data}/dev.jsonl',
        'problem.metrics': ('exact_match',),
        'problem.target_tokens': QUESTION_TOKENS,
        'training.epochs': 0.0,
        'training.steps': options.task_steps,
        'training.batch_size': 16,
        'training.sequence_length': LENGTH,
        'schedule.learning_rate': 1e-3,
        'schedule.warmup_fraction': 0.1,
        'evaluation.every_steps': options.task_steps,
    }


def measure(
    options: argparse.Namespace, steps: Mapping[str, int], name: str, seed: int
) -> runner.Measures:
    """Pretrain a variant with a seed, and fine-tune it on the tasks; finished parts are kept."""
    folder = runner.run_folder(options, name, seed)
    runner.train(folder, options.texts, pretraining_keys(name, steps[name]) | {'seed': seed})
    measured: runner.Measures = {'steps': float(steps[name])}
    for task_name in TASKS:
        task = downstream.TASKS[task_name]
        keys = downstream.config_keys(
            task,
            'fine-tuned',
            {},
            options.data,
            folder,
            options.task_steps,
            is_causal='objectives.clm' in VARIANTS[name],
        )
        own = folder / task_name
        measured[task_name] = downstream.measure(own, task, keys | {'seed': seed})
    keys = dict(question_keys(options, name, folder)) | {'seed': seed}
    command = runner.main_command('configs/finetune.py:generation', keys)
    runner.run_once(folder / 'question', command, '--config.workdir')
    results = runner.read_results(folder / 'question')
    return measured | {'question': results['held_out']['generation_loss']}


@exit_cleanly
def main() -> None:
    parser = runner.argument_parser('denoising', __doc__, seeds=1, steps=1200)
    parser.add_argument('--data', required=True, help='folder with qamr and med_nli')
    parser.add_argument('--task_steps', type=int, default=300, help='steps of fine-tuning')
    parser.add_argument('--variants', nargs='+', default=list(VARIANTS), help='rows of the table')
    options = parser.parse_args()
    for name in options.variants:
        look_up('variant', name, VARIANTS)
    steps = find_steps(options)
    write_questions(pathlib.Path(options.data), pathlib.Path(options.runs) / 'questions')
    run = functools.partial(measure, options, steps)
    results = runner.for_all_seeds(options.seeds, options.variants, run)
    settings = {'task_steps': options.task_steps, 'common': COMMON, 'variants': VARIANTS}
    runner.write(options, results, COLUMNS, settings, tuple(COLUMNS)[:3])


if __name__ == '__main__':
    main()
