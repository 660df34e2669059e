"""Twelve small languages beside English: examples in shares q_i ∝ p_i^α with α = .3 and 1.

    python -m experiments.studies.languages.run --texts='novels/*.txt' --bibles=bible_small_langs

Both runs read the same corpus with the same vocabulary (trained with α = .3): their losses compare.
"""

import pathlib

from experiments.studies import measures, runner
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
RAISED, PLAIN = 'α = 0.3', 'α = 1.0'
EXAMPLES = 20_000  # over which the shares are counted
COLUMNS = {
    f'aim, {PLAIN}': 'q at α = 1, %',
    f'seen, {PLAIN}': 'seen, %',
    f'aim, {RAISED}': 'q at α = .3, %',
    f'seen, {RAISED}': 'seen, %',
    f'loss, {PLAIN}': 'held-out loss at α = 1',
    f'loss, {RAISED}': 'held-out loss at α = .3',
    'gain': 'loss lower by',
}


def variants(texts: str, bibles: str) -> dict[str, dict]:
    """XLM-R's regime, but small: several languages, a Unigram vocabulary, MLM alone."""
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
        'evaluation.examples': 256 * (len(BIBLES) + 1),
    }
    return {
        name: common | {'data.language_alpha': float(name.split()[-1])} for name in (RAISED, PLAIN)
    }


def measure(folder: pathlib.Path) -> dict[str, float]:
    """Of every language, by 'kind/language': the share aimed at, the share seen (both in %), the
    held-out loss."""
    source = measures.task_of(folder).stages[0].source
    seen, held_out = source.observed(EXAMPLES), runner.results(folder)['held_out']
    found = {}
    for language, share in source.shares.items():
        found[f'aim/{language}'] = 100 * share
        found[f'seen/{language}'] = 100 * seen[language] / EXAMPLES
        found[f'loss/{language}'] = held_out[f'mlm_loss/{language}']
    return found


def by_language(results: dict[str, list[dict]]) -> dict[str, list[dict]]:
    """The same with languages for variants, the smallest first."""
    first = results[PLAIN][0]
    languages = [name.partition('/')[2] for name in first if name.startswith('aim/')]
    languages.sort(key=lambda language: first[f'aim/{language}'])
    return {language: _of(language, results) for language in languages}


def _of(language: str, results: dict[str, list[dict]]) -> list[dict]:
    seeds = []
    for raised, plain in zip(results[RAISED], results[PLAIN], strict=True):
        own = {'gain': plain[f'loss/{language}'] - raised[f'loss/{language}']}
        for name, run in ((RAISED, raised), (PLAIN, plain)):
            own |= {
                f'{kind}, {name}': run[f'{kind}/{language}'] for kind in ('aim', 'seen', 'loss')
            }
        seeds.append(own)
    return seeds


def main():
    parser = runner.arguments('languages', __doc__, steps=800, seeds=1)
    parser.add_argument('--bibles', required=True, help='folder of the Bible translations')
    options = parser.parse_args()
    runs = variants(options.texts, options.bibles)
    results = runner.run_all(options, runs, measure)
    plotted = (f'loss, {PLAIN}', f'loss, {RAISED}', 'gain')
    runner.write(options, by_language(results), COLUMNS, plotted)


if __name__ == '__main__':
    main()
