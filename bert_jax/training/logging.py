"""What a run shows and records: progress bar, metrics.jsonl, TensorBoard and a plot of the loss."""

import errno
import functools
import json
import math
import os
import pathlib
import shutil
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

import jax

from bert_jax import averages, progress
from bert_jax.averages import Terms
from bert_jax.errors import UserError, writing_to
from bert_jax.training.task import Stage

# Required free bytes: TensorBoard's writer thread dies on a full disk, and then its queue blocks.
_REQUIRED_SPACE = 2**18


class Log:
    """The log of a run; only the process with `enabled` shows and writes anything.

    Attributes:
      records: the records of metrics.jsonl, dictionaries with 'kind', 'step' and metrics.
    """

    def __init__(self, workdir: pathlib.Path, step: int, total_steps: int, enabled: bool):
        """Open the log of a run that resumes after `step`; later records are dropped."""
        self.workdir, self.enabled = workdir, enabled
        self.records = _read_records(workdir / 'metrics.jsonl', step) if enabled else []
        if enabled:
            with writing_to(workdir):
                self._check_space()
                text = ''.join(map(_as_line, self.records))
                (workdir / 'metrics.jsonl').write_text(text, encoding='utf-8')
        self._purge_step = step + 1
        self._bar = progress.bar(total=total_steps, initial=step, unit='step', disable=not enabled)

    def info(self, text: str) -> None:
        """Print a line above the progress bar."""
        if self.enabled:
            self._bar.write(text, file=sys.stderr)

    def record(self, kind: str, step: int, values: Mapping[str, float]) -> None:
        """Append a line to metrics.jsonl and a point to each curve in TensorBoard.

        Args:
          kind: 'train' or 'held_out'.
          step: number of completed steps.
          values: metrics by name.
        """
        if not self.enabled:
            return
        with writing_to(self.workdir):
            self._check_space()
            self.records.append({'kind': kind, 'step': step, **values})
            with open(self.workdir / 'metrics.jsonl', 'a', encoding='utf-8') as file:
                file.write(_as_line(self.records[-1]))
            for name, value in values.items():
                self._tensorboard.add_scalar(f'{kind}/{name}', value, step)

    def plot(self, references: Mapping[str, float]) -> None:
        """Draw loss.png from all records, with a horizontal line for each reference."""
        if self.enabled:
            with writing_to(self.workdir):
                plot(self.records, self.workdir / 'loss.png', references)

    def advance(self, shown: Mapping[str, str]) -> None:
        """Move the progress bar by one step and show these values beside it."""
        self._bar.set_postfix(shown, refresh=False)
        self._bar.update(1)

    def close(self) -> None:
        """Close the progress bar and TensorBoard's files."""
        self._bar.close()
        if '_tensorboard' in vars(self):
            self._tensorboard.close()

    @functools.cached_property
    def _tensorboard(self) -> Any:
        # Imported for the first record: the import takes a second if torch is installed.
        import tensorboardX

        return tensorboardX.SummaryWriter(
            str(self.workdir / 'tensorboard'), purge_step=self._purge_step
        )

    def _check_space(self) -> None:
        if shutil.disk_usage(self.workdir).free < _REQUIRED_SPACE:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


class MetricsWindow:
    """The metrics of the steps since the last record, read from the device one step late.

    Reading the metrics of a step waits until it is computed. `add` reads those of the step before,
    so the host is at most one step ahead and the device always has work.

    Attributes:
      stop_signal: largest number of a signal that any host had received at the last step that was
        read, from metrics['signal']; 0 if the metrics have none.
    """

    def __init__(
        self,
        log: Log,
        stage: Stage,
        weights: Mapping[str, float],
        peak_flops: float,
        max_skipped_in_row: int,
    ):
        """Start a window of steps of one stage.

        Args:
          log: shows the progress and receives the records.
          stage: tells the tokens and FLOPs of a step.
          weights: weight of each loss term by name.
          peak_flops: FLOP/s of all devices, the reference for MFU.
          max_skipped_in_row: number of skipped steps in a row that ends the run.
        """
        self.stop_signal = 0
        self._log, self._stage, self._weights = log, stage, weights
        self._peak_flops, self._max_skipped_in_row = peak_flops, max_skipped_in_row
        self._pending: tuple[int, dict[str, Any]] | None = None
        self.restart()

    def restart(self) -> None:
        """Begin a new window now."""
        self._start = time.perf_counter()
        self._steps, self._terms = 0, Terms()
        self._last: dict[str, Any] = {}

    def add(self, step: int, metrics: dict[str, Any]) -> None:
        """Add step number `step` (from 1), which may be running; wait for the step before it."""
        self.wait()
        self._pending = step, metrics

    def wait(self) -> None:
        """Wait for all steps that were added. Raises UserError after too many skipped in a row."""
        if self._pending is None:
            return
        step, metrics = self._pending[0], jax.device_get(self._pending[1])
        self._pending = None
        self.stop_signal = int(metrics.get('signal', 0))
        if metrics['skipped_in_row']:
            self._report_skipped(step, metrics)
        else:
            self._steps += 1
            self._terms = averages.add(self._terms, metrics['terms'])
            self._last = metrics
        rates = self._rates()
        self._log.advance(
            {
                'loss': f'{metrics["loss"]:.3f}',
                'tokens/s': f'{rates["tokens_per_second"]:,.0f}',
                'MFU': f'{rates["mfu"]:.0%}',
            }
        )

    def record(self, step: int, learning_rate: float) -> float:
        """Record the window and restart it, unless all steps were skipped; return its seconds."""
        self.wait()
        if not self._steps:
            return 0.0
        seconds = self._seconds()
        values = averages.means(self._terms, self._weights) | {
            'gradient_norm': float(self._last['gradient_norm']),
            'learning_rate': learning_rate,
            'skipped': int(self._last['skipped']),
            **self._rates(),
        }
        self._log.record('train', step, values)
        self.restart()
        return seconds

    def _seconds(self) -> float:
        return time.perf_counter() - self._start

    def _rates(self) -> dict[str, float]:
        steps_per_second = self._steps / self._seconds()
        return {
            'tokens_per_second': self._stage.tokens_per_step * steps_per_second,
            'mfu': self._stage.flops_per_step * steps_per_second / self._peak_flops,
        }

    def _report_skipped(self, step: int, metrics: Mapping[str, Any]) -> None:
        loss, norm, in_row = metrics['loss'], metrics['gradient_norm'], metrics['skipped_in_row']
        fault = 'is a spike' if math.isfinite(loss) and math.isfinite(norm) else 'is not finite'
        self._log.info(
            f'step {step}: skipped; its loss {loss:.4g} or gradient norm {norm:.4g} {fault} '
            f'({metrics["skipped"]} skipped so far, {in_row} in a row)'
        )
        if in_row >= self._max_skipped_in_row:
            raise UserError(
                f'{in_row} steps in a row, up to step {step}, had a loss or gradient norm that '
                f'{fault}; --config.debug.batch={step} shows that batch; lower '
                f'schedule.learning_rate; the last good state is in {self._log.workdir}'
            )


def plot(
    records: Sequence[Mapping[str, Any]], path: pathlib.Path, references: Mapping[str, float]
) -> None:
    """Draw the training and held-out loss terms over the steps, with horizontal references."""
    import matplotlib

    matplotlib.use('Agg')
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(8, 5))
    for kind, style in (('train', '-'), ('held_out', 'o-')):
        chosen = [record for record in records if record['kind'] == kind]
        names = sorted({name for record in chosen for name in record if name.endswith('loss')})
        for name in names:
            points = [(record['step'], record[name]) for record in chosen if name in record]
            label = f'{kind.replace("_", "-")} {name.replace("_", " ")}'
            axes.plot(*zip(*points, strict=True), style, label=label, alpha=0.8, markersize=4)
    for name, value in references.items():
        axes.axhline(value, linestyle='--', color='grey', linewidth=1)
        axes.annotate(
            name, (0.01, value), xycoords=('axes fraction', 'data'), va='bottom', fontsize=8
        )
    axes.set(xlabel='step', ylabel='nats', ylim=(0, None))
    axes.legend()
    axes.grid(alpha=0.3)
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    plt.close(figure)


def _read_records(path: pathlib.Path, step: int) -> list[dict[str, Any]]:
    """Read the records up to `step`; a last line that was cut off by a kill is dropped."""
    records = []
    lines = path.read_text(encoding='utf-8').splitlines() if path.exists() else []
    for line in lines:
        try:
            record = json.loads(line)
        except json.JSONDecodeError:
            break
        if record['step'] <= step:
            records.append(record)
    return records


def _as_line(record: Mapping[str, Any]) -> str:
    return json.dumps(record) + '\n'
