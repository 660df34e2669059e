"""The metrics of recent training steps: read one step late, averaged for each record."""

import math
from collections.abc import Callable, Mapping

import jax

from bert_jax import averages
from bert_jax.averages import Terms
from bert_jax.errors import Diverged
from bert_jax.training.logging import Log
from bert_jax.training.task import Stage
from bert_jax.types import Tree

_MAX_SKIPPED_SHARE = 0.1  # of the steps so far; more is an error


class MetricsWindow:
    """The metrics of the steps since the last record, read from the device one step late.

    Reading the metrics of a step waits until it is computed. `add` reads the metrics of the
    previous step, so the host is at most one step ahead and the device always has work.

    Attributes:
        stop_signal: metrics['signal'] of the last step that was read: the largest number of a
            signal that any host had received; 0 if there is none.
        milliseconds: metrics['milliseconds'] of the last step that was read: the time of the steps
            before it, the same on all hosts; 0 for a run by steps.
    """

    def __init__(
        self,
        log: Log,
        clock: Callable[[], float],
        stage: Stage,
        weights: Mapping[str, float],
        peak_flops: float | None,
        max_skipped_in_row: int,
    ):
        """Start a window of steps of one stage.

        Args:
            log: shows the progress and receives the records.
            clock: returns the time in seconds.
            stage: the stage that the steps belong to.
            weights: weight of each loss term by name.
            peak_flops: FLOP/s of all devices, the reference for MFU; None: no MFU is recorded.
            max_skipped_in_row: number of skipped steps in a row that ends the run; more skipped
                steps than this also end it if they are over a tenth of the steps so far.
        """
        self.stop_signal = self.milliseconds = 0
        self._log, self._clock, self._stage, self._weights = log, clock, stage, weights
        self._peak_flops, self._max_skipped_in_row = peak_flops, max_skipped_in_row
        self._pending: tuple[int, dict[str, Tree]] | None = None
        self.restart()

    def restart(self) -> None:
        """Start a new window now."""
        self._start = self._clock()
        self._steps, self._terms = 0, Terms()
        self._last: dict[str, Tree] = {}

    def add(self, step: int, metrics: dict[str, Tree]) -> None:
        """Add step number `step` (from 1), which may still run; wait for the step before it."""
        self._wait()
        self._pending = step, metrics

    def _wait(self) -> None:
        """Wait for the added steps. Raises Diverged after too many skipped steps."""
        if self._pending is None:
            return
        step, metrics = self._pending[0], jax.device_get(self._pending[1])
        self._pending = None
        self.stop_signal = int(metrics.get('signal', 0))
        self.milliseconds = int(metrics.get('milliseconds', 0))
        if metrics['skipped_in_row']:
            self._report_skipped(step, metrics)
        else:
            self._steps += 1
            self._terms = averages.add(self._terms, metrics['terms'])
            self._last = metrics
        terms, rates = metrics['terms'], self._rates()
        has_prediction = any(terms[name].count > 0 for name in self._weights)
        minutes = f'{self.milliseconds / 60_000:.1f}' if self.milliseconds else ''
        shown = ({'minutes': minutes} if minutes else {}) | {
            'loss': f'{metrics["loss"]:.3f}' if has_prediction else 'none',
            'tokens/s': f'{rates["tokens_per_second"]:,.0f}',
        }
        self._log.advance(shown | ({'MFU': f'{rates["mfu"]:.0%}'} if 'mfu' in rates else {}))

    def record(self, step: int, learning_rate: float) -> float:
        """Record the window and restart it, unless all steps were skipped; return its seconds."""
        self._wait()
        if not self._steps:
            return 0.0
        seconds = self.seconds
        means = averages.means_and_loss(self._terms, self._weights)
        if missing := [name for name in self._weights if name not in means]:
            self._log.warn(
                f'no row of the last {self._steps} steps had a prediction for {", ".join(missing)}'
            )
        values = means | {
            'gradient_norm': float(self._last['gradient_norm']),
            'learning_rate': learning_rate,
            'skipped': int(self._last['skipped']),
            **self._rates(),
        }
        self._log.record('train', step, values)
        self.restart()
        return seconds

    @property
    def seconds(self) -> float:
        """The time since the window was started."""
        return self._clock() - self._start

    def _rates(self) -> dict[str, float]:
        steps_per_second = self._steps / self.seconds
        rates = {'tokens_per_second': self._stage.tokens_per_step * steps_per_second}
        if self._peak_flops is not None:
            rates['mfu'] = self._stage.flops_per_step * steps_per_second / self._peak_flops
        return rates

    def _report_skipped(self, step: int, metrics: Mapping[str, Tree]) -> None:
        loss, norm, in_row = metrics['loss'], metrics['gradient_norm'], metrics['skipped_in_row']
        fault = 'is a spike' if math.isfinite(loss) and math.isfinite(norm) else 'is not finite'
        self._log.warn(
            f'step {step}: skipped; its loss {loss:.4g} or gradient norm {norm:.4g} {fault} '
            f'({metrics["skipped"]} skipped so far, {in_row} in a row)'
        )
        total = int(metrics['skipped'])
        what = ''
        if in_row >= self._max_skipped_in_row:
            what = f'{in_row} steps in a row, up to step {step},'
        elif total > max(self._max_skipped_in_row, _MAX_SKIPPED_SHARE * step):
            what = f'{total} of the first {step} steps'
        if what:
            raise Diverged(
                f'{what} had a loss or gradient norm that {fault}; --config.debug.batch={step} '
                'shows the last batch; lower schedule.learning_rate; the last good state is in '
                f'{self._log.workdir.path}',
                step,
            )
