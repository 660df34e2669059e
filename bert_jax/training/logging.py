"""What a run shows and leaves behind: progress bar, metrics.jsonl, TensorBoard, a picture of the
loss.
"""

import errno
import functools
import json
import os
import pathlib
import shutil
import sys

from bert_jax import progress

_ROOM = 2**18  # free bytes: on a full disk TensorBoard's writer dies and the loop waits for it


class Log:
    """The records of one run, on the one process that writes (`enabled`); going on from `step`
    drops what came after it.
    """

    def __init__(self, workdir: pathlib.Path, step: int, total_steps: int, enabled: bool):
        self.enabled = enabled
        self.path = workdir / 'metrics.jsonl'
        self.records = _read(self.path, step) if enabled else []
        if enabled:
            self._check_room()
            self.path.write_text(''.join(map(_line, self.records)))
        self.purge_step = step + 1
        self.bar = progress.bar(total=total_steps, initial=step, unit='step', disable=not enabled)

    def info(self, text: str):
        """A line above the progress bar."""
        if self.enabled:
            self.bar.write(text, file=sys.stderr)

    def record(self, kind: str, step: int, values: dict[str, float]):
        """One line of metrics.jsonl and one point of each curve in TensorBoard; kind is 'train' or
        'held_out'.
        """
        if not self.enabled:
            return
        self._check_room()
        self.records.append({'kind': kind, 'step': step, **values})
        with open(self.path, 'a', encoding='utf-8') as file:
            file.write(_line(self.records[-1]))
        for name, value in values.items():
            self.board.add_scalar(f'{kind}/{name}', value, step)

    @functools.cached_property
    def board(self):
        """TensorBoard's writer, made for the first record: its import takes a second where torch is
        installed."""
        import tensorboardX

        return tensorboardX.SummaryWriter(
            str(self.path.parent / 'tensorboard'), purge_step=self.purge_step
        )

    def _check_room(self):
        if shutil.disk_usage(self.path.parent).free < _ROOM:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self.path))

    def advance(self, steps: int, shown: dict[str, str]):
        """Moves the bar on."""
        self.bar.set_postfix(shown, refresh=False)
        self.bar.update(steps)

    def close(self):
        self.bar.close()
        if 'board' in vars(self):
            self.board.close()


def plot(records: list[dict], path: pathlib.Path, references: dict[str, float]):
    """The loss terms over the steps, training and held-out, with horizontal lines for what needs no
    model.
    """
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


def _read(path: pathlib.Path, step: int) -> list[dict]:
    """The records up to `step`; a last line cut by a kill is dropped with those after it."""
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


def _line(record: dict) -> str:
    return json.dumps(record) + '\n'
