"""Compares masked diffusion with masked and left-to-right language models after the same time.

python -m experiments.studies.diffusion.run --texts='novels/*.txt' --data=FOLDER

All have the text, vocabulary, encoder and schedule of `fast` in ../race, and as many steps as fit
into --minutes by the times of steps in step_times.json, which are measured first if they are not
there. FOLDER has ud_english_ewt, on which the encoders that fill masks are fine-tuned.
"""

import argparse
import pathlib
from collections.abc import Mapping, Sequence

from bert_jax.errors import exit_cleanly
from bert_jax.interop import loading
from experiments.studies import measures, runner, step_times
from experiments.studies.claims import BOTH, Claim
from experiments.studies.comparison import downstream
from experiments.studies.race import run as race
from experiments.studies.race.entries import FAST, Keys, without

_WITHOUT_MLM: Keys = {**without(FAST, 'masking.rate'), 'objectives.mlm': 0.0}
OBJECTIVES: dict[str, Keys] = {
    'MLM': FAST,
    'left to right': _WITHOUT_MLM | {'objectives.clm': 1.0},
    'diffusion': _WITHOUT_MLM | {'objectives.diffusion': 1.0},
}
CONTINUED = 'MLM, then diffusion'
MLM_SHARE = 1 / 2  # of the time of CONTINUED
VARIANTS = ('MLM', CONTINUED, 'left to right')
_OF_WEIGHTS = (  # keys that experiments/studies/novels/config.py sets, and `init_from` decides
    *('architecture', 'hidden_size', 'num_layers', 'num_heads', 'intermediate_size'),
    *('max_position_embeddings', 'initializer_range'),
)
LIKELIHOODS = {  # held-out metric → the same in bits per byte
    'clm_loss': 'clm_bits_per_byte',
    'diffusion_bound': 'diffusion_bits_per_byte',
}
TASK = 'UPOS'
_ONLY_MASK = {'masking.mask': 1.0, 'masking.random': 0.0}
COLUMNS = {
    'nats': 'loss or bound of the text, nats per token',
    'bits_per_byte': 'bits per byte',
    'only_mask': 'MLM loss at 15 %, all [MASK]',
    'mlm_loss': 'at 15 %, 80/10/10',
    TASK: 'UPOS, fine-tuned',
    'steps': 'steps',
}
MEASURED = {
    'only_mask': measures.HELD_OUT_MASKS | _ONLY_MASK,
    'mlm_loss': measures.HELD_OUT_MASKS,
}
CLAIMS = (
    Claim(
        'diffusion/results.json',
        default_seeds=3,
        seeds={'token frequencies': 1},
        settings={
            '': {'training.sequence_length': [64], 'training.batch_size': [32]},
            'MLM': {'masking.rate': 0.3},
            'left to right': {'objectives.mlm': 0.0, 'objectives.clm': 1.0},
            'diffusion': {'objectives.mlm': 0.0, 'objectives.diffusion': 1.0},
        },
        ran={
            '*/UPOS': {'transfer.trainable': 'all', 'task': 'tagging', 'attention': BOTH},
        },
        measured=MEASURED,
        predates=True,
    ),
)

StepSeconds = Mapping[str, Sequence[float]]  # objective → seconds of a step


def find_step_seconds(texts: str) -> StepSeconds:
    """Read the times of steps, or measure and store them."""
    configs = {name: race.config_of(keys, texts) for name, keys in OBJECTIVES.items()}
    return step_times.measure(configs, pathlib.Path(__file__).with_name('step_times.json'))


def measure(
    options: argparse.Namespace, name: str, times: StepSeconds, seed: int
) -> runner.Measures:
    """Train a variant with a seed and measure it; finished parts are kept."""
    folder = train(options, name, times, seed)
    results = runner.read_results(folder)
    measured: runner.Measures = {'steps': results['steps']}
    for nats, bits in LIKELIHOODS.items():
        if nats in results['held_out']:
            measured |= _likelihood(results['held_out'], nats, bits)
    if name != 'left to right':
        measured |= runner.cached_measures(folder, _masked_losses)
        task = downstream.TASKS[TASK]
        keys = downstream.config_keys(
            task, 'fine-tuned', {}, options.data, folder, options.task_steps
        )
        measured[TASK] = downstream.measure(folder / TASK, task, keys | {'seed': seed})
    return measured


def train(options: argparse.Namespace, name: str, times: StepSeconds, seed: int) -> pathlib.Path:
    """Train a variant with a seed, unless its run is finished, and return its folder."""
    if name != CONTINUED:
        return _train(options, name, OBJECTIVES[name], times[name], options.minutes, seed)
    first = MLM_SHARE * options.minutes
    weights = _train(options, 'MLM', FAST, times['MLM'], first, seed)
    keys = {
        key: value for key, value in OBJECTIVES['diffusion'].items() if not key.startswith('model.')
    }
    keys |= {f'model.{key}': None for key in _OF_WEIGHTS}
    keys |= {'init_from': str(weights), 'schedule.learning_rate': 2e-3}
    return _train(options, name, keys, times['diffusion'], options.minutes - first, seed)


def _train(
    options: argparse.Namespace,
    name: str,
    entry: Keys,
    step_seconds: Sequence[float],
    minutes: float,
    seed: int,
) -> pathlib.Path:
    folder = runner.run_folder(options, f'{name} {minutes:.3g}min', seed)
    keys = race.flags(entry, step_seconds, 60 * minutes)
    runner.train(folder, options.texts, keys | {'checkpoint.keep': 1, 'seed': seed})
    return folder


def _likelihood(held_out: Mapping[str, float], nats: str, bits: str) -> runner.Measures:
    return {'nats': held_out[nats], 'bits_per_byte': held_out[bits]}


def _masked_losses(folder: pathlib.Path) -> runner.Measures:
    """The masked loss with [MASK] alone, which is all that diffusion trains, and with 80/10/10."""
    model = loading.load_checkpoint(folder)
    return {
        'only_mask': measures.MaskedLoss(model, *_ONLY_MASK.values())(model),
        'mlm_loss': measures.MaskedLoss(model)(model),
    }


@exit_cleanly
def main() -> None:
    parser = runner.argument_parser('diffusion', __doc__, seeds=3)
    parser.add_argument('--minutes', type=float, default=2.0, help='training time of a run')
    parser.add_argument('--data', required=True, help='folder with ud_english_ewt')
    parser.add_argument('--task_steps', type=int, default=300, help='steps of fine-tuning')
    options = parser.parse_args()
    times = find_step_seconds(options.texts)
    results = runner.for_all_seeds(
        options.seeds, VARIANTS, lambda name, seed: measure(options, name, times, seed)
    )
    held_out = runner.read_results(train(options, CONTINUED, times, 0))['held_out']
    frequencies = _likelihood(held_out, 'unigram_entropy', 'unigram_bits_per_byte')
    settings = {
        'minutes': options.minutes,
        'mlm_share': MLM_SHARE,
        'task_steps': options.task_steps,
        'objectives': OBJECTIVES,
    }
    runner.write(
        options,
        results | {'token frequencies': [frequencies]},
        COLUMNS,
        settings,
        ('nats', 'only_mask', TASK),
        measured=MEASURED,
    )


if __name__ == '__main__':
    main()
