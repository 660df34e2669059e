"""Measures sentences per second from text to mean-pooled vectors, compared with torch.

    python experiments/benchmarks/encoding.py --model=FOLDER --input=SENTENCES --rounds=5

--model is a folder of published weights, --input a file with a sentence per line. The time includes
tokenization. The sides are

    bert_jax        bert_jax.inference, like `predict --task=embed`
    torch           AutoModel and AutoTokenizer, batches of 32 sentences sorted by length

each in fp32 and in bf16 (torch's weights are converted). Every side has its own process and encodes
all sentences once before it is timed, so that bert_jax compiles; then the sides take turns. Prints
the median and the range over the rounds, and the largest difference between the vectors of a side
and the vectors of torch in fp32.
"""

import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))

SIDES = ('bert_jax/float32', 'torch/float32', 'bert_jax/bfloat16', 'torch/bfloat16')
TORCH_BATCH = 32


def make_bert_jax(model: str, dtype: str):
    """Return a function from texts to vectors [N, D]."""
    from bert_jax.training import runtime

    runtime.keep_freed_memory()
    from bert_jax.inference.predictor import Predictor
    from bert_jax.interop import loading

    predictor = Predictor(loading.load_any(model), dtype=dtype)
    return lambda texts: predictor.embed(texts, 'mean')


def make_torch(model: str, dtype: str):
    """Return a function from texts to vectors [N, D]."""
    import torch
    import transformers

    encoder = transformers.AutoModel.from_pretrained(model, dtype=getattr(torch, dtype)).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(model)

    def encode(texts):
        ids = tokenizer(texts, truncation=True, max_length=512)['input_ids']
        order = sorted(range(len(ids)), key=lambda i: -len(ids[i]))
        vectors = [None] * len(ids)
        for start in range(0, len(order), TORCH_BATCH):
            chosen = order[start : start + TORCH_BATCH]
            batch = tokenizer.pad({'input_ids': [ids[i] for i in chosen]}, return_tensors='pt')
            with torch.inference_mode():
                states = encoder(**batch).last_hidden_state.float()
            mask = batch['attention_mask'][..., None]
            pooled = (states * mask).sum(1) / mask.sum(1)
            for row, i in enumerate(chosen):
                vectors[i] = pooled[row].numpy()
        return np.stack(vectors)

    return encode


def run_side(side: str, model: str, texts: list[str], folder: pathlib.Path):
    """Warm up, then encode once for every line on stdin and print the seconds."""
    name, dtype = side.split('/')
    encode = {'bert_jax': make_bert_jax, 'torch': make_torch}[name](model, dtype)

    def timed():
        start = time.perf_counter()
        vectors = encode(texts)
        return vectors, time.perf_counter() - start

    vectors, seconds = timed()
    np.save(folder / f'{side.replace("/", "_")}.npy', vectors)
    print(seconds, flush=True)
    for _ in sys.stdin:
        print(timed()[1], flush=True)


def measure(flags) -> list[dict]:
    """Return a record for each side."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, __file__, *sys.argv[1:], f'--folder={folder}']
        pipes = {'stdin': subprocess.PIPE, 'stdout': subprocess.PIPE, 'text': True}
        sides, first, rounds = {}, {}, {side: [] for side in flags.sides.split(',')}
        for side in rounds:
            sides[side] = subprocess.Popen([*command, f'--side={side}'], **pipes)
            first[side] = float(sides[side].stdout.readline())
        for _ in range(flags.rounds):
            for side, process in sides.items():
                process.stdin.write('\n')
                process.stdin.flush()
                rounds[side].append(float(process.stdout.readline()))
        for process in sides.values():
            process.stdin.close()
            process.wait()
        vectors = {
            side: np.load(pathlib.Path(folder) / f'{side.replace("/", "_")}.npy') for side in rounds
        }
    number = len(next(iter(vectors.values())))
    return [
        {
            'side': side,
            'sentences_per_second': round(number / statistics.median(seconds), 1),
            'range': [round(number / max(seconds), 1), round(number / min(seconds), 1)],
            'first_pass_seconds': round(first[side], 1),
            'difference': float(np.abs(vectors[side] - vectors['torch/float32']).max())
            if 'torch/float32' in vectors
            else None,
        }
        for side, seconds in rounds.items()
    ]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument('--model', required=True)
    parser.add_argument('--input', required=True)
    parser.add_argument('--rounds', type=int, default=5)
    parser.add_argument('--sides', default=','.join(SIDES))
    parser.add_argument('--side', help=argparse.SUPPRESS)
    parser.add_argument('--folder', type=pathlib.Path, help=argparse.SUPPRESS)
    flags = parser.parse_args()
    texts = pathlib.Path(flags.input).read_text(encoding='utf-8').splitlines()
    if flags.side:
        run_side(flags.side, flags.model, texts, flags.folder)
    else:
        for record in measure(flags):
            print(json.dumps(record), flush=True)


if __name__ == '__main__':
    main()
