"""Published model families in transformers, with unusual sizes.

A new family is one entry in CASES.
"""

import dataclasses
from collections.abc import Mapping

import numpy as np
import torch
import transformers
from transformers.core_model_loading import revert_weight_conversion

from bert_jax.interop import conversion, state_dict_map
from bert_jax.interop.families import FAMILIES
from bert_jax.models.architecture import Architecture
from tests.interop import published

LABELS = 3


@dataclasses.dataclass(frozen=True)
class Case:
    """A transformers config for all classes of a family, and a sequence length."""

    family: str
    length: int
    config: Mapping[str, object]

    @property
    def classes(self) -> dict[str, tuple[str, ...]]:
        """Published classes that together have every head once; else the one without heads."""
        chosen, seen = {}, set()
        classes = FAMILIES[self.family].classes.items()
        for name, heads in sorted(classes, key=lambda item: -len(item[1])):
            if heads and not seen & set(heads):
                chosen[name] = heads
                seen |= set(heads)
        return chosen or {FAMILIES[self.family].bare_class: ()}


_ODD = dict(
    vocab_size=97,
    hidden_size=24,
    num_hidden_layers=3,
    num_attention_heads=3,
    intermediate_size=40,
    max_position_embeddings=19,
)
_MOST = _ODD | dict(vocab_size=128, hidden_size=20, num_attention_heads=5, num_hidden_layers=2)
_ONE = _ODD | dict(num_hidden_layers=1, num_attention_heads=1, hidden_size=16)
_ROTARY = _ODD | dict(num_attention_heads=2)
_STRETCHED = dict(rope_type='linear', rope_theta=300.0, factor=1.7)
_LLAMA = _ODD | dict(num_attention_heads=4, pad_token_id=0, bos_token_id=2, eos_token_id=3)
_LLAMA |= dict(mask_token_id=4)
_GEMMA = _ODD | dict(
    num_key_value_heads=1,
    head_dim=6,
    query_pre_attn_scalar=6,
    sliding_window=8,
    use_bidirectional_attention=True,
    # With three layers the gradients of transformers are off by 1.1e-5 of the largest themselves.
    num_hidden_layers=2,
    layer_types=['sliding_attention', 'full_attention'],
    rope_parameters={
        'full_attention': {'rope_type': 'linear', 'rope_theta': 500.0, 'factor': 2.5},
        'sliding_attention': {'rope_type': 'default', 'rope_theta': 30.0},
    },
)
_PROTEIN = dict(pad_token_id=1, mask_token_id=7)
_ESM2 = _ODD | _PROTEIN | dict(token_dropout=True, position_embedding_type='rotary')
_ESM2 |= dict(num_attention_heads=4, rope_theta=50.0, emb_layer_norm_before=False)
_REM = {'input_embedding_size': 10, 'output_embedding_size': 14}
_GPT2 = dict(n_embd=24, n_layer=3, n_head=3, n_inner=40, n_positions=19, vocab_size=97) | dict(
    pad_token_id=0
)
_XLNET = dict(vocab_size=97, d_model=24, n_layer=3, n_head=3, d_inner=40)
_MODERN = dict(pad_token_id=0, bos_token_id=2, cls_token_id=2, eos_token_id=3, sep_token_id=3)


def _distil(sizes: Mapping) -> dict:
    names = {
        'hidden_size': 'dim',
        'num_hidden_layers': 'n_layers',
        'num_attention_heads': 'n_heads',
        'intermediate_size': 'hidden_dim',
    }
    return {names.get(name, name): value for name, value in sizes.items()}


def _modern(sizes: Mapping, **changes) -> dict:
    return {**sizes, 'max_position_embeddings': 40, **_MODERN, **changes}


_TERMS = dict(relative_attention=True, pos_att_type=['c2p', 'p2c'], position_biased_input=False)
_DEBERTA = _ODD | _TERMS | dict(type_vocab_size=0, num_hidden_layers=2)
_BUCKETS = dict(position_buckets=6, share_att_key=True, norm_rel_ebd='layer_norm')

CASES = {
    'bert-odd': Case('bert', 11, _ODD),
    'bert-most': Case('bert', 19, _MOST | {'hidden_act': 'gelu_new', 'type_vocab_size': 3}),
    'bert-one': Case('bert', 1, _ONE),
    'bert-deep': Case('bert', 10, _ODD | dict(num_hidden_layers=6, num_attention_heads=8)),
    'roberta-odd': Case('roberta', 11, _ODD),
    'roberta-most': Case('roberta', 15, _MOST | dict(pad_token_id=3, type_vocab_size=1)),
    'roberta-one': Case('roberta', 1, _ONE | {'hidden_act': 'gelu_new'}),
    'xlm-roberta-odd': Case('xlm-roberta', 11, _ODD | dict(pad_token_id=0)),
    'mpnet-odd': Case('mpnet', 11, _ODD),
    'mpnet-one': Case('mpnet', 1, _ONE | dict(relative_attention_num_buckets=32)),
    'roberta-prelayernorm-odd': Case('roberta-prelayernorm', 11, _ODD),
    'roberta-prelayernorm-one': Case('roberta-prelayernorm', 1, _ONE),
    'xlm-roberta-xl-odd': Case('xlm-roberta-xl', 11, _ODD),
    'xlm-roberta-xl-one': Case('xlm-roberta-xl', 1, _ONE),
    'megatron-bert-odd': Case('megatron-bert', 11, _ODD),
    'megatron-bert-one': Case('megatron-bert', 1, _ONE),
    'nomic_bert-odd': Case('nomic_bert', 11, _ROTARY),
    'nomic_bert-one': Case('nomic_bert', 1, _ONE | dict(head_dim=6)),
    'gte-odd': Case('gte', 11, _ROTARY | dict(type_vocab_size=0)),
    'gte-most': Case('gte', 11, _ROTARY | dict(rope_parameters=_STRETCHED)),
    'gte-one': Case('gte', 1, _ONE | dict(type_vocab_size=2)),
    'jina_embeddings_v3-odd': Case('jina_embeddings_v3', 11, _ROTARY),
    'jina_embeddings_v3-one': Case('jina_embeddings_v3', 1, _ONE),
    'eurobert-odd': Case('eurobert', 11, _LLAMA | dict(num_key_value_heads=2)),
    'eurobert-most': Case(
        'eurobert', 11, _LLAMA | dict(classifier_pooling='mean', head_dim=10, attention_bias=True)
    ),
    'eurobert-one': Case('eurobert', 1, _LLAMA | _ONE | dict(classifier_pooling='bos')),
    'gemma3_text-odd': Case('gemma3_text', 17, _GEMMA),
    'gemma3_text-one': Case(
        'gemma3_text',
        1,
        _GEMMA | _ONE | dict(num_key_value_heads=1, layer_types=['full_attention']),
    ),
    'esm-odd': Case('esm', 11, _ESM2),
    'esm-most': Case('esm', 11, _ODD | _PROTEIN | dict(emb_layer_norm_before=True)),
    'esm-one': Case('esm', 1, _ESM2 | _ONE),
    'rembert-odd': Case('rembert', 11, _ODD | _REM),
    'rembert-one': Case('rembert', 1, _ONE | _REM | {'input_embedding_size': 16}),
    'roformer-odd': Case('roformer', 11, _ROTARY | {'embedding_size': 10}),
    'roformer-one': Case('roformer', 1, _ONE),
    'albert-odd': Case('albert', 11, _ODD | {'embedding_size': 10}),
    'albert-most': Case('albert', 19, _MOST | {'embedding_size': 20, 'hidden_act': 'gelu'}),
    'albert-one': Case('albert', 1, _ONE | {'embedding_size': 30}),
    'deberta-odd': Case('deberta', 11, _DEBERTA),
    'deberta-most': Case(
        'deberta',
        19,
        _DEBERTA
        | dict(
            position_biased_input=True,
            type_vocab_size=2,
            max_relative_positions=5,
            vocab_size=128,
            legacy=False,
        ),
    ),
    'deberta-one': Case(
        'deberta', 1, _DEBERTA | _ONE | dict(pos_att_type=['p2c'], type_vocab_size=0)
    ),
    'deberta-v2-odd': Case('deberta-v2', 11, _DEBERTA | _BUCKETS | dict(num_hidden_layers=3)),
    'deberta-v2-most': Case(
        'deberta-v2',
        19,
        _DEBERTA
        | dict(max_relative_positions=7, conv_kernel_size=5, conv_act='tanh')
        | dict(num_attention_heads=4),
    ),
    'deberta-v2-convolution': Case(
        'deberta-v2', 17, _DEBERTA | _BUCKETS | dict(conv_kernel_size=3, conv_act='gelu')
    ),
    'deberta-v2-one-term': Case(
        'deberta-v2',
        19,
        _DEBERTA
        | dict(pos_att_type=['c2p'], position_buckets=10, hidden_size=20, num_attention_heads=5)
        | dict(share_att_key=True, norm_rel_ebd='layer_norm'),
    ),
    'deberta-v2-one': Case('deberta-v2', 1, _DEBERTA | _ONE | _BUCKETS),
    'electra-odd': Case('electra', 11, _ODD | {'embedding_size': 30, 'hidden_act': 'gelu_new'}),
    'electra-most': Case('electra', 19, _MOST | {'embedding_size': 20}),
    'electra-one': Case('electra', 1, _ONE | {'embedding_size': 5}),
    'gpt2-odd': Case('gpt2', 11, _GPT2),
    'gpt2-most': Case(
        'gpt2', 19, _GPT2 | dict(n_inner=None, vocab_size=128, activation_function='gelu')
    ),
    'gpt2-one': Case('gpt2', 1, _GPT2 | dict(n_layer=1, n_head=1)),
    'xlnet-odd': Case('xlnet', 11, _XLNET),
    'xlnet-most': Case('xlnet', 19, _XLNET | dict(ff_activation='gelu_new', vocab_size=128)),
    'xlnet-one': Case('xlnet', 1, _XLNET | dict(n_layer=1, n_head=1)),
    'distilbert-odd': Case('distilbert', 11, _distil(_ODD)),
    'distilbert-most': Case('distilbert', 19, _distil(_MOST) | {'activation': 'relu'}),
    'distilbert-one': Case('distilbert', 1, _distil(_ONE)),
    'modernbert-odd': Case(
        'modernbert',
        11,
        _modern(_ODD, num_hidden_layers=5, num_attention_heads=2, local_attention=4),
    ),
    'modernbert-most': Case(
        'modernbert',
        40,
        _modern(
            _MOST,
            hidden_size=24,
            num_attention_heads=3,
            num_hidden_layers=3,
            local_attention=14,
            layer_types=['sliding_attention', 'sliding_attention', 'full_attention'],
            rope_parameters={
                'full_attention': {'rope_type': 'default', 'rope_theta': 500.0},
                'sliding_attention': {'rope_type': 'default', 'rope_theta': 30.0},
            },
            classifier_pooling='mean',
            classifier_activation='silu',
        ),
    ),
    'modernbert-one': Case('modernbert', 1, _modern(_ONE)),
    'modernbert-decoder-odd': Case(
        'modernbert-decoder',
        11,
        _modern(_ODD, num_hidden_layers=5, num_attention_heads=2, local_attention=6),
    ),
    'modernbert-decoder-most': Case(
        'modernbert-decoder',
        40,
        _modern(
            _MOST,
            hidden_size=24,
            num_attention_heads=3,
            num_hidden_layers=3,
            local_attention=14,
            layer_types=['sliding_attention', 'sliding_attention', 'full_attention'],
            rope_parameters={
                'full_attention': {'rope_type': 'default', 'rope_theta': 500.0},
                'sliding_attention': {'rope_type': 'default', 'rope_theta': 30.0},
            },
            classifier_activation='silu',
        ),
    ),
    'modernbert-decoder-one': Case('modernbert-decoder', 1, _modern(_ONE)),
}


def make_models(case: Case, seed: int, deviation: float) -> dict[str, torch.nn.Module]:
    """The models of all classes of a case, with the same encoder and without dropout.

    All weights and biases are drawn from a normal distribution, scales of norms around 1.
    """
    made, encoder = {}, {}
    for number, name in enumerate(case.classes):
        changes = dict(case.config)
        if {'sequence_classification', 'token_classification'} & set(case.classes[name]):
            changes['num_labels'] = LABELS
        kind = getattr(transformers, name)
        model = kind(kind.config_class(**changes, attn_implementation='eager')).eval()
        published.randomize(model, seed + number, deviation)
        encoder = encoder | {
            key: value for key, value in model.base_model.named_parameters() if key not in encoder
        }
        with torch.no_grad():
            for key, value in model.base_model.named_parameters():
                value.copy_(encoder[key])
        made[name] = model
    return made


def untied(model: torch.nn.Module) -> dict[str, torch.nn.Parameter]:
    """Parameters by name; tied parameters once, under the name they are tied to."""
    is_tied = getattr(model.config, 'tie_word_embeddings', True)
    tied = (model._tied_weights_keys or {}) if is_tied else {}
    every = model.named_parameters(remove_duplicate=False)
    return {name: value for name, value in every if name not in tied}


def in_files(model: torch.nn.Module, arrays: Mapping[str, torch.Tensor]) -> dict[str, np.ndarray]:
    """Arrays of the model's parameters, such as gradients, as a file of the model has them."""
    saved = revert_weight_conversion(
        model, {name: array.detach() for name, array in arrays.items()}
    )
    return {name: array.numpy().copy() for name, array in saved.items()}


def convert(case: Case, models: Mapping[str, torch.nn.Module]) -> tuple[Architecture, dict]:
    """Our architecture and the parameters of the encoder and all heads.

    The architecture has a pooler if a class has one. State dicts are read as strictly as a folder.
    """
    family, params = FAMILIES[case.family], {}
    architecture = family.read_config(next(iter(models.values())).config.to_dict())
    poolers = {name: name not in family.without_pooler for name in models}
    if 'encoder/pooler' not in family.table:
        poolers = dict.fromkeys(models, False)
    for name in sorted(models, key=poolers.get):  # the last encoder stays: the one with a pooler
        state = in_files(models[name], untied(models[name]))
        own, fresh = conversion.from_state_dict(
            family,
            dataclasses.replace(architecture, pooler=poolers[name]),
            state,
            name,
            case.classes[name],
            num_labels=LABELS,
        )
        without = () if architecture.prediction.has_parameters else ('clm',)
        assert set(own) == {'encoder', *case.classes[name]} - {*without}
        assert not fresh
        params |= own
    return dataclasses.replace(architecture, pooler=any(poolers.values())), params


def convert_gradients(
    case: Case, architecture: Architecture, models: Mapping[str, torch.nn.Module]
) -> dict[str, np.ndarray]:
    """The sum of the models' gradients, by our names."""
    family, total = FAMILIES[case.family], {}
    for name, model in models.items():
        places = state_dict_map.places(family.table, architecture, case.classes[name], LABELS)
        gradients = {
            key: 0 * value if value.grad is None else value.grad
            for key, value in untied(model).items()
        }
        state = state_dict_map.join(in_files(model, gradients), family.parts(architecture))
        is_bare = not any(key.startswith(family.prefix) for key in state)
        prefix = family.prefix if is_bare else ''
        state = {prefix + family.current_name(key): value for key, value in state.items()}
        for ours, gradient in state_dict_map.to_ours(places, state).items():
            total[ours] = total.get(ours, 0) + gradient
    return total


def make_batch(architecture: Architecture, length: int, seed: int):
    """Token ids, mask and types of five sequences.

    Without padding, padded right, left and on both sides, and of one token.
    """
    rng = np.random.default_rng(seed)
    starts = np.array([0, 0, length // 3, length // 4, 0])
    ends = np.array([length, (length + 1) // 2, length, length - length // 3, 1])
    at = np.arange(length)
    mask = ((at >= starts[:, None]) & (at < ends[:, None])).astype(np.int32)
    pad_id = max(0, architecture.first_position - 1)
    ids = rng.integers(pad_id + 1, architecture.vocab_size, mask.shape)
    types = (at >= (starts + ends)[:, None] // 2) * mask * (architecture.type_vocab_size > 1)
    return np.where(mask > 0, ids, pad_id).astype(np.int32), mask, types.astype(np.int32)


def is_real(head: str, architecture: Architecture, mask_BT: np.ndarray) -> np.ndarray:
    """Which logits of a head do not come from padding: bool [B, T], or [B] for sequences."""
    real_BT = mask_BT > 0
    if head in ('mlm', 'clm', 'plm', 'rtd', 'token_classification', 'question_answering'):
        return real_BT
    classifier = architecture.classifier
    anywhere = (
        classifier.pooling == 'mean'
        or classifier.skipped_id is not None
        or (head == 'multiple_choice' and classifier.layers == 'dense_norm')
    )
    # All other published classes read the first or the last position, even if it is padding.
    place = -1 if architecture.pooling == 'last' else 0
    return real_BT.any(1) if anywhere else real_BT[:, place]
