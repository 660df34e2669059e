"""What the sentences of a study rest on, declared beside its code and compared with its records.

Each study declares CLAIMS. The records kept in git (results*.json) have the settings that the study
gave its runs and, in 'ran', what the runs themselves recorded (`ran`): config.json after all
defaults, and how a fine-tuned model attended. tests/experiments/test_claims.py compares the three.
"""

import dataclasses
import json
import pathlib
from collections.abc import Mapping

# Keys of a run's config.json that say what was compared.
_KEYS = (
    'seed',
    'task',
    'init_attention',
    'transfer.trainable',
    'problem.pooling',
    'problem.decoding',
    'model.head_states',
    'model.head_lstm.layers',
    'masking.scheme',
    'masking.rate',
    'masking.mask',
    'masking.random',
)
LEFT_TO_RIGHT, BOTH = 'from left to right', 'in both directions'  # 'attention' of a fine-tuned run


@dataclasses.dataclass(frozen=True)
class Claim:
    """The settings of one record.

    Attributes:
        record: file below experiments/studies.
        seeds: number of seeds of each variant, or variant → number for others than `default_seeds`.
        default_seeds: of the variants that `seeds` does not name; baselines are not trained.
        baselines: variants without a run of their own.
        settings: variant, or '' for all → config keys that the record must have.
        ran: glob of run folders → what these runs must have recorded.
        measured: what the record must say about its measures.
        predates: the record was written before studies recorded 'ran' and 'measured', so nothing
            in git confirms these two; the next run of the study writes them.
    """

    record: str
    default_seeds: int
    seeds: Mapping[str, int] = dataclasses.field(default_factory=dict)
    baselines: tuple[str, ...] = ()
    settings: Mapping[str, Mapping[str, object]] = dataclasses.field(default_factory=dict)
    ran: Mapping[str, Mapping[str, object]] = dataclasses.field(default_factory=dict)
    measured: Mapping[str, object] = dataclasses.field(default_factory=dict)
    predates: bool = False


def ran(runs: str | pathlib.Path) -> dict[str, dict[str, object]]:
    """Return folder of each finished run → what it recorded about itself.

    Args:
        runs: folder of the runs of a study; runs of tasks are inside those of their encoders.
    """
    folders = sorted(path.parent for path in pathlib.Path(runs).rglob('command.json'))
    return {
        folder.relative_to(runs).as_posix(): of_run(folder)
        for folder in folders
        if (folder / 'config.json').exists()
    }


def of_run(folder: pathlib.Path) -> dict[str, object]:
    """Return what a run recorded: keys of its config, its objectives, and its attention."""
    config = json.loads((folder / 'config.json').read_text(encoding='utf-8'))
    found: dict[str, object] = {}
    for key in _KEYS:
        value = config
        for part in key.split('.'):
            value = value.get(part) if isinstance(value, dict) else None
        if value is not None:
            found[key] = value
    objectives = config.get('objectives') or {}
    if weights := {name: weight for name, weight in objectives.items() if weight}:
        found['objectives'] = weights
    results = json.loads((folder / 'results.json').read_text(encoding='utf-8'))
    return found | {key: results[key] for key in ('attention',) if key in results}
