"""The published families: their models in transformers and their names for our parameters.

A new family is one Family in FAMILIES.
"""

import dataclasses
import re
from collections.abc import Callable, Mapping

import flax
import numpy as np
import torch
import transformers

from bert_jax.models.architecture import Architecture
from bert_jax.models.heads import MaskedLanguageModelHead, NextSentenceHead, ReplacedTokenHead

_LEAVES = {'kernel': 'weight', 'bias': 'bias', 'scale': 'weight'}
_ACTIVATIONS = {'gelu': 'gelu', 'gelu_tanh': 'gelu_pytorch_tanh'}


@dataclasses.dataclass(frozen=True)
class Family:
    """build: the name given to architectures.build.

    model, config: of transformers; keys: their config keys → our fields; settings: fixed ones.
    table: our module or parameter → theirs, '#' for the number of a layer; 'name|i/n' is the i-th
        of n equal parts of one.
    heads: our heads by the name of their logits in the output of the model.
    sizes: of the smallest test case. cases: changes of sizes for the others, and the length.
    """

    build: str
    model: type
    config: type
    keys: Mapping[str, str | Callable]
    table: Mapping[str, str]
    heads: Mapping[str, type]
    sizes: Mapping[str, object]
    cases: Mapping[str, tuple[int, Mapping[str, object]]]
    settings: Mapping[str, object] = dataclasses.field(default_factory=dict)
    pad_id: int = 0

    def make_model(self, architecture: Architecture, **options):
        """Their model without dropout, weights not set."""
        values = {
            theirs: ours(architecture) if callable(ours) else getattr(architecture, ours)
            for theirs, ours in self.keys.items()
        }
        config = self.config(
            **values,
            **self.settings,
            attn_implementation='eager',
            pad_token_id=self.pad_id,
            **options,
        )
        return self.model(config).eval()

    def to_tree(self, state: Mapping[str, np.ndarray], shapes: dict, architecture: Architecture):
        """Their arrays (weights or gradients alike) in a tree of our shapes (unboxed).

        Every array must find a place.
        """
        used, tree = set(), {}
        for path, leaf in flax.traverse_util.flatten_dict(shapes).items():
            name, part, parts = self._their_name('/'.join(path))
            used.add(name)
            array = state[name]
            if parts > 1:
                array = np.split(array, parts)[part]
            if path[-1] == 'kernel':
                array = array.T
            rows = architecture.padded_vocab_size - architecture.vocab_size
            if leaf.shape[0] == architecture.padded_vocab_size:
                array = np.pad(array, [(0, rows)] + [(0, 0)] * (array.ndim - 1))
            tree[path] = array.reshape(leaf.shape)
        assert not set(state) - used, sorted(set(state) - used)
        return flax.traverse_util.unflatten_dict(tree)

    def _their_name(self, ours: str) -> tuple[str, int, int]:
        number = re.search(r'layers_(\d+)', ours)
        pattern = re.sub(r'layers_\d+', 'layers_#', ours)
        module, _, leaf = pattern.rpartition('/')
        whole = pattern in self.table
        name, _, part = self.table[pattern if whole else module].partition('|')
        part, _, parts = (part or '0/1').partition('/')
        name = name if whole else f'{name}.{_LEAVES[leaf]}'
        return name.replace('#', number[1]) if number else name, int(part), int(parts)


def _layer(theirs: str, names: Mapping[str, str]) -> dict[str, str]:
    return {f'encoder/layers_#/{ours}': f'{theirs}.{name}' for ours, name in names.items()}


def _bert_like(prefix: str) -> dict[str, str]:
    """The embeddings and layers that most families have inherited from BERT."""
    embeddings = {
        'token': 'word_embeddings.weight',
        'position': 'position_embeddings.weight',
        'type': 'token_type_embeddings.weight',
        'norm': 'LayerNorm',
    }
    layer = {
        'attention/query': 'attention.self.query',
        'attention/key': 'attention.self.key',
        'attention/value': 'attention.self.value',
        'attention/output': 'attention.output.dense',
        'attention_norm': 'attention.output.LayerNorm',
        'feedforward/input': 'intermediate.dense',
        'feedforward/output': 'output.dense',
        'feedforward_norm': 'output.LayerNorm',
    }
    return {
        f'encoder/embeddings/{ours}': f'{prefix}.embeddings.{name}'
        for ours, name in embeddings.items()
    } | _layer(f'{prefix}.encoder.layer.#', layer)


_BERT_KEYS = {
    'vocab_size': 'vocab_size',
    'hidden_size': 'hidden_size',
    'num_hidden_layers': 'num_layers',
    'num_attention_heads': 'num_heads',
    'intermediate_size': 'intermediate_size',
    'max_position_embeddings': 'max_position_embeddings',
    'type_vocab_size': 'type_vocab_size',
    'hidden_act': lambda architecture: _ACTIVATIONS[architecture.hidden_act],
    'layer_norm_eps': 'layer_norm_eps',
}
_WITH_EMBEDDING_SIZE = _BERT_KEYS | {'embedding_size': 'embedding_width'}
_SIZES = dict(
    vocab_size=97,
    hidden_size=24,
    num_layers=3,
    num_heads=3,
    intermediate_size=40,
    max_position_embeddings=19,
)
_CASES = {
    'odd': (11, {}),
    'maximum_length': (19, dict(vocab_size=128, hidden_size=20, num_heads=5, num_layers=2)),
    'length_one': (1, dict(num_layers=1, num_heads=1, hidden_size=16)),
}

ROBERTA = Family(
    build='roberta',
    model=transformers.RobertaForMaskedLM,
    config=transformers.RobertaConfig,
    keys=_BERT_KEYS,
    table=_bert_like('roberta')
    | {
        'mlm/transform': 'lm_head.dense',
        'mlm/norm': 'lm_head.layer_norm',
        'mlm/bias': 'lm_head.bias',
    },
    heads={'logits': MaskedLanguageModelHead},
    sizes=_SIZES,
    cases=_CASES | {'maximum_length': (17, _CASES['maximum_length'][1])},
    pad_id=1,
)

FAMILIES = {
    'roberta': ROBERTA,
    'xlmr': dataclasses.replace(
        ROBERTA,
        model=transformers.XLMRobertaForMaskedLM,
        config=transformers.XLMRobertaConfig,
        cases={'odd': (11, {})},
    ),
    'albert': Family(
        build='albert',
        model=transformers.AlbertForPreTraining,
        config=transformers.AlbertConfig,
        keys=_WITH_EMBEDDING_SIZE,
        table=_bert_like('albert')
        | _layer(
            'albert.encoder.albert_layer_groups.0.albert_layers.0',
            {
                'attention/query': 'attention.query',
                'attention/key': 'attention.key',
                'attention/value': 'attention.value',
                'attention/output': 'attention.dense',
                'attention_norm': 'attention.LayerNorm',
                'feedforward/input': 'ffn',
                'feedforward/output': 'ffn_output',
                'feedforward_norm': 'full_layer_layer_norm',
            },
        )
        | {
            'encoder/embeddings/projection': 'albert.encoder.embedding_hidden_mapping_in',
            'encoder/pooler': 'albert.pooler',
            'mlm/transform': 'predictions.dense',
            'mlm/norm': 'predictions.LayerNorm',
            'mlm/bias': 'predictions.bias',
            'sop/dense': 'sop_classifier.classifier',
        },
        heads={'prediction_logits': MaskedLanguageModelHead, 'sop_logits': NextSentenceHead},
        sizes=_SIZES | {'embedding_size': 10},
        cases=_CASES,
    ),
    'electra': Family(
        build='electra',
        model=transformers.ElectraForPreTraining,
        config=transformers.ElectraConfig,
        keys=_WITH_EMBEDDING_SIZE,
        table=_bert_like('electra')
        | {
            'encoder/embeddings/projection': 'electra.embeddings_project',
            'rtd/transform': 'discriminator_predictions.dense',
            'rtd/output': 'discriminator_predictions.dense_prediction',
        },
        heads={'logits': ReplacedTokenHead},
        sizes=_SIZES | {'embedding_size': 20},  # in maximum_length the hidden size
        cases=_CASES,
    ),
    'electra_generator': Family(
        build='electra',
        model=transformers.ElectraForMaskedLM,
        config=transformers.ElectraConfig,
        keys=_WITH_EMBEDDING_SIZE,
        table=_bert_like('electra')
        | {
            'encoder/embeddings/projection': 'electra.embeddings_project',
            'mlm/transform': 'generator_predictions.dense',
            'mlm/norm': 'generator_predictions.LayerNorm',
            'mlm/bias': 'generator_lm_head.bias',
        },
        heads={'logits': MaskedLanguageModelHead},
        sizes=_SIZES | {'embedding_size': 30},
        cases={'odd': (11, {})},
    ),
    'distilbert': Family(
        build='distilbert',
        model=transformers.DistilBertForMaskedLM,
        config=transformers.DistilBertConfig,
        keys={
            'vocab_size': 'vocab_size',
            'dim': 'hidden_size',
            'n_layers': 'num_layers',
            'n_heads': 'num_heads',
            'hidden_dim': 'intermediate_size',
            'max_position_embeddings': 'max_position_embeddings',
            'activation': 'hidden_act',
        },
        table=_bert_like('distilbert')
        | _layer(
            'distilbert.transformer.layer.#',
            {
                'attention/query': 'attention.q_lin',
                'attention/key': 'attention.k_lin',
                'attention/value': 'attention.v_lin',
                'attention/output': 'attention.out_lin',
                'attention_norm': 'sa_layer_norm',
                'feedforward/input': 'ffn.lin1',
                'feedforward/output': 'ffn.lin2',
                'feedforward_norm': 'output_layer_norm',
            },
        )
        | {
            'mlm/transform': 'vocab_transform',
            'mlm/norm': 'vocab_layer_norm',
            'mlm/bias': 'vocab_projector.bias',
        },
        heads={'logits': MaskedLanguageModelHead},
        sizes=_SIZES,
        cases=_CASES,
    ),
    'modernbert': Family(
        build='modernbert',
        model=transformers.ModernBertForMaskedLM,
        config=transformers.ModernBertConfig,
        keys={
            'vocab_size': 'vocab_size',
            'hidden_size': 'hidden_size',
            'num_hidden_layers': 'num_layers',
            'num_attention_heads': 'num_heads',
            'intermediate_size': 'intermediate_size',
            'max_position_embeddings': 'max_position_embeddings',
            'hidden_activation': lambda architecture: _ACTIVATIONS[architecture.hidden_act],
            'norm_eps': 'layer_norm_eps',
            'layer_types': lambda architecture: [
                'full_attention' if window is None else 'sliding_attention'
                for window in architecture.attention_windows
            ],
            'local_attention': lambda architecture: (
                2 * max(window or 0 for window in architecture.attention_windows)
            ),
        },
        table={
            'encoder/embeddings/token': 'model.embeddings.tok_embeddings.weight',
            'encoder/embeddings/norm': 'model.embeddings.norm',
            'encoder/final_norm': 'model.final_norm',
            'mlm/transform': 'head.dense',
            'mlm/norm': 'head.norm',
            'mlm/bias': 'decoder.bias',
        }
        | _layer(
            'model.layers.#',
            {
                'attention/query': 'attn.Wqkv|0/3',
                'attention/key': 'attn.Wqkv|1/3',
                'attention/value': 'attn.Wqkv|2/3',
                'attention/output': 'attn.Wo',
                'attention_norm': 'attn_norm',
                'feedforward/input': 'mlp.Wi',
                'feedforward/output': 'mlp.Wo',
                'feedforward_norm': 'mlp_norm',
            },
        ),
        heads={'logits': MaskedLanguageModelHead},
        sizes=_SIZES | dict(num_layers=5, num_heads=2, max_position_embeddings=40, local_window=2),
        cases={
            'odd': (11, {}),
            'maximum_length': (
                40,
                dict(vocab_size=128, num_heads=3, local_window=7, global_every=2, num_layers=3),
            ),
            'length_one': (1, dict(num_layers=1, num_heads=1, hidden_size=16)),
        },
    ),
}


def randomise(model, rng: np.random.Generator, deviation: float):
    """Gives every weight, bias included, a normal value; scales of norms around one."""
    with torch.no_grad():
        for name, value in model.named_parameters():
            noise = deviation * rng.standard_normal(value.shape)
            is_scale = value.ndim == 1 and name.endswith('weight')
            value.copy_(torch.from_numpy(noise + is_scale))


def parameters(model) -> dict[str, torch.nn.Parameter]:
    """By name, tied ones once, under the name of what they are tied to."""
    tied = model._tied_weights_keys or {}
    every = model.named_parameters(remove_duplicate=False)
    return {name: value for name, value in every if name not in tied}
