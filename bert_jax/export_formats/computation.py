"""The exported function: from token ids to the outputs of a task."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import NamedTuple, TypeAlias, cast

import jax
import jax.export
import jax.numpy as jnp

from bert_jax.loaded import loaded_model
from bert_jax.loaded.loaded_model import LoadedModel
from bert_jax.loaded.sentence_modules import SentenceModules
from bert_jax.models.architecture import Architecture, Compute
from bert_jax.models.heads import HEADS
from bert_jax.models.model import HeadOptions, Model, ModelOutput
from bert_jax.models.pooling import POOLINGS
from bert_jax.models.rows import Rows
from bert_jax.problems.base import AnyProblem, HostOutputs
from bert_jax.types import Array, Params

Arrays: TypeAlias = Mapping[str, jax.Array]
# Fields of packed rows, which are not inputs: an exported row has one sequence.
_PACKING_FIELDS = {'segment_ids', 'first_positions'}
_COMPUTE = Compute(attention_kernel='xla')  # the other kernels run on one platform only

# Head → output of the classes of transformers that have several heads.
_PRETRAINING_LOGITS = {
    'mlm': 'prediction_logits',
    'nsp': 'seq_relationship_logits',
    'sop': 'sop_logits',
}
# Outputs of transformers with an axis of tokens.
_TOKEN_OUTPUTS = {'last_hidden_state', 'prediction_logits', 'start_logits', 'end_logits'}

# Input → its description in signature.json.
_INPUTS = {
    'input_ids': 'token ids',
    'attention_mask': '1 for tokens, 0 for padding, which follows the tokens',
    'token_type_ids': '0 for the first text, 1 for the second',
    'marks': 'the sum of 1 at tokens of the first mark and 2 at tokens of the second',
    'word': '3 at the first token of each word, 1 at its other tokens, 0 elsewhere',
    'edge': 'the sum of 1 at the first token of the first word and 2 at the first token of the '
    'last word',
    'span_sizes': 'for each token, the number of tokens in the spans of 1, 2, … words from it; 0 '
    'if it does not start a word, and beyond the text',
}


class Computation(NamedTuple):
    """An exported function and its parameters.

    Attributes:
        function: maps (params, inputs by name) to outputs by name; traceable for any batch size and
            any length that the model supports.
        params: nested float32 NumPy arrays.
        inputs: name → shape without the axis of texts, with 't' for tokens; all are integers.
        per_token: outputs with an axis of tokens, [B, T, …]; other outputs are [B, …].
    """

    function: Callable[[Params, Arrays], dict[str, jax.Array]]
    params: Params
    inputs: Mapping[str, tuple[int | str, ...]]
    per_token: frozenset[str]

    def describe_inputs(self, dtype: str) -> dict[str, str]:
        """Input → its dtype, shape and meaning."""
        return {
            name: f'{dtype} [{", ".join(map(str, ("batch", *shape)))}]: {_INPUTS[name]}'.replace(
                ', t', ', tokens'
            )
            for name, shape in self.inputs.items()
        }

    def symbolic_inputs(self, longest: int) -> dict[str, jax.ShapeDtypeStruct]:
        """The inputs for any batch size b and any length t up to `longest`."""
        batch, length = jax.export.symbolic_shape('b, t', constraints=[f't <= {longest}'])
        return {
            name: jax.ShapeDtypeStruct(
                (batch, *(length if size == 't' else size for size in shape)), jnp.int32
            )
            for name, shape in self.inputs.items()
        }

    def fixed_inputs(self, batch: int, length: int) -> dict[str, jax.ShapeDtypeStruct]:
        """The inputs for this number of texts and of tokens."""
        return {
            name: jax.ShapeDtypeStruct(
                (batch, *(length if size == 't' else int(size) for size in shape)), jnp.int32
            )
            for name, shape in self.inputs.items()
        }


def of_embedding(model: LoadedModel, modules: SentenceModules, has_erf: bool) -> Computation:
    """'sentence_embedding' [B, E] of each text, and 'last_hidden_state' [B, T, D] of its tokens."""
    module, inputs = _build(model, {}, has_erf)

    def function(params: Params, batch: Arrays) -> dict[str, jax.Array]:
        states_BTD = _apply(module, params, Rows.of(batch)).states.hidden_BTD
        member_B1T = (jnp.asarray(batch['attention_mask']) > 0)[:, None]
        vectors = [POOLINGS[mode](states_BTD, member_B1T)[:, 0] for mode in modules.pooling]
        embedding_BE = modules.apply(jnp.concatenate(vectors, axis=-1), jnp)
        return {'last_hidden_state': states_BTD, 'sentence_embedding': embedding_BE}

    params = {'encoder': _without_pooler(model)}
    return Computation(function, params, inputs, frozenset(['last_hidden_state']))


def of_masked_tokens(model: LoadedModel, has_erf: bool) -> Computation:
    """'logits' [B, T, V] of all tokens of the vocabulary at each position."""
    module, inputs = _build(model, {'mlm': {}}, has_erf)

    def function(params: Params, batch: Arrays) -> dict[str, jax.Array]:
        logits_BTV = _apply(module, params, Rows.of(batch)).heads['mlm']
        return {'logits': logits_BTV[..., : model.architecture.vocab_size]}

    params = {'encoder': _without_pooler(model), 'mlm': model.params['mlm']}
    return Computation(function, params, inputs, frozenset(['logits']))


def of_published_class(model: LoadedModel) -> Computation:
    """The outputs of the class of transformers with the model's heads, under its output names."""
    # transformers has no enhanced mask decoder.
    architecture = model.architecture.without_mask_decoder()
    heads = model.heads

    def function(params: Params, batch: Arrays) -> dict[str, jax.Array]:
        rows = Rows.of(batch)
        outputs = loaded_model.outputs(architecture, _COMPUTE, params, rows, model.is_causal)
        if not heads:
            return {'last_hidden_state': outputs['all_hidden'][-1]}
        if heads == ('question_answering',):
            start_BT, end_BT = jnp.moveaxis(outputs['question_answering_logits'], -1, 0)
            return {'start_logits': start_BT, 'end_logits': end_BT}
        if heads == ('multiple_choice',):
            return {'logits': outputs['multiple_choice_logits'][:, None]}
        names = _PRETRAINING_LOGITS if len(heads) > 1 else dict.fromkeys(heads, 'logits')
        return {names[head]: outputs[f'{head}_logits'] for head in heads}

    inputs: dict[str, tuple[int | str, ...]] = dict.fromkeys(_input_names(architecture), ('t',))
    is_per_token = any(HEADS[head].is_per_token for head in heads)
    per_token = _TOKEN_OUTPUTS | ({'logits'} if is_per_token else set())
    return Computation(function, model.params, inputs, frozenset(per_token))


def of_problem(
    model: LoadedModel, problem: AnyProblem, rows: Mapping[str, Array], has_erf: bool
) -> Computation:
    """The outputs of `Loss.exported_outputs`.

    Args:
        rows: a batch with one sequence a row; fields that the heads read become inputs.
    """
    heads, read_fields = problem.loss.heads(), set[str]()
    module, inputs = _build(model, heads, has_erf, 'pooler' in model.params['encoder'])

    def apply(params: Params, batch: Arrays) -> HostOutputs:
        first_B1 = jnp.zeros_like(batch['attention_mask'][:, :1])
        recorded = _Recorder(batch, read_fields)
        recorded |= {'segment_ids': batch['attention_mask'], 'first_positions': first_B1}
        rows = Rows.of(batch).replace(first_positions_BS=first_B1, labels=recorded)
        outputs = problem.loss.outputs(_apply(module, params, rows).heads, rows)
        return problem.loss.exported_outputs(outputs, recorded)

    def function(params: Params, batch: Arrays) -> dict[str, jax.Array]:
        outputs = apply(params, batch)
        return {
            **{name: jnp.asarray(array)[:, 0] for name, array in outputs.per_sequence.items()},
            **{name: jnp.asarray(array) for name, array in outputs.per_token.items()},
        }

    parts = {**model.params, **model.other_parts}
    params = {'encoder': model.params['encoder']} | {name: parts[name] for name in heads}
    outputs = jax.eval_shape(apply, params, rows)
    head_inputs: dict[str, tuple[int | str, ...]] = {
        name: ('t', *array.shape[2:])
        for name, array in rows.items()
        if name in read_fields - {*inputs} - _PACKING_FIELDS
    }
    return Computation(function, params, inputs | head_inputs, frozenset(outputs.per_token))


class _Recorder(dict[str, jax.Array]):
    """A batch that records the names of the fields that are read."""

    def __init__(self, batch: Arrays, read_fields: set[str]) -> None:
        super().__init__(batch)
        self._read_fields = read_fields

    def __getitem__(self, name: str) -> jax.Array:
        self._read_fields.add(name)
        return super().__getitem__(name)


def _build(
    model: LoadedModel, heads: Mapping[str, HeadOptions], has_erf: bool, has_pooler: bool = False
) -> tuple[Model, dict[str, tuple[int | str, ...]]]:
    """The model that is exported, and its inputs."""
    architecture = _architecture(model.architecture, has_erf)
    inputs: dict[str, tuple[int | str, ...]] = dict.fromkeys(_input_names(architecture), ('t',))
    is_pooled = architecture.pooler and has_pooler
    architecture = dataclasses.replace(architecture, pooler=is_pooled)
    return Model(architecture, _COMPUTE, heads, model.is_causal), inputs


def _apply(model: Model, params: Params, rows: Rows) -> ModelOutput:
    return cast(ModelOutput, model.apply({'params': params}, rows))


def _input_names(architecture: Architecture) -> list[str]:
    names = ['input_ids', 'attention_mask']
    return [*names, 'token_type_ids'] if architecture.type_vocab_size > 1 else names


def _architecture(architecture: Architecture, has_erf: bool) -> Architecture:
    if has_erf:
        return architecture
    names = [name for name, value in architecture.values().items() if value == 'gelu']
    return architecture.changed(dict.fromkeys(names, 'gelu_rational'))


def _without_pooler(model: LoadedModel) -> Params:
    return {name: part for name, part in model.params['encoder'].items() if name != 'pooler'}
