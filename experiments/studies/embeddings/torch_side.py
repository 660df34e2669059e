"""Trains embeddings of one task with sentence-transformers, with one seed.

python -m experiments.studies.embeddings.torch_side --task=qamr --table=FILE --weights=FOLDER \
    --steps=60 --seed=0 --folder=FOLDER
"""

import argparse
import pathlib
from collections.abc import Iterator

import numpy as np
import torch
import transformers
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer import losses

from bert_jax import problems
from bert_jax.examples.batch_orders import PairsOfClasses
from bert_jax.files import write_json
from bert_jax.problems.embedding.decoder import EmbeddingDecoder
from bert_jax.training import runtime
from experiments.finetuning.torch_problems import parameter_groups
from experiments.finetuning.torch_side import shuffled_batches
from experiments.studies.embeddings import tasks

LOSSES = {
    'cosent': losses.CoSENTLoss,
    'in_batch': losses.MultipleNegativesRankingLoss,
    'batch_hard_soft': losses.BatchHardSoftMarginTripletLoss,
}


def training_steps(model, examples: list, config) -> Iterator[None]:
    """Train, and yield after every step."""
    steps, settings = config.training.steps, config.optimizer
    optimizer = torch.optim.AdamW(
        parameter_groups(model, settings.weight_decay),
        lr=config.schedule.learning_rate,
        betas=(settings.beta1, settings.beta2),
        eps=settings.eps,
    )
    warmup = round(config.schedule.warmup_fraction * steps)
    schedule = transformers.get_linear_schedule_with_warmup(optimizer, warmup, steps)
    loss_of = LOSSES[config.problem.loss](model)
    classes = {label: number for number, label in enumerate(sorted({e.label for e in examples}))}
    model.train()
    for chosen in _batches(examples, classes, config):
        columns = zip(*(example.texts for example in chosen), strict=True)
        features = [model.preprocess(list(texts)) for texts in columns]
        loss = loss_of(features, _labels(chosen, classes))
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), settings.clip_norm)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
        yield


def _batches(examples: list, classes: dict, config):
    """Yield batches of the composition that bert_jax chooses for the loss."""
    size, steps = config.training.batch_size, config.training.steps
    if len(classes) < 2:
        yield from shuffled_batches(examples, size, steps, config.seed)
        return
    class_N = np.array([classes[example.label] for example in examples])
    order = PairsOfClasses(np.ones(len(examples)), size, config.seed, class_N)
    epochs = -(-steps * size // order.size)
    numbers = np.concatenate([order.epoch(epoch) for epoch in range(epochs)])
    for step in range(steps):
        yield [examples[number] for number in numbers[step * size : (step + 1) * size]]


def _labels(examples: list, classes: dict) -> torch.Tensor | None:
    if examples[0].scores:
        return torch.tensor([example.scores[0] for example in examples])
    numbers = torch.tensor([classes[example.label] for example in examples])
    return numbers if len(classes) > 1 else None


def evaluate(model, examples: list, config) -> dict[str, float]:
    """The metrics of bert_jax on the vectors of the model."""
    texts = [text for example in examples for text in example.texts]
    vectors = iter(model.eval().encode(texts, show_progress_bar=False))
    predictions = [np.stack([next(vectors) for _ in example.texts]) for example in examples]
    setup = problems.base.Setup(config.problem, None)
    return EmbeddingDecoder(setup, None).score(examples, predictions).metrics


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ('task', 'table', 'weights', 'folder'):
        parser.add_argument(f'--{name}', required=True)
    for name in ('steps', 'seed'):
        parser.add_argument(f'--{name}', type=int, required=True)
    options = parser.parse_args()
    runtime.configure()
    config = tasks.make_config(
        options.task, pathlib.Path(options.table), options.weights, options.steps, options.seed
    )
    torch.manual_seed(config.seed)
    splits = problems.read(config.data, 'embedding')
    model = SentenceTransformer(options.weights, device='cpu')
    model.max_seq_length = config.training.sequence_length
    before = evaluate(model, splits.dev, config)
    for _ in training_steps(model, splits.train, config):
        pass
    folder = pathlib.Path(options.folder)
    folder.mkdir(parents=True, exist_ok=True)
    results = {'before': before, 'held_out': evaluate(model, splits.dev, config)}
    write_json(folder / 'results.json', results, indent=1)


if __name__ == '__main__':
    main()
