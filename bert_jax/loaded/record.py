"""What a checkpoint records besides its arrays: every key of metadata.json, declared once.

Tasks make a `RunRecord`, checkpoints store its JSON, and whoever loads the run reads the same type.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any, NamedTuple, Self

from bert_jax.errors import UserError
from bert_jax.models.architecture import Architecture
from bert_jax.types import JsonObject, JsonView

# Sections of a config that are read from a record.
_SECTIONS = ('data', 'evaluation', 'objectives', 'problem', 'rtd', 'training')
# Key of `kept` → type of its value; a problem may keep others.
_KEPT: dict[str, Any] = {
    'activation': str,
    'batch_size': int,
    'class_counts': tuple[int, ...],
    'decoder_start': str | None,
    'group_size': int,
    'late': Mapping[str, Any],
    'of_root': tuple[str, ...],
    'of_words': tuple[str, ...],
    'pooling': str,
    'prompts': Mapping[str, str],
    'shots': tuple[Mapping[str, str], ...],
    'shown': Mapping[str, tuple[tuple[Any, ...], ...]],
    'similarity': str,
    'sparse': Mapping[str, Any],
    'splitter': str,
    'target_slots': int,
    'token_vector_size': int,
}


class Base(NamedTuple):
    """The model that parameter-efficient tuning starts from; its arrays are not stored again.

    Attributes:
        path: of the model, as the user wrote it.
        absolute_path: the same path, absolute.
        parts: of its parameters that the tuned model uses.
        sha256: digest of these parts.
    """

    path: str
    absolute_path: str
    parts: tuple[str, ...]
    sha256: str


class BestEvaluation(NamedTuple):
    """The best evaluation of a run; stored in every checkpoint.

    Attributes:
        step: number of completed steps at that evaluation; None before the first finite value.
        metrics: its metrics by name.
        waited: number of evaluations since then.
    """

    step: int | None = None
    metrics: Mapping[str, float] | None = None
    waited: int = 0


@dataclasses.dataclass(frozen=True, kw_only=True)
class Usage:
    """What a model was trained to do, and with which settings; nothing is known by default.

    Attributes:
        task: 'pretraining' or a kind of fine-tuning problem; None for models of other libraries.
        problem_type: `problem_type` of transformers for a sequence classifier.
        labels: class names in the order of their numbers.
        calibrated: decision thresholds of the training.
        kept: what predictions need from the training examples, see `Setup.kept`.
        texts: number of texts of an example; None if unknown.
        config: the config of the run, or sections of it.
        source: the file that says so, for errors.
    """

    task: str | None = None
    problem_type: str | None = None
    labels: tuple[str, ...] = ()
    calibrated: Mapping[str, float] = dataclasses.field(default_factory=dict)
    kept: JsonView = dataclasses.field(default_factory=dict)
    texts: int | None = None
    config: JsonView = dataclasses.field(default_factory=dict)
    source: str = dataclasses.field(default='', compare=False)

    @classmethod
    def from_json(cls, fields: JsonView, source: object) -> Self:
        """Read the object of a file; keys whose fields have defaults may be left out.

        Raises:
            UserError: a key is missing, unknown, or has a wrong value.
        """
        from bert_jax import schema  # a run that starts reads no record

        usage = schema.read(cls, fields, source, partial=True)
        usage = dataclasses.replace(usage, source=str(source))
        for name in _SECTIONS:
            usage.section(name)
        for name in _KEPT.keys() & usage.kept.keys():
            schema.convert(_KEPT[name], usage.kept[name], f'{source}: kept.{name}')
        return usage

    def to_json(self) -> JsonObject:
        """Return the object of a file; keys with defaults whose values are empty are left out."""
        keys = [field for field in dataclasses.fields(self) if field.compare]
        values = {
            field.name: getattr(self, field.name) for field in keys if not _is_unset(self, field)
        }
        return {name: _plain(value) for name, value in values.items()}

    def section(self, name: str) -> JsonView:
        """Return a section of the config; {} if it has none."""
        from bert_jax import schema

        place = f'{self.source}: config.{name}'
        hint = Mapping[str, float] if name == 'objectives' else Mapping[str, Any]
        values: JsonView = schema.convert(hint, self.config.get(name, {}), place)
        if wrong := [key for key in values if not key.isidentifier()]:
            raise UserError(f'{place} has the key {wrong[0]!r:.60}, which is not a name')
        return values

    def setting(self, section: str, name: str, kind: Any) -> Any:
        """Return a setting of the config, of this type (see `schema.convert`).

        Raises:
            UserError: the config does not have it, or it has a value of another type.
        """
        from bert_jax import schema

        place, values = f'{self.source}: config.{section}', self.section(section)
        if name not in values:
            raise UserError(f'{place} lacks the key {name}')
        return schema.convert(kind, values[name], f'{place}.{name}')


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunRecord(Usage):
    """What every checkpoint of a run records.

    Attributes:
        family: key of `interop.families.FAMILIES`; None for an architecture without one.
        architecture: of the model, with what parameter-efficient tuning adds to it.
        base: the model that is tuned; None if the checkpoint holds all parameters.
        tokenizer: see `Tokenizer.to_json`.
        tokenizer_fingerprint: see `Tokenizer.fingerprint`.
        corpus_fingerprint: of pretraining, see `Corpus.fingerprint`.
        is_causal: whether tokens attend only to themselves and earlier tokens.
        has_prefix: whether the positions of a causal model see the whole prompt.
        is_generative: whether the model has learned to write text.
        train_digest: of the training examples of fine-tuning.
        train_seconds: time of all training steps so far.
        is_evaluated: whether the evaluation that is due after this step, if any, is done.
        stage_starts: number of steps before each stage that has begun, if stages end after a time.
        best: the best evaluation so far, if the run keeps it.
    """

    task: str
    family: str | None
    architecture: Architecture
    base: Base | None
    tokenizer: str
    tokenizer_fingerprint: str
    corpus_fingerprint: str | None = None
    is_causal: bool
    has_prefix: bool
    is_generative: bool
    train_digest: str | None = None
    config: JsonView
    train_seconds: float
    is_evaluated: bool
    stage_starts: tuple[int, ...] = ()
    best: BestEvaluation | None = None


def best_step(metadata: JsonView, source: object) -> int | None:
    """Return the step of the best checkpoint so far, by the metadata of a later checkpoint."""
    if 'best' not in metadata:
        return None
    from bert_jax import schema

    return schema.read(BestEvaluation, metadata['best'], f'{source}: best', partial=True).step


def _is_unset(usage: Usage, field: dataclasses.Field[Any]) -> bool:
    """Whether a field has a default and no value."""
    has_default = field.default is not dataclasses.MISSING
    has_default |= field.default_factory is not dataclasses.MISSING
    return has_default and getattr(usage, field.name) in (None, (), {})


def _plain(value: Any) -> Any:
    """Return a value as JSON has it."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return dataclasses.asdict(value)
    return value._asdict() if hasattr(value, '_asdict') else value
