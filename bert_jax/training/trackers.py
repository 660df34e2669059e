"""Services that show the curves of a run: TensorBoard and, optionally, Weights & Biases."""

import json
import os
import pathlib
from collections.abc import Mapping
from typing import Protocol

from bert_jax.errors import UserError
from bert_jax.types import Config


class Tracker(Protocol):
    """Receives the records of a run."""

    def record(self, kind: str, step: int, values: Mapping[str, float]) -> None:
        """Add a point to the curve `kind/name` of each value."""

    def flush(self) -> None:
        """Write all buffered values."""

    def close(self) -> None:
        """Write all buffered values, and end."""


class TensorBoard:
    """Event files in WORKDIR/tensorboard."""

    def __init__(self, workdir: pathlib.Path, step: int):
        """Open a file; TensorBoard drops the records of earlier files after `step`."""
        import tensorboardX  # takes a second if torch is installed

        folder = str(workdir / 'tensorboard')
        self._writer = tensorboardX.SummaryWriter(folder, purge_step=step + 1)

    def record(self, kind: str, step: int, values: Mapping[str, float]) -> None:
        for name, value in values.items():
            self._writer.add_scalar(f'{kind}/{name}', value, step)

    def flush(self) -> None:
        self._writer.flush()

    def close(self) -> None:
        self._writer.close()


class WeightsAndBiases:
    """A run of Weights & Biases (wandb.ai); WANDB_MODE=offline writes it to WORKDIR/wandb only.

    A resumed run continues the same curves. Steps that were recorded before the interruption are
    not recorded again.
    """

    def __init__(self, workdir: pathlib.Path, project: str):
        import wandb

        settings = json.loads((workdir / 'config.json').read_text(encoding='utf-8'))
        id_file = workdir / 'wandb_id'
        run_id = id_file.read_text().strip() if id_file.exists() else None
        try:
            self._run = wandb.init(
                project=project,
                name=workdir.name,
                id=run_id,
                dir=os.fspath(workdir),
                config=settings,
                resume='allow',
            )
        except wandb.Error as error:  # not logged in, or no connection
            raise UserError(
                f'logging.wandb: {error}; run wandb login, or set WANDB_MODE=offline'
            ) from error
        id_file.write_text(self._run.id)

    def record(self, kind: str, step: int, values: Mapping[str, float]) -> None:
        self._run.log({f'{kind}/{name}': value for name, value in values.items()}, step=step)

    def flush(self) -> None:
        pass  # wandb uploads by itself; with WANDB_MODE=offline at the end

    def close(self) -> None:
        self._run.finish()


def open_trackers(workdir: pathlib.Path, step: int, config: Config) -> list[Tracker]:
    """Open the trackers of a run that resumes after `step`, given `config.logging`."""
    trackers: list[Tracker] = [TensorBoard(workdir, step)]
    if config.wandb:
        trackers.append(WeightsAndBiases(workdir, config.wandb))
    return trackers


def check(config: Config) -> None:
    """Raise UserError if `config.logging` asks for a service whose package is not installed."""
    if not config.wandb:
        return
    try:
        import wandb  # noqa: F401
    except ImportError:
        raise UserError(
            f'logging.wandb is {config.wandb!r}, but wandb is not installed: pip install wandb'
        ) from None
