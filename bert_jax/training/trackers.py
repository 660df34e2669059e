"""Services that show the curves of a run: TensorBoard and, optionally, Weights & Biases."""

import functools
import json
import os
import pathlib
import socket
import struct
import time
from collections.abc import Mapping
from typing import Protocol

from bert_jax.errors import UserError
from bert_jax.types import Config

# Fields of the messages of tensorflow/core/util/event.proto and framework/summary.proto, as number
# · 8 + wire type (https://protobuf.dev/programming-guides/encoding).
_WALL_TIME, _STEP, _FILE_VERSION, _SUMMARY, _SESSION_LOG = 0x09, 0x10, 0x1A, 0x2A, 0x3A  # of Event
_VALUE = 0x0A  # of Summary
_TAG, _SIMPLE_VALUE = 0x0A, 0x15  # of Summary.Value
_STATUS, _START = 0x08, b'\x01'  # of SessionLog
_HAS_LENGTH = 2  # wire type of bytes and of messages


class Tracker(Protocol):
    """Receives the records of a run."""

    def record(self, kind: str, step: int, values: Mapping[str, float]) -> None:
        """Add a point to the curve `kind/name` of each value."""

    def flush(self) -> None:
        """Write all buffered values."""

    def close(self) -> None:
        """Write all buffered values, and end."""


class EventFile:
    """A new event file of TensorBoard in a folder.

    tensorboardX would write it too, but imports torch where torch is installed: 3 s of CPU time in
    every run.
    """

    def __init__(self, folder: pathlib.Path, first_step: int):
        """Open a file; TensorBoard drops the records of earlier files from `first_step` on."""
        folder.mkdir(exist_ok=True)
        name = f'events.out.tfevents.{time.time_ns()}.{socket.gethostname()}'
        self._file = (folder / name).open('wb')
        self._write(first_step, _field(_FILE_VERSION, b'brain.Event:2'))
        self._write(first_step, _field(_SESSION_LOG, _field(_STATUS, _START)))

    def record(self, kind: str, step: int, values: Mapping[str, float]) -> None:
        """Add a point to the curve `kind/name` of each value."""
        for name, value in values.items():
            tag = _field(_TAG, f'{kind}/{name}'.encode())
            scalar = _field(_VALUE, tag + _field(_SIMPLE_VALUE, struct.pack('<f', value)))
            self._write(step, _field(_SUMMARY, scalar))

    def flush(self) -> None:
        """Write all buffered values."""
        self._file.flush()

    def close(self) -> None:
        """Write all buffered values, and end."""
        self._file.close()

    def _write(self, step: int, content: bytes) -> None:
        """Append an event (tensorflow/core/util/event.proto) as a record of a TFRecord file."""
        now = _field(_WALL_TIME, struct.pack('<d', time.time()))
        event = now + _field(_STEP, _varint(step)) + content
        for part in (struct.pack('<Q', len(event)), event):
            self._file.write(part + struct.pack('<I', _masked_crc(part)))


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
    trackers: list[Tracker] = [EventFile(workdir / 'tensorboard', step + 1)]
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


def _field(key: int, content: bytes) -> bytes:
    length = _varint(len(content)) if key % 8 == _HAS_LENGTH else b''
    return bytes([key]) + length + content


def _varint(number: int) -> bytes:
    """Seven bits a byte, the lowest first; all but the last byte have the highest bit."""
    low, high = number % 128, number // 128
    return bytes([low | 128]) + _varint(high) if high else bytes([low])


def _masked_crc(content: bytes) -> int:
    """The CRC-32C of bytes, rotated and shifted as in tensorflow/core/lib/hash/crc32c.h."""
    crc, table = 0xFFFFFFFF, _crc_table()
    for byte in content:
        crc = table[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


@functools.cache
def _crc_table() -> tuple[int, ...]:
    """The remainders of all bytes; RFC 3720, appendix B.4, has the polynomial."""

    def remainder(byte: int) -> int:
        for _ in range(8):
            byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)
        return byte

    return tuple(map(remainder, range(256)))
