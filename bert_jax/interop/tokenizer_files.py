"""The tokenizer of a folder of transformers, and whether it can be the model's."""

import json
import pathlib

from bert_jax.data import tokenizers
from bert_jax.data.tokenizers import Tokenizer
from bert_jax.errors import UserError
from bert_jax.models.architecture import Architecture

_SPARE_ROWS = 1023  # of an embedding padded to a multiple of 1024


def load(folder: pathlib.Path, architecture: Architecture) -> Tokenizer | None:
    """The tokenizer of a folder, None if it has none. Raises UserError if it cannot be the model's:
    its vocabulary is larger, or smaller by more than embeddings are padded for speed, or its
    padding is not where the model's positions say."""
    if not tokenizers.holds_one(folder):
        return None
    tokenizer = tokenizers.load(str(folder))
    size, rows = tokenizer.vocab_size, architecture.vocab_size
    if size > rows or rows - size > max(_SPARE_ROWS, rows // 100):
        raise UserError(
            f'{folder}: the tokenizer has {size} tokens, but the model has embeddings for {rows} '
            '(vocab_size): it is not the tokenizer of this model'
        )
    check_padding(architecture, tokenizer, folder)
    return tokenizer


def write(tokenizer: Tokenizer, architecture: Architecture, folder: pathlib.Path):
    """tokenizer.json and what transformers wants beside it."""
    if architecture.type_vocab_size > 1:
        tokenizer = tokenizer.with_token_types()
    tokenizer.save(folder)
    names = ('pad', 'unk', 'cls', 'sep', 'mask')
    settings = {
        f'{name}_token': tokenizer.vocab[getattr(tokenizer, f'{name}_id')] for name in names
    }
    settings['do_lower_case'] = tokenizer.lowercase
    settings['tokenizer_class'] = 'PreTrainedTokenizerFast'  # takes all from tokenizer.json
    settings['model_max_length'] = architecture.max_length
    types = ['token_type_ids'] if architecture.type_vocab_size > 1 else []
    settings['model_input_names'] = ['input_ids', *types, 'attention_mask']
    text = json.dumps(settings, indent=2, ensure_ascii=False) + '\n'
    (folder / 'tokenizer_config.json').write_text(text, encoding='utf-8')
    if tokenizer.kind == 'wordpiece' and all(t and '\n' not in t for t in tokenizer.vocab):
        text = ''.join(f'{token}\n' for token in tokenizer.vocab)
        (folder / 'vocab.txt').write_text(text, encoding='utf-8')


def check_padding(architecture: Architecture, tokenizer: Tokenizer, where):
    """Where positions are counted, published code counts the tokens that are not padding by id."""
    first = architecture.first_position
    if architecture.positions == 'counted' and tokenizer.pad_id != first - 1:
        raise UserError(
            f'{where}: padding has the id {tokenizer.pad_id} in the tokenizer, but the positions '
            f'of the model are counted for the id {first - 1} (pad_token_id)'
        )
