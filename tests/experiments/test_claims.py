"""What a study declares, what its code runs, what its records hold and what its page says.

The records that predate `claims.ran` are named by their claims (`predates`): nothing in git
confirms how their runs attended, pooled and were masked.
"""

import argparse
import fnmatch
import json
import pathlib
import re

import pytest

from experiments.studies import claims, runner
from experiments.studies.bio_spans import run as bio_spans
from experiments.studies.cloze_prefix import run as cloze_prefix
from experiments.studies.comparison import run as comparison
from experiments.studies.comparison import variants as comparison_variants
from experiments.studies.denoising import run as denoising
from experiments.studies.diffusion import run as diffusion
from experiments.studies.embeddings import run as embeddings
from experiments.studies.embeddings import tiny
from experiments.studies.languages import run as languages
from experiments.studies.linguistic_curves import run as linguistic_curves
from experiments.studies.masking_rate import run as masking_rate
from experiments.studies.model_size import run as model_size
from experiments.studies.multilinguality import run as multilinguality
from experiments.studies.novels import config as novels
from experiments.studies.objectives import run as objectives
from experiments.studies.race import run as race
from experiments.studies.race.entries import ENTRIES
from experiments.studies.reference_mlm import config as reference_mlm
from experiments.studies.translation import run as translation

ROOT = pathlib.Path(runner.__file__).parent
STUDIES = (
    *(bio_spans, cloze_prefix, comparison_variants, denoising, diffusion, embeddings, tiny),
    *(languages, linguistic_curves, masking_rate, model_size, multilinguality, novels),
    *(objectives, race, reference_mlm, translation),
)
CLAIMS = {claim.record: claim for study in STUDIES for claim in study.CLAIMS}
WITHOUT_RECORD = {'sentences'}  # scores of rules, printed by its commands


def read(claim):
    return json.loads((ROOT / claim.record).read_text(encoding='utf-8'))


def plain(value):
    """A value as JSON keeps it."""
    return json.loads(json.dumps(value))


def settings_of(record):
    """Variant → settings; '' → those of all variants."""
    settings = record.get('settings', record)
    nested = {'entries', 'objectives', 'variants'} & settings.keys()
    if nested:
        common = {'common': settings['common']} if 'common' in settings else {}
        return settings[nested.pop()] | common
    return settings if all(isinstance(v, dict) for v in settings.values()) else {'': settings}


def test_every_record_has_a_claim():
    found = {path.relative_to(ROOT).as_posix() for path in ROOT.rglob('results*.json')}
    assert found == CLAIMS.keys()
    studies = {path.parent.name for path in ROOT.glob('*/README.md')}
    assert studies - WITHOUT_RECORD == {name.split('/')[0] for name in CLAIMS}


@pytest.mark.parametrize('claim', CLAIMS.values(), ids=CLAIMS)
def test_a_record_has_the_seeds_and_settings_of_its_claim(claim):
    record = read(claim)
    settings = settings_of(record)
    for name, measures in (record.get('variants') or record.get('runs') or {}).items():
        if name not in claim.baselines:
            seeds = {len(measure['values']) for measure in measures.values()}
            assert seeds == {claim.seeds.get(name, claim.default_seeds)}, name
    for variant, keys in claim.settings.items():
        chosen = [variant] if variant in settings else [*settings] if not variant else []
        assert chosen, variant
        for name in chosen:
            assert keys.items() <= settings[name].items(), name


@pytest.mark.parametrize('claim', CLAIMS.values(), ids=CLAIMS)
def test_a_record_has_what_its_runs_recorded_unless_it_predates_that(claim):
    record = read(claim)
    assert ('ran' not in record) == claim.predates
    if claim.predates:
        return
    assert record.get('measured', {}) == plain(claim.measured)
    for pattern, expected in claim.ran.items():
        runs = {n: r for n, r in record['ran'].items() if fnmatch.fnmatchcase(n, pattern)}
        assert runs, pattern
        for name, found in runs.items():
            assert expected.items() <= found.items(), name


def all_keys(steps, variants):
    return runner.all_keys(argparse.Namespace(steps=steps), variants)


TEXTS, BIBLES = 'novels/*.txt', 'bible_small_langs'
COMPARED = ('comparison/ablation', 'comparison/rows', 'comparison/seed_0')
# Record → the settings that the study gives its runs today.
CODE = {
    'objectives/results.json': lambda: {'': all_keys(2400, objectives.VARIANTS)['MLM']},
    'masking_rate/results.json': lambda: {'': all_keys(2400, masking_rate.VARIANTS)['0.15']},
    'model_size/results.json': lambda: all_keys(2400, model_size.variants('bert', 2400)),
    'model_size/results_rotary.json': lambda: all_keys(1000, model_size.variants('rotary', 1000)),
    'languages/results.json': lambda: all_keys(800, languages.variants(TEXTS, BIBLES)),
    'multilinguality/results.json': lambda: all_keys(
        600, multilinguality.variants(TEXTS, BIBLES, 600)
    ),
    'diffusion/results.json': lambda: diffusion.OBJECTIVES,
    **{
        f'denoising{folder}/results.json': lambda: denoising.VARIANTS | {'common': denoising.COMMON}
        for folder in ('', '/left_to_right')
    },
    **{
        f'race/results_{minutes}min.json': lambda: {
            name: race._shown(entry) for name, entry in ENTRIES.items()
        }
        for minutes in (1, 2, 4, 10)
    },
    **{
        f'{folder}/results_1000steps.json': lambda: {
            name: comparison.pretraining_keys(name, 1 if name == 'not trained' else 1000)
            for name in comparison_variants.PRETRAINING
        }
        for folder in COMPARED
    },
}


@pytest.mark.parametrize('record', CODE)
def test_the_printed_command_runs_what_the_record_has(record):
    """A change of shared settings would otherwise turn a page into one about another experiment."""
    code = plain(CODE[record]())
    for name, keys in settings_of(read(CLAIMS[record])).items():
        if name in code:
            assert keys.items() <= code[name].items(), name


ROW = re.compile(r'^\| *(.+?) *\|(.+)\|$', re.MULTILINE)
_NUMBER = r'\d[\d,]*(?:\.\d+)?'
NUMBER = re.compile(rf'(?<![\w.,−-])([−-]?{_NUMBER})(?: ± ({_NUMBER}))?(?![\w.,%])')
PAGES = {record: ROOT / record.split('/')[0] / 'README.md' for record in CLAIMS}
# Study → numbers in rows of variants that are not measures of the record.
OTHERS = {
    'comparison': {
        *('87.9', '77.8', '84.9'),  # of BERT's table 5
        *('0.210', '0.229', '0.217', '0.236'),  # intervals over questions
        *('30', '5'),  # percent masked, and table 5
    },
    'diffusion': {'30', '258'},  # percent masked, steps of the first half
    'multilinguality': {'600', '1,800', '3,600', '7,800'},  # steps, in the settings
    'race': {  # fine-tuned runs and BLiMP, whose record was not kept, as the page says
        *('0.886', '0.102', '0.215', '0.747', '0.515'),
        *('0.899', '0.125', '0.230', '0.608', '0.557'),
    },
}


def shown(value, number):
    """A value with as many decimals as a printed number."""
    decimals = len(number.partition('.')[2])
    return f'{value:,.{decimals}f}'


def is_measure(summary, number, sd):
    """Whether a printed number is a mean with this deviation, or without one that of a seed."""
    if not sd:
        return any(
            shown(value, number) == number for value in (summary['mean'], *summary['values'])
        )
    return shown(summary['mean'], number) == number and shown(summary['sd'] or 0.0, sd) == sd


@pytest.mark.parametrize('page', sorted({*PAGES.values()}), ids=lambda page: page.parent.name)
def test_rows_of_a_page_are_those_of_its_records(page):
    """Each number of a row that has the name of a variant is one of its measures."""
    summaries = {}
    for name in (name for name in CLAIMS if PAGES[name] == page):
        for variant, measures in read(CLAIMS[name]).get('variants', {}).items():
            summaries.setdefault(variant, []).extend(measures.values())
    checked = 0
    for variant, cells in ROW.findall(page.read_text(encoding='utf-8')):
        for number, sd in NUMBER.findall(cells) if variant in summaries else ():
            others = OTHERS.get(page.parent.name, ())
            is_found = any(is_measure(one, number, sd) for one in summaries[variant])
            assert is_found or number in others, (variant, number, sd)
            checked += 1
    assert checked or not summaries or page.parent.name == 'embeddings'  # rows of other names


def test_a_run_is_recorded_with_what_a_claim_can_rest_on(tmp_path):
    config = {'seed': 3, 'task': 'tagging', 'transfer': {'trainable': 'heads', 'method': 'full'}}
    config |= {'objectives': {'mlm': 0.0, 'clm': 1.0}, 'init_attention': 'same', 'problem': {}}
    for folder, results in (('ltr_0/UPOS', {'attention': claims.LEFT_TO_RIGHT}), ('mlm_0', {})):
        run = tmp_path / folder
        run.mkdir(parents=True)
        (run / 'config.json').write_text(json.dumps(config))
        (run / 'results.json').write_text(json.dumps(results))
        (run / 'command.json').write_text('[]')
    (tmp_path / 'unfinished').mkdir()
    (tmp_path / 'unfinished/config.json').write_text('{}')
    common = {'seed': 3, 'task': 'tagging', 'init_attention': 'same'}
    common |= {'transfer.trainable': 'heads', 'objectives': {'clm': 1.0}}
    assert claims.ran(tmp_path) == {
        'ltr_0/UPOS': common | {'attention': 'from left to right'},
        'mlm_0': common,
    }
    options = argparse.Namespace(output=tmp_path / 'output', runs=tmp_path)
    results = {'a': [{'x': 1.0}]}
    runner.write(options, results, {'x': 'X'}, settings={}, measured={'masks': 0.15})
    written = json.loads((tmp_path / 'output/results.json').read_text())
    assert written['ran'].keys() == {'ltr_0/UPOS', 'mlm_0'}
    assert written['measured'] == {'masks': 0.15}
