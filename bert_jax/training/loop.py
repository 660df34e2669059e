"""The one training loop: any task, from step 0 or from the last good checkpoint to the last step of
its last stage.
"""

import itertools
import json
import math
import pathlib
import signal
from collections.abc import Callable
from typing import Any, NamedTuple

import flax.linen as nn
import jax

from bert_jax import tree_paths
from bert_jax.errors import UserError
from bert_jax.training import (
    compilation,
    feed,
    hardware,
    logging,
    memory,
    multihost,
    optimizers,
    schedules,
    sharding,
    transfer,
    workdir,
)
from bert_jax.training.checkpoints import Checkpoints
from bert_jax.training.early_stopping import Best, Watch
from bert_jax.training.state import abstract_state, initial_state
from bert_jax.training.step import make_train_step
from bert_jax.training.window import Window, means


class Stage(NamedTuple):
    """So many steps on one source of batches."""

    source: Any  # .batch_size, .batch(step, rows)
    steps: int
    accumulation: int
    tokens_per_step: int
    flops_per_step: float  # of the model, forward and backward
    evaluate_every: int = 0  # steps; 0: as the config says


class Interrupted(SystemExit):
    """A signal asked the run to stop; everything is saved. Exits with status RESTART."""

    def __init__(self):
        super().__init__(multihost.RESTART)


def train(task, config) -> tuple[Any, dict]:
    """Trains `task` as the config says and returns (parameters, results).

    `task` has `stages`, `weights` (term name → weight), `metadata` (stored in every checkpoint),
    `start` (tasks/initialization.py), `init(key)`, `terms(params, batch, key, train)`,
    `evaluate(params, stage)` → metrics, `describe()` → lines for the start of the log,
    `check(metadata)` (raises UserError if a checkpoint does not belong to it), `references()` →
    name → nats. Raises UserError for a config that cannot be run and a workdir that can no longer
    be written, Interrupted after SIGTERM or SIGINT on any host, with everything saved. With
    config.evaluation.best the parameters and the held-out metrics are those of the best evaluation.
    """
    mesh = sharding.make_mesh(config.mesh)
    for stage in task.stages:
        sharding.check_batch(stage.source.batch_size, stage.accumulation, mesh)
    peak_flops = hardware.peak_flops(config.compute.dtype)  # of one device: outside the mesh
    with jax.set_mesh(mesh), nn.logical_axis_rules(config.sharding_rules):
        try:
            run = Run(task, config, peak_flops)
            try:
                run.all_stages()
                results = run.finish()
                return run.state.params, results
            finally:
                run.close()
        except OSError as error:
            raise UserError(
                f'workdir {config.workdir} can no longer be written ({error.strerror or error}); '
                'mend that and run the same command again'
            ) from error


class Run:
    """One process' part of a run: the state, and where it is written."""

    def __init__(self, task, config, peak_flops: float):
        self.task, self.config, self.peak_flops = task, config, peak_flops
        self.total_steps = sum(stage.steps for stage in task.stages)
        self.schedule = schedules.build(config.schedule, self.total_steps)
        self.transfer = transfer.build(config.transfer, self.total_steps)
        self.optimizer = self.transfer.scale_updates(
            optimizers.build(config.optimizer, self.schedule)
        )
        self.watch, self.best = Watch(config.evaluation), Best()
        settings = config.to_dict()
        multihost.check_same('config', json.dumps(settings))
        multihost.run_on_host0(lambda: workdir.claim(config.workdir, settings))
        self.workdir = pathlib.Path(config.workdir)
        self.checkpoints = Checkpoints(self.workdir / 'checkpoints', config.checkpoint.keep)
        self.abstract = self._abstract_state()
        self.compiling = self._compile_next_stage()
        self.state, self.step, self.seconds = self._restore_or_init()
        self.log = logging.Log(self.workdir, self.step, self.total_steps, jax.process_index() == 0)
        self._describe()
        self.window = Window()
        self.held_out = None  # the last held-out metrics
        self.pending = None  # metrics of the last step, perhaps still being computed
        self.signal = 0  # number of the one this process got
        self.stop_signal = 0  # number of the one that stops all hosts
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._on_signal)

    def _abstract_state(self):
        mesh = jax.sharding.get_mesh()
        rules, trained = self.config.sharding_rules, self.transfer
        abstract = abstract_state(
            self.task, self.optimizer, mesh, rules, trained, self.config.spike_factor
        )
        optimizers.check_decay_exclude(self.config.optimizer.decay_exclude, abstract.params)
        metadata = self.checkpoints.metadata()
        if metadata is not None:
            self.task.check(metadata)
        return abstract

    def _compile_next_stage(self) -> dict[int, Callable]:
        """By the step at which a stage begins, what waits for its program: begun here for the next
        stage, so that meanwhile the state is made and TensorFlow imported."""
        done = max(self.checkpoints.steps(), default=0)
        return {first: self._compile(stage) for stage, first in self._stages_after(done)[:1]}

    def _compile(self, stage: Stage) -> Callable:
        """Begins to compile the step of a stage."""
        step = make_train_step(
            self.task,
            self.optimizer,
            stage.accumulation,
            self.config.seed,
            self.transfer,
            self.config.spike_factor,
        )
        return compilation.start_compiling(
            step, self.abstract, feed.abstract_batch(stage.source), self._run_key()
        )

    def _run_key(self):
        """An argument of the step, no constant: a run of another seed finds the compiled program in
        the cache."""
        return jax.random.key(self.config.seed)

    def _restore_or_init(self):
        restored = self.checkpoints.restore(self.abstract)
        if restored is None:
            seed, trained = self.config.seed, self.transfer
            return initial_state(self.task, self.optimizer, self.abstract, seed, trained), 0, 0.0
        self.best = Best(**restored.metadata.get('best', {}))
        return restored.state, restored.step, restored.metadata['train_seconds']

    def _describe(self):
        parameters = sum(leaf.size for leaf in jax.tree.leaves(self.state.params))
        for line in [*self.task.describe(), *self.transfer.describe(self.state.params)]:
            self.log.info(line)
        self.log.info(
            f'{parameters:,} parameters on {jax.device_count()} × {jax.devices()[0].device_kind}, '
            f'measured peak {self.peak_flops / 1e9:,.0f} GFLOP/s; '
            + (f'going on from step {self.step:,}' if self.step else f'new run in {self.workdir}')
        )

    def _describe_start(self):
        for line in self.task.start.lines:
            self.log.info(line)
        fresh = tree_paths.flatten(self.state.params).keys() - self.task.start.params.keys()
        self.log.info(f'new, as initialized: {", ".join(sorted(fresh)) or "nothing"}')

    def all_stages(self):
        """Runs what is left of every stage."""
        if not self.step:
            self._before_training()
        for stage, first in self._stages_after(self.step):
            if not self.watch.is_over(self.best):
                self._run_stage(stage, first)

    def _stages_after(self, done: int) -> list[tuple[Stage, int]]:
        """The stages of which something is left after so many steps, and the step at which each
        begins: the batch number is counted from there."""
        begins = itertools.accumulate((stage.steps for stage in self.task.stages), initial=0)
        stages = zip(self.task.stages, begins, strict=False)
        return [(stage, first) for stage, first in stages if done < first + stage.steps]

    def _before_training(self):
        """Evaluates heads that were trained before, and any so that a misspelled metric is found at
        once."""
        if self.task.start.params:
            self._describe_start()
        if self.task.start.has_head or self.watch.name:
            self.watch.check(self._evaluate(self.task.stages[0]))

    def _run_stage(self, stage: Stage, first: int):
        compiling = self.compiling.pop(first, None) or self._compile(stage)
        run_key, step_function = self._run_key(), None
        threads = self.config.data.reading_threads
        self.window.restart()
        for batch in feed.batches(stage.source, self.step - first, stage.steps, threads):
            step_function = step_function or self._compiled(stage, batch, compiling)
            self.state, metrics = step_function(self.state, batch, run_key)
            if jax.process_count() > 1:  # learned with the metrics, by all after the same step
                metrics['signal'] = multihost.largest(self.signal)
            self._read_pending(stage)
            self.pending = metrics
            self.step += 1
            self._after_step(stage, is_last=self.step == first + stage.steps)
            if self.watch.is_over(self.best):
                self.log.info(f'no better {self.watch.name} in {self.best.waited} evaluations')
                break

    def _compiled(self, stage: Stage, batch, compiling: Callable):
        """Waits for the step of a stage; tells what memory it needs."""
        compiled = compiling()
        multihost.barrier()  # who compiles longer must not keep the others in a collective
        needs = memory.MemoryEstimate.of(compiled, self.state, batch)
        for line in needs.table() + needs.warning(stage, self.config.compute.remat):
            self.log.info(line)
        return compiled

    def _after_step(self, stage: Stage, is_last: bool):
        due = _is_due(self.step)
        if jax.process_count() == 1:
            self.stop_signal = self.signal
        stop = self.stop_signal  # read once: a signal may come at any line below
        save = is_last or due(self.config.checkpoint.every_steps) or stop
        evaluate = is_last or due(stage.evaluate_every or self.config.evaluation.every_steps)
        if save or evaluate or due(self.config.logging.every_steps):
            self._read_pending(stage)
            self._log_window(stage)
        if evaluate:
            metrics = self._evaluate(stage)
            self.best = self.watch.after(self.best, self.step, metrics)
            save = save or self.best.step == self.step or self.watch.is_over(self.best)
        if save:
            self._save()
        if save or evaluate:
            self.window.restart()
        if stop:
            self._stop(stop)

    def _read_pending(self, stage: Stage):
        """Waits for the last step but one: the host is never more than one step ahead."""
        if self.pending is None:
            return
        metrics, self.pending = jax.device_get(self.pending), None
        self.stop_signal = int(metrics.get('signal', 0))
        if metrics['skipped_in_row']:
            self._report_skipped(metrics)
        else:
            self.window.add(metrics)
        rate = self.window.tokens_per_second(stage)
        shown = {
            'loss': f'{metrics["loss"]:.3f}',
            'tokens/s': f'{rate:,.0f}',
            'MFU': f'{self._utilization(stage, rate):.0%}',
        }
        self.log.advance(1, shown)

    def _report_skipped(self, metrics):
        in_row, skipped = metrics['skipped_in_row'], metrics['skipped']
        loss, norm = metrics['loss'], metrics['gradient_norm']
        fault = 'is a spike' if math.isfinite(loss) and math.isfinite(norm) else 'is not finite'
        self.log.info(
            f'step {self.step}: loss {loss:.4g} with a gradient of norm {norm:.4g} {fault}; '
            f'step skipped ({skipped} so far, {in_row} in a row)'
        )
        if in_row >= self.config.max_skipped_in_row:
            raise UserError(
                f'{in_row} steps in a row, up to step {self.step}, had a loss or gradient that '
                f'{fault}; --config.debug.batch={self.step} shows that batch; lower '
                f'schedule.learning_rate; the last good state is in {self.workdir}'
            )

    def _log_window(self, stage: Stage):
        if not self.window.steps:
            return
        rate = self.window.tokens_per_second(stage)
        values = means(self.window.terms, self.task.weights) | {
            'gradient_norm': float(self.window.gradient_norm),
            'learning_rate': float(self.schedule(self.step - 1)),
            'skipped': int(self.window.skipped),
            'tokens_per_second': rate,
            'mfu': self._utilization(stage, rate),
        }
        self.log.record('train', self.step, values)
        self.seconds += self.window.seconds()
        self.window.restart()

    def _utilization(self, stage: Stage, tokens_per_second: float) -> float:
        """Model FLOPs a second as a share of the measured peak."""
        return stage.flops_per_step * tokens_per_second / stage.tokens_per_step / self.peak_flops

    def _evaluate(self, stage: Stage) -> dict[str, float]:
        self.held_out = self.task.evaluate(self.state.params, stage)
        self.log.record('held_out', self.step, self.held_out)
        shown = ', '.join(f'{name} {value:.4g}' for name, value in self.held_out.items())
        self.log.info(f'step {self.step} held-out: {shown}')
        if self.log.enabled:
            logging.plot(self.log.records, self.workdir / 'loss.png', self.task.references())
        return self.held_out

    def _save(self):
        metadata = {
            **self.task.metadata,
            'config': self.config.to_dict(),
            'train_seconds': self.seconds,
        }
        if self.watch.name:
            metadata['best'] = self.best._asdict()
        self.checkpoints.save(self.step, self.state, metadata)

    def _on_signal(self, number, _frame):
        self.signal = number
        signal.signal(number, signal.SIG_DFL)  # a second one ends the process at once

    def _stop(self, number: int):
        self.checkpoints.wait()
        self.log.info(
            f'{signal.Signals(number).name}: saved and stopped at step {self.step}; '
            'the same command goes on from here'
        )
        raise Interrupted

    def finish(self) -> dict:
        """The final held-out metrics and what the run cost."""
        self.checkpoints.wait()
        skipped = int(self.state.skipped)
        self._take_best()
        if self.held_out is None:  # nothing was left to train
            self.held_out = self.task.evaluate(self.state.params, self.task.stages[-1])
        tokens = self._tokens()
        return {
            'steps': self.step,
            'best_step': self.best.step,
            'tokens': tokens,
            'parameters': sum(leaf.size for leaf in jax.tree.leaves(self.state.params)),
            'held_out': self.held_out,
            'train_seconds': round(self.seconds, 1),
            'tokens_per_second': round(tokens / max(self.seconds, 1e-9)),
            'skipped_steps': skipped,
            'peak_memory_bytes': hardware.peak_memory_bytes(),
            'devices': f'{jax.device_count()} × {jax.devices()[0].device_kind}',
        }

    def _take_best(self):
        """Makes the state and metrics those of the best evaluation, if the run has one."""
        if self.best.step is None:
            return
        if self.best.step != self.step:
            self.state = None  # first, so that there is room for another
            self.state = self.checkpoints.restore(self.abstract, self.best.step).state
        self.held_out = self.best.metrics
        value = self.held_out[self.watch.name]
        self.log.info(f'best {self.watch.name} {value:.4g} at step {self.best.step:,}: taken')

    def _tokens(self) -> int:
        """Of all steps done."""
        tokens, left = 0, self.step
        for stage in self.task.stages:
            tokens += min(left, stage.steps) * stage.tokens_per_step
            left -= min(left, stage.steps)
        return tokens

    def close(self):
        self.log.close()
        self.checkpoints.close()


def _is_due(step: int):
    return lambda every: every > 0 and step % every == 0
