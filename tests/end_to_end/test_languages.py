"""Two languages through the command line: their shares and their held-out losses."""

import json
import re

from tests.end_to_end import small


def test_a_small_language_gets_its_share_and_its_own_loss(tmp_path):
    sources = []
    for language, documents, seed in (('aa', 60, 0), ('bb', 15, 1)):
        folder = tmp_path / language
        folder.mkdir()
        sources.append(f'{small.write_text(folder, documents, seed)};language={language}')
    status, stderr = small.run(
        tmp_path,
        f'--config.data.sources={tuple(sources)}',
        '--config.data.language_alpha=0.3',
        *small.ONE_STAGE_ARGUMENTS,
    )
    assert status == 0, stderr
    line = next(line for line in stderr.splitlines() if line.startswith('languages, share'))
    observed, target = re.search(r'bb ([\d.]+)% \(([\d.]+)%\)', line).groups()
    assert 35 < float(target) < 45  # from about 20 % of the text
    assert abs(float(observed) - float(target)) < 15  # in 32 examples
    held_out = json.loads((tmp_path / 'run/results.json').read_text())['held_out']
    assert held_out['mlm_loss/aa'] != held_out['mlm_loss/bb']
