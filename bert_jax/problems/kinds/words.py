"""The kinds that label words, or spans of words."""

from bert_jax.config_keys import key, needs, only_with
from bert_jax.labels import conll, conllu, dependencies, semantic_roles, trees, word_lists
from bert_jax.labels.formats import LISTS, TABLES
from bert_jax.problems.kinds.base import (
    CLASSES,
    LABELS,
    ROWS,
    TEXT_KEYS,
    WEIGHTS,
    WINDOWS,
    ProblemKind,
    used,
)

TAGGING = ProblemKind(
    implementation='bert_jax.problems.tagging:TAGGING',
    predict_task='tag',
    pipeline_tag='token-classification',
    keys=LABELS
    | WINDOWS
    | dict(
        label_pieces=key(
            'first',
            "subwords that learn the tag of their word: 'first', 'all'",
            choices=('first', 'all'),
        ),
        decode_pieces=key(
            'first',
            "subwords that predict the tag: 'first', or 'mean', the geometric mean of the "
            'probabilities of all, normalized',
            choices=('first', 'mean'),
        ),
        label_smoothing=CLASSES['label_smoothing'],
        class_weights=key('none', "'balanced': ∝ 1 / frequency among words", choices=WEIGHTS),
        crf=key(False, 'True: a linear-chain CRF over words; only legal BIO or BIOES sequences'),
        crf_rate=key(
            20.0,
            "learning rate of the CRF, as a multiple of the encoder's",
            '(0, inf)',
            unused=needs('problem.crf'),
        ),
    ),
    readers={
        'conll': conll.build_tagging,
        'conllu': conllu.build_tagging,
        **dict.fromkeys(ROWS, word_lists.build_tagging),
    },
    data_keys=TEXT_KEYS
    | used(
        'columns.tokens',
        'columns.tags',
        'columns.sentence',
        'columns.tag',
        'tags_as',
        lists=TABLES,
        scheme=('conll', *TABLES, *LISTS),
    ),
    pretrained_heads=('token_classification',),
    fine_tuned_heads=('token_classification',),
    min_labels=2,
    has_probabilities=True,
)

SEMANTIC_ROLES = ProblemKind(
    implementation='bert_jax.problems.semantic_roles:SEMANTIC_ROLES',
    predict_task='roles',
    pipeline_tag='token-classification',
    keys={name: entry for name, entry in TAGGING.keys.items() if name not in WINDOWS}
    | dict(
        predicate=key(
            None,
            "how the model sees which word is the predicate: 'types', by token type 1; 'marks', "
            'between two @. Default: types if the model has two token types.',
            kind=str,
            choices=('types', 'marks'),
        ),
    ),
    readers={
        'conll': semantic_roles.build_conll,
        **dict.fromkeys(ROWS, semantic_roles.build_rows),
    },
    data_keys=TEXT_KEYS
    | used(
        'columns.tokens',
        'columns.tags',
        'columns.predicate',
        'columns.roles',
        lists=TABLES,
        scheme=(*TABLES, *LISTS),
    ),
    pretrained_heads=('token_classification',),
    min_labels=2,
    long_texts=('truncate',),
)

PARSING = ProblemKind(
    implementation='bert_jax.problems.parsing:PARSING',
    predict_task='parse',
    pipeline_tag='token-classification',
    keys=LABELS
    | dict(
        arc_width=key(500, 'size of the layers that score heads', '[1, inf)'),
        relation_width=key(100, 'size of the layers that score relations', '[1, inf)'),
    ),
    readers={'conllu': dependencies.build_parsing},
    data_keys={},
    min_labels=1,
    long_texts=('truncate',),
)

SPANS = ProblemKind(
    implementation='bert_jax.problems.spans:SPANS',
    predict_task='spans',
    pipeline_tag='token-classification',
    keys=LABELS
    | WINDOWS
    | dict(
        max_span_words=key(10, 'longer spans are never predicted', '[1, inf)'),
        nested=key(True, 'spans may overlap; False: only the most probable of overlapping spans'),
        decoding=key(
            'argmax',
            "Which spans are predicted: 'argmax', those whose most probable class is a label, not "
            "no label; 'threshold', those whose best label is more probable than problem.threshold",
            choices=('argmax', 'threshold'),
        ),
        threshold=key(
            None,
            'Probability above which a span is predicted. Default: tuned on dev by F1 and stored '
            'in the run.',
            '[0, 1)',
            kind=float,
            unused=only_with('problem.decoding', 'threshold'),
        ),
        summary=key(
            'mean',
            "Of the states inside a span: their 'mean'; 'attention', weighted by a learned score; "
            "'self_attention', the mean after attention among them",
            choices='bert_jax.models.heads.spans:SUMMARIES',
        ),
        boundary=key(
            'ffn',
            "a layer for starts and one for ends; 'state': the encoder's states",
            choices='bert_jax.models.heads.spans:BOUNDARIES',
        ),
        width=key(150, 'hidden size of the layers that score spans', '[1, inf)'),
        class_weights=key(
            'none', '\'balanced\': ∝ 1 / frequency; "no label" is a class too', choices=WEIGHTS
        ),
    ),
    answer_settings=('nested', 'decoding', 'threshold'),
    readers={
        'conll': conll.build_spans,
        **dict.fromkeys((*ROWS, 'brat', 'webanno'), word_lists.build_spans),
    },
    data_keys=TEXT_KEYS
    | used(
        'columns.tokens',
        'columns.spans',
        'columns.span_start',
        'columns.span_end',
        'columns.span_label',
        'columns.tag',
        'units',
        'ends',
        lists=TABLES,
        scheme=('conll',),
    ),
    min_labels=1,
)

CONSTITUENCY = ProblemKind(
    implementation='bert_jax.problems.constituency:CONSTITUENCY',
    predict_task='constituents',
    pipeline_tag='token-classification',
    keys=LABELS
    | WINDOWS
    | {name: SPANS.keys[name] for name in ('summary', 'boundary', 'width', 'class_weights')}
    | dict(
        max_span_words=key(
            60,
            'longer constituents are never predicted, nor the one of a longer sentence',
            '[1, inf)',
        ),
    ),
    readers={'brackets': trees.build_trees},
    data_keys={},
    min_labels=1,
)
