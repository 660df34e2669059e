"""Fine-tunes one task with transformers and torch, with one seed.

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

from bert_jax import problems
from bert_jax.training import devices, runtime
from experiments.finetuning import tasks
from experiments.finetuning.torch_problems import PROBLEMS, parameter_groups

EVALUATION_BATCH = 32


def run(config, padded: bool = False, method: str = '') -> dict:
    """Train as a config of bert_jax says and evaluate on the dev split.

    Args:
        config: the config of a fine-tuning run of bert_jax.
        padded: pad every batch to training.sequence_length and measure only the time.
        method: 'lora' or 'ia3' tunes with peft.

    Returns:
        'seconds_per_step', 'trained_percent', 'peak_memory_bytes', and 'held_out' with the metrics
        unless `padded`.
    """
    torch.manual_seed(config.seed)
    splits = problems.read(config.data, config.task)
    tokenizer = transformers.AutoTokenizer.from_pretrained(config.init_from)
    problem = PROBLEMS[config.task](tokenizer, config, splits.train)
    model = problem.model(config.init_from)
    if method:
        model = with_peft(model, method, config.task)
    features = [problem.features(example) for example in splits.train]
    seconds = train(model, problem, features, config, padded)
    results = {
        'seconds_per_step': seconds,
        'trained_percent': _trained_percent(model),
        'peak_memory_bytes': devices.peak_bytes(),
    }
    return results if padded else results | {'held_out': evaluate(model, problem, splits.dev)}


def _trained_percent(model) -> float:
    counts = [(p.numel(), p.requires_grad) for p in model.parameters()]
    return 100 * sum(n for n, trained in counts if trained) / sum(n for n, _ in counts)


def with_peft(model, method: str, kind: str):
    """Return the model with peft's parameters for a kind of problem, with bert_jax's settings."""
    import peft

    task_type = 'TOKEN_CLS' if kind == 'tagging' else 'SEQ_CLS'
    if method == 'lora':
        settings = peft.LoraConfig(
            task_type=task_type, r=8, lora_alpha=16, target_modules=['query', 'value']
        )
    else:
        inner = r'.*\.\d+\.output\.dense'
        settings = peft.IA3Config(
            task_type=task_type,
            target_modules=rf'.*\.(key|value)|{inner}',
            feedforward_modules=inner,
        )
    return peft.get_peft_model(model, settings)


def train(model, problem, features: list[dict], config, padded: bool) -> float:
    """Train; return the mean seconds per step without the untimed first steps."""
    steps, settings = config.training.steps, config.optimizer
    optimizer = torch.optim.AdamW(
        parameter_groups(model, settings.weight_decay),
        lr=config.schedule.learning_rate,
        betas=(settings.beta1, settings.beta2),
        eps=settings.eps,
    )
    warmup = round(config.schedule.warmup_fraction * steps)
    schedule = transformers.get_linear_schedule_with_warmup(optimizer, warmup, steps)
    length = config.training.sequence_length if padded else 0
    model.train()
    start = None
    batches = shuffled_batches(features, config.training.batch_size, steps, config.seed)
    for step, chosen in enumerate(batches):
        if step == tasks.untimed_steps(steps):
            start = time.perf_counter()
        loss = model(**collate(problem, chosen, length)).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), settings.clip_norm)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
        if step % 20 == 0:
            print(f'step {step} of {steps}: loss {loss.item():.4f}', flush=True)
    return (time.perf_counter() - start) / (steps - tasks.untimed_steps(steps))


def shuffled_batches(features: list[dict], size: int, steps: int, seed: int):
    """Yield batches; every epoch is shuffled anew."""
    rng, order = random.Random(seed), []
    for _ in range(steps):
        while len(order) < size:
            order += rng.sample(range(len(features)), len(features))
        chosen, order = order[:size], order[size:]
        yield [features[number] for number in chosen]


def collate(problem, features: list[dict], length: int = 0) -> dict[str, torch.Tensor]:
    """Pad features to the longest of them, or to `length`."""
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
    """Return the metrics on examples."""
    model.eval()
    decoded = []
    for begin in range(0, len(examples), EVALUATION_BATCH):
        chosen = examples[begin : begin + EVALUATION_BATCH]
        features = [problem.features(example) for example in chosen]
        rows = problem.logits(model(**collate(problem, features))).numpy()
        decoded += map(problem.decode, chosen, features, rows)
    return problem.score(examples, decoded)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('--task', required=True, choices=tasks.TASKS)
    parser.add_argument('--data', required=True)
    parser.add_argument('--weights', required=True)
    parser.add_argument('--folder', required=True, help='where to write results.json')
    parser.add_argument('--steps', type=int, default=0)
    parser.add_argument('--seed', type=int, default=0)
    parser.add_argument('--padded', action='store_true')
    parser.add_argument('--method', default='', help='lora or ia3, with peft')
    parser.add_argument('--rate_factor', type=float, default=1.0, help='of the learning rate')
    options = parser.parse_args()
    runtime.keep_freed_memory()
    torch.set_num_threads(len(os.sched_getaffinity(0)))
    task = tasks.TASKS[options.task]
    keys = tasks.config_keys(task, options.data, options.weights, options.steps)
    keys['schedule.learning_rate'] = options.rate_factor * task.learning_rate
    config = tasks.make_config(task, keys | {'seed': options.seed})
    results = run(config, options.padded, options.method)
    folder = pathlib.Path(options.folder)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / 'results.json').write_text(json.dumps(results, indent=1) + '\n')


if __name__ == '__main__':
    main()
