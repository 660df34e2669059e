"""The kinds that answer about a text, or a pair: classes, numbers, sets of them, choices."""

from bert_jax.config_keys import key, overridden_by, unless
from bert_jax.labels import choices, label_sets, marked_pairs, text_pairs
from bert_jax.problems.kinds.base import (
    CLASS_SCORES,
    CLASSES,
    LABELS,
    PAIR_KEYS,
    ROWS,
    SCORE_METRICS,
    TEXT_KEYS,
    TEXTS,
    WEIGHTS,
    ProblemKind,
    used,
)

_LABEL_SETS = dict(
    metrics=key(
        ('f1_micro',),
        'Main metrics, see metrics/label_sets.py: f1_micro, f1_macro, f1_weighted, '
        'subset_accuracy, hamming_loss, ranking. Several metrics are averaged.',
    ),
    class_weights=key(
        'none',
        "'balanced': the loss of a class that applies ∝ examples without / with the class",
        choices=WEIGHTS,
    ),
    thresholds=key(
        'none',
        "Probability from which a class is predicted: 'none' = problem.threshold; tuned on dev and "
        "stored in the run: 'one' for all classes, by micro F1, or 'per_class', by the F1 of each",
        choices=('none', 'one', 'per_class'),
    ),
    threshold=key(
        0.5,
        'probability from which a class is predicted',
        '[0, 1]',
        unused=unless('problem.thresholds', 'one', 'per_class'),
    ),
)
_POOLING = dict(
    pooling=key(
        None,
        "How a text becomes one vector: 'pooler' ([CLS] through a layer), 'first' ([CLS]), 'last' "
        "token, 'mean', or 'concat' of the last token, maximum and mean. Default: 'last' for a "
        "causal model, else as the architecture, or 'first' without its pooler.",
        kind=str,
        choices=('pooler', 'first', 'last', 'mean', 'concat'),
    ),
)

CLASSIFICATION = ProblemKind(
    implementation='bert_jax.problems.classification:CLASSIFICATION',
    predict_task='classify',
    pipeline_tag='text-classification',
    keys=CLASSES
    | _POOLING
    | dict(
        temperature=key(
            0.0,
            'Distillation: temperature T of both softmaxes in the divergence from '
            'data.columns.probabilities, which is the loss; PET uses 2. 0 = learn from labels',
        ),
        ordinal=key(
            False,
            'True: the classes are ordered, as in problem.labels or by their numbers; the loss '
            'is the ranked probability score, and mae and kappa are metrics too',
            unused=overridden_by('problem.temperature'),
        ),
    ),
    readers=dict.fromkeys(TEXTS, text_pairs.build_classification),
    data_keys=PAIR_KEYS | used('columns.probabilities'),
    answer_settings=CLASS_SCORES,
    pretrained_heads=('sequence_classification',),
    fine_tuned_heads=('sequence_classification',),  # or another kind; see inference/finetuned.py
    min_labels=2,
    has_probabilities=True,
    long_texts=('truncate', 'windows'),
)

REGRESSION = ProblemKind(
    implementation='bert_jax.problems.classification:REGRESSION',
    predict_task='classify',
    pipeline_tag='text-classification',
    keys=LABELS | _POOLING | dict(metrics=SCORE_METRICS),
    readers=dict.fromkeys(TEXTS, text_pairs.build_regression),
    data_keys=PAIR_KEYS,
    answer_settings=('metrics',),
    also_answers='reranking',
    pretrained_heads=('sequence_classification',),
    problem_type='regression',
    long_texts=('truncate', 'windows'),
)

MULTI_LABEL = ProblemKind(
    implementation='bert_jax.problems.multi_label:MULTI_LABEL',
    predict_task='classify',
    pipeline_tag='text-classification',
    keys=LABELS | _LABEL_SETS,
    readers=dict.fromkeys(TEXTS, label_sets.build_multi_label),
    data_keys=PAIR_KEYS | used('columns.labels', 'label_separator'),
    answer_settings=('metrics', 'thresholds', 'threshold'),
    pretrained_heads=('sequence_classification',),
    problem_type='multi_label_classification',
    min_labels=2,
    has_probabilities=True,
    long_texts=('truncate', 'windows'),
)

MULTI_REGRESSION = ProblemKind(
    implementation='bert_jax.problems.multi_regression:MULTI_REGRESSION',
    predict_task='classify',
    pipeline_tag='text-classification',
    keys=LABELS | dict(metrics=SCORE_METRICS),
    readers=dict.fromkeys(ROWS, label_sets.build_multi_regression),
    data_keys=TEXT_KEYS | used('columns.text2', 'columns.label', 'columns.labels'),
    answer_settings=('metrics',),
    pretrained_heads=('sequence_classification',),
    problem_type='regression',
    min_labels=2,
    long_texts=('truncate', 'windows'),
)

MULTIPLE_CHOICE = ProblemKind(
    implementation='bert_jax.problems.multiple_choice:MULTIPLE_CHOICE',
    predict_task='classify',
    pipeline_tag='multiple-choice',
    keys=LABELS,
    readers=dict.fromkeys(ROWS, choices.build_multiple_choice),
    data_keys=TEXT_KEYS
    | used('columns.label', 'columns.choices', 'skip_labels', 'first_choice', 'choice_label'),
    pretrained_heads=('multiple_choice',),
    fine_tuned_heads=('multiple_choice',),
    has_probabilities=True,
    long_texts=('truncate',),
)

MARKED_PAIRS = ProblemKind(
    implementation='bert_jax.problems.relations:RELATIONS',
    predict_task='classify',
    pipeline_tag='text-classification',
    keys=CLASSES
    | dict(
        exclusive=key(
            False, 'True: of all pairs with the same first mark, at most one is `positive`'
        ),
    ),
    readers=dict.fromkeys(ROWS, marked_pairs.build_marked_pairs),
    data_keys=PAIR_KEYS
    | used('columns.marks', 'columns.candidate_labels', 'units', 'ends', 'inline_marks'),
    answer_settings=CLASS_SCORES,
    min_labels=2,
    has_probabilities=True,
    long_texts=('truncate',),
)
