"""The training loop: any task, from its first step or its last checkpoint to its last step."""

import concurrent.futures
import dataclasses
import signal
from collections.abc import Iterator

import jax
import numpy as np

from bert_jax import tree_paths
from bert_jax.errors import warn
from bert_jax.loaded.record import RunRecord
from bert_jax.models.tuning_method import ADDED
from bert_jax.training import (
    batches,
    devices,
    multihost,
    predictions,
)
from bert_jax.training.interruption import Interrupted
from bert_jax.training.metrics_window import MetricsWindow
from bert_jax.training.run import NO_HOOKS, HeldOutEvaluation, Hooks, Paused, Plan, Run, start
from bert_jax.training.step import lower_train_step, make_train_step
from bert_jax.training.task import Stage, Task, first_batches
from bert_jax.training.transfer import num_parameters
from bert_jax.training.workdir import Workdir
from bert_jax.types import Config, JsonRecord, Params


def train(
    task: Task,
    config: Config,
    workdir: Workdir,
    hooks: Hooks = NO_HOOKS,
) -> tuple[Params, JsonRecord]:
    """Train a task as the config says, resuming from the last checkpoint.

    Args:
        task: see training/task.py.
        config: see configs/base.py.
        workdir: the folder of the run, which stays locked until it is closed.
        hooks: functions of the caller.

    Returns:
        The final parameters, or their moving average with `optimizer.ema`, and the results:
        held-out metrics, numbers of steps and tokens, time and memory. With `evaluation.best`,
        parameters and metrics are from the best evaluation.

    Raises:
        UserError: the config cannot be run, the working directory can no longer be written, or too
            many steps in a row were skipped.
        Interrupted: after SIGTERM or SIGINT on any host; everything is saved.
    """
    with start(task, config, workdir, hooks) as run:
        _describe(run)
        threads = config.data.reading_threads
        if run.step == 0:
            _evaluate_initial_weights(run)
        course = run.course
        for number, stage in enumerate(task.stages):
            if not run.is_evaluated and course.is_in(number, run.step):
                _evaluate_checkpoint(run, stage)
            if run.early_stopping.is_over:
                break
            if course.is_over(number, run.step):
                continue  # finished before this process was started
            first_step = course.begin(number, run.step)
            first_batch = first_batches(task.stages, course.starts)[number]
            run.log.info(f'compiling stage {number + 1} of {len(task.stages)}')
            with run.log.paused():
                if run.step == first_step:
                    params = run.state.params
                    predictions.check(run.plan.task, params, stage, first_batch, run.key)
                batches.import_reader()
                train_step, lines = _compile(run.plan, stage)
            for line in lines:
                run.log.info(line)
            window = MetricsWindow(
                run.log, run.clock, stage, task.weights, run.peak_flops, config.max_skipped_in_row
            )
            evaluate_every = stage.evaluate_every or config.evaluation.every_steps
            save_every = config.checkpoint.every_steps
            next_batch = first_batch + run.step - first_step
            end = first_batch + course.num_batches(number)
            for batch in batches.read(stage.source, next_batch, end, threads):
                # 1. Dispatch the step. The devices compute it while the host continues.
                if run.profile is not None:
                    run.profile.before(run.step + 1)
                position = [] if course.position is None else [np.float32(course.position)]
                run.state, metrics = train_step(run.state, batch, run.key, *position)
                if jax.process_count() > 1:  # all hosts learn of a signal after the same step
                    metrics['signal'] = multihost.largest(run.stop.number)
                if position:
                    metrics['milliseconds'] = _time_of_host0(run.seconds + window.seconds)
                run.step += 1

                # 2. Wait for the metrics of the step before: the host is at most one step ahead.
                window.add(run.step, metrics)
                if run.profile is not None:
                    run.profile.after(run.step, run.state)

                # 3. Decide what is due, the same on all hosts. The signal is read once, because it
                #    may arrive at any time.
                stop_number = run.stop.number if jax.process_count() == 1 else window.stop_signal
                course.pass_time(window.milliseconds / 1000)
                is_last = course.is_over(number, run.step)
                evaluate = is_last or _is_due(run.step, evaluate_every)
                pause = run.step == hooks.pause_at
                evaluate = evaluate or pause or run.step in stage.evaluate_at
                save = is_last or pause or stop_number > 0 or _is_due(run.step, save_every)

                # 4. Record the training metrics since the last record.
                if evaluate or save or _is_due(run.step, config.logging.every_steps):
                    run.seconds += window.record(run.step, run.learning_rate)

                # 5. Save, before the evaluation so that its failure costs nothing. The files are
                #    written in the background.
                run.is_evaluated = not evaluate
                if save:
                    run.save(_record(run))

                # 6. Evaluate. The checkpoint stores the result, and the best checkpoint is kept.
                if evaluate and save:
                    _evaluate_checkpoint(run, stage)
                elif evaluate:
                    _evaluate(run, stage)
                    is_best = run.early_stopping.best.step == run.step
                    if is_best or run.early_stopping.is_over:
                        run.save(_record(run))
                if save or evaluate:
                    window.restart()  # exclude the time of saving and evaluating
                if hooks.after_step is not None:
                    hooks.after_step(run.step)

                # 7. Stop, if a signal, the caller or the patience says so.
                _exit_if_signaled(run, stop_number)
                if pause:
                    run.checkpoints.wait()
                    raise Paused
                if run.early_stopping.is_over:
                    run.log.info(
                        f'no better {run.early_stopping.metric} in '
                        f'{run.early_stopping.patience} evaluations: stopping early'
                    )
                    break
                if is_last:
                    break
        return _finish(run)


def dry_run(task: Task, config: Config) -> Iterator[str]:
    """Do everything that precedes the first step, without writing or training anything.

    Yields:
        Lines that describe the run and, after compiling its steps, the memory of each stage.

    Raises:
        UserError: the config cannot be run.
    """
    with Plan.of(task, config) as plan:
        yield from task.describe()
        yield from plan.transfer.describe(plan.abstract.params)
        yield f'{num_parameters(plan.abstract.params):,} parameters on {devices.describe()}'
        for number, stage in enumerate(task.stages, start=1):
            yield f'compiling stage {number} of {len(task.stages)}'
            yield from _compile(plan, stage)[1]
    yield 'dry run: nothing was trained or written'


def _describe(run: Run) -> None:
    """Log what is trained, on which devices, and from which step."""
    for line in [*run.plan.task.describe(), *run.plan.transfer.describe(run.state.params)]:
        run.log.info(line)
    peak = ''
    if run.peak_flops is not None:
        origin = 'measured' if devices.published_flops() is None else 'published'
        peak = f', {origin} peak {run.peak_flops / 1e12:,.2f} TFLOP/s'
    where = f'new run in {run.plan.config.workdir}'
    if run.step:
        where = f'resuming from step {run.step:,}'
    number = num_parameters(run.state.params)
    run.log.info(f'{number:,} parameters on {devices.describe()}{peak}; {where}')


def _evaluate_initial_weights(run: Run) -> None:
    """Log where the initial weights come from, and evaluate them where that is useful."""
    initial, stage = run.plan.task.start, run.plan.task.stages[0]
    if initial.params:
        new = sorted(
            name
            for name in tree_paths.flatten(run.state.params).keys() - initial.params.keys()
            if ADDED not in name.split('/')  # `Transfer.describe` has the number of these
        )
        for line in [*initial.lines, f'newly initialized: {", ".join(new) or "nothing"}']:
            run.log.info(line)
    # A metric in `evaluation.best` that is misspelled or missing is an error now instead of after
    # the first steps.
    if initial.has_head or run.early_stopping.is_used or 0 in stage.evaluate_at:
        _evaluate(run, stage)
        run.early_stopping.check(run.held_out)


def _time_of_host0(seconds: float) -> jax.typing.ArrayLike:
    """Return this host's time in milliseconds on host 0's clock, which decides for all hosts."""
    milliseconds = round(1000 * seconds)
    if jax.process_count() == 1:
        return milliseconds
    return multihost.largest(0 if jax.process_index() else milliseconds)


def _compile(plan: Plan, stage: Stage) -> tuple[jax.stages.Compiled, list[str]]:
    """Compile the steps of training and evaluation; also return their memory as log lines."""
    extras = (plan.config.spike_factor, plan.config.optimizer.ema, plan.total_steps)
    train_step = make_train_step(
        plan.task, plan.optimizer, stage.accumulation, plan.transfer, *extras
    )
    batch = batches.abstract(stage.source)
    lowered = lower_train_step(train_step, plan.abstract, batch, plan.is_timed)
    lowered_evaluation = plan.task.lower_evaluation(plan.abstract.params, stage)
    # At the same time: XLA uses few cores for much of a compilation. In order where several hosts
    # exchange what they find out about kernels.
    with concurrent.futures.ThreadPoolExecutor(2 if jax.process_count() == 1 else 1) as threads:
        steps = [step for step in (lowered, lowered_evaluation) if step is not None]
        compiled, *evaluation = threads.map(lambda step: step.compile(), steps)
    multihost.barrier()  # compile times differ between hosts, and collectives time out
    estimate = devices.MemoryEstimate.of(compiled, plan.abstract, batch, *evaluation)
    limit = devices.device_bytes()
    warning = estimate.warning(stage, plan.config.compute.remat, limit)
    if warning and jax.process_index() == 0:
        warn(warning)
    return compiled, estimate.table(limit)


def _is_due(step: int, every: int) -> bool:
    return every > 0 and step % every == 0


def _evaluate_checkpoint(run: Run, stage: Stage) -> None:
    """Evaluate a state that was saved before, and add the result to its checkpoint."""
    _evaluate(run, stage)
    run.checkpoints.replace_metadata(run.step, _record(run).to_json())


def _evaluate(run: Run, stage: Stage) -> None:
    """Evaluate on the held-out data, if any, record the metrics and draw the plot of the loss."""
    with run.log.paused():
        run.held_out = run.plan.task.evaluate(run.state.evaluated_params, stage)
    run.is_evaluated = True
    if not run.held_out:
        return
    missing = [
        name
        for name in run.plan.task.weights
        if not {name, f'{name}_loss'} & run.held_out.keys()  # as pretraining or fine-tuning
    ]
    if missing:
        run.log.warn(f'no held-out row has a prediction for {", ".join(missing)}')
    run.log.record('held_out', run.step, run.held_out)
    shown = ', '.join(f'{name} {value:.4g}' for name, value in run.held_out.items())
    run.log.info(f'step {run.step} held-out: {shown}')
    run.log.plot(run.plan.task.references(run.held_out), run.course.starts)
    if run.step:
        run.early_stopping.update(run.step, run.held_out)
    if run.hooks.after_evaluation is not None:
        run.hooks.after_evaluation(
            HeldOutEvaluation(run.step, dict(run.held_out), run.state.evaluated_params)
        )


def _record(run: Run) -> RunRecord:
    """Return what a checkpoint records now."""
    return dataclasses.replace(
        run.plan.record(run.seconds, run.is_evaluated),
        stage_starts=tuple(run.course.starts) if run.plan.is_timed else (),
        best=run.early_stopping.best if run.early_stopping.metric else None,
    )


def _exit_if_signaled(run: Run, number: int) -> None:
    """Exit after a signal (0: none) once the checkpoint is complete."""
    if number:
        run.checkpoints.wait()
        run.log.info(
            f'{signal.Signals(number).name}: saved and stopped at step {run.step}; '
            'rerun the same command to resume'
        )
        raise Interrupted


def _finish(run: Run) -> tuple[Params, JsonRecord]:
    """Return the final or best parameters, and the results of the run."""
    run.checkpoints.wait()
    skipped, best = int(run.state.skipped), run.early_stopping.best
    if skipped:
        run.log.warn(f'{skipped:,} of {run.step:,} steps were skipped and changed nothing')
    if best.step is not None and best.metrics is not None:
        if best.step != run.step:
            del run.state  # first, to make room
            restored = run.plan.restore(run.checkpoints, best.step)
            assert restored is not None  # a missing checkpoint is a UserError
            run.state = restored.state
        run.held_out = dict(best.metrics)
        value = run.held_out[run.early_stopping.metric]
        run.log.info(
            f'best {run.early_stopping.metric} {value:.4g} at step {best.step:,}: '
            'keeping these parameters'
        )
    if not run.held_out:  # no step was left to train
        params = run.state.evaluated_params
        run.held_out = run.plan.task.evaluate(params, run.plan.task.stages[-1])
    for file_format in ('png', 'pdf'):
        run.log.plot(run.plan.task.references(run.held_out), run.course.starts, file_format)
    # A signal may have arrived since the last step: exit now, or a sweep would start the next run.
    _exit_if_signaled(run, int(multihost.largest(run.stop.number)))
    starts = run.course.starts
    results = run.plan.results(
        run.state, run.held_out, run.step, run.seconds, skipped, best.step, starts
    )
    return run.state.evaluated_params, results
