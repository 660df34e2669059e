"""What has to be known of a family of published models to read and write them."""

import dataclasses
from collections.abc import Callable, Mapping

from bert_jax.errors import UserError
from bert_jax.models.architecture import Architecture


@dataclasses.dataclass(frozen=True)
class Family:
    """One value of `model_type` in a config.json.

    architectures: names of our architectures that are of this family.
    read_config, write_config: between the published config and our Architecture.
    table: our parameter names → theirs (see `naming.places`).
    prefix: of the encoder's weights in a model with heads; a bare encoder's lack it.
    classes: published class → the heads whose weights it has.
    without_pooler: those of the classes that have no pooler.
    old_names: ends of names in files of early versions → today's.
    duplicates: weights that some files hold twice → the weight they must equal.
    buffers: names of constants that some files hold: positions 0, 1, …
    """

    model_type: str
    architectures: tuple[str, ...]
    read_config: Callable[[dict], Architecture]
    write_config: Callable[[Architecture], dict]
    table: Mapping[str, str]
    prefix: str
    classes: Mapping[str, tuple[str, ...]]
    without_pooler: tuple[str, ...]
    old_names: Mapping[str, str]
    duplicates: Mapping[str, str]
    buffers: tuple[str, ...]

    @property
    def heads(self) -> tuple[str, ...]:
        """All heads that a model of the family can have."""
        return tuple(dict.fromkeys(head for heads in self.classes.values() for head in heads))

    def class_of(self, heads: tuple[str, ...]) -> str:
        """The class whose weights are an encoder with exactly these heads."""
        for name, its_heads in self.classes.items():
            if its_heads == heads:
                return name
        raise UserError(f'no published {self.model_type} model has just the heads {heads}')


@dataclasses.dataclass(frozen=True)
class Key:
    """A key of a config.json: our field, the value where it is absent, and how values translate.

    values: theirs → ours; the first that gives one of ours is written. Empty: as they are.
    """

    field: str
    default: object
    values: Mapping[object, object] = dataclasses.field(default_factory=dict)


def read_fields(config: dict, keys: Mapping[str, Key], fixed: Mapping[str, object]) -> dict:
    """Our fields from a config.

    Raises UserError for a value that has no translation, and where a key of `fixed` is there with
    another value than the only one we compute.
    """
    for name, value in fixed.items():
        if name in config and config[name] != value:
            raise UserError(f'{name} is {config[name]!r}; only {value!r} can be computed')
    fields = {}
    for name, key in keys.items():
        value = config.get(name, key.default)
        if key.values:
            if value not in key.values:
                known = ', '.join(map(str, key.values))
                raise UserError(f'{name} is {value!r}; known: {known}')
            value = key.values[value]
        elif isinstance(key.default, float) and isinstance(value, int):
            value = float(value)
        if type(value) is not type(key.default) and not key.values:
            raise UserError(f'{name} is {value!r}, which is no {type(key.default).__name__}')
        fields[key.field] = value
    return fields


def write_fields(
    architecture: Architecture, keys: Mapping[str, Key], fixed: Mapping[str, object]
) -> dict:
    """The inverse of `read_fields`."""
    config = dict(fixed)
    for name, key in keys.items():
        value = getattr(architecture, key.field)
        if key.values:
            value = next(theirs for theirs, ours in key.values.items() if ours == value)
        config[name] = value
    return config
