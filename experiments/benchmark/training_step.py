"""Time and memory of a training step beside transformers + torch: same shapes, same run.

    python experiments/benchmark/training_step.py --shape=mini --dtypes=float32,bfloat16

A step is forward pass with dropout .1, masked-language-model and next-sentence loss, backward pass
and AdamW update, on random tokens. The sides:

    bert_jax        this repository, masked positions gathered before the vocabulary projection
    torch           transformers' BertForPreTraining as shipped: a logit for every position
    torch_gathered  the same model, masked positions gathered as here

In bf16 the torch sides run under torch.autocast. Every side lives in a process of its own, with the
same environment (so the same memory allocator); all processes take turns, one step each, so that a
change in the machine's load meets all alike. Reported are the median and range of the steps after
warm-up, tokens per second, TFLOP/s by the count of bert_jax/models/flops.py (for the sides that
gather), and each process's peak memory.
Needs torch and transformers for their sides; neither TensorFlow nor ml_collections.
"""

import argparse
import dataclasses
import json
import os
import pathlib
import resource
import statistics
import subprocess
import sys
import time

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))


@dataclasses.dataclass(frozen=True)
class Shape:
    """A model and a batch: `layers` × `size` wide, `batch` sequences of `length` tokens."""

    layers: int
    size: int
    batch: int
    length: int
    predictions: int
    vocabulary: int = 30522


SHAPES = {
    'tiny': Shape(2, 128, 32, 64, 10, 8000),
    'mini': Shape(4, 256, 32, 128, 20),
    'mini_512': Shape(4, 256, 8, 512, 76),
    'base': Shape(12, 768, 8, 128, 20),
    'base_512': Shape(12, 768, 2, 512, 76),
    'base_32': Shape(12, 768, 32, 128, 20),
}
SIDES = ('bert_jax', 'torch', 'torch_gathered')


def make_batch(shape: Shape) -> dict[str, np.ndarray]:
    """Random tokens with distinct masked positions, all real, int32."""
    rng = np.random.default_rng(0)
    rows = (shape.batch, shape.length)
    return {
        'input_ids': rng.integers(0, shape.vocabulary, rows, np.int32),
        'attention_mask': np.ones(rows, np.int32),
        'token_type_ids': np.repeat(np.arange(shape.length) > shape.length // 2, shape.batch)
        .reshape(shape.length, shape.batch)
        .T.astype(np.int32),
        'positions': np.stack(
            [rng.permutation(shape.length)[: shape.predictions] for _ in range(shape.batch)]
        ).astype(np.int32),
        'targets': rng.integers(0, shape.vocabulary, (shape.batch, shape.predictions), np.int32),
        'next_sentence_label': rng.integers(0, 2, shape.batch, np.int32),
    }


def make_bert_jax_step(shape: Shape, dtype: str, compute_options: dict):
    """A function that runs one training step and waits for its end."""
    import jax
    import optax
    from flax import linen as nn

    from bert_jax.models import architectures
    from bert_jax.models.architecture import Compute
    from bert_jax.models.dropout import fold
    from bert_jax.models.encoder import Encoder
    from bert_jax.models.gather import gather_positions
    from bert_jax.models.heads import MaskedLanguageModelHead, NextSentenceHead
    from bert_jax.objectives.mlm import cross_entropy

    architecture = architectures.build(
        'bert', num_layers=shape.layers, hidden_size=shape.size, vocab_size=shape.vocabulary
    )
    compute = Compute(dtype, **compute_options)

    class Model(nn.Module):
        def setup(self):
            self.encoder = Encoder(architecture, compute)
            self.mlm = MaskedLanguageModelHead(architecture, compute)
            self.nsp = NextSentenceHead(architecture, compute)

        def __call__(self, batch, seeds_B):
            output = self.encoder(
                batch['input_ids'], batch['attention_mask'], batch['token_type_ids'], seeds_B
            )
            hidden_BPD = gather_positions(output.hidden_BTD, batch['positions'])
            logits_BPV = self.mlm(hidden_BPD, self.encoder.embedding_table())
            logits_B2 = self.nsp(output.pooled_BD)
            return (
                cross_entropy(logits_BPV, batch['targets']).mean()
                + cross_entropy(logits_B2, batch['next_sentence_label']).mean()
            )

    batch = jax.device_put(make_batch(shape))
    seeds_B = jax.random.bits(jax.random.key(1), (shape.batch,))
    model, optimizer = Model(), optax.adamw(1e-4, weight_decay=0.01)

    @jax.jit
    def init():
        params = nn.unbox(model.init(jax.random.key(0), batch, None))['params']
        return params, optimizer.init(params), 0

    @jax.jit(donate_argnums=0)
    def update(state):
        params, moments, step = state
        loss, grads = jax.value_and_grad(
            lambda params: model.apply({'params': params}, batch, fold(seeds_B, step))
        )(params)
        updates, moments = optimizer.update(grads, moments, params)
        return (optax.apply_updates(params, updates), moments, step + 1), loss

    state = init()

    def step():
        nonlocal state
        state, loss = update(state)
        return float(loss)

    return step


def make_torch_step(shape: Shape, dtype: str, gathered: bool):
    """A function that runs one training step and waits for its end."""
    import torch
    import transformers

    config = transformers.BertConfig(
        vocab_size=shape.vocabulary,
        hidden_size=shape.size,
        num_hidden_layers=shape.layers,
        num_attention_heads=max(1, shape.size // 64),
        intermediate_size=4 * shape.size,
    )
    device = 'cuda' if torch.cuda.is_available() else 'cpu'
    model = transformers.BertForPreTraining(config).train().to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0.01, fused=True)
    batch = {
        key: torch.from_numpy(np.asarray(value, np.int64)).to(device)
        for key, value in make_batch(shape).items()
    }
    inputs = {key: batch[key] for key in ('input_ids', 'attention_mask', 'token_type_ids')}
    labels = torch.full_like(batch['input_ids'], -100)
    labels.scatter_(1, batch['positions'], batch['targets'])
    cross_entropy = torch.nn.functional.cross_entropy

    def loss_as_shipped():
        return model(**inputs, labels=labels, next_sentence_label=batch['next_sentence_label']).loss

    def loss_gathered():
        output = model.bert(**inputs)
        index = batch['positions'][:, :, None].expand(-1, -1, shape.size)
        hidden = output.last_hidden_state.gather(1, index)
        logits, logits_2 = model.cls(hidden, output.pooler_output)
        return cross_entropy(
            logits.float().flatten(0, 1), batch['targets'].flatten()
        ) + cross_entropy(logits_2.float(), batch['next_sentence_label'])

    compute_loss = loss_gathered if gathered else loss_as_shipped

    def step():
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast(device, torch.bfloat16, enabled=dtype == 'bfloat16'):
            loss = compute_loss()
        loss.backward()
        optimizer.step()
        return loss.item()

    return step


def work(side: str, shape: Shape, dtype: str, compute_options: dict):
    """Child process: a step for every line on stdin, its seconds and loss to stdout."""
    answers = os.fdopen(os.dup(1), 'w')
    os.dup2(2, 1)
    if side == 'bert_jax':
        step = make_bert_jax_step(shape, dtype, compute_options)
    else:
        step = make_torch_step(shape, dtype, gathered=side == 'torch_gathered')
    for _ in sys.stdin:
        start = time.perf_counter()
        loss = step()
        seconds = time.perf_counter() - start
        peak_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(json.dumps([seconds, loss, peak_mib]), file=answers, flush=True)


def measure(shape_name: str, sides: list[str], options) -> list[dict]:
    """Starts a process for every side and dtype and lets them take turns."""
    workers = {}
    for side in sides:
        for dtype in options.dtypes:
            command = [sys.executable, __file__, '--work', side, '--shape', shape_name]
            command += ['--dtypes', dtype, '--compute', json.dumps(options.compute)]
            workers[side, dtype] = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
    answers = {key: [] for key in workers}
    for _ in range(options.warmup + options.steps):
        for key, worker in workers.items():
            print(file=worker.stdin, flush=True)
            line = worker.stdout.readline()
            if not line:
                sys.exit(f'error: {key} ended early, see its message above')
            answers[key].append(json.loads(line))
    for worker in workers.values():
        worker.stdin.close()
        worker.wait()
    return [
        summarise(shape_name, *key, answers[key], answers[key][options.warmup :]) for key in workers
    ]


def summarise(shape_name: str, side: str, dtype: str, all_answers, timed) -> dict:
    from bert_jax.models import architectures
    from bert_jax.models.flops import training_flops_per_token

    shape = SHAPES[shape_name]
    seconds = [answer[0] for answer in timed]
    median = statistics.median(seconds)
    tokens = shape.batch * shape.length
    architecture = architectures.build(
        'bert', num_layers=shape.layers, hidden_size=shape.size, vocab_size=shape.vocabulary
    )
    flops = tokens * training_flops_per_token(architecture, shape.length, shape.predictions)
    return {
        'shape': shape_name,
        'side': side,
        'dtype': dtype,
        'median_ms': 1e3 * median,
        'min_ms': 1e3 * min(seconds),
        'max_ms': 1e3 * max(seconds),
        'tokens_per_second': tokens / median,
        'gathered_tflops_per_second': flops / median / 1e12,
        'first_step_s': all_answers[0][0],
        'peak_mib': max(answer[2] for answer in all_answers),
        'last_loss': timed[-1][1],
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--shape', default='mini', choices=SHAPES)
    parser.add_argument('--dtypes', default='float32,bfloat16', type=lambda text: text.split(','))
    parser.add_argument('--sides', default=','.join(SIDES), type=lambda text: text.split(','))
    parser.add_argument('--steps', default=10, type=int, help='timed steps of each side')
    parser.add_argument('--warmup', default=2, type=int)
    parser.add_argument('--compute', default={}, type=json.loads, help='JSON, options of Compute')
    parser.add_argument('--output', help='a JSON file to write')
    parser.add_argument('--work', choices=SIDES, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.work:
        work(options.work, SHAPES[options.shape], options.dtypes[0], options.compute)
        return
    rows = measure(options.shape, options.sides, options)
    for row in rows:
        print(
            f'{row["shape"]:9} {row["side"]:15} {row["dtype"]:9} {row["median_ms"]:8.1f} ms '
            f'({row["min_ms"]:.1f}–{row["max_ms"]:.1f})  {row["tokens_per_second"]:9.0f} tokens/s  '
            f'{row["gathered_tflops_per_second"]:6.3f} TFLOP/s  {row["peak_mib"]:6.0f} MiB  '
            f'first step {row["first_step_s"]:.1f} s'
        )
    if options.output:
        pathlib.Path(options.output).write_text(json.dumps(rows, indent=1) + '\n')


if __name__ == '__main__':
    main()
