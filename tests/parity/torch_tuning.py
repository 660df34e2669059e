"""Tuning methods in BART and T5 of transformers, by hooks of torch.

Written from the formulas of the papers: a hook changes the output of a projection or of a sublayer,
and attention is one function. Added parameters have the names of bert_jax.
"""

import contextlib
from collections.abc import Iterator, Mapping

import torch
from transformers.models.bart import modeling_bart
from transformers.models.t5 import modeling_t5

from bert_jax.models.tuning_method import Tuning

_BART = {'query': 'q_proj', 'key': 'k_proj', 'value': 'v_proj', 'output': 'out_proj'}
_T5 = {'query': 'q', 'key': 'k', 'value': 'v', 'output': 'o'}


class Layer:
    """The modules of a layer of a stack, 'encoder' or 'decoder'.

    Attributes:
        attentions: 'attention' and in decoders 'cross_attention' → module.
        names: of the projections of attention.
        first, last: the projections of feed-forward.
        norm: of feed-forward; `residual` is a module that gets what feed-forward is added to.
    """

    def __init__(self, model: torch.nn.Module, stack: str, number: int) -> None:
        if hasattr(model, 'model'):
            layer = getattr(model.model, stack).layers[number]
            self.names, self.attentions = _BART, {'attention': layer.self_attn}
            if stack == 'decoder':
                self.attentions['cross_attention'] = layer.encoder_attn
            self.first, self.last = layer.fc1, layer.fc2
            self.norm, self.residual = layer.final_layer_norm, layer.fc1
            return
        first, *between, last = getattr(model, stack).block[number].layer
        self.names, self.attentions = _T5, {'attention': first.SelfAttention}
        if between:
            self.attentions['cross_attention'] = between[0].EncDecAttention
        self.first, self.last = last.DenseReluDense.wi, last.DenseReluDense.wo
        self.norm = self.residual = last.layer_norm

    def projection(self, attention: str, name: str) -> torch.nn.Module:
        projection: torch.nn.Module = getattr(self.attentions[attention], self.names[name])
        return projection


class Hooks:
    """Hooks that apply a method with these added parameters to a layer.

    Args:
        tuning: the method.
        layer: the modules.
        added: parameters by name below the layer, such as 'attention/query/tuning/down'.
        prefixes: gets the keys and values of attention modules.
    """

    def __init__(
        self,
        tuning: Tuning,
        layer: Layer,
        added: Mapping[str, torch.Tensor],
        prefixes: dict[torch.nn.Module, tuple[torch.Tensor, torch.Tensor]],
    ) -> None:
        self.tuning, self.layer, self.added, self.prefixes = tuning, layer, added, prefixes
        self.inputs: dict[str, torch.Tensor] = {}

    def install(self) -> list[torch.utils.hooks.RemovableHandle]:
        return list(getattr(self, self.tuning.method)())

    def mlp(self, name: str, x: torch.Tensor, function=torch.relu) -> torch.Tensor:
        down, up = self.added[f'{name}/down'], self.added[f'{name}/up']
        inner = function(x @ down + self.added[f'{name}/down_bias'])
        return inner @ up + self.added[f'{name}/up_bias']

    def keep(self, module: torch.nn.Module, name: str) -> torch.utils.hooks.RemovableHandle:
        return module.register_forward_pre_hook(
            lambda _, arguments: self.inputs.update({name: arguments[0]})
        )

    def lora(self):
        for attention in self.layer.attentions:
            for name in self.tuning.targets:
                down, up = (
                    self.added[f'{attention}/{name}/tuning/{part}'] for part in ('down', 'up')
                )
                product = down @ up.reshape(len(up), -1) * self.tuning.scale
                yield self.layer.projection(attention, name).register_forward_hook(
                    lambda _, arguments, output, product=product: output + arguments[0] @ product
                )

    def ia3(self):
        for attention in self.layer.attentions:
            for name in ('key', 'value'):
                factor = self.added[f'{attention}/{name}/tuning/scale'].reshape(-1)
                yield self.layer.projection(attention, name).register_forward_hook(
                    lambda _, arguments, output, factor=factor: output * factor
                )
        factor = self.added['feedforward/output/tuning/scale']
        yield self.layer.last.register_forward_pre_hook(
            lambda _, arguments: (arguments[0] * factor,)
        )

    def houlsby(self):
        modules = {name: self.layer.projection(name, 'output') for name in self.layer.attentions}
        gelu = torch.nn.functional.gelu
        for name, module in {**modules, 'feedforward': self.layer.last}.items():
            yield module.register_forward_hook(
                lambda _, arguments, output, name=name: (
                    output + self.mlp(f'tuning/{name}', output, gelu)
                )
            )

    def pfeiffer(self):
        yield self.keep(self.layer.residual, 'residual')
        yield self.layer.last.register_forward_hook(
            lambda _, arguments, output: (
                output
                + self.mlp(
                    'tuning/adapter', self.layer.norm.forward(output + self.inputs['residual'])
                )
            )
        )

    def parallel(self):
        yield self.keep(self.layer.first, 'feedforward')
        yield self.layer.last.register_forward_hook(
            lambda _, arguments, output: (
                output + self.tuning.scale * self.mlp('tuning/adapter', self.inputs['feedforward'])
            )
        )

    def prefix(self):
        for name, module in self.layer.attentions.items():
            keys, values = (self.added[f'{name}/tuning/{part}'] for part in ('keys', 'values'))
            self.prefixes[module] = keys, values
        return []

    def mam(self):
        self.prefix()
        yield from self.parallel()


@contextlib.contextmanager
def tuned(
    model: torch.nn.Module, tuning: Tuning, added: Mapping[str, torch.Tensor]
) -> Iterator[None]:
    """Apply a method to a model for the time of the context.

    Args:
        model: BartForConditionalGeneration or T5ForConditionalGeneration, with eager attention.
        tuning: the method.
        added: its parameters by name, such as 'decoder/layers_0/tuning/adapter/down'.
    """
    prefixes: dict[torch.nn.Module, tuple[torch.Tensor, torch.Tensor]] = {}

    def attend(
        module, query, key, value, mask, scaling=None, dropout=0.0, position_bias=None, **options
    ):
        """softmax([Q Pₖᵀ, Q Kᵀ + bias]) [Pᵥ, V], of [B, H, T, K]."""
        scores = query @ key.transpose(2, 3) * scaling
        for bias in (position_bias, mask):
            scores = scores if bias is None else scores + bias
        if module in prefixes:
            keys, values = (part.transpose(0, 1)[None] for part in prefixes[module])
            scores = torch.cat([query @ keys.transpose(2, 3) * scaling, scores], dim=-1)
            value = torch.cat([values.expand(len(value), -1, -1, -1), value], dim=2)
        weights = scores.softmax(-1)
        return (weights @ value).transpose(1, 2), weights

    places = sorted({tuple(name.split('/')[:2]) for name in added})
    with contextlib.ExitStack() as stack:
        for source in (modeling_bart, modeling_t5):
            original = source.eager_attention_forward
            source.eager_attention_forward = attend
            stack.callback(setattr, source, 'eager_attention_forward', original)
        for part, layer in places:
            prefix = f'{part}/{layer}/'
            own = {name.removeprefix(prefix): added[name] for name in added if prefix in name}
            modules = Layer(model, part, int(layer.removeprefix('layers_')))
            for handle in Hooks(tuning, modules, own, prefixes).install():
                stack.callback(handle.remove)
        yield
