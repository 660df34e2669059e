"""Time of a training step of the bidirectional language model, compared with torch.nn.LSTM.

    python experiments/benchmarks/bilm.py --steps=20

Both sides train the same model from the same weights on the same random rows: a table of tokens,
layers of projected LSTM cells in two directions that do not read each other, residual connections,
one softmax, and AdamW, in float32 without dropout. The steps take turns in one process. The script
ends with an error if the losses of the first step differ by more than 1e-4. bert_jax also clips
cells and projections at 3, as ELMo does, and computes the gradient norm.
"""

import argparse
import statistics
import sys
from collections.abc import Callable

import numpy as np
import report
import sides

TOLERANCE = 1e-4


def architecture_of(options: argparse.Namespace):
    """Return the architecture of both sides."""
    from bert_jax.models import architectures

    return architectures.build(
        'elmo',
        vocab_size=options.vocabulary,
        hidden_size=options.size,
        intermediate_size=options.cells,
        num_layers=options.layers,
        hidden_dropout=0.0,
    )


def make_rows(options: argparse.Namespace) -> np.ndarray:
    """Return random rows that start and end with special tokens, int32 [batch, length]."""
    rng = np.random.default_rng(0)
    ids = rng.integers(3, options.vocabulary, (options.batch, options.length), np.int32)
    ids[:, 0], ids[:, -1] = 1, 2
    return ids


def make_bert_jax_step(options: argparse.Namespace) -> tuple[Callable[[], float], dict]:
    """Return a function that runs a step and returns the loss before it, and the first weights."""
    import jax
    from flax import linen as nn

    from bert_jax.models.architecture import Compute
    from bert_jax.models.model import Model
    from bert_jax.models.rows import Rows
    from bert_jax.objectives.bilm import BidirectionalLanguageModel, CleanText
    from bert_jax.objectives.corruption import Vocabulary
    from bert_jax.training import optimizers, runtime
    from bert_jax.training.state import TrainState
    from bert_jax.training.step import compile_train_step, make_train_step

    runtime.disable_async_dispatch()
    model = Model(architecture_of(options), Compute('float32'), {'bilm': {}})
    ids = make_rows(options)
    corrupt = CleanText(Vocabulary(-1, 0, (0, 1, 2), np.ones(options.vocabulary, np.int64)))
    batch = jax.device_put({'input_ids': ids, 'attention_mask': np.ones_like(ids)})

    class Task:
        weights = {'bilm_loss': 1.0}

        def terms(self, params, batch, key, train, progress=1.0):
            rows = corrupt(None, Rows.of(batch))
            output = model.apply({'params': params}, rows)
            return {'bilm_loss': BidirectionalLanguageModel().terms(output, rows)['bilm_loss']}

    optimizer = optimizers.build(sides.ADAMW, lambda step: 1e-4)

    @jax.jit
    def init() -> TrainState:
        variables = model.init(jax.random.key(0), corrupt(None, Rows.of(batch)))
        params = nn.unbox(variables['params'])
        return TrainState(0, 0, 0, params, optimizer.init(params))

    state = init()
    first = jax.device_get(state.params)
    compiled = compile_train_step(make_train_step(Task(), optimizer), state, batch)

    def step() -> float:
        nonlocal state
        state, metrics = compiled(state, batch, jax.random.key(0))
        return float(metrics['loss'])

    return step, first


def make_torch_step(options: argparse.Namespace, params: dict) -> Callable[[], float]:
    """Return the same for torch.nn.LSTM, starting from the weights of bert_jax."""
    import torch

    ids = torch.from_numpy(make_rows(options).astype(np.int64))
    width, encoder = options.size // 2, params['encoder']
    table = torch.nn.Parameter(_tensor(encoder['embeddings']['token'][: options.vocabulary]))
    bias = torch.nn.Parameter(_tensor(params['bilm']['head']['bias'][: options.vocabulary]))
    layers = torch.nn.ModuleDict()
    for number in range(options.layers):
        for name in ('forward', 'backward'):
            own = encoder[f'layers_{number}'][name]
            lstm = torch.nn.LSTM(width, options.cells, proj_size=width, batch_first=True)
            values = {
                'weight_ih_l0': own['input'].T,
                'weight_hh_l0': own['recurrent'].T,
                'weight_hr_l0': own['projection'].T,
                'bias_ih_l0': own['bias'],
                'bias_hh_l0': 0 * own['bias'],
            }
            lstm.load_state_dict({key: _tensor(value) for key, value in values.items()})
            layers[f'{name}_{number}'] = lstm
    optimizer = torch.optim.AdamW([table, bias, *layers.parameters()], lr=1e-4, weight_decay=0.01)

    def states(name: str) -> torch.Tensor:
        x = table[ids]
        for number in range(options.layers):
            given = x.flip(1) if name == 'backward' else x
            h, _ = layers[f'{name}_{number}'](given)
            h = h.flip(1) if name == 'backward' else h
            x = h + x if number else h
        return x

    def step() -> float:
        optimizer.zero_grad()
        predicting = states('forward')[:, :-2], states('backward')[:, 2:]
        targets = ids[:, 1:-1].flatten()
        losses = [
            torch.nn.functional.cross_entropy((x @ table.T + bias).flatten(0, 1), targets)
            for x in predicting
        ]
        loss = (losses[0] + losses[1]) / 2
        loss.backward()
        optimizer.step()
        return float(loss.detach())

    return step


def _tensor(array: np.ndarray):
    import torch

    return torch.tensor(np.asarray(array))


def main(arguments: list[str] | None = None) -> list[dict]:
    """Compare the losses, time the steps, and return a record for each side."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name, default in (('layers', 2), ('size', 256), ('cells', 512), ('vocabulary', 8000)):
        parser.add_argument(f'--{name}', default=default, type=int)
    for name, default in (('batch', 16), ('length', 64), ('steps', 20), ('warmup', 2)):
        parser.add_argument(f'--{name}', default=default, type=int)
    parser.add_argument('--output', help='write NAME.json, NAME.md and NAME.png')
    options = parser.parse_args(arguments)
    step, params = make_bert_jax_step(options)
    steps = {'bert_jax': step, 'torch': make_torch_step(options, params)}
    losses = {name: step() for name, step in steps.items()}
    if abs(losses['bert_jax'] - losses['torch']) > TOLERANCE:
        sys.exit(f'error: the losses differ: {losses}')
    report.take_turns(steps, options.warmup)
    seconds = report.take_turns(steps, options.steps)
    ratios = [a / b for a, b in zip(seconds['bert_jax'], seconds['torch'], strict=True)]
    records = [
        {
            'side': name,
            'median_ms': round(1e3 * statistics.median(times), 1),
            'min_ms': round(1e3 * min(times), 1),
            'max_ms': round(1e3 * max(times), 1),
            'loss': round(losses[name], 5),
        }
        for name, times in seconds.items()
    ]
    report.show(records, options.output, 'median_ms')
    print(f'bert_jax takes {statistics.median(ratios):.2f} × the time of torch (median of turns)')
    return records


if __name__ == '__main__':
    main()
