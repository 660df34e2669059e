"""Builds a fine-tuning task from its config."""

import math
from collections.abc import Collection, Mapping

from ml_collections import ConfigDict

from bert_jax import problems
from bert_jax.errors import UserError
from bert_jax.examples.finetune_batches import TrainBatches, row_length
from bert_jax.models.architecture import Compute
from bert_jax.models.model import Model
from bert_jax.problems import finetuning_model
from bert_jax.problems.base import AnyProblem
from bert_jax.problems.setup import Setup
from bert_jax.tasks import attention_direction, initialization
from bert_jax.tasks.finetuning import inputs, learning_rate
from bert_jax.tasks.finetuning.task import FineTuning
from bert_jax.tokenizers.special_token_layout import SpecialTokenLayout
from bert_jax.training import sharding
from bert_jax.training.task import Stage


def build(config: ConfigDict, user_keys: Collection[str] = ()) -> FineTuning:
    """Read the data and the weights of a run, and prepare it.

    Args:
        config: the config of configs/finetune.py.
        user_keys: the keys that the user set.

    Raises:
        UserError: the data, the weights or the settings cannot be used.
    """
    kind, splits = problems.find(config.task), inputs.read_splits(config)
    model = initialization.load_weights(config)
    tokenizer = inputs.make_tokenizer(config, model, splits.train)
    labels, heads = inputs.choose_labels(kind, splits.unsplit, config.problem, model)
    reasons = inputs.reasons_to_drop(config.task, labels, model)
    starts_from = kind.load().loss_of(config.problem).starts_from
    heads = (*heads, *(name.partition('/')[0] for name in starts_from))
    is_causal = attention_direction.is_causal(config, model)
    start = initialization.initialize(config, model, tokenizer, heads, reasons, is_causal=is_causal)
    start = initialization.renamed(start, starts_from)
    start = initialization.with_parts(start, model, kind.continued_heads)
    architecture, compute = start.architecture, Compute(**config.compute.to_dict())
    if kind.writes:
        is_causal = attention_direction.writes_causally(config, architecture, model)
    rate, rate_origin = learning_rate.choose(config, architecture)
    is_set = 'training.sequence_length' in user_keys
    length = _sequence_length(config.training.sequence_length, is_set, architecture.max_length)
    layout = SpecialTokenLayout(tokenizer, length, architecture.type_vocab_size)
    modules, stack = model.sentence_modules if model else None, architecture.decoder
    setup = Setup(
        config.problem,
        layout,
        labels,
        kept=({'modules': modules.describe()} if modules else {})
        | ({'decoder_start': stack.start} if stack else {}),
        is_causal=is_causal,
        batch_size=config.training.batch_size,
    )
    problem = kind.load().build_for(splits.train, setup)
    if problem.loss.is_generative and architecture.prediction.shift:
        raise UserError(
            f'{config.task} does not support models that predict each token at the position before '
            'it (objectives.mntp) in both directions; use another model'
        )
    trained_model = Model(architecture, compute, problem.loss.heads(), is_causal)
    problem.decoder.score((), ())  # raises for invalid metrics now rather than after training
    examples = {
        'train': problem.encoding.training_examples(splits.train, splits.unlabeled),
        'dev': splits.dev,
        'test': splits.test,
        **splits.more,
    }
    for name in examples.keys() - {'train'}:
        problem.decoder.check(examples[name])
    encoded = {
        name: finetuning_model.EncodedExamples.of(problem, some)
        for name, some in examples.items()
        if some
    }
    _check_dev(config, encoded, problem)
    return FineTuning(
        config,
        splits,
        start,
        problem,
        finetuning_model.FineTuningModel(problem, trained_model),
        encoded['train'],
        {name: own for name, own in encoded.items() if name != 'train'},
        _make_stage(config, trained_model, problem, encoded),
        rate,
        rate_origin,
    )


def _check_dev(config: ConfigDict, encoded: Collection[str], problem: AnyProblem) -> None:
    """Raise UserError if there is no dev split, but a key needs one."""
    keys = {f'evaluation.{key}': config.evaluation[key] for key in ('best', 'every_steps')}
    keys |= {f'problem.{key}': config.problem[key] for key in problem.decoder.dev_keys}
    for key, value in keys.items():
        if value and 'dev' not in encoded:
            raise UserError(
                f'{key} is {value!r}, but there is no dev split; set data.dev or data.dev_fraction'
            )


def _sequence_length(length: int, is_set: bool, max_length: int) -> int:
    """Return the sequence length of the config, or the shorter one of the model.

    Raises:
        UserError: the user set (`is_set`) more tokens than the model has positions.
    """
    if is_set and length > max_length:
        raise UserError(
            f'training.sequence_length is {length}, but the model has {max_length} positions; '
            f'set it to at most {max_length}'
        )
    return min(length, max_length)


def _make_stage(
    config: ConfigDict,
    model: Model,
    problem: AnyProblem,
    encoded: Mapping[str, finetuning_model.EncodedExamples],
) -> Stage:
    """Plan the batches of the train split; their rows have space for the items of all splits."""
    training, items = config.training, encoded['train'].items
    if (training.steps > 0) == (training.epochs > 0):
        raise UserError(
            f'training.steps is {training.steps} and training.epochs is {training.epochs}; set '
            'one of them to 0'
        )
    group_size, train = problem.encoding.group_size, encoded['train']
    order = problem.encoding.batch_order(
        train.examples,
        TrainBatches.group_lengths(items, group_size or 1),
        training.batch_size,
        config.seed,
    )
    per_epoch = math.ceil(order.size / training.batch_size)
    steps = training.steps or math.ceil(training.epochs * per_epoch)
    longest = max(int(own.items.length_N.max()) for own in encoded.values())
    length = row_length(longest, model.architecture.max_length)
    mesh = sharding.make_mesh(config.mesh)
    shards = math.prod(mesh.shape[axis] for axis in sharding.BATCH_AXES)
    multiple = training.accumulation * shards
    source = TrainBatches.plan(items, order, length, steps, multiple, group_size)
    positions = source.shape.rows * source.shape.length
    return Stage(
        source=source,
        steps=steps,
        accumulation=1 if problem.loss.reads_whole_batch else training.accumulation,
        tokens_per_step=max(1, round(source.num_tokens(steps) / steps)),
        flops_per_step=positions * model.flops_per_token(length, 0),
        evaluate_every=config.evaluation.every_steps or per_epoch,
    )
