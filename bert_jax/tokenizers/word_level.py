"""Vocabularies of whole words: a text is split at spaces, and other words are unknown."""

import json
from collections.abc import Mapping

import tokenizers

from bert_jax.tokenizers import special_tokens
from bert_jax.types import JsonObject


def settings(vocab: dict[str, int], names: Mapping[str, str]) -> JsonObject:
    """Return the settings of a tokenizer, the contents of a tokenizer.json.

    Args:
        vocab: Id of each word.
        names: Role → name of its special token.
    """
    model = tokenizers.models.WordLevel(vocab, unk_token=names['unk'])
    backend = tokenizers.Tokenizer(model)
    backend.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    special_tokens.add(backend, sorted(names.values(), key=vocab.__getitem__))
    backend.post_processor = special_tokens.template(names, vocab)
    contents: JsonObject = json.loads(backend.to_str())
    return contents
