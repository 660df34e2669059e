"""The kinds that answer by filling [MASK] in a template."""

from bert_jax.config_keys import key
from bert_jax.labels import text_pairs
from bert_jax.problems.kinds.base import (
    CLASSES,
    LABELS,
    PAIR_KEYS,
    SCORE_METRICS,
    TEXTS,
    ProblemKind,
    used,
)
from bert_jax.types import JsonObject

PROMPT_KEYS = PAIR_KEYS | used('columns.fields', 'unlabeled')
_PROMPT = dict(
    template=key('', "such as '{text} It was [MASK].' (docs/prompting.md)"),
    answers=key((), "('positive=great|good', 'negative=bad'); () = the labels are the answers"),
    decoding=key(
        'max_first',
        "Order in which the masks of an answer of several subwords are filled: 'max_first' (the "
        "most probable first), 'left_to_right', 'parallel'. Training is always parallel.",
        choices='bert_jax.problems.prompting.decoding:DECODINGS',
    ),
    calibration=key(
        'none',
        "'contextual', 'pmi'",
        choices='bert_jax.problems.prompting.calibration:CALIBRATIONS',
    ),
    demonstrations=key(
        0,
        'Number of sets of demonstrations. A set is one answered training example of each class '
        'after the prompt; scores are averaged over sets. 0 = none',
    ),
    mlm_weight=key(
        0.0,
        'Share of the masked-language-model loss on data.unlabeled; PET uses 0.0001. 0 = none',
        '[0, 1)',
    ),
)

_PROMPT_FACTS: JsonObject = dict(
    pretrained_heads=('mlm',),
    required_heads=('mlm',),
    reads_last_layer=True,
    min_labels=2,
    has_probabilities=True,
    long_texts=('truncate',),
)

PROMPT = ProblemKind(
    implementation='bert_jax.problems.prompt:PROMPT',
    predict_task='prompt',
    pipeline_tag='text-classification',
    keys=CLASSES | _PROMPT,
    readers=dict.fromkeys(TEXTS, text_pairs.build_prompt),
    data_keys=PROMPT_KEYS,
    **_PROMPT_FACTS,
)

PROMPT_REGRESSION = ProblemKind(
    implementation='bert_jax.problems.prompt_regression:PROMPT_REGRESSION',
    predict_task='prompt',
    pipeline_tag='text-classification',
    keys=LABELS
    | _PROMPT
    | dict(
        metrics=SCORE_METRICS,
        lowest=key(0.0, "the score that the answers of 'low' stand for", '(-inf, inf)'),
        highest=key(1.0, "the score that the answers of 'high' stand for", '(-inf, inf)'),
    ),
    readers=dict.fromkeys(TEXTS, text_pairs.build_prompt_regression),
    data_keys=PROMPT_KEYS,
    **_PROMPT_FACTS,
)
