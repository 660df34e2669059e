"""A trace of chosen training steps, for the profiler of TensorBoard or Perfetto."""

from collections.abc import Sequence

import jax

from bert_jax.errors import UserError
from bert_jax.training.workdir import Workdir
from bert_jax.types import Tree


class Profile:
    """A trace of the steps `first` to `last` of a run, in WORKDIR/profile.

    Every host writes its own trace. Steps that a resumed run has already done are not traced.
    """

    def __init__(self, steps: Sequence[int], workdir: Workdir):
        """Trace `logging.profile_steps`, if any.

        Raises:
            UserError: the steps are neither empty nor a first and a last step.
        """
        if steps and (len(steps) != 2 or not 1 <= steps[0] <= steps[1]):
            raise UserError(
                f'logging.profile_steps is {steps}; give the first and the last step, such as '
                '(10, 12)'
            )
        self._first: int = steps[0] if steps else 0
        self._last: int = steps[1] if steps else 0
        self._workdir = workdir
        self._is_running = False

    def before(self, step: int) -> None:
        """Start the trace if `step`, counted from 1, is one of its steps."""
        if not self._is_running and self._first <= step <= self._last:
            jax.profiler.start_trace(self._workdir.local / 'profile')
            self._is_running = True

    def after(self, step: int, state: Tree) -> None:
        """Write the trace after the last step; `state` is the result of the step."""
        if self._is_running and step == self._last:
            jax.block_until_ready(state)
            self.close()

    def close(self) -> None:
        """Write the trace, also if the run ends before the last step to trace."""
        if self._is_running:
            jax.profiler.stop_trace()
            self._is_running = False
            self._workdir.push()
