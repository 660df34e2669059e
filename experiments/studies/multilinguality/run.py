"""The curse of multilinguality in small: 1, 3, 6 and 13 languages in an encoder of one size.

python -m experiments.studies.multilinguality.run --texts='novels/*.txt' --bibles=bible_small_langs

Each language gets the same number of tokens in every run: --steps is for one language, and a run of
n languages takes n times as many. All runs have one vocabulary, so that their losses in the three
languages of the smallest mixture can be compared. The recipe is `start` of ../race.
"""

import pathlib
from collections.abc import Mapping, Sequence

import numpy as np

from experiments.studies import runner
from experiments.studies.claims import Claim
from experiments.studies.languages.run import BIBLES
from experiments.studies.novels import config as novels
from experiments.studies.race.entries import START, without

ENGLISH = 'en'
MEASURED = (ENGLISH, 'swh', 'ukr')  # every mixture has these, and each is trained alone
MIXTURES: dict[int, tuple[str, ...]] = {
    13: (ENGLISH, *BIBLES.values()),
    6: (*MEASURED, 'est', 'eus', 'lav'),
    3: MEASURED,
}
CORPUS = 'corpora/multilinguality'
EXAMPLES = 256  # held-out examples of each language
COLUMNS = {'mean': 'mean of the three', **{language: language for language in MEASURED}}
CLAIMS = (
    Claim(
        'multilinguality/results.json',
        default_seeds=1,
        settings={
            '': {'masking.rate': 0.3, 'training.batch_size': [16]},
            '13 languages': {'training.steps': [7800], 'data.language_alpha': 0.0},
            '6 languages': {'training.steps': [3600], 'data.language_alpha': 0.0},
            '3 languages': {'training.steps': [1800], 'data.language_alpha': 0.0},
            **dict.fromkeys(MEASURED, {'training.steps': [600]}),
        },
        ran={'*': {'masking.rate': 0.3, 'seed': 0}},
        predates=True,
    ),
)


def variants(texts: str, bibles: str, steps: int) -> dict[str, dict[str, object]]:
    """Return name of a run → its config keys; the run whose corpus makes the vocabulary is first.

    Args:
        texts: glob of English novels.
        bibles: folder of the Bible translations.
        steps: training steps for one language.
    """
    sources = {ENGLISH: novels.get_config(texts).data.sources[0]}
    for name, language in BIBLES.items():
        path = pathlib.Path(bibles) / f'{name}.txt'
        sources[language] = f'text:{path};documents=blank_line;language={language}'
    runs: dict[str, dict[str, object]] = {}
    for languages in (*MIXTURES.values(), *((language,) for language in MEASURED)):
        runs[_name(languages)] = _keys(languages, [sources[name] for name in languages], steps)
    runs[_name(MIXTURES[13])] |= {
        'data.tokenizer': 'train:unigram:8000',
        'data.tokenizer_language_alpha': 0.3,
    }
    return runs


def _name(languages: Sequence[str]) -> str:
    return languages[0] if len(languages) == 1 else f'{len(languages)} languages'


def _keys(languages: Sequence[str], sources: Sequence[str], steps: int) -> dict[str, object]:
    number = len(languages)
    name = _name(languages).replace(' ', '_')
    keys: dict[str, object] = {
        **without(START, 'schedule.warmup_fraction'),  # warmup_steps below
        'training.batch_size': (16,),
        'compute.dtype': 'float32',
        'data.sources': tuple(sources),
        'data.corpus': f'{CORPUS}/{name}',
        'data.tokenizer': f'{CORPUS}/13_languages/tokenizer.json',
        'data.held_out_fraction': 0.1,
        'evaluation.examples': EXAMPLES * number,
        'training.steps': (steps * number,),
        'schedule.warmup_steps': max(1, steps * number // 10),
    }
    return keys | ({'data.language_alpha': 0.0} if number > 1 else {})  # equal shares


def measure(folder: pathlib.Path) -> runner.Measures:
    """Return the held-out losses of a run: 'mlm_loss', and 'mlm_loss/LANGUAGE' of a mixture."""
    held_out = runner.read_results(folder)['held_out']
    return {name: value for name, value in held_out.items() if name.startswith('mlm_loss')}


def by_number(results: Mapping[str, list[runner.Measures]]) -> dict[str, list[runner.Measures]]:
    """Return number of languages → for each seed, the loss in each measured language, and the mean.

    Args:
        results: name of a run → the measures of each seed.
    """
    num_seeds = len(results[MEASURED[0]])
    rows = {}
    alone = [
        {name: results[name][seed]['mlm_loss'] for name in MEASURED} for seed in range(num_seeds)
    ]
    rows['1 language'] = alone
    for number in sorted(MIXTURES):
        name = f'{number} languages'
        rows[name] = [
            {language: run[f'mlm_loss/{language}'] for language in MEASURED}
            for run in results[name]
        ]
    return {
        name: [{'mean': float(np.mean(list(run.values()))), **run} for run in runs]
        for name, runs in rows.items()
    }


def main() -> None:
    parser = runner.argument_parser('multilinguality', __doc__, steps=600, seeds=1)
    parser.add_argument('--bibles', required=True, help='folder of the Bible translations')
    options = parser.parse_args()
    runs = variants(options.texts, options.bibles, options.steps)
    results = by_number(runner.run_all(options, runs, measure))
    runner.write(options, results, COLUMNS, runner.all_keys(options, runs))


if __name__ == '__main__':
    main()
