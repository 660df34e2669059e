"""The registry of fine-tuning problems: one entry of `PROBLEMS` and one file for each.

Importing this module is cheap: the module of a problem (`ProblemKind.implementation`) is imported
on first use, so that configs and command lines can read the table without JAX.
"""

import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from ml_collections import ConfigDict

from bert_jax import lazy_table
from bert_jax.config_keys import ConfigKey, key, needs, overridden_by, unless
from bert_jax.errors import look_up
from bert_jax.labels import (
    choices,
    conll,
    conllu,
    conversations,
    dependencies,
    label_sets,
    loader,
    marked_pairs,
    questions,
    targets,
    text_groups,
    text_pairs,
    word_lists,
)
from bert_jax.labels.labeled_files import Reader
from bert_jax.labels.loader import Splits
from bert_jax.types import JsonObject

if TYPE_CHECKING:
    from bert_jax.problems.base import Parts


@dataclasses.dataclass(frozen=True)
class ProblemKind:
    """A kind of fine-tuning problem, such as tagging.

    Attributes:
        implementation: 'module:NAME' of the `Parts` (problems/base.py): encoding, loss, decoder.
        predict_task: the --task of bert_jax.predict that queries fine-tuned models of this kind.
        keys: the keys of `config.problem`. `labels` is always one of them.
        readers: `data.format` → the function that turns a record of such a file (a row, a sentence)
            into examples. Other formats cannot hold this kind of problem; the first format is
            assumed for files whose names do not tell their format.
        answer_settings: keys that only affect how a trained model answers and is scored.
        pretrained_heads: names of heads that published checkpoints may hold
            (interop/pretrained.py): loaded with `init_from`, and exported.
        required_heads: pretrained heads, one of which init_from must have; they are never trained
            from scratch.
        reads_last_layer: whether its heads always read the states of the last layer, whatever
            `model.head_states` says.
        problem_type: what config.json of an exported classifier says; '' for nothing.
        min_labels: minimum number of classes.
        has_probabilities: whether predictions can list the probability of every class.
        writes: whether its models write text: causal models, and models with a decoder.
        keeps_causality: whether a causal model at init_from stays causal; other problems train it
            to attend in both directions.
        long_texts: supported treatments of texts longer than a sequence, the default first:
            'truncate', or 'windows' whose predictions are combined.
    """

    implementation: str
    predict_task: str
    keys: Mapping[str, ConfigKey]
    readers: Mapping[str, Reader]
    answer_settings: tuple[str, ...] = ()
    pretrained_heads: tuple[str, ...] = ()
    required_heads: tuple[str, ...] = ()
    reads_last_layer: bool = False
    problem_type: str = ''
    min_labels: int = 0
    has_probabilities: bool = False
    writes: bool = False
    keeps_causality: bool = False
    long_texts: tuple[str, ...] = ('windows',)

    @property
    def settings(self) -> JsonObject:
        """The defaults of the keys."""
        return {name: entry.declaration.default for name, entry in self.keys.items()}

    def load(self) -> 'Parts':
        """Import the implementation."""
        parts: Parts = lazy_table.load(self.implementation)
        return parts


def find(kind: str) -> ProblemKind:
    """Return the entry of a kind of problem. Raises UserError for an unknown one."""
    return look_up('kind of problem', kind, PROBLEMS)


def read(data: ConfigDict, kind: str) -> Splits:
    """Read the labeled examples that the config's `data` names, as examples of a kind of problem.

    Raises:
        UserError: unknown kind, format or column; unreadable file; empty split; too many bad rows.
    """
    return loader.read(data, kind, find(kind).readers)


_ROWS = ('tsv', 'csv', 'jsonl', 'json', 'parquet', 'xml')
_TEXTS = (*_ROWS, 'labeled_lines', 'lines', 'files')
_LISTS = ('jsonl', 'json', 'parquet', 'xml')

_WEIGHTS = ('none', 'balanced')
_LABELS = dict(
    labels=key(
        (),
        'Class names in the order of their numbers; () = sorted labels of the train split, '
        'integers by value',
    ),
)
_CLASSES = _LABELS | dict(
    metrics=key(
        ('accuracy',),
        'Main metrics, see metrics/scores.py: accuracy, f1_macro, matthews, f1 (of `positive`), '
        'f1_micro (without `negative`), exact_match. Several metrics are averaged.',
    ),
    positive=key('', "the class whose F1 is 'f1'"),
    negative=key('', 'the class that means "none of the other classes", left out of \'f1_micro\''),
    class_weights=key(
        'none', "'balanced': weight of a class in the loss ∝ 1 / frequency", choices=_WEIGHTS
    ),
    label_smoothing=key(0.0, 'ε: targets are (1 − ε) · one-hot + ε / number of classes', '[0, 1)'),
)
_CLASS_SCORES = ('metrics', 'positive', 'negative')  # of _CLASSES
_LABEL_SETS = dict(
    metrics=key(
        ('f1_micro',),
        'Main metrics, see metrics/label_sets.py: f1_micro, f1_macro, f1_weighted, '
        'subset_accuracy, hamming_loss, ranking. Several metrics are averaged.',
    ),
    class_weights=key(
        'none',
        "'balanced': the loss of a class that applies ∝ examples without / with the class",
        choices=_WEIGHTS,
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
_SCORE_METRICS = key(('pearson', 'spearman'), "also 'rmse'")
_POOLING = dict(
    pooling=key(
        None,
        "How a text becomes one vector: 'pooler' ([CLS] through a layer), 'first' ([CLS]), 'mean', "
        "or 'concat' of the last token, maximum and mean. Default: as the architecture.",
        kind=str,
        choices=('pooler', 'first', 'mean', 'concat'),
    ),
)
_WINDOWS = dict(
    overlap=key(0.5, 'share of a window of a long text that the next window repeats', '[0, 1)'),
)

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

_IN_BATCH = 'bert_jax.problems.embedding.in_batch'
_loss_option = functools.partial(key, unused='bert_jax.problems.embedding:unused')
_sparse_option = functools.partial(key, unused='bert_jax.problems.sparse_embedding:unused')
_ranking_option = functools.partial(key, unused='bert_jax.problems.reranking:unused')

_TEXT_GROUPS = dict(
    query_prompt=key('', "put before queries, such as 'query: '"),
    document_prompt=key('', 'put before documents, and before texts that are no pairs'),
)


def _in_batch_options(option: Callable[..., ConfigKey], similarity: str) -> dict[str, ConfigKey]:
    """The options of InfoNCE with a default similarity; `option` declares a key of a loss."""
    return dict(
        similarity=option(similarity, "'cosine', 'dot'", choices=f'{_IN_BATCH}:SIMILARITIES'),
        directions=option(
            ('query_to_document',),
            "what is compared: 'query_to_document', 'document_to_query', 'query_to_query', "
            "'document_to_document'",
            choices=f'{_IN_BATCH}:DIRECTIONS',
        ),
        partition=option(
            'joint',
            "one softmax over all directions, or the mean of a softmax 'per_direction'",
            choices=f'{_IN_BATCH}:PARTITIONS',
        ),
        hardness=option(
            0.0, 'the logits of negatives are raised by this · similarity, without gradient'
        ),
        hardness_of=option(
            'all', "which negatives: 'all', 'in_batch', 'hard'", choices=f'{_IN_BATCH}:HARDNESS'
        ),
        mask_equal_texts=option(
            True, 'whether documents with an equal text or query are no negatives'
        ),
    )


_MARKED_PAIRS = ProblemKind(
    implementation='bert_jax.problems.relations:RELATIONS',
    predict_task='classify',
    keys=_CLASSES
    | dict(
        exclusive=key(
            False, 'True: of all pairs with the same first mark, at most one is `positive`'
        ),
    ),
    readers=dict.fromkeys(_ROWS, marked_pairs.build_marked_pairs),
    answer_settings=_CLASS_SCORES,
    min_labels=2,
    has_probabilities=True,
    long_texts=('truncate',),
)

PROBLEMS: dict[str, ProblemKind] = {
    'classification': ProblemKind(
        implementation='bert_jax.problems.classification:CLASSIFICATION',
        predict_task='classify',
        keys=_CLASSES
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
        readers=dict.fromkeys(_TEXTS, text_pairs.build_classification),
        answer_settings=_CLASS_SCORES,
        pretrained_heads=('sequence_classification',),
        min_labels=2,
        has_probabilities=True,
        long_texts=('truncate', 'windows'),
    ),
    'regression': ProblemKind(
        implementation='bert_jax.problems.classification:REGRESSION',
        predict_task='classify',
        keys=_LABELS | _POOLING | dict(metrics=_SCORE_METRICS),
        readers=dict.fromkeys(_TEXTS, text_pairs.build_regression),
        answer_settings=('metrics',),
        pretrained_heads=('sequence_classification',),
        problem_type='regression',
        long_texts=('truncate', 'windows'),
    ),
    'multi_label': ProblemKind(
        implementation='bert_jax.problems.multi_label:MULTI_LABEL',
        predict_task='classify',
        keys=_LABELS | _LABEL_SETS,
        readers=dict.fromkeys(_TEXTS, label_sets.build_multi_label),
        answer_settings=('metrics', 'thresholds', 'threshold'),
        pretrained_heads=('sequence_classification',),
        problem_type='multi_label_classification',
        min_labels=2,
        has_probabilities=True,
        long_texts=('truncate', 'windows'),
    ),
    'multi_regression': ProblemKind(
        implementation='bert_jax.problems.multi_regression:MULTI_REGRESSION',
        predict_task='classify',
        keys=_LABELS | dict(metrics=_SCORE_METRICS),
        readers=dict.fromkeys(_ROWS, label_sets.build_multi_regression),
        answer_settings=('metrics',),
        pretrained_heads=('sequence_classification',),
        problem_type='regression',
        min_labels=2,
        long_texts=('truncate', 'windows'),
    ),
    'multiple_choice': ProblemKind(
        implementation='bert_jax.problems.multiple_choice:MULTIPLE_CHOICE',
        predict_task='classify',
        keys=_LABELS,
        readers=dict.fromkeys(_ROWS, choices.build_multiple_choice),
        pretrained_heads=('multiple_choice',),
        has_probabilities=True,
        long_texts=('truncate',),
    ),
    'prompt': ProblemKind(
        implementation='bert_jax.problems.prompt:PROMPT',
        predict_task='prompt',
        keys=_CLASSES | _PROMPT,
        readers=dict.fromkeys(_TEXTS, text_pairs.build_prompt),
        **_PROMPT_FACTS,
    ),
    'prompt_regression': ProblemKind(
        implementation='bert_jax.problems.prompt_regression:PROMPT_REGRESSION',
        predict_task='prompt',
        keys=_LABELS
        | _PROMPT
        | dict(
            metrics=_SCORE_METRICS,
            lowest=key(0.0, "the score that the answers of 'low' stand for", '(-inf, inf)'),
            highest=key(1.0, "the score that the answers of 'high' stand for", '(-inf, inf)'),
        ),
        readers=dict.fromkeys(_TEXTS, text_pairs.build_prompt_regression),
        **_PROMPT_FACTS,
    ),
    'relation': _MARKED_PAIRS,
    'word_in_context': _MARKED_PAIRS,
    'coreference': _MARKED_PAIRS,
    'tagging': ProblemKind(
        implementation='bert_jax.problems.tagging:TAGGING',
        predict_task='tag',
        keys=_LABELS
        | _WINDOWS
        | dict(
            label_pieces=key(
                'first',
                "subwords that learn the tag of their word: 'first', 'all'",
                choices=('first', 'all'),
            ),
            decode_pieces=key(
                'first',
                "subwords that predict the tag: 'first', or the 'mean' of all",
                choices=('first', 'mean'),
            ),
            label_smoothing=_CLASSES['label_smoothing'],
            class_weights=key('none', "'balanced': ∝ 1 / frequency among words", choices=_WEIGHTS),
            crf=key(
                False, 'True: a linear-chain CRF over words; only legal BIO or BIOES sequences'
            ),
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
            **dict.fromkeys(_LISTS, word_lists.build_tagging),
        },
        pretrained_heads=('token_classification',),
        min_labels=2,
        has_probabilities=True,
    ),
    'parsing': ProblemKind(
        implementation='bert_jax.problems.parsing:PARSING',
        predict_task='parse',
        keys=_LABELS
        | dict(
            arc_width=key(500, 'size of the layers that score heads', '[1, inf)'),
            relation_width=key(100, 'size of the layers that score relations', '[1, inf)'),
        ),
        readers={'conllu': dependencies.build_parsing},
        min_labels=1,
        long_texts=('truncate',),
    ),
    'spans': ProblemKind(
        implementation='bert_jax.problems.spans:SPANS',
        predict_task='spans',
        keys=_LABELS
        | _WINDOWS
        | dict(
            max_span_words=key(10, 'longer spans are never predicted', '[1, inf)'),
            nested=key(
                True, 'spans may overlap; False: only the most probable of overlapping spans'
            ),
            summary=key(
                'mean',
                "of the states inside a span; 'attention': weighted by a learned score",
                choices='bert_jax.models.heads.spans:SUMMARIES',
            ),
            boundary=key(
                'ffn',
                "a layer for starts and one for ends; 'state': the encoder's states",
                choices='bert_jax.models.heads.spans:BOUNDARIES',
            ),
            width=key(150, 'hidden size of the layers that score spans', '[1, inf)'),
            class_weights=key(
                'none', '\'balanced\': ∝ 1 / frequency; "no label" is a class too', choices=_WEIGHTS
            ),
        ),
        readers={
            'conll': conll.build_spans,
            **dict.fromkeys((*_LISTS, 'brat'), word_lists.build_spans),
        },
        min_labels=1,
    ),
    'embedding': ProblemKind(
        implementation='bert_jax.problems.embedding.problem:EMBEDDING',
        predict_task='embed',
        reads_last_layer=True,
        keys=_LABELS
        | _TEXT_GROUPS
        | dict(
            loss=key(
                'in_batch',
                'what is learned (docs/embeddings.md)',
                choices='bert_jax.problems.embedding:LOSSES',
            ),
            text_pooling=key(
                '',
                "vector of a text: 'mean' or 'max' of the states of its tokens, or 'cls'; '' = as "
                "the sentence-transformers folder in init_from, else 'mean'",
                choices='bert_jax.models.heads.embedding:POOLINGS',
            ),
            normalize=key(True, 'whether vectors of the trained model have the norm 1'),
            batches=key(
                '',
                "'shuffled'; 'without_copies': no two examples of a batch share a text; "
                "'pairs_of_classes'. '' = as the loss needs",
                choices=('', 'shuffled', 'without_copies', 'pairs_of_classes'),
            ),
            dimensions=key(
                (),
                'Matryoshka: sizes to which vectors may be shortened; the loss is the sum of those '
                'of all sizes. () = the full size',
                '[1, inf)',
                of=int,
            ),
            dimension_weights=key(
                (), 'of the loss of each size; () = 1', of=float, unused=needs('problem.dimensions')
            ),
            scale=_loss_option(
                None, 'factor of similarities, 1 / temperature', '(0, inf)', kind=float
            ),
            **_in_batch_options(_loss_option, 'cosine'),
            margin=_loss_option(None, 'margin of the loss', kind=float),
            margin_kind=_loss_option(
                'absolute',
                "gist: 'absolute', or 'relative' to the cosine of the pair",
                choices=f'{_IN_BATCH}:MARGINS',
            ),
            positive_margin=_loss_option(0.8, 'cosine above which a pair has no loss', '[0, 1]'),
            negative_margin=_loss_option(
                0.3, 'cosine below which a negative has no loss', '[0, 1]'
            ),
            highest_score=_loss_option(1.0, 'scores are divided by it', '(0, inf)'),
            distance=_loss_option(
                'euclidean',
                "'euclidean', 'cosine', 'manhattan'",
                choices='bert_jax.problems.embedding.triplets:DISTANCES',
            ),
            target=_loss_option(
                'cosine',
                "distance from the teacher's vector: 'cosine', 'mse', 'l2'",
                choices='bert_jax.problems.embedding.distillation:TARGETS',
            ),
            temperature=_loss_option(1.0, 'of the softmax over documents', '(0, inf)'),
        ),
        readers=dict.fromkeys(_TEXTS, text_groups.build_text_group),
        long_texts=('truncate',),
    ),
    'sparse_embedding': ProblemKind(
        implementation='bert_jax.problems.sparse_embedding.problem:SPARSE_EMBEDDING',
        predict_task='terms',
        reads_last_layer=True,
        pretrained_heads=('mlm',),
        required_heads=('mlm',),
        keys=_LABELS
        | _TEXT_GROUPS
        | dict(
            loss=key(
                'in_batch',
                'what is learned besides sparsity (docs/search.md)',
                choices='bert_jax.problems.sparse_embedding:LOSSES',
            ),
            term_pooling=key(
                '',
                "weight of a term in a text: the 'max' or 'sum' of its weights at the tokens; '' = "
                "as the SparseEncoder folder in init_from, else 'max'",
                choices='bert_jax.models.sparse_pooling:STRATEGIES',
            ),
            activation=key(
                '',
                "weight of a term at a token: 'relu': log(1 + relu(logit)), or 'log1p_relu', which "
                "takes the logarithm twice; '' = as the folder in init_from, else 'relu'",
                choices='bert_jax.models.sparse_pooling:ACTIVATIONS',
            ),
            max_active=key(
                0,
                'after training, keep so many terms of a text, the largest; 0 = as the folder in '
                'init_from, else all',
                '[0, inf)',
            ),
            batches=key(
                '',
                "'', or 'without_copies': no two examples of a batch share a text",
                choices=('', 'without_copies'),
            ),
            document_weight=key(
                3e-5, 'factor of the FLOPS of documents in the loss, after the warm-up', '[0, inf)'
            ),
            query_weight=key(
                5e-5,
                'factor of the FLOPS of queries in the loss, after the warm-up',
                '[0, inf)',
                unused=overridden_by('problem.documents_only'),
            ),
            documents_only=key(False, 'True: queries count as documents, for texts of one kind'),
            active_threshold=key(
                0, 'texts with at most so many terms are not made sparser', '[0, inf)'
            ),
            warmup=key(
                'quadratic',
                "how both factors rise from 0: 'quadratic', 'linear'",
                choices='bert_jax.problems.sparse_embedding.losses:WARMUPS',
            ),
            warmup_length=key(
                1 / 3, 'share of the run after which they have their value; 0 = at once', '[0, 1]'
            ),
            scale=_sparse_option(
                None, 'factor of products, 1 / temperature', '(0, inf)', kind=float
            ),
            **_in_batch_options(_sparse_option, 'dot'),
            temperature=_sparse_option(2.0, 'of the softmax over documents', '(0, inf)'),
        ),
        readers=dict.fromkeys(_ROWS, text_groups.build_ranked_texts),
        long_texts=('truncate',),
    ),
    'reranking': ProblemKind(
        implementation='bert_jax.problems.reranking.problem:RERANKING',
        predict_task='rerank',
        keys=_LABELS
        | dict(
            loss=key(
                'binary',
                'what is learned (docs/search.md)',
                choices='bert_jax.problems.reranking:LOSSES',
            ),
            positive_weight=_ranking_option(
                1.0, 'factor of the loss of relevant documents', '(0, inf)'
            ),
            given_order=_ranking_option(
                False, 'whether documents are in the best order; False: their scores order them'
            ),
            weighting=_ranking_option(
                'ndcg_2pp',
                "weights of pairs of documents: 'ndcg_2pp', 'ndcg_2', 'lambda_rank'",
                choices='bert_jax.problems.reranking.listwise:WEIGHTINGS',
            ),
            depth_of_ndcg=_ranking_option(
                0, 'pairs count if one of both is among so many highest logits; 0 = all pairs'
            ),
        ),
        readers=dict.fromkeys(_ROWS, text_groups.build_ranked_texts),
        pretrained_heads=('sequence_classification',),
        long_texts=('truncate',),
    ),
    'question_answering': ProblemKind(
        implementation='bert_jax.problems.question_answering:QUESTION_ANSWERING',
        predict_task='answer',
        keys=_LABELS
        | dict(
            doc_stride=key(
                128, 'tokens between the starts of two windows, at most half a window', '[1, inf)'
            ),
            question_tokens=key(64, 'longer questions are truncated', '[1, inf)'),
            answer_tokens=key(30, 'longest answer, in tokens', '[1, inf)'),
            n_best=key(
                20, 'candidate starts and ends of each window, and answers returned', '[1, inf)'
            ),
            no_answer=key(False, 'True: some questions have no answer (SQuAD 2.0)'),
        ),
        readers={
            'squad': questions.build_squad_question,
            **dict.fromkeys(_ROWS, questions.build_question),
        },
        answer_settings=('doc_stride', 'question_tokens', 'answer_tokens', 'n_best', 'no_answer'),
        pretrained_heads=('question_answering',),
    ),
    'generation': ProblemKind(
        implementation='bert_jax.problems.generation.problem:GENERATION',
        predict_task='write',
        keys=_LABELS
        | dict(
            template=key(
                '{text}',
                "source text: a pattern with {text} and {text2}, such as 'summarize: {text}', or "
                'the name of a task of T5 (docs/generation_tasks.md)',
            ),
            metrics=key(
                ('rouge1', 'rouge2', 'rougeLsum'),
                'Main metrics: rouge1, rouge2, rougeLsum, bleu, chrf (package extra [generation]), '
                'exact_match; for classes accuracy, f1_macro, matthews; for numbers pearson, '
                'spearman. Several metrics are averaged.',
            ),
            target_tokens=key(64, 'longest text to write, in tokens, its end included', '[2, inf)'),
            label_smoothing=key(0.0, 'ε: share of the target of all tokens together', '[0, 1)'),
            smoothing_form=key(
                'uniform',
                "'uniform': ε / V for every token (torch, transformers); 'fairseq': ε / (V − 1) "
                'for every other token',
                choices='bert_jax.problems.generation.smoothing:FORMS',
                unused=needs('problem.label_smoothing'),
            ),
            round_numbers=key(
                0.0, 'targets are numbers, rounded to multiples of this (T5: 0.2)', '[0, inf)'
            ),
            beams=key(1, 'texts that beam search continues; 1: greedy', '[1, inf)'),
            length_penalty=key(
                1.0,
                'scores of beams are divided by length to this power',
                '[0, inf)',
                unused='bert_jax.problems.generation:unused_with_one_beam',
            ),
            no_repeat_ngrams=key(
                0,
                'length of sequences of tokens that may occur once, the source of a causal '
                'model included; 0: any',
                '[0, inf)',
            ),
            min_new_tokens=key(0, 'tokens before a text may end', '[0, inf)'),
        ),
        readers=dict.fromkeys(_ROWS, targets.build_generation),
        answer_settings=(
            'metrics',
            'target_tokens',
            'beams',
            'length_penalty',
            'no_repeat_ngrams',
            'min_new_tokens',
        ),
        pretrained_heads=('clm', 'seq2seq'),
        reads_last_layer=True,
        writes=True,
        long_texts=('truncate',),
    ),
    'instructions': ProblemKind(
        implementation='bert_jax.problems.instructions.problem:INSTRUCTIONS',
        predict_task='respond',
        keys=_LABELS
        | dict(
            system=key('{text}\n', 'how what the assistant is told first is written'),
            user=key('User: {text}\n', 'how a turn of the user is written'),
            assistant=key(
                'Assistant: {text}', 'how an answer is written; the end token of the model follows'
            ),
            answer_tokens=key(
                0,
                'Tokens of the longest answer, its end included. Masked diffusion learns end '
                'tokens in the rest of them. 0 = up to the end of the sequence',
            ),
            prefix_lm=key(
                False,
                'Causal models: True: all positions see the whole prompt, also what is after them '
                '(UniLM)',
            ),
        ),
        readers=dict.fromkeys(_ROWS, conversations.build_conversation),
        answer_settings=('answer_tokens',),
        pretrained_heads=('mlm', 'clm'),
        required_heads=('mlm', 'clm'),
        reads_last_layer=True,
        keeps_causality=True,
        long_texts=('truncate',),
    ),
}
