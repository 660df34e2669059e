"""Losses whose fields are keys of the config's `problem`: how they are made."""

from collections.abc import Mapping
from typing import Protocol, TypeVar

from ml_collections import ConfigDict


class _Loss(Protocol):
    @classmethod
    def options(cls) -> tuple[str, ...]: ...


LossT = TypeVar('LossT', bound=_Loss)


def make(losses: Mapping[str, type[LossT]], settings: ConfigDict) -> LossT:
    """Make the loss that the config's `problem` describes; unset keys have the loss's defaults."""
    loss = losses[settings.loss]
    given = {name: settings[name] for name in loss.options() if settings[name] is not None}
    return loss(**given)


def why_unused(losses: Mapping[str, type[LossT]], config: ConfigDict, name: str) -> str:
    """Say why an option of a loss has no effect: the loss of the config does not have it."""
    loss = config.problem.loss
    if loss not in losses or name.removeprefix('problem.') in losses[loss].options():
        return ''
    return f'problem.loss is {loss!r}'
