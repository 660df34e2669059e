"""One task fine-tuned with transformers and torch, one seed, in a process of its own.

python -m experiments.finetuning.torch_side --task=sts_stackexchange --data=FOLDER \
    --weights=FOLDER --folder=FOLDER
"""

import argparse
import json
import os
import pathlib
import random
import time

import torch
import transformers

from bert_jax.tasks import problems
from bert_jax.training import allocator
from experiments.finetuning import tasks
from experiments.finetuning.torch_problems import PROBLEMS, parameters

EVALUATION_BATCH = 32


def run(config, padded: bool = False) -> dict:
    """Trains as a config of bert_jax says and evaluates on dev.

    padded: every batch is padded to training.max_length, and only the time counts.
    Returns 'held_out' (metrics; not if padded) and 'seconds_per_step'.
    """
    torch.manual_seed(config.seed)
    splits = problems.read(config.data, config.task)
    tokenizer = transformers.AutoTokenizer.from_pretrained(config.init_from)
    problem = PROBLEMS[config.task](tokenizer, config, splits.train)
    model = problem.model(config.init_from)
    features = [problem.features(example) for example in splits.train]
    seconds = train(model, problem, features, config, padded)
    found = {'seconds_per_step': seconds}
    return found if padded else found | {'held_out': evaluate(model, problem, splits.dev)}


def train(model, problem, features: list[dict], config, padded: bool) -> float:
    """Returns the mean seconds of a step, the first ones (tasks.unmeasured) left out."""
    steps, own = config.training.steps, config.optimizer
    optimizer = torch.optim.AdamW(
        parameters(model, own.weight_decay),
        lr=config.schedule.learning_rate,
        betas=(own.beta1, own.beta2),
        eps=own.eps,
    )
    warmup = round(config.schedule.warmup_fraction * steps)
    schedule = transformers.get_linear_schedule_with_warmup(optimizer, warmup, steps)
    length = config.training.max_length if padded else 0
    model.train()
    begun = None
    for step, chosen in enumerate(drawn(features, config.training.batch_size, steps, config.seed)):
        if step == tasks.unmeasured(steps):
            begun = time.perf_counter()
        loss = model(**batch(problem, chosen, length)).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), own.clip_norm)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
        if step % 20 == 0:
            print(f'step {step} of {steps}: loss {loss.item():.4f}', flush=True)
    return (time.perf_counter() - begun) / (steps - tasks.unmeasured(steps))


def drawn(features: list[dict], size: int, steps: int, seed: int):
    """Batches of one shuffled epoch after the other."""
    rng, order = random.Random(seed), []
    for _ in range(steps):
        while len(order) < size:
            order += rng.sample(range(len(features)), len(features))
        chosen, order = order[:size], order[size:]
        yield [features[number] for number in chosen]


def batch(problem, features: list[dict], length: int = 0) -> dict[str, torch.Tensor]:
    """Padded to the longest, or to `length`."""
    names = [name for name in problem.tokenizer.model_input_names if name in features[0]]
    inputs = problem.tokenizer.pad(
        [{name: feature[name] for name in names} for feature in features],
        padding='max_length' if length else 'longest',
        max_length=length or None,
        return_tensors='pt',
    )
    return dict(inputs) | problem.targets(features, inputs['input_ids'].shape[1])


@torch.no_grad()
def evaluate(model, problem, examples: list) -> dict[str, float]:
    """The metrics of examples."""
    model.eval()
    decoded = []
    for begin in range(0, len(examples), EVALUATION_BATCH):
        chosen = examples[begin : begin + EVALUATION_BATCH]
        features = [problem.features(example) for example in chosen]
        rows = problem.logits(model(**batch(problem, features))).numpy()
        decoded += map(problem.decode, chosen, features, rows)
    return problem.score(examples, decoded)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('--task', required=True, choices=tasks.TASKS)
    parser.add_argument('--data', required=True)
    parser.add_argument('--weights', required=True)
    parser.add_argument('--folder', required=True, help='where results.json goes')
    parser.add_argument('--steps', type=int, default=0)
    parser.add_argument('--seed', type=int, default=0)
    parser.add_argument('--padded', action='store_true')
    options = parser.parse_args()
    allocator.keep_freed_memory()
    torch.set_num_threads(len(os.sched_getaffinity(0)))
    study = tasks.TASKS[options.task]
    changes = tasks.keys(study, options.data, options.weights, options.steps)
    found = run(tasks.config(study, changes | {'seed': options.seed}), options.padded)
    folder = pathlib.Path(options.folder)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / 'results.json').write_text(json.dumps(found, indent=1) + '\n')


if __name__ == '__main__':
    main()
