"""The auxiliary masked-language-model loss of PET, on unlabeled prompts.

Schick & Schütze 2021, "Exploiting Cloze Questions for Few Shot Text Classification and Natural
Language Inference", section 3.2: a batch has three unlabeled examples for each labeled one.
"""

import math
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np

from bert_jax.labels.examples import PromptExample
from bert_jax.models.rows import Rows
from bert_jax.objectives.corruption import Vocabulary
from bert_jax.objectives.masking import MaskedText
from bert_jax.objectives.masking_schemes import Tokens
from bert_jax.tokenizers import Tokenizer

RATE = 0.15
_MASKING_KEY = 7919  # separates masking from dropout, which uses the same seeds
_UNLABELED_PER_LABELED = 3


def mix(train: Sequence[PromptExample], unlabeled: Sequence[PromptExample]) -> list[PromptExample]:
    """Return the examples of an epoch: the train split, repeated as needed, and unlabeled ones."""
    times = max(1, round(len(unlabeled) / (_UNLABELED_PER_LABELED * len(train))))
    return [*train] * times + list(unlabeled)


def masking_vocabulary(tokenizer: Tokenizer) -> Vocabulary:
    """Return what masking must know of the vocabulary."""
    counts_V = np.ones(tokenizer.vocab_size, np.int64)
    return Vocabulary(tokenizer.mask_id, tokenizer.pad_id, tokenizer.special_ids, counts_V)


def mask_unlabeled(vocabulary: Vocabulary, rows: Rows, seeds_R: jax.Array) -> Rows:
    """Mask the unlabeled sequences of packed rows as BERT does.

    15 % of their tokens are chosen; 80 % of these become [MASK] and 10 % random tokens.

    Args:
        vocabulary: see `masking_vocabulary`.
        rows: their label 'is_unlabeled', int32 [R, T], is 1 at the tokens of unlabeled sequences;
            other tokens become padding.
        seeds_R: uint32, one for each row.
    """
    keys_R = jax.vmap(lambda seed: jax.random.fold_in(jax.random.key(_MASKING_KEY), seed))(seeds_R)
    eligible_RT = jnp.asarray(rows.attention_mask_BT * rows.labels['is_unlabeled'])
    length = eligible_RT.shape[1]
    scheme = Tokens(rate=RATE, per_sequence=True)
    mask = MaskedText(vocabulary, scheme, {length: math.ceil(RATE * length)})
    return mask(keys_R, rows.replace(attention_mask_BT=eligible_RT))
