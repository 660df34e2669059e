"""The kinds that find or write a text: answers to questions and to instructions, targets."""

from bert_jax.config_keys import key, needs
from bert_jax.labels import conversations, questions, targets
from bert_jax.labels.formats import TABLES
from bert_jax.problems.kinds.base import LABELS, ROWS, TEXT_KEYS, ProblemKind, used

QUESTION_ANSWERING = ProblemKind(
    implementation='bert_jax.problems.question_answering:QUESTION_ANSWERING',
    predict_task='answer',
    pipeline_tag='question-answering',
    keys=LABELS
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
        **dict.fromkeys(ROWS, questions.build_question),
    },
    data_keys=used(
        'columns.question',
        'columns.context',
        'columns.answers',
        'columns.answer_starts',
        'contexts',
        'units',
        lists=TABLES,
    ),
    answer_settings=('doc_stride', 'question_tokens', 'answer_tokens', 'n_best', 'no_answer'),
    pretrained_heads=('question_answering',),
    fine_tuned_heads=('question_answering',),
)

GENERATION = ProblemKind(
    implementation='bert_jax.problems.generation.problem:GENERATION',
    predict_task='write',
    pipeline_tag='text2text-generation',
    keys=LABELS
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
        rouge_tokenizer=key(
            '',
            "Words of ROUGE: 'letters' of all scripts; 'english', which also stems words of a to "
            "z; 'rouge-score', the package's own: stemmed a to z alone. '' = english for "
            'references of a to z, else letters',
            choices='bert_jax.metrics.written_words:ROUGE_TOKENIZERS',
        ),
        bleu_tokenizer=key(
            '',
            "Words of BLEU: a tokenizer of sacrebleu. '' = zh, ja-mecab, ko-mecab or 13a by "
            'target_language or the script of the references',
            choices='bert_jax.metrics.written_words:BLEU_TOKENIZERS',
        ),
        target_tokens=key(64, 'longest target in tokens, its end token included', '[2, inf)'),
        source_language=key(
            '',
            'mBART: language whose token ends each source, such as en_XX; empty: that of the '
            'tokenizer',
        ),
        target_language=key(
            '', 'mBART: language with whose token each target starts, such as ro_RO'
        ),
        label_smoothing=key(0.0, 'ε: share of the target that all tokens have together', '[0, 1)'),
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
        beams=key(1, 'number of beams of beam search; 1: greedy decoding', '[1, inf)'),
        length_penalty=key(
            1.0,
            'scores of beams are divided by length to this power',
            '[0, inf)',
            unused='bert_jax.problems.generation:unused_with_one_beam',
        ),
        no_repeat_ngrams=key(
            0,
            'no sequence of this number of tokens occurs twice, the source of a causal model '
            'included; 0: no such limit',
            '[0, inf)',
        ),
        min_new_tokens=key(0, 'minimum number of tokens of a text', '[0, inf)'),
    ),
    readers=dict.fromkeys(ROWS, targets.build_generation),
    data_keys=TEXT_KEYS | used('columns.text2', 'columns.target', 'skip_labels'),
    answer_settings=(
        'metrics',
        'rouge_tokenizer',
        'bleu_tokenizer',
        'target_tokens',
        'beams',
        'length_penalty',
        'no_repeat_ngrams',
        'min_new_tokens',
    ),
    pretrained_heads=('clm', 'seq2seq'),
    fine_tuned_heads=('seq2seq',),
    reads_last_layer=True,
    writes=True,
    keeps_attention=True,
    long_texts=('truncate',),
)

INSTRUCTIONS = ProblemKind(
    implementation='bert_jax.problems.instructions.problem:INSTRUCTIONS',
    predict_task='respond',
    pipeline_tag='text-generation',
    keys=LABELS
    | dict(
        system=key('{text}\n', 'template of the system message'),
        user=key('User: {text}\n', 'template of a turn of the user'),
        assistant=key(
            'Assistant: {text}', 'template of an answer; the end token of the model follows'
        ),
        tool=key('Tool: {text}\n', 'template of the result of a tool'),
        answer_tokens=key(
            0,
            'Longest answer in tokens, its end token included. Masked diffusion fills shorter '
            'answers up with end tokens, and learns them. 0 = up to the end of the sequence',
        ),
        prefix_lm=key(
            False,
            'Causal models: True: all positions attend to the whole prompt, later positions '
            'included (UniLM)',
        ),
    ),
    readers=dict.fromkeys(ROWS, conversations.build_conversation),
    data_keys=used(
        'columns.messages', 'columns.system', 'columns.prompt', 'columns.answer', lists=TABLES
    ),
    answer_settings=('answer_tokens',),
    pretrained_heads=('mlm', 'clm'),
    required_heads=('mlm', 'clm'),
    reads_last_layer=True,
    keeps_attention=True,
    long_texts=('truncate',),
)
