"""The log of a run: progress bar, metrics.jsonl, trackers and a plot of the loss."""

import contextlib
import functools
import json
import pathlib
import sys
import time
from collections.abc import Iterator, Mapping, Sequence

import jax

from bert_jax import figures, progress
from bert_jax.errors import printable, warn
from bert_jax.loaded.checkpoint_files import check_free_space
from bert_jax.training import curves, trackers
from bert_jax.training.workdir import Workdir
from bert_jax.types import Config, JsonRecord

_FLUSH_SECONDS = 60.0  # between uploads to a bucket


class Log:
    """The log of a run; only host 0 shows and writes anything.

    Attributes:
        workdir: the folder of the run.
        records: the records of metrics.jsonl, dictionaries with 'kind', 'step' and metrics.
    """

    def __init__(
        self,
        workdir: Workdir,
        config: Config,
        step: int,
        total_steps: int | None,
        is_evaluated: bool,
    ):
        """Open the log of a run that resumes after `step`; later records are dropped.

        Args:
            workdir: the folder of the run, which is claimed.
            config: the config's `logging`.
            step: number of completed steps.
            total_steps: number of steps of the whole run; None if it ends at a time.
            is_evaluated: whether the record of the evaluation at `step`, if any, is kept.
        """
        self.workdir, self._config = workdir, config
        self._folder = workdir.local
        self._is_host0 = jax.process_index() == 0
        self._flushed = time.monotonic()
        last = {'train': step, 'held_out': step if is_evaluated else step - 1}
        self.records = _read_records(self._folder / 'metrics.jsonl', last) if self._is_host0 else []
        if self._is_host0:
            with workdir.writing():
                check_free_space(self._folder)
                text = ''.join(f'{json.dumps(record)}\n' for record in self.records)
                (self._folder / 'metrics.jsonl').write_text(text, encoding='utf-8')
        self._step = step
        self._bar = progress.bar(
            total=total_steps, initial=step, unit='step', disable=not self._is_host0
        )

    def info(self, text: str) -> None:
        """Print a line above the progress bar."""
        if self._is_host0:
            self._bar.write(printable(text), file=sys.stderr)

    def warn(self, text: str) -> None:
        """Print a warning above the progress bar."""
        if self._is_host0:
            warn(text)

    def record(self, kind: str, step: int, values: Mapping[str, float]) -> None:
        """Append a line to metrics.jsonl and a point to each curve of the trackers.

        Args:
            kind: 'train' or 'held_out'.
            step: number of completed steps.
            values: metrics by name.
        """
        if not self._is_host0:
            return
        with self.workdir.writing():
            check_free_space(self._folder)
            self.records.append({'kind': kind, 'step': step, **values})
            with open(self._folder / 'metrics.jsonl', 'a', encoding='utf-8') as file:
                print(json.dumps(self.records[-1]), file=file)
            for tracker in self._trackers:
                tracker.record(kind, step, values)
        if time.monotonic() - self._flushed > _FLUSH_SECONDS:
            self.flush()

    def flush(self) -> None:
        """Upload all records to a working directory in a bucket."""
        if self._is_host0:
            for tracker in self._trackers:
                tracker.flush()
            self.workdir.push()
            self._flushed = time.monotonic()

    def plot(
        self,
        references: Mapping[str, float],
        stage_starts: Sequence[int],
        file_format: str = 'png',
    ) -> None:
        """Draw loss.png, if figures are drawn; see `curves.draw`."""
        if not self._is_host0 or not figures.are_drawn():
            return
        figure = curves.draw(self.records, self._main_metric(), references, stage_starts)
        with self.workdir.writing():
            figures.save(figure, self._folder / 'loss', [file_format])

    def _main_metric(self) -> str:
        """The first metric of the evaluations, which compares fine-tuning runs."""
        held_out = next((record for record in self.records if record['kind'] == 'held_out'), {})
        return next((name for name in held_out if name not in ('kind', 'step')), '')

    def advance(self, values: Mapping[str, str]) -> None:
        """Move the progress bar by one step and show these values beside it."""
        self._bar.set_postfix(values, refresh=False)
        self._bar.update(1)

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Keep the time of the block, in which no step is taken, out of the estimated time left."""
        start = time.time()
        try:
            yield
        finally:
            if not self._bar.disable:
                waited = time.time() - start
                self._bar.start_t += waited
                self._bar.last_print_t += waited

    def close(self) -> None:
        """Close the progress bar and the trackers, and upload the records."""
        self._bar.close()
        if '_trackers' in vars(self):
            for tracker in self._trackers:
                tracker.close()
        if self._is_host0:
            self.workdir.push()

    @functools.cached_property
    def _trackers(self) -> list[trackers.Tracker]:  # opened for the first record
        return trackers.open_trackers(self._folder, self._step, self._config)


def _read_records(path: pathlib.Path, last: Mapping[str, int]) -> list[JsonRecord]:
    """Read the records up to `last`[kind]; a line that a kill cut off is dropped."""
    records = []
    lines = path.read_text(encoding='utf-8').split('\n') if path.exists() else []
    for line in filter(None, lines):
        try:
            record = json.loads(line)
        except json.JSONDecodeError:
            break
        if record['step'] <= last[record['kind']]:
            records.append(record)
    return records
