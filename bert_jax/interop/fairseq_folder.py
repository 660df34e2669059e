"""Folders of fairseq: the checkpoint of a RoBERTa or XLM-R model and its dictionary.

Source: facebookresearch/fairseq, fairseq/models/roberta/model.py and fairseq/data/dictionary.py.
"""

import json
import pathlib
import re
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from bert_jax import limits
from bert_jax.errors import UserError, report
from bert_jax.files import read_bytes, read_text
from bert_jax.interop import conversion, families, torch_file
from bert_jax.interop.weights import Weights
from bert_jax.loaded.loaded_model import LoadedModel
from bert_jax.storage.names import is_number
from bert_jax.storage.path import Path
from bert_jax.tokenizers import Tokenizer, byte_bpe, sentence_piece, word_level

DICTIONARY = 'dict.txt'
_ENCODER, _MERGES, _PIECES = 'encoder.json', 'vocab.bpe', 'sentencepiece.bpe.model'
_SPECIAL = ('<s>', '<pad>', '</s>', '<unk>')  # the first symbols of every dictionary
_MASK = '<mask>'  # the last symbol
_DEFAULT = 'model.pt'
# Option of fairseq → key of config.json.
_KEYS = {
    'encoder_embed_dim': 'hidden_size',
    'encoder_layers': 'num_hidden_layers',
    'encoder_attention_heads': 'num_attention_heads',
    'encoder_ffn_embed_dim': 'intermediate_size',
    'activation_fn': 'hidden_act',
    'dropout': 'hidden_dropout_prob',
    'attention_dropout': 'attention_probs_dropout_prob',
}
_ACTIVATIONS = {
    'gelu': 'gelu',
    'gelu_fast': 'gelu_new',
    'gelu_accurate': 'gelu_new',
    'relu': 'relu',
}
_UNSUPPORTED = ('encoder_normalize_before', 'untie_weights_roberta', 'quant_noise_pq')
# Part of a name in fairseq → its counterpart in transformers.
_NAMES = {
    r'^(decoder|encoder)\.sentence_encoder\.': 'roberta.',
    r'^(decoder|encoder)\.lm_head\.': 'lm_head.',
    r'\bembed_tokens\.': 'embeddings.word_embeddings.',
    r'\bembed_positions\.': 'embeddings.position_embeddings.',
    r'\b(emb_layer_norm|layernorm_embedding)\.': 'embeddings.LayerNorm.',
    r'\.layers\.(\d+)\.': r'.encoder.layer.\1.',
    r'\bself_attn\.([qkv])_proj\.': r'attention.self.\1.',
    r'\bself_attn\.out_proj\.': 'attention.output.dense.',
    r'\bself_attn_layer_norm\.': 'attention.output.LayerNorm.',
    r'\bfc1\.': 'intermediate.dense.',
    r'\bfc2\.': 'output.dense.',
    r'\bfinal_layer_norm\.': 'output.LayerNorm.',
    r'\bself\.q\.': 'self.query.',
    r'\bself\.k\.': 'self.key.',
    r'\bself\.v\.': 'self.value.',
    r'^lm_head\.weight$': 'lm_head.decoder.weight',
    r'^classification_heads\.[^.]+\.': 'classifier.',
}
_BUFFERS = r'(^|\.)(version|_float_tensor)$'


def checkpoints(folder: Path) -> list[str]:
    """The names of the checkpoints in a folder of fairseq; [] for another folder."""
    if not (folder / DICTIONARY).is_file():
        return []
    return sorted(path.name for path in folder.glob('*.pt'))


def load(
    folder: pathlib.Path,
    heads: Iterable[str],
    allow_missing: Iterable[str],
    checkpoint: str | None = None,
) -> LoadedModel:
    """Load a folder of RoBERTa or XLM-R.

    The tokenizer needs sentencepiece.bpe.model (XLM-R), or GPT-2's encoder.json and vocab.bpe if
    the symbols of dict.txt are their ids (RoBERTa). Otherwise the symbols are words, and a text is
    split at spaces.

    Args:
        heads, allow_missing: see `huggingface.load`.
        checkpoint: name of the file; None: the only one, or model.pt.

    Raises:
        UserError: several checkpoints to choose from, or a model that is damaged or not supported.
    """
    path = folder / (checkpoint or _find(folder))
    options, state = torch_file.read_fairseq(path)
    state = _translate(state, path)
    symbols = _symbols(folder / DICTIONARY)
    tokenizer = _tokenizer(folder, symbols)
    family = families.by_model_type('xlm-roberta' if (folder / _PIECES).is_file() else 'roberta')
    try:
        architecture = family.read_config(_config(options, state))
    except UserError as error:
        raise UserError(f'{path}: {error}') from None
    if tokenizer.vocab_size != architecture.vocab_size:
        raise UserError(
            f'{folder}: {DICTIONARY} has {tokenizer.vocab_size:,} symbols with the special ones, '
            f'but {path.name} has embeddings for {architecture.vocab_size:,}'
        )
    num_labels = len(state.get('classifier.out_proj.weight', range(2)))
    declared = ('sequence_classification',) if 'classifier.out_proj.weight' in state else ()
    params, new = conversion.from_state_dict(
        family,
        architecture,
        state,
        path,
        heads,
        ('^encoder/pooler/', *allow_missing),
        num_labels,
        declared,
    )
    labels = tuple(f'LABEL_{index}' for index in range(num_labels)) if declared else ()
    return LoadedModel(family.model_type, architecture, params, tokenizer, labels, new)


def _find(folder: pathlib.Path) -> str:
    names = checkpoints(folder)
    if len(names) == 1 or _DEFAULT in names:
        return _DEFAULT if _DEFAULT in names else names[0]
    raise UserError(
        f'{folder} has the checkpoints {", ".join(names)}; choose one by its path, such as '
        f'{folder / names[-1]}'
    )


def _translate(state: Weights, path: pathlib.Path) -> Weights:
    """The weights with the names and layouts of transformers."""
    translated: Weights = {}
    for name, array in state.items():
        if re.search(_BUFFERS, name):
            continue
        if match := re.search(r'in_proj_(weight|bias)$', name):  # queries, keys, values
            for part, third in zip('qkv', np.split(array, 3), strict=True):
                new = name.removesuffix(match[0]) + f'{part}_proj.{match[1]}'
                translated[_rename(new)] = third
            continue
        if _rename(name) in translated:
            raise UserError(
                f'{path} has several classification heads; leave only one in the file: {name}'
            )
        translated[_rename(name)] = array
    embeddings = 'roberta.embeddings.word_embeddings.weight'
    if embeddings not in translated:
        raise UserError(f'{path} is not a RoBERTa model: it lacks sentence_encoder.embed_tokens')
    # transformers adds the embedding of the only token type, which fairseq does not have.
    types = np.zeros_like(translated[embeddings][:1])
    return translated | {'roberta.embeddings.token_type_embeddings.weight': types}


def _rename(name: str) -> str:
    for pattern, replacement in _NAMES.items():
        name = re.sub(pattern, replacement, name)
    return name


def _config(options: Mapping[str, Any], state: Weights) -> dict[str, Any]:
    """The contents of an equivalent config.json."""
    used = [name for name in _UNSUPPORTED if options.get(name)]
    if used:
        raise UserError(f'{used[0]}={options[used[0]]!s:.80} is not supported')
    missing = [name for name in _KEYS if name not in options]
    if missing:
        raise UserError(f'its options lack {missing[0]}')
    config = {key: options[name] for name, key in _KEYS.items()}
    activation = config['hidden_act']
    if activation not in _ACTIVATIONS:
        raise UserError(f'activation_fn={activation!s:.80} is not one of {", ".join(_ACTIVATIONS)}')
    vocab_size = len(state['roberta.embeddings.word_embeddings.weight'])
    positions = len(state['roberta.embeddings.position_embeddings.weight'])
    return config | {
        'hidden_act': _ACTIVATIONS[activation],
        'layer_norm_eps': 1e-5,  # of torch.nn.LayerNorm
        'max_position_embeddings': positions,
        'pad_token_id': _SPECIAL.index('<pad>'),
        'type_vocab_size': 1,
        'vocab_size': vocab_size,
    }


def _symbols(path: pathlib.Path) -> list[str]:
    """The symbols of a dictionary in the order of their ids, the special ones included."""
    symbols = list(_SPECIAL)
    for number, line in enumerate(read_text(path, limit=limits.LARGE_FILE).splitlines(), 1):
        symbol, _, count = line.removesuffix(' #fairseq:overwrite').rpartition(' ')
        if not symbol or not is_number(count):
            raise UserError(f'{path}, line {number}: {line!r:.60} is not SYMBOL COUNT')
        symbols.append(symbol)
    return [*symbols, _MASK]


def _tokenizer(folder: pathlib.Path, symbols: list[str]) -> Tokenizer:
    if (folder / _PIECES).is_file():
        model = sentence_piece.read(read_bytes(folder / _PIECES, limits.LARGE_FILE))
        tokenizer = Tokenizer(json.dumps(sentence_piece.settings(model, ids='xlm-roberta')))
        if list(tokenizer.vocab) != symbols:
            raise UserError(f'{folder}: {DICTIONARY} does not have the pieces of {_PIECES}')
        return tokenizer
    if all(is_number(symbol) or symbol.startswith('madeupword') for symbol in symbols[4:-1]):
        return _byte_bpe(folder, symbols)
    report(f'{folder}: the symbols of {DICTIONARY} are words; texts are split at spaces')
    roles = dict(zip(('cls', 'pad', 'sep', 'unk', 'mask'), (*_SPECIAL, _MASK), strict=True))
    ids = {symbol: index for index, symbol in enumerate(symbols)}
    return Tokenizer(json.dumps(word_level.settings(ids, roles)))


def _byte_bpe(folder: pathlib.Path, symbols: list[str]) -> Tokenizer:
    """The byte-level BPE of GPT-2, whose ids are the symbols of the dictionary."""
    vocab, merges = folder / _ENCODER, folder / _MERGES
    for path in (vocab, merges):
        if not path.is_file():
            raise UserError(
                f'{folder} lacks {path.name}: the symbols of {DICTIONARY} are ids of it; get '
                f'{_ENCODER} and {_MERGES} where fairseq gets them '
                '(https://dl.fbaipublicfiles.com/fairseq/gpt2_bpe/)'
            )
    ids, pairs = byte_bpe.read(vocab, merges)
    by_id = {str(index): token for token, index in ids.items()}
    unknown = [symbol for symbol in symbols[4:-1] if is_number(symbol) and symbol not in by_id]
    if unknown:
        raise UserError(
            f'{folder}: {DICTIONARY} has the symbol {unknown[0]}, which {_ENCODER} lacks'
        )
    tokens = {by_id.get(symbol, symbol): index for index, symbol in enumerate(symbols)}
    return Tokenizer(json.dumps(byte_bpe.settings(tokens, pairs)))
