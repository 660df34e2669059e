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
from bert_jax.models.rows import Rows, Targets
from bert_jax.objectives.masking import Masking, mask_tokens
from bert_jax.tokenizers import Tokenizer

RATE = 0.15
_MASKING_KEY = 7919  # separates masking from dropout, which uses the same seeds
_UNLABELED_PER_LABELED = 3


def mix(train: Sequence[PromptExample], unlabeled: Sequence[PromptExample]) -> list[PromptExample]:
    """Return the examples of an epoch: the train split, repeated as needed, and unlabeled ones."""
    times = max(1, round(len(unlabeled) / (_UNLABELED_PER_LABELED * len(train))))
    return [*train] * times + list(unlabeled)


def bert_masking(tokenizer: Tokenizer) -> Masking:
    """Return BERT's masking: 15 % of the tokens, of which 80 % are [MASK] and 10 % random."""
    return Masking(
        rate=RATE,
        mask=0.8,
        random=0.1,
        replacement='uniform',
        mask_id=tokenizer.mask_id,
        special_ids=tokenizer.special_ids,
        unigram_counts=np.ones(tokenizer.vocab_size, np.int64),
    )


def mask_unlabeled(masking: Masking, rows: Rows, seeds_R: jax.Array) -> Rows:
    """Mask the unlabeled sequences of packed rows.

    Args:
        masking: see `bert_masking`.
        rows: their label 'is_unlabeled', int32 [R, T], is 1 at the tokens of unlabeled sequences.
        seeds_R: uint32, one for each row.
    """
    keys_R = jax.vmap(lambda seed: jax.random.fold_in(jax.random.key(_MASKING_KEY), seed))(seeds_R)
    eligible_RT = rows.attention_mask_BT * rows.labels['is_unlabeled']
    number = math.ceil(RATE * eligible_RT.shape[1])
    ids_RT, segments_RT = jnp.asarray(rows.input_ids_BT), jnp.asarray(rows.segment_ids_BT)
    masked = mask_tokens(masking, keys_R, ids_RT, jnp.asarray(eligible_RT), number, segments_RT)
    return rows.replace(input_ids_BT=masked.input_ids, targets=Targets(*masked[1:]))
