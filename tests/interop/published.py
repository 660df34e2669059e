"""Models of transformers and their folders, as others publish them.

Their weights are large enough that a missing one changes the outputs.
"""

import json
import pathlib

import jax
import numpy as np
import torch
import transformers
from safetensors.numpy import load_file, save_file

from bert_jax import tree_paths
from bert_jax.interop.families import FAMILIES
from bert_jax.loaded import loaded_model
from bert_jax.loaded.loaded_model import LoadedModel
from bert_jax.models.architecture import Compute
from bert_jax.models.rows import Rows
from tests.end_to_end import small

SIZES = {
    'vocab_size': 131,
    'hidden_size': 20,
    'num_hidden_layers': 2,
    'num_attention_heads': 4,
    'intermediate_size': 28,
    'max_position_embeddings': 19,
}
_DISENTANGLED = {
    'relative_attention': True,
    'pos_att_type': 'c2p|p2c',
    'position_biased_input': False,
}
# Config values of a family besides SIZES (for the families in OWN_NAMES, instead of them).
CHANGES = {
    'albert': {'embedding_size': 12},
    'deberta': _DISENTANGLED,
    'deberta-v2': _DISENTANGLED
    | {
        'position_buckets': 6,
        'share_att_key': True,
        'norm_rel_ebd': 'layer_norm',
        'conv_kernel_size': 3,
    },
    'distilbert': {
        'vocab_size': 131,
        'dim': 20,
        'n_layers': 2,
        'n_heads': 4,
        'hidden_dim': 28,
        'max_position_embeddings': 19,
    },
    'electra': {'embedding_size': 12},
    'gpt2': {
        'vocab_size': 131,
        'n_embd': 20,
        'n_layer': 2,
        'n_head': 4,
        'n_inner': 28,
        'n_positions': 19,
        'pad_token_id': 0,
    },
    'modernbert': {
        'num_attention_heads': 2,
        'num_hidden_layers': 3,
        'local_attention': 8,
        'pad_token_id': 0,
        'bos_token_id': 2,
        'cls_token_id': 2,
        'eos_token_id': 3,
        'sep_token_id': 3,
    },
    'xlnet': {'vocab_size': 131, 'd_model': 20, 'n_layer': 2, 'n_head': 2, 'd_inner': 28},
}
_IDS = {'pad_token_id': 0, 'bos_token_id': 2, 'eos_token_id': 3}
CHANGES['eurobert'] = {'num_key_value_heads': 2, 'num_attention_heads': 4, 'head_dim': 6} | _IDS
CHANGES['eurobert'] |= {'mask_token_id': 4}
CHANGES['gemma3_text'] = {
    'num_key_value_heads': 2,
    'head_dim': 6,
    'query_pre_attn_scalar': 6,
    'sliding_window': 4,
    'use_bidirectional_attention': True,
    'layer_types': ['sliding_attention', 'full_attention'],
} | _IDS
CHANGES['esm'] = {
    'num_attention_heads': 2,
    'pad_token_id': 0,
    'mask_token_id': 4,
    'position_embedding_type': 'rotary',
    'token_dropout': True,
}
CHANGES['rembert'] = {'input_embedding_size': 12, 'output_embedding_size': 14}
CHANGES['rembert'] |= {'bos_token_id': 2, 'eos_token_id': 3}
CHANGES['roformer'] = {'num_attention_heads': 2, 'embedding_size': 12}
for _model_type in ('nomic_bert', 'gte', 'jina_embeddings_v3'):
    CHANGES[_model_type] = {'num_attention_heads': 2}  # rotary: an even head size
CHANGES['modernbert-decoder'] = CHANGES['modernbert']
_STACKS, _END = ('encoder', 'decoder'), 2  # </s> of BART without a tokenizer
CHANGES['bart'] = CHANGES['mbart'] = {
    'vocab_size': 131,
    'd_model': 20,
    **{f'{stack}_layers': 2 for stack in _STACKS},
    **{f'{stack}_attention_heads': 4 for stack in _STACKS},
    **{f'{stack}_ffn_dim': 28 for stack in _STACKS},
    'max_position_embeddings': 19,
    'decoder_start_token_id': 3,  # [SEP] of `vocabulary`
}
CHANGES['t5'] = CHANGES['mt5'] = {
    'vocab_size': 131,
    'd_model': 20,
    'd_kv': 6,
    'd_ff': 28,
    'num_layers': 2,
    'num_heads': 4,
    'n_positions': 19,
    'pad_token_id': 0,
}
ENCODER_DECODERS = ('bart', 'mbart', 't5', 'mt5')
OWN_NAMES = (
    'distilbert',
    'gpt2',
    'xlnet',
    *ENCODER_DECODERS,
)  # their config keys differ from BERT's
RENAMED = ('xlm-roberta', 'camembert', 'data2vec-text', 'ernie')  # other families, other names
# Names of a class for the logits of our heads, if not 'logits'.
_PAIR_LOGITS = {'mlm': 'prediction_logits', 'nsp': 'seq_relationship_logits'}
LOGITS = {
    'BertForPreTraining': _PAIR_LOGITS,
    'ErnieForPreTraining': _PAIR_LOGITS,
    'MegatronBertForPreTraining': _PAIR_LOGITS,
    'AlbertForPreTraining': {'mlm': 'prediction_logits', 'sop': 'sop_logits'},
}
CLASSES = {  # published class → (family, heads)
    name: (family, heads) for family in FAMILIES.values() for name, heads in family.classes.items()
} | {
    family.causal_class: (family.as_decoder(), ('clm',))
    for family in FAMILIES.values()
    if family.causal_class
}


def config(published: str = 'BertForPreTraining', **changes):
    """The config of a small model."""
    model_type = CLASSES[published][0].model_type
    sizes = CHANGES[model_type] if model_type in OWN_NAMES else SIZES | CHANGES.get(model_type, {})
    if 'clm' in CLASSES[published][1] and not CLASSES[published][0].is_causal:
        changes |= {'is_decoder': True}
    kind = getattr(transformers, published).config_class
    return kind(**(sizes | changes), attn_implementation='eager')


def model(published: str = 'BertForPreTraining', seed: int = 0, **changes):
    """A model of transformers with random weights and biases, ten times as large as usual."""
    made = getattr(transformers, published)(config(published, **changes)).eval()
    if made.config.model_type == 'mt5' and hasattr(made, 'lm_head'):  # transformers 5 ties it
        made.lm_head.weight = torch.nn.Parameter(torch.empty_like(made.lm_head.weight))
    randomize(made, seed, 0.2)
    return made


def randomize(made: torch.nn.Module, seed: int, deviation: float):
    """Draw every weight and bias from a normal distribution; scales of norms have mean one."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, value in made.named_parameters():
            if not value.requires_grad:  # a constant
                continue
            is_scale = value.ndim == 1 and name.endswith('weight')
            value.normal_(1.0 if is_scale else 0.0, deviation, generator=generator)


def folder(path: pathlib.Path, published: str = 'BertForPreTraining', **changes) -> pathlib.Path:
    """Save such a model with a vocabulary."""
    model(published, **changes).save_pretrained(path)
    (path / 'vocab.txt').write_text('\n'.join(vocabulary()) + '\n')
    return path


def vocabulary() -> list[str]:
    """131 tokens: special tokens, the words of small.TOPICS, letters and their continuations."""
    words = [word for topic in small.TOPICS.values() for word in topic]
    letters = 'abcdefghijklmnopqrstuvwxyz'
    tokens = ['[PAD]', '[UNK]', '[CLS]', '[SEP]', '[MASK]', 'the', 'and', 'near', '.', *words]
    tokens += [*letters, *(f'##{letter}' for letter in letters)]
    return tokens + [f'[unused{i}]' for i in range(SIZES['vocab_size'] - len(tokens))]


def open_without_complaints(path: pathlib.Path) -> torch.nn.Module:
    """Open an exported folder with transformers, whose report must be empty."""
    (name,) = json.loads((path / 'config.json').read_text())['architectures']
    opened, report = getattr(transformers, name).from_pretrained(
        path, output_loading_info=True, attn_implementation='eager'
    )
    assert not any(report.values()), report
    return opened.eval()


def batch(
    vocab_size: int = SIZES['vocab_size'],
    length: int = SIZES['max_position_embeddings'],
    pad_id: int = 0,
    types: int = 2,
):
    """Token ids, a padding mask, and token types: int64 [3, length] each."""
    rng = np.random.default_rng(1)
    mask = (np.arange(length) < np.array([[length], [length - 5], [1]])).astype(np.int64)
    ids = rng.integers(pad_id + 1, vocab_size, (3, length)) * mask + pad_id * (1 - mask)
    segments = (np.arange(length) >= np.array([[length // 2], [3], [length]])).astype(np.int64)
    return ids, mask, segments * (types > 1)


def batch_for(architecture, tokenizer_pad_id: int = 0):
    """A batch for one of our architectures.

    It has the shape that `huggingface_export.save` compares logits for, so tests compile it once.
    """
    counted = architecture.positions.kind == 'offset'
    given = batch(
        architecture.vocab_size,
        min(16, architecture.max_length),
        architecture.first_position - 1 if counted else tokenizer_pad_id,
        architecture.type_vocab_size,
    )
    if architecture.encoder == 'two_stream':  # transformers reads the last position, even padding
        given = tuple(values[:, ::-1] for values in given)
    if architecture.decoder is not None:  # BART classifies a text at its only </s>
        ids, mask, types = given
        ids = np.where(ids == _END, _END + 1, ids)
        ids[np.arange(len(ids)), mask.sum(1) - 1] = _END
        given = (ids, mask, types)
    return given


def outputs(made, given) -> dict[str, np.ndarray]:
    """The outputs of a model of transformers for a batch, under our names."""
    with torch.no_grad():
        computed = compute(made, given)
    return {name: value.numpy() for name, value in computed.items()}


def compute(made, given) -> dict[str, torch.Tensor]:
    """`outputs`, as tensors with gradients."""
    published = type(made).__name__
    ids, mask, types = (torch.from_numpy(np.array(values, np.int64)) for values in given)
    inputs = {'input_ids': ids, 'attention_mask': mask}
    if getattr(made.config, 'type_vocab_size', 0) or made.config.model_type == 'xlnet':
        inputs['token_type_ids'] = types
    heads = CLASSES[published][1]
    if made.config.is_encoder_decoder:
        inputs |= {'decoder_attention_mask': mask}
        if heads in ((), ('seq2seq',)):
            inputs |= {'decoder_input_ids': ids}
    if 'multiple_choice' in heads:  # all sequences are choices of one question
        inputs = {name: value[None] for name, value in inputs.items()}
    output = made(**inputs, output_hidden_states=True)
    if made.config.is_encoder_decoder:
        stacks = {'all_hidden': output.encoder_hidden_states}
        stacks['decoder_hidden'] = output.decoder_hidden_states
    else:
        stacks = {'all_hidden': output.hidden_states}
    computed = {name: torch.stack(states) for name, states in stacks.items()}
    for head in heads:
        if head == 'question_answering':
            logits = torch.stack([output.start_logits, output.end_logits], -1)
        else:
            logits = output[LOGITS.get(published, {}).get(head, 'logits')]
        computed[f'{head}_logits'] = logits[0] if head == 'multiple_choice' else logits
    return computed


def edit(path: pathlib.Path, change):
    """Apply `change` to the weights of a folder."""
    file = path / 'model.safetensors'
    weights = load_file(file)
    change(weights)
    save_file(weights, file, metadata={'format': 'pt'})


def ours(loaded: LoadedModel) -> dict[str, np.ndarray]:
    """The outputs of our model for `batch_for`."""
    given = batch_for(loaded.architecture)
    settings = (loaded.architecture, Compute(), loaded.params)
    computed = loaded_model.outputs(*settings, Rows(*given), is_causal=loaded.is_causal)
    if 'clm' not in loaded.heads:  # computed for every model that predicts with its embeddings
        computed = {name: array for name, array in computed.items() if name != 'clm_logits'}
    return _comparable(jax.device_get(computed), loaded.architecture, given)


def theirs(made, architecture) -> dict[str, np.ndarray]:
    """The outputs of a model of transformers for the same batch."""
    given = batch_for(architecture)
    return _comparable(outputs(made, given), architecture, given)


def _comparable(computed: dict, architecture, given) -> dict:
    """The outputs, with zeros at padding positions of DeBERTa and XLNet.

    There padding attends to padding in transformers but not here; no used output depends on it.
    """
    mask_BT = given[1]
    if not architecture.embedding_mask and architecture.encoder != 'two_stream':
        return computed
    return {
        name: array * mask_BT.reshape(mask_BT.shape + (1,) * (array.ndim - mask_BT.ndim - hidden))
        if array.shape[hidden : hidden + 2] == mask_BT.shape
        else array
        for name, array in computed.items()
        for hidden in [name == 'all_hidden']
    }


def assert_same_bits(left: dict, right: dict):
    """Assert that two trees of parameters are bitwise equal."""
    left, right = tree_paths.flatten(left), tree_paths.flatten(right)
    assert left.keys() == right.keys()
    for name in left:
        assert left[name].tobytes() == right[name].tobytes(), name


def put(name, value):
    """A change for `edit`."""
    return lambda weights: weights.update({name: value})
