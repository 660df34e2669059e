"""How token states become the vector of a text: pooling, dense layers, normalization."""

import dataclasses
import hashlib
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from bert_jax import schema, tree_paths
from bert_jax.errors import UserError, look_up
from bert_jax.loaded.record import Usage
from bert_jax.models import late_interaction
from bert_jax.models.late_interaction import LateInteraction
from bert_jax.models.pooling import POOLINGS
from bert_jax.models.sparse_pooling import ACTIVATIONS as SPARSE_ACTIVATIONS
from bert_jax.models.sparse_pooling import STRATEGIES, SparsePooling
from bert_jax.types import JsonObject, Params

IDENTITY = 'torch.nn.modules.linear.Identity'
SIMILARITIES = ('cosine', 'dot', 'euclidean', 'manhattan')  # of sentence-transformers
ACTIVATIONS: dict[str, Callable[[Any, Any], Any]] = {  # of the array module (NumPy or JAX) and x
    'torch.nn.modules.activation.Tanh': lambda xp, x: xp.tanh(x),
    IDENTITY: lambda xp, x: x,
    'torch.nn.modules.activation.ReLU': lambda xp, x: xp.maximum(x, 0),
}


class Dense(NamedTuple):
    """A module Dense: weight [outputs, inputs], bias [outputs], and a key of ACTIVATIONS."""

    weight: np.ndarray
    bias: np.ndarray | None
    activation: str


class Normalize(NamedTuple):
    """Division by the Euclidean norm."""


@dataclasses.dataclass(frozen=True)
class SentenceModules:
    """Modules that turn token states into the vector of a text.

    Attributes:
        pooling: Modes whose vectors are concatenated.
        layers: Layers after the pooling, in order.
        max_length: Texts are truncated to this many tokens; None: the length of the model.
        prompts: Texts to put before texts, by name.
        default_prompt: Name of the prompt of texts for which none is named; None: no prompt.
        unsupported: A module or setting of the folder that is not supported; None if all are.
        sparse: How a SparseEncoder makes weights of terms; None for other models.
        similarity: How vectors are compared, a name of SIMILARITIES or of late interaction.
        late: Which tokens have a vector of their own, to which `layers` apply; None for models with
            one vector for each text.
    """

    pooling: tuple[str, ...] = ('mean',)
    layers: tuple[Dense | Normalize, ...] = ()
    max_length: int | None = None
    prompts: Mapping[str, str] = dataclasses.field(default_factory=dict)
    default_prompt: str | None = None
    unsupported: str | None = None
    sparse: SparsePooling | None = None
    similarity: str = 'cosine'
    late: LateInteraction | None = None

    @property
    def prompt(self) -> str:
        """The prompt of texts for which none is named."""
        return self.prompts[self.default_prompt] if self.default_prompt else ''

    def apply(self, vectors_ND: Any, xp: Any = np) -> Any:
        """Apply the layers to pooled states, float32; `xp` is their library, numpy or jax.numpy.

        Raises:
            UserError: a dense layer has another number of inputs.
        """
        for layer in self.layers:
            if isinstance(layer, Dense):
                width, expected = vectors_ND.shape[-1], layer.weight.shape[1]
                if width != expected:
                    raise UserError(f'modules.json: Dense has {expected} inputs, but gets {width}')
                bias = 0 if layer.bias is None else layer.bias
                vectors_ND = ACTIVATIONS[layer.activation](xp, vectors_ND @ layer.weight.T + bias)
            else:
                norms = xp.linalg.norm(vectors_ND, axis=-1, keepdims=True)
                vectors_ND = vectors_ND / xp.maximum(norms, 1e-12)
        return vectors_ND

    def digest(self) -> str:
        """SHA-256 of the settings and weights."""
        hasher = hashlib.sha256(repr(dataclasses.replace(self, layers=())).encode())
        for layer in self.layers:
            for part in (type(layer).__name__, *layer):
                is_array = isinstance(part, np.ndarray)
                hasher.update(part.tobytes() if is_array else repr(part).encode())
        return hasher.hexdigest()

    def describe(self) -> JsonObject:
        """Return the settings from which training continues, as JSON values."""
        if self.late:
            return self._describe_late(self.late)
        has_dense = any(isinstance(layer, Dense) for layer in self.layers)
        unsupported = self.unsupported or ('a Dense layer' if has_dense else '')
        settings = {
            'pooling': self.pooling,
            'prompts': self.prompts,
            'unsupported': unsupported,
            'similarity': self.similarity,
        }
        return settings | ({'sparse': self.sparse._asdict()} if self.sparse else {})

    def _describe_late(self, late: LateInteraction) -> JsonObject:
        """Return `describe` for vectors of tokens; a single projection can be trained."""
        projection = self.projection()
        layers = 'layers other than a Dense without bias and activation, and Normalize'
        return {
            'prompts': self.prompts,
            'unsupported': self.unsupported or (layers if projection is None else ''),
            'similarity': self.similarity,
            'late': late._asdict(),
            'token_vector_size': 0 if projection is None else len(projection),
        }

    def projection(self) -> np.ndarray | None:
        """Return the weight of the only Dense, [outputs, inputs]; None for layers of another kind.

        Without a Dense it has no rows: the vectors are the states themselves.
        """
        match self.layers:
            case (Normalize(),):
                return np.zeros((0, 0), np.float32)
            case (Dense(weight, None, activation), Normalize()) if activation == IDENTITY:
                return weight
        return None

    def shorten(self, vectors_ND: np.ndarray, dimensions: int) -> np.ndarray:
        """Return the first numbers of vectors, normalized again if the last layer normalizes.

        Raises:
            UserError: there are fewer numbers.
        """
        if not 0 < dimensions <= vectors_ND.shape[-1]:
            raise UserError(
                f'dimensions is {dimensions}; it must be from 1 to {vectors_ND.shape[-1]}'
            )
        shortened = vectors_ND[..., :dimensions]
        is_unit = bool(self.layers) and isinstance(self.layers[-1], Normalize)
        unit = dataclasses.replace(self, layers=(Normalize(),))
        return np.asarray(unit.apply(shortened)) if is_unit else shortened


def parts(modules: SentenceModules) -> dict[str, Params]:
    """Return the parameters of a head that the modules hold: those of late interaction."""
    weight = modules.projection() if modules.late else None
    if weight is None or not len(weight):
        return {}
    return {
        'late_interaction': {'head': {'projection': {'kernel': np.ascontiguousarray(weight.T)}}}
    }


def of_run(record: Usage, parts: Mapping[str, Params] | None = None) -> SentenceModules | None:
    """Return the modules of a model that was trained to make vectors of texts; else None.

    A model with a prompt for queries or documents takes texts for documents unless the caller says
    that they are queries.

    Args:
        record: what the run or the exported folder records.
        parts: parameters beside the encoder, such as the projection of late interaction.

    Raises:
        UserError: the record lacks a setting, or has a value of another type.
    """
    if record.task == 'late_interaction':
        return _of_late_run(record, parts or {})
    if record.task not in ('embedding', 'sparse_embedding'):
        return None
    prompts = {
        name: record.setting('problem', f'{name}_prompt', str) for name in ('query', 'document')
    }
    kept, place = record.kept, f'{record.source}: kept'
    if missing := [name for name in ('pooling', 'similarity') if name not in kept]:
        raise UserError(f'{place} lacks the key {missing[0]}')
    sparse = schema.convert(SparsePooling | None, kept.get('sparse'), f'{place}.sparse')
    if sparse:
        look_up(f'{place}.sparse.strategy', sparse.strategy, STRATEGIES)
        look_up(f'{place}.sparse.activation', sparse.activation, SPARSE_ACTIVATIONS)
    look_up(f'{place}.pooling', kept['pooling'], POOLINGS)
    look_up(f'{place}.similarity', kept['similarity'], dict.fromkeys(SIMILARITIES))
    normalize = kept['similarity'] == 'cosine'
    if record.section('problem').get('normalize') is not None:
        normalize = record.setting('problem', 'normalize', bool)
    return SentenceModules(
        (kept['pooling'],),
        (Normalize(),) * (normalize and not sparse),
        record.setting('training', 'sequence_length', int),
        prompts if any(prompts.values()) else {},
        'document' if any(prompts.values()) else None,
        'the module SpladePooling' if sparse else None,
        sparse,
        kept['similarity'],
    )


def _of_late_run(record: Usage, parts: Mapping[str, Params]) -> SentenceModules:
    """Return the modules of a run of the problem late_interaction."""
    kept, place = record.kept, f'{record.source}: kept'
    for name in ('late', 'prompts', 'similarity', 'token_vector_size'):
        if name not in kept:
            raise UserError(f'{place} lacks the key {name}')
    late = schema.convert(LateInteraction, kept['late'], f'{place}.late')
    prompts = schema.convert(Mapping[str, str], kept['prompts'], f'{place}.prompts')
    look_up(f'{place}.similarity', kept['similarity'], dict.fromkeys(late_interaction.SIMILARITIES))
    layers: tuple[Dense | Normalize, ...] = (Normalize(),)
    if schema.convert(int, kept['token_vector_size'], f'{place}.token_vector_size'):
        kernel = tree_paths.flatten(parts).get('late_interaction/head/projection/kernel')
        if kernel is None:
            raise UserError(f'{record.source}: the weights lack the projection of late interaction')
        layers = (Dense(np.asarray(kernel, np.float32).T, None, IDENTITY), *layers)
    return SentenceModules(
        pooling=(),
        layers=layers,
        max_length=record.setting('training', 'sequence_length', int),
        prompts=prompts,
        default_prompt='document' if any(prompts.values()) else None,
        similarity=kept['similarity'],
        late=late,
    )
