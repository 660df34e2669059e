"""Compares cloze prompts of models that fill masks with prefix prompts of a causal model.

python -m experiments.studies.cloze_prefix.run --texts='novels/*.txt' --data=FOLDER

The models are those of ../diffusion, with the same encoder, text and training time. They answer the
same texts with 0, 1 or 3 answered examples before the text, drawn with several seeds. FOLDER has
sentence_polarity and banking77.
"""

import argparse
import pathlib

import numpy as np

from bert_jax.errors import exit_cleanly
from bert_jax.inference.predictor import Predictor
from bert_jax.interop import loading
from experiments.studies import runner
from experiments.studies.claims import Claim
from experiments.studies.cloze_prefix import tasks
from experiments.studies.cloze_prefix.tasks import Example, Task
from experiments.studies.diffusion import run as diffusion

VARIANTS = {  # row → variant of ../diffusion
    'cloze, MLM': 'MLM',
    'cloze, MLM, then diffusion': diffusion.CONTINUED,
    'prefix, left to right': 'left to right',
}
SHOTS = (0, 1, 3)  # more do not fit into the 64 tokens of the models
CALIBRATION = 'contextual'  # small models prefer one answer whatever the text
_SHOT_SEEDS = 3
CLAIMS = (
    Claim(
        'cloze_prefix/results.json',
        default_seeds=3,
        settings={'': {'minutes': 2.0, 'tested': 300, 'shots': [0, 1, 3]}},
        ran={'mlm_2*': {'masking.rate': 0.3}, 'left_to_right_*': {'objectives': {'clm': 1.0}}},
        predates=True,
    ),
)


@exit_cleanly
def main() -> None:
    parser = runner.argument_parser('cloze_prefix', __doc__, seeds=3)
    parser.set_defaults(runs='runs/diffusion')
    parser.add_argument('--minutes', type=float, default=2.0, help='training time of a model')
    parser.add_argument('--data', required=True, help='folder of sentence_polarity and banking77')
    parser.add_argument('--tested', type=int, default=300, help='texts of a task to classify')
    options = parser.parse_args()
    times = diffusion.find_step_seconds(options.texts)
    results = runner.for_all_seeds(
        options.seeds, VARIANTS, lambda name, seed: train_and_measure(options, name, times, seed)
    )
    settings = {'minutes': options.minutes, 'tested': options.tested, 'shots': SHOTS}
    runner.write(options, results, columns(), settings=settings)


def train_and_measure(
    options: argparse.Namespace, name: str, times: diffusion.StepSeconds, seed: int
) -> runner.Measures:
    """Train the model of a row, unless its run is finished, and measure it once."""
    folder = diffusion.train(options, VARIANTS[name], times, seed)
    own = folder / 'prompts'
    own.mkdir(exist_ok=True)
    return runner.cached_measures(own, lambda _: measure(folder, options))


def columns() -> dict[str, str]:
    """Measure → title, for each task and number of shots."""
    return {f'{name}_{shots}': f'{name}, {shots} shots' for name in tasks.TASKS for shots in SHOTS}


def measure(folder: pathlib.Path, options: argparse.Namespace) -> runner.Measures:
    """The accuracy on each task with each number of shots, in the mean over draws of shots."""
    model = Predictor(loading.load_any(folder), name=str(folder))
    found = {}
    for name, task in tasks.TASKS.items():
        examples = tasks.read(name, pathlib.Path(options.data))
        for shots in SHOTS:
            draws = [
                tasks.draw(examples, shots, options.tested, seed)
                for seed in range(_SHOT_SEEDS if shots else 1)
            ]
            accuracies = [accuracy(model, task, *one) for one in draws]
            found[f'{name}_{shots}'] = float(np.mean(accuracies))
            found[f'{name}_{shots}_sd'] = float(np.std(accuracies))
    return found


def accuracy(model: Predictor, task: Task, shots: list[Example], tested: list[Example]) -> float:
    """The share of texts whose most probable answer is right, after these shots."""
    if model.is_causal:
        given = [{'text': one.text, 'label': one.label} for one in shots]
        prompted = model.with_prompt(
            task.prefix, task.answers, calibration=CALIBRATION, shots=given
        )
    else:
        template = ' '.join([*(answered(task, one) for one in shots), task.cloze])
        prompted = model.with_prompt(template, task.answers, calibration=CALIBRATION)
    predicted = prompted.prompt([one.text for one in tested])
    return float(
        np.mean([a['predicted'] == b.label for a, b in zip(predicted, tested, strict=True)])
    )


def answered(task: Task, example: Example) -> str:
    """Return an answered cloze as part of a template; braces of the text are left out."""
    filled = task.cloze.replace('{text}', example.text.translate({123: None, 125: None}))
    return filled.replace('[MASK]', task.answers[example.label])


if __name__ == '__main__':
    main()
