"""Engines that run functions on many machines: Apache Beam and Dask.

An engine calls a function on each of many items, at least once, on any machine. The functions write
their results to files (see `stages`), so an engine may repeat a call or lose a worker. Both
packages are optional and imported on first use.
"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, NoReturn, Protocol, TypeVar

from bert_jax import errors, flag_parser
from bert_jax.flag_parser import flag

Item = TypeVar('Item')

_WAIT_SECONDS = 60.0  # for the first worker of a cluster


class PreparationEngine(Protocol):
    """Runs functions on workers that have this package and see the same files."""

    def run(self, function: Callable[[Item], None], items: Sequence[Item]) -> None:
        """Call a function on each item, in any order, in parallel, more than once if needed.

        Args:
            function: Can be pickled; an exception counts as a failure of its worker.
            items: Can be pickled.

        Raises:
            UserError: The engine failed.
        """


class BeamEngine:
    """Apache Beam: on this machine, or on a cluster with Dataflow, Flink or Spark."""

    def __init__(self, options: Sequence[str] = ()):
        """Create the engine; `options` are pipeline options, such as --runner=FlinkRunner."""
        try:
            import apache_beam
        except ImportError as error:
            raise errors.UserError(
                '--runner=beam needs Apache Beam: after this package, pip install '
                'apache-beam==2.77.0, or apache-beam[gcp]==2.77.0 for Dataflow'
            ) from error
        self._beam: Any = apache_beam
        self._options = list(options)

    def run(self, function: Callable[[Item], None], items: Sequence[Item]) -> None:
        try:
            pipeline = self._beam.Pipeline(argv=self._options)
            each = pipeline | self._beam.Create(items) | self._beam.Reshuffle()
            each | self._beam.Map(function)
            pipeline.run().wait_until_finish()
        except Exception as error:  # Beam raises exceptions of many classes
            _raise_failure('Beam', error)


@dataclasses.dataclass(frozen=True, kw_only=True)
class DaskOptions:
    """The options after `--runner=dask --`."""

    scheduler: str | None = flag('address of the scheduler; default: a local cluster', None)


class DaskEngine:
    """A Dask cluster, whose scheduler repeats the work of lost workers."""

    def __init__(self, options: Sequence[str] = ()):
        """Create the engine; `options` is --scheduler=ADDRESS, or empty for a local cluster."""
        try:
            import distributed
        except ImportError as error:
            raise errors.UserError('--runner=dask needs Dask: pip install distributed') from error
        self._address = flag_parser.parse(DaskOptions, options, '--runner=dask --').scheduler
        self._dask: Any = distributed

    def run(self, function: Callable[[Item], None], items: Sequence[Item]) -> None:
        try:
            with self._dask.Client(self._address) as client:
                client.wait_for_workers(1, timeout=_WAIT_SECONDS)
                futures = client.map(function, items, pure=False)
                for future in self._dask.as_completed(futures):
                    future.result()
                    future.release()
        except Exception as error:  # raised by the network, a worker or the function
            _raise_failure('Dask', error)


ENGINES: dict[str, Callable[[Sequence[str]], PreparationEngine]] = {
    'beam': BeamEngine,
    'dask': DaskEngine,
}


def _raise_failure(name: str, error: Exception) -> NoReturn:
    lines = str(error).strip().splitlines() or [repr(error)]
    reason = lines[-1] if 'Traceback' in lines[0] else lines[0]
    raise errors.UserError(f'{name} failed: {reason}; rerun the same command to resume') from error
