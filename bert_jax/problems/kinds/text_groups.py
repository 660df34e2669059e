"""The kinds that compare texts: dense and sparse vectors, and rankings of documents."""

import functools
from collections.abc import Callable

from bert_jax.config_keys import ConfigKey, key, needs, overridden_by
from bert_jax.labels import text_groups
from bert_jax.problems.kinds.base import LABELS, ROWS, TEXTS, ProblemKind, used

GROUP_KEYS = used('columns.texts', 'columns.scores', 'lists', 'skip_labels')
_IN_BATCH = 'bert_jax.problems.embedding.in_batch'
_loss_option = functools.partial(key, unused='bert_jax.problems.embedding:unused')
_sparse_option = functools.partial(key, unused='bert_jax.problems.sparse_embedding:unused')
_ranking_option = functools.partial(key, unused='bert_jax.problems.reranking:unused')
_late_option = functools.partial(key, unused='bert_jax.problems.late_interaction:unused')

_TEXT_GROUPS = dict(
    query_prompt=key('', "put before queries, such as 'query: '"),
    document_prompt=key('', 'put before documents, and before texts that are not pairs'),
)


def _in_batch_options(option: Callable[..., ConfigKey], similarity: str) -> dict[str, ConfigKey]:
    """The options of InfoNCE with a default similarity; `option` declares a key of a loss."""
    return dict(
        similarity=option(similarity, "'cosine', 'dot'", choices=f'{_IN_BATCH}:SIMILARITIES'),
        directions=option(
            ('query_to_document',),
            "the comparisons: 'query_to_document', 'document_to_query', 'query_to_query', "
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
            'all',
            "the negatives that are raised: 'all', 'in_batch', 'hard'",
            choices=f'{_IN_BATCH}:HARDNESS',
        ),
        mask_equal_texts=option(
            True, 'whether documents with the same text or query do not count as negatives'
        ),
    )


EMBEDDING = ProblemKind(
    implementation='bert_jax.problems.embedding.problem:EMBEDDING',
    predict_task='embed',
    pipeline_tag='sentence-similarity',
    reads_last_layer=True,
    keys=LABELS
    | _TEXT_GROUPS
    | dict(
        loss=key(
            'in_batch',
            'the loss (docs/embeddings.md)',
            choices='bert_jax.problems.embedding:LOSSES',
        ),
        text_pooling=key(
            '',
            "vector of a text: 'mean', 'mean_sqrt_len_tokens' (their sum divided by the square "
            "root of their number) or 'max' of the states of its tokens, 'cls', or 'lasttoken'; "
            "'' = as the sentence-transformers folder in init_from, else 'lasttoken' of a causal "
            "model, 'mean' of others",
            choices='bert_jax.models.pooling:POOLINGS',
        ),
        normalize=key(
            None,
            'whether vectors of the trained model have the norm 1; unset: yes, unless the loss '
            'compares dot products (problem.similarity=dot, margin_mse, distill_kl)',
            kind=bool,
        ),
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
        scale=_loss_option(None, 'factor of similarities, 1 / temperature', '(0, inf)', kind=float),
        **_in_batch_options(_loss_option, 'cosine'),
        margin=_loss_option(None, 'margin of the loss', kind=float),
        margin_kind=_loss_option(
            'absolute',
            "gist: 'absolute', or 'relative' to the cosine of the pair",
            choices=f'{_IN_BATCH}:MARGINS',
        ),
        positive_margin=_loss_option(0.8, 'cosine above which a pair has no loss', '[0, 1]'),
        negative_margin=_loss_option(0.3, 'cosine below which a negative has no loss', '[0, 1]'),
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
        deletion=_loss_option(
            0.6, 'tsdae: probability that a word is deleted; one word always stays', '[0, 1)'
        ),
    ),
    readers=dict.fromkeys(TEXTS, text_groups.build_text_group),
    data_keys=GROUP_KEYS | used('columns.vectors', 'columns.label', 'rename_labels'),
    long_texts=('truncate',),
)

SPARSE_EMBEDDING = ProblemKind(
    implementation='bert_jax.problems.sparse_embedding.problem:SPARSE_EMBEDDING',
    predict_task='terms',
    pipeline_tag='feature-extraction',
    reads_last_layer=True,
    pretrained_heads=('mlm',),
    required_heads=('mlm',),
    keys=LABELS
    | _TEXT_GROUPS
    | dict(
        loss=key(
            'in_batch',
            'the loss to which the regularizer is added (docs/search.md)',
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
            'after training, only this number of largest terms is kept; 0 = as the folder in '
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
            0, 'texts with at most this number of terms are not made sparser', '[0, inf)'
        ),
        warmup=key(
            'quadratic',
            "how both factors rise from 0: 'quadratic', 'linear'",
            choices='bert_jax.problems.sparse_embedding.losses:WARMUPS',
        ),
        warmup_length=key(
            1 / 3,
            'share of the run until both factors have their full value; 0 = at once',
            '[0, 1]',
        ),
        scale=_sparse_option(None, 'factor of products, 1 / temperature', '(0, inf)', kind=float),
        **_in_batch_options(_sparse_option, 'dot'),
        temperature=_sparse_option(2.0, 'of the softmax over documents', '(0, inf)'),
    ),
    readers=dict.fromkeys(ROWS, text_groups.build_answered_query),
    data_keys=GROUP_KEYS,
    long_texts=('truncate',),
)

LATE_INTERACTION = ProblemKind(
    implementation='bert_jax.problems.late_interaction.problem:LATE_INTERACTION',
    predict_task='embed_late',
    pipeline_tag='sentence-similarity',
    reads_last_layer=True,
    continued_heads=('late_interaction',),
    keys=LABELS
    | dict(
        query_prompt=key(
            None, "put before queries, such as '[Q] '; unset: as init_from, else ''", kind=str
        ),
        document_prompt=key(
            None, "put before documents, such as '[D] '; unset: as init_from, else ''", kind=str
        ),
        loss=key(
            'contrastive',
            'the loss (docs/late_interaction.md)',
            choices='bert_jax.problems.late_interaction:LOSSES',
        ),
        scoring=key(
            'maxsim',
            "'maxsim'; 'meanmaxsim', divided by the tokens of the query; 'xtr', where a query "
            'token counts only tokens that a search would find',
            choices='bert_jax.problems.late_interaction.losses:SCORINGS',
        ),
        top_k=key(
            256,
            'of xtr: tokens of the batch that each query token finds',
            '[1, inf)',
            unused='bert_jax.problems.late_interaction:unused_top_k',
        ),
        scale=_late_option(
            None, 'factor of the scores, 1 / temperature; unset: 1', '(0, inf)', kind=float
        ),
        mask_equal_texts=_late_option(
            True, 'whether documents with the same text or query do not count as negatives'
        ),
        temperature=_late_option(1.0, 'of the softmax over documents', '(0, inf)'),
        teacher_temperature=_late_option(
            None, "of the softmax over the teacher's scores; unset: temperature", kind=float
        ),
        vector_size=key(
            0, 'numbers of the vector of a token; 0 = as the model at init_from, else 128'
        ),
        query_length=key(
            None, 'tokens to which queries are truncated; unset: as init_from, else all', kind=int
        ),
        document_length=key(
            None,
            'tokens to which documents are truncated; unset: as init_from, else all',
            kind=int,
        ),
        expansion=key(
            None,
            'tokens to which queries are filled up with [MASK] and truncated; 0 = they are not; '
            'unset: as init_from, else 0',
            kind=int,
        ),
        attends=key(
            None,
            'whether tokens attend to these [MASK]; unset: as init_from, else False',
            kind=bool,
        ),
        skip_punctuation=key(
            None,
            'whether punctuation in documents has no vector; unset: as init_from, else False',
            kind=bool,
        ),
        skip_words=key((), 'further tokens of documents without a vector'),
        pool_factor=key(
            None,
            'after training, documents keep 1 / pool_factor of their vectors, means of clusters; '
            'unset: as init_from, else 1, all of them',
            '[1, inf)',
            kind=float,
        ),
        batches=key(
            '',
            "'', or 'without_copies': no two examples of a batch share a text",
            choices=('', 'without_copies'),
        ),
    ),
    readers=dict.fromkeys(ROWS, text_groups.build_answered_query),
    data_keys=GROUP_KEYS,
    long_texts=('truncate',),
)

RERANKING = ProblemKind(
    implementation='bert_jax.problems.reranking.problem:RERANKING',
    predict_task='rerank',
    pipeline_tag='text-ranking',
    keys=LABELS
    | dict(
        loss=key(
            'binary',
            'the loss (docs/search.md)',
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
            0, 'pairs count if a document is among this number of highest logits; 0 = all pairs'
        ),
    ),
    readers=dict.fromkeys(ROWS, text_groups.build_ranked_texts),
    data_keys=GROUP_KEYS,
    pretrained_heads=('sequence_classification',),
    long_texts=('truncate',),
)
