"""Samples twelve small languages and English in shares q_i ∝ p_i^α with α = 0.3 and 1.

    python -m experiments.studies.languages.run --texts='novels/*.txt' --bibles=bible_small_langs

Both runs read the same corpus with the same vocabulary (trained with α = 0.3), so that their losses
can be compared.
"""

import pathlib

from experiments.studies import measures, runner
from experiments.studies.claims import Claim
from experiments.studies.novels import config as novels

BIBLES = {  # file → ISO 639-3
    'Armenian-PART': 'hye',
    'Basque-NT': 'eus',
    'Cherokee-NT': 'chr',
    'Estonian-PART': 'est',
    'Gaelic-PART': 'gla',
    'Gujarati-NT': 'guj',
    'Latvian-NT': 'lav',
    'Manx-PART': 'glv',
    'Potawatomi-PART': 'pot',
    'Swahili-NT': 'swh',
    'Ukranian-NT': 'ukr',
    'Zulu-NT': 'zul',
}
SMOOTHED, PROPORTIONAL = 'α = 0.3', 'α = 1.0'
NUM_EXAMPLES = 20_000  # counted for the shares
COLUMNS = {
    f'aim, {PROPORTIONAL}': 'q at α = 1, %',
    f'seen, {PROPORTIONAL}': 'seen, %',
    f'aim, {SMOOTHED}': 'q at α = 0.3, %',
    f'seen, {SMOOTHED}': 'seen, %',
    f'loss, {PROPORTIONAL}': 'held-out loss at α = 1',
    f'loss, {SMOOTHED}': 'held-out loss at α = 0.3',
    'gain': 'difference',
}
CLAIMS = (
    Claim(
        'languages/results.json',
        default_seeds=1,
        settings={
            '': {'training.steps': [800], 'training.batch_size': [32]},
            SMOOTHED: {'data.language_alpha': 0.3},
            PROPORTIONAL: {'data.language_alpha': 1.0},
        },
        ran={'*': {'masking.rate': 0.15}},
        predates=True,
    ),
)


def variants(texts: str, bibles: str) -> dict[str, dict]:
    """A small version of XLM-R: several languages, a Unigram vocabulary, only MLM."""
    sources = tuple(
        f'text:{pathlib.Path(bibles) / name}.txt;documents=blank_line;language={language}'
        for name, language in BIBLES.items()
    )
    common = {
        'data.sources': (*novels.get_config(texts).data.sources, *sources),
        'data.corpus': 'corpora/languages',
        'data.tokenizer': 'train:unigram:8000',
        'data.tokenizer_language_alpha': 0.3,
        'data.held_out_fraction': 0.1,
        'training.batch_size': (32,),
        'schedule.learning_rate': 2.5e-3,
        'evaluation.examples': 256 * (len(BIBLES) + 1),
    }
    return {
        name: common | {'data.language_alpha': float(name.split()[-1])}
        for name in (SMOOTHED, PROPORTIONAL)
    }


def measure(folder: pathlib.Path) -> dict[str, float]:
    """'aim/LANGUAGE', 'seen/LANGUAGE' (shares of the examples in %), 'loss/LANGUAGE' (held-out)."""
    source = measures.task_of(folder).stages[0].source
    seen, held_out = source.observed(NUM_EXAMPLES), runner.read_results(folder)['held_out']
    values = {}
    for language, share in source.shares.items():
        values[f'aim/{language}'] = 100 * share
        values[f'seen/{language}'] = 100 * seen[language] / NUM_EXAMPLES
        values[f'loss/{language}'] = held_out[f'mlm_loss/{language}']
    return values


def by_language(results: dict[str, list[dict]]) -> dict[str, list[dict]]:
    """The results with languages as variants, the smallest language first."""
    first = results[PROPORTIONAL][0]
    languages = [name.partition('/')[2] for name in first if name.startswith('aim/')]
    languages.sort(key=lambda language: first[f'aim/{language}'])
    return {language: _rows(language, results) for language in languages}


def _rows(language: str, results: dict[str, list[dict]]) -> list[dict]:
    seeds = []
    for smoothed, proportional in zip(results[SMOOTHED], results[PROPORTIONAL], strict=True):
        row = {'gain': proportional[f'loss/{language}'] - smoothed[f'loss/{language}']}
        for name, run in ((SMOOTHED, smoothed), (PROPORTIONAL, proportional)):
            row |= {
                f'{kind}, {name}': run[f'{kind}/{language}'] for kind in ('aim', 'seen', 'loss')
            }
        seeds.append(row)
    return seeds


def main():
    parser = runner.argument_parser('languages', __doc__, steps=800, seeds=1)
    parser.add_argument('--bibles', required=True, help='folder of the Bible translations')
    options = parser.parse_args()
    runs = variants(options.texts, options.bibles)
    results = runner.run_all(options, runs, measure)
    plotted = (f'loss, {PROPORTIONAL}', f'loss, {SMOOTHED}', 'gain')
    settings = runner.all_keys(options, runs)
    runner.write(options, by_language(results), COLUMNS, settings, plotted)


if __name__ == '__main__':
    main()
