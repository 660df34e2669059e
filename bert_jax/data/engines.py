"""Engines that run functions on many machines: Apache Beam and Dask.

An engine is only asked to call a function on each of many items, at least once, anywhere. Results
are files (see `stages`), so an engine may call a function twice, or lose a worker. Both packages
are optional and imported on first use.
"""

import argparse
from collections.abc import Callable, Sequence
from typing import Any, NoReturn, Protocol

from bert_jax import errors

_WAIT_SECONDS = 60.0  # for the first worker of a cluster


class Engine(Protocol):
    """Runs functions on workers that have this package and see the same files."""

    def run(self, function: Callable[[Any], None], items: Sequence[Any]) -> None:
        """Call a function on each item, in any order, at the same time, repeatedly if needed.

        Args:
            function: Can be pickled; an exception counts as a failure of its worker.
            items: Can be pickled.

        Raises:
            UserError: The engine has given up.
        """


class BeamEngine:
    """Apache Beam: on this machine, or on a cluster with Dataflow, Flink or Spark."""

    def __init__(self, options: Sequence[str] = ()):
        """Create the engine; `options` are pipeline options, such as --runner=FlinkRunner."""
        try:
            import apache_beam
        except ImportError as error:
            raise errors.UserError(
                '--runner=beam needs Apache Beam: pip install apache-beam==2.77.0, with [gcp] for '
                'Dataflow, after this package'
            ) from error
        self._beam: Any = apache_beam
        self._options = list(options)

    def run(self, function: Callable[[Any], None], items: Sequence[Any]) -> None:
        try:
            pipeline = self._beam.Pipeline(argv=self._options)
            each = pipeline | self._beam.Create(items) | self._beam.Reshuffle()
            each | self._beam.Map(function)
            pipeline.run().wait_until_finish()
        except Exception as error:  # Beam raises many kinds
            _give_up('Beam', error)


class DaskEngine:
    """The scheduler of a Dask cluster, which repeats the work of workers that it loses."""

    def __init__(self, options: Sequence[str] = ()):
        """Create the engine; the option is --scheduler=ADDRESS, or none for a local cluster."""
        try:
            import distributed
        except ImportError as error:
            raise errors.UserError(
                "--runner=dask needs Dask: pip install 'bert-jax[dask]'"
            ) from error
        parser = argparse.ArgumentParser('--runner=dask --', add_help=False)
        parser.add_argument('--scheduler')
        self._address = parser.parse_args(options).scheduler
        self._dask: Any = distributed

    def run(self, function: Callable[[Any], None], items: Sequence[Any]) -> None:
        try:
            with self._dask.Client(self._address) as client:
                client.wait_for_workers(1, timeout=_WAIT_SECONDS)
                futures = client.map(function, items, pure=False)
                for future in self._dask.as_completed(futures):
                    future.result()
                    future.release()
        except Exception as error:  # those of the network, of workers, and of the function
            _give_up('Dask', error)


ENGINES: dict[str, Callable[[Sequence[str]], Engine]] = {'beam': BeamEngine, 'dask': DaskEngine}


def _give_up(name: str, error: Exception) -> NoReturn:
    lines = str(error).strip().splitlines() or [repr(error)]
    reason = lines[-1] if 'Traceback' in lines[0] else lines[0]
    raise errors.UserError(
        f'{name} failed: {reason}; the same command resumes with what is finished'
    ) from error
