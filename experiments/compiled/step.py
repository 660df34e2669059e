"""Compiles the training step of a recipe, at full size, for the devices of a topology."""

import dataclasses
import functools
import pathlib
import re
import tempfile
from unittest import mock

import jax
from ml_collections import ConfigDict

from bert_jax.errors import UserError
from bert_jax.models.flops import training_flops_per_token
from bert_jax.tasks import make_task
from bert_jax.tasks.finetuning.task import FineTuning
from bert_jax.tokenizers.decoder_tokens import sentinel
from bert_jax.tokenizers.training import parse_specification
from bert_jax.training import batches, devices, sharding
from bert_jax.training.devices import MemoryEstimate
from bert_jax.training.run import Plan
from bert_jax.training.step import compile_train_step, make_train_step
from configs.finetune_tasks import TASKS
from experiments.compiled import hlo
from experiments.compiled.topology import Topology

_VOCABULARY = ['[PAD]', '[UNK]', '[CLS]', '[SEP]', '[MASK]', '##s']  # '##s': words have pieces
_NUM_OPERATIONS = 10
_OUT_OF_MEMORY = re.compile(r'(?:Used |temporaries \()([\d.]+)([MG])')  # libtpu


def compile_step(
    config: ConfigDict, topology: Topology, number: int = 1, rows: int | None = None
) -> dict:
    """Compile the step of a stage and return its record, a JSON-compatible dictionary.

    Args:
        config: config of a recipe; its text is replaced by a small text, with a full-size
            vocabulary.
        topology: the devices.
        number: number of the stage, from 1.
        rows: sequences of a micro-batch on each device; None: as in the recipe.

    Raises:
        UserError: the config cannot be run, or its compiler is not installed.
    """
    make_mesh = functools.partial(sharding.make_mesh, devices=topology.devices())
    with (
        tempfile.TemporaryDirectory() as folder,
        mock.patch.object(sharding, 'make_mesh', make_mesh),
    ):
        _replace_data(config, pathlib.Path(folder))
        task = make_task(config)
        if isinstance(task, FineTuning):
            task = _with_length(task, config.training.sequence_length)
        if not 1 <= number <= len(task.stages):
            raise UserError(f'--stage={number}: the recipe has {len(task.stages)} stage(s)')
        with Plan.of(task, config) as plan:
            return _compile(plan, number, rows, topology)


def _with_length(task: FineTuning, length: int) -> FineTuning:
    """Return the task with rows as if every example filled one."""
    source = task.source
    packed = source.plan(source.items, source.order, length, steps=1).shape
    shape = source.shape._replace(length=length, slots=packed.slots)
    flops = shape.rows * length * training_flops_per_token(task.architecture, length, 0)
    stage = dataclasses.replace(task.stage, source=source.with_shape(shape), flops_per_step=flops)
    return dataclasses.replace(task, stage=stage)


def _compile(plan: Plan, number: int, rows: int | None, topology: Topology) -> dict:
    stage, mesh = plan.task.stages[number - 1], jax.sharding.get_mesh()
    multiple = stage.accumulation * sharding.batch_shards(mesh)
    training = plan.config.training
    size = stage.source.batch_size
    if isinstance(training.batch_size, int):  # fine-tuning packs examples; here each fills a row
        size = -(-training.batch_size // multiple) * multiple
    size = rows * multiple if rows else size
    batch = {
        name: jax.ShapeDtypeStruct((size, *leaf.shape[1:]), leaf.dtype, sharding=leaf.sharding)
        for name, leaf in batches.abstract(stage.source).items()
    }
    step = make_train_step(
        plan.task,
        plan.optimizer,
        stage.accumulation,
        plan.transfer,
        plan.config.spike_factor,
        total_steps=plan.total_steps,
    )
    model_flops = stage.flops_per_step * size / stage.source.batch_size / mesh.size
    record = dict(
        rows=size // multiple,
        accumulation=stage.accumulation,
        length=batch['input_ids'].shape[1],
        model_flops=model_flops,
        memory=topology.chip.memory,
    )
    try:
        compiled = compile_train_step(step, plan.abstract, batch)
    except jax.errors.JaxRuntimeError as error:
        if not (match := _OUT_OF_MEMORY.search(str(error))):
            raise
        used = float(match[1]) * {'M': 2**20, 'G': 2**30}[match[2]]
        return record | dict(fits=False, needed=round(used))
    estimate = MemoryEstimate.of(compiled, plan.abstract, batch)
    record |= _describe(compiled, estimate, model_flops, topology)
    if topology.chip.platform == 'cuda':
        width, text = plan.task.record.architecture.hidden_size, compiled.as_text()
        states = record['rows'] * record['length'] * width
        record['traffic'] = dict(
            bytes=hlo.bytes_moved(text), float32=hlo.float32_arrays(text, least=states)
        )
    if plan.config.compute.scan_layers or stage.accumulation > 1:
        for name in ('seconds', 'mfu'):  # the compiler counts the body of a loop once
            record.pop(name, None)
    return record


def _describe(
    compiled: jax.stages.Compiled,
    estimate: MemoryEstimate,
    model_flops: float,
    topology: Topology,
) -> dict:
    text = compiled.as_text()
    record = dict(
        fits=estimate.total <= topology.chip.memory,
        parameters=estimate.parameters,
        optimizer=estimate.optimizer,
        batch=estimate.batch,
        temporaries=estimate.temporaries,
        collectives=_sum_by_kind(hlo.collectives(text)),
        kernels=hlo.kernels(text),
    )
    seconds = (compiled.cost_analysis() or {}).get('optimal_seconds', 0)
    if topology.chip.platform == 'tpu':
        operations = hlo.operations(text)
        record |= dict(
            cycles=sum(operation.cycles for operation in operations),
            operations=[operation._asdict() for operation in operations[:_NUM_OPERATIONS]],
        )
        if seconds > 0:  # libtpu 0.0.42 returns negative seconds for v5e
            peak = devices.published_flops(topology.chip.kind)
            record |= dict(seconds=seconds, mfu=model_flops / seconds / peak)
    return record


def _sum_by_kind(collectives: list[hlo.Collective]) -> dict[str, dict[str, int]]:
    sums: dict[str, dict[str, int]] = {}
    for collective in collectives:
        total = sums.setdefault(collective.kind, dict(number=0, bytes=0))
        total['number'] += 1
        total['bytes'] += collective.bytes
    return dict(sorted(sums.items()))


def _replace_data(config: ConfigDict, folder: pathlib.Path) -> None:
    """Make a recipe read small files instead of its own data and initial weights."""
    with config.unlocked():
        config.init_from = ''
        if config.task == 'pretraining':
            wanted = parse_specification(config.data.tokenizer.removeprefix('train:'))
            size = wanted.size
            special = [f'[{code}]' for code in wanted.languages]
            special += [sentinel(number) for number in reversed(range(wanted.sentinels))]
            config.data.sources = (f'text:{folder}/text.txt;documents=blank_line',)
            config.data.corpus = str(folder / 'corpus')
            config.data.held_out_fraction = 0.2
            config.data.prepare_workers = 0
            config.model.architecture = config.model.architecture or 'modernbert_base'
        else:
            size, special = 30522, []
            sample = next(
                task['data']
                for name, task in TASKS.items()
                if name.startswith('sample_') and task['kind'] == config.task
            )
            config.data.dataset = ''
            config.data.update(sample)
            config.model.architecture = config.model.architecture or 'bert_base'
        config.data.tokenizer = str(folder / 'vocab.txt')
    words = _VOCABULARY + [f'w{number}' for number in range(size - len(_VOCABULARY))] + special
    (folder / 'vocab.txt').write_text('\n'.join(words) + '\n')
    documents = [f'{word}. ' + (' '.join(words[6:26]) + '. ') * 100 for word in words[26:46]]
    (folder / 'text.txt').write_text('\n\n'.join(documents))
