"""Sizes, differences from `predict` and speed of the exported formats of a model.

    python -m experiments.benchmarks.exported_formats --model=MODEL --texts=FILE --output=FOLDER

exports the model in every format, runs each folder on the texts in a process without bert_jax, and
writes results.json and formats.png. --environments=FOLDER runs the format NAME with
FOLDER/NAME/bin/python instead of this interpreter. --pairs=FILE,FILE also correlates the cosines of
pairs of texts, lines SCORE<tab>TEXT<tab>TEXT, with the scores. --formats=NAME,NAME measures some.
"""

import argparse
import json
import pathlib
import shutil
import subprocess
import sys
import time

import numpy as np

# Name → its format and the options of the export.
_MORE = {
    'tflite int8': ('tflite', {'dtype': 'int8'}),
    'onnx int8': ('onnx', {'variants': ('int8',)}),
    'onnx float16': ('onnx', {'variants': ('float16',)}),
}


def measure(folder: str, texts: list[str], expected: str) -> dict[str, float]:
    """Compare a folder with expected outputs; runs without bert_jax."""
    sys.path.insert(0, folder)
    import load

    values = np.load(expected)
    (name,) = values.files
    outputs = np.concatenate([load.run(texts[i : i + 8])[name] for i in range(0, len(texts), 8)])
    encoded = [load.encode([text]) for text in texts[:50]]
    for inputs in encoded:  # compile every shape
        load.compute(inputs)
    start = time.perf_counter()
    for inputs in encoded:
        load.compute(inputs)
    seconds = time.perf_counter() - start
    return {
        'difference': float(np.abs(outputs - values[name]).max()),
        'milliseconds': 1000 * seconds / len(encoded),
        'has_bert_jax': 'bert_jax' in sys.modules,
    }


def correlation(folder: str, files: str) -> float:
    """Spearman correlation of cosines with the scores of pairs; runs without bert_jax."""
    sys.path.insert(0, folder)
    import load

    contents = [pathlib.Path(name).read_text(encoding='utf-8') for name in files.split(',')]
    rows = [line.split('\t')[:3] for content in contents for line in content.splitlines()]
    scored = [(float(score), a, b) for score, a, b in rows if score.strip()]
    texts = [text for _, *pair in scored for text in pair]
    parts = [load.run(texts[i : i + 16])['sentence_embedding'] for i in range(0, len(texts), 16)]
    vectors = np.concatenate(parts)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    cosines = (vectors[::2] * vectors[1::2]).sum(1)
    return float(np.corrcoef(_ranks(cosines), _ranks([score for score, *_ in scored]))[0, 1])


def _ranks(values) -> np.ndarray:
    """Return the ranks of values; equal values get their mean rank."""
    _, place, count = np.unique(values, return_inverse=True, return_counts=True)
    return (np.cumsum(count) - (count + 1) / 2)[place]


def expected_outputs(model, texts: list[str]) -> dict[str, np.ndarray]:
    """Return the outputs of `predict`: vectors, or the probabilities of classes."""
    if 'classify' not in model.tasks:
        return {'sentence_embedding': model.embed(texts)}
    records = model.classify(texts, probabilities=True)
    return {'probabilities': np.array([list(r['probabilities'].values()) for r in records])}


def run_all(flags: argparse.Namespace) -> dict[str, dict[str, float]]:
    """Export and measure every format that supports the task of the model."""
    import bert_jax
    from bert_jax import export, export_formats
    from bert_jax.errors import UserError

    output, model = pathlib.Path(flags.output), bert_jax.load(flags.model)
    texts = pathlib.Path(flags.texts).read_text(encoding='utf-8').splitlines()
    output.mkdir(parents=True, exist_ok=True)
    np.savez(output / 'expected.npz', **expected_outputs(model, texts))
    names = {name: (name, {}) for name in export_formats.FORMATS} | _MORE
    if flags.formats:
        names = {name: names[name] for name in flags.formats.split(',')}
    task = 'classify' if 'classify' in model.tasks else 'embed'
    results = {}
    for name, (format_name, options) in names.items():
        folder = output / name.replace(' ', '_')
        shutil.rmtree(folder, ignore_errors=True)
        try:
            export.export(
                export.Request(
                    model=flags.model, output=str(folder), format=format_name, task=task, **options
                )
            )
        except UserError as error:
            print(error)
            continue
        for variant in (folder / 'onnx').glob('model_*.onnx'):  # its loader runs model.onnx
            variant.replace(folder / 'onnx/model.onnx')
        python = sys.executable
        if flags.environments:
            python = f'{flags.environments}/{format_name}/bin/python'
        arguments = ['--measure', str(folder.resolve()), '--texts', flags.texts]
        arguments += ['--output', str((output / 'expected.npz').resolve())]
        if flags.pairs and task == 'embed':
            arguments += ['--pairs', flags.pairs]
        command = [python, __file__, *arguments]
        process = subprocess.run(command, capture_output=True, encoding='utf-8', check=True)
        results[name] = json.loads(process.stdout.splitlines()[-1])
        size = sum(file.stat().st_size for file in folder.rglob('*') if file.is_file())
        results[name]['megabytes'] = size / 1e6
        print(name, results[name])
    (output / 'results.json').write_text(json.dumps(results, indent=2) + '\n')
    return results


def plot(results: dict[str, dict[str, float]], path: pathlib.Path) -> None:
    """Draw the three measures, a row for each format."""
    from bert_jax import figures

    figure = figures.new(9, 2.4)
    axes = figure.subplots(1, 3, sharey=True)
    titles = {
        'megabytes': 'size (MB)',
        'difference': 'largest difference from predict',
        'milliseconds': 'ms a sentence, one at a time',
    }
    names = list(results)[::-1]
    for axis, (key, title) in zip(axes, titles.items(), strict=True):
        values = [results[name][key] for name in names]
        bars = axis.barh(names, values, color='#4878a8')
        labels = [f'{value:.1g}' if value < 1 else f'{value:.0f}' for value in values]
        axis.bar_label(bars, labels, padding=3, bbox={'color': 'white', 'pad': 1})
        axis.set_title(title, fontsize=10)
        axis.spines[['top', 'right']].set_visible(False)
        axis.margins(x=0.2)
        if key == 'difference':
            axis.set_xscale('log')
            axis.set_xlim(1e-8, 10)
            axis.axvline(1e-5, color='#c44e52', linestyle='--', linewidth=1, zorder=0)
    figures.save(figure, path, ['png'])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ('model', 'texts', 'output', 'environments', 'formats', 'pairs', 'measure'):
        parser.add_argument(f'--{name}')
    flags = parser.parse_args()
    if flags.measure:
        texts = pathlib.Path(flags.texts).read_text(encoding='utf-8').splitlines()
        measures = measure(flags.measure, texts, flags.output)
        if flags.pairs:
            measures['spearman'] = correlation(flags.measure, flags.pairs)
        print(json.dumps(measures))
    else:
        plot(run_all(flags), pathlib.Path(flags.output) / 'formats')


if __name__ == '__main__':
    main()
