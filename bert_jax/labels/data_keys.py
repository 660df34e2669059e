"""The keys of the config's `data` for labeled examples."""

import functools
from collections.abc import Sequence

from ml_collections import ConfigDict

from bert_jax.config_keys import key, needs, overridden_by, section
from bert_jax.labels.key_conditions import (
    CONVERSATIONS,
    GROUPS,
    LISTS,
    MARKED,
    NUMBERS,
    ROWS,
    TABLES,
    TARGETS,
    TEXT_FILES,
    TEXTS,
    UsedBy,
    unused_fraction,
    unused_split_seed,
)


def make_config(readable: Sequence[str] = ()) -> ConfigDict:
    """Return the keys of the config's `data` for labeled examples, with their defaults.

    Args:
        readable: The formats of files that the kind of problem can read, to tell which keys have no
            effect.
    """
    used_by = functools.partial(UsedBy, tuple(readable))
    with_texts = (*TEXTS, *NUMBERS, *MARKED)
    rows_of_texts = used_by((*with_texts, 'multiple_choice', 'tagging', 'spans', *TARGETS), ROWS)
    tagging = ('conll', *LISTS, *TABLES)
    one_text_or_label = (*with_texts, 'multiple_choice', *GROUPS, *TARGETS)
    read_tables = ('question_answering', 'tagging', 'spans', *CONVERSATIONS)
    lists = dict.fromkeys(one_text_or_label, ROWS) | dict.fromkeys(read_tables, TABLES)
    span_objects = used_by(('spans',), (*LISTS, *TABLES))
    questions = used_by(('question_answering',), ROWS)
    conversations = used_by(CONVERSATIONS, ROWS)
    return section(
        'Labeled examples.',
        dataset=key(
            '',
            "A published benchmark (BENCHMARKS in benchmarks.py); '' to read the files below.",
            choices='bert_jax.labels.benchmarks:BENCHMARKS',
        ),
        data_dir=key(
            '',
            "folder of TFDS data sets; '' = $TFDS_DATA_DIR or ~/tensorflow_datasets",
            on_resume='logged',
            unused=needs('data.dataset'),
        ),
        download=key(
            False, 'download the benchmark if it is not on disk', unused=needs('data.dataset')
        ),
        language=key(
            'en',
            "xnli: language of dev and test; ud_pos: treebank, such as 'en_ewt'",
            unused=needs('data.dataset'),
        ),
        train=key(
            (),
            'Globs of plain or .gz files, or folders of save_to_disk of `datasets`; '
            "'sample:NAME' is a file of bert_jax/labels/samples/.",
            on_resume='logged',
        ),
        dev=key(
            (), 'as train; the split for choosing checkpoints and settings', on_resume='logged'
        ),
        test=key((), 'as train; scored once, after the training', on_resume='logged'),
        unlabeled=key(
            (),
            'prompt: texts for the loss of problem.mlm_weight; their labels are not read',
            unused=used_by(('prompt', 'prompt_regression')),
        ),
        dev_fraction=key(
            0.1,
            'split off train if there are no dev files; 0 = no dev split',
            '[0, 1)',
            unused=unused_fraction,
        ),
        test_fraction=key(
            0.0,
            'split off train if there are no test files; 0 = no test split',
            '[0, 1)',
            unused=unused_fraction,
        ),
        split_seed=key(
            0, 'seed of random splits and subsets', '[0, 4294967295]', unused=unused_split_seed
        ),
        group=key(
            '',
            "Rows with the same value stay in one split: a column, or 'context', 'title' (squad), "
            "'document' (conll, conllu, brat).",
        ),
        shots=key(
            0,
            'Few-shot learning: number of examples per class in train, and also in dev, both drawn '
            'from train with split_seed; the files of data.dev become the split full_dev. 0 = all '
            'examples',
        ),
        train_examples=key(
            0,
            'random subset of train of at most this size; 0 = all',
            unused=overridden_by('data.shots'),
        ),
        format=key(
            '',
            "'csv', 'tsv', 'jsonl', 'json', 'parquet', 'xml', 'conll', 'conllu', 'squad', 'brat', "
            "'webanno', 'labeled_lines', 'lines', 'files' (docs/labeled_data.md); '' = by the "
            'suffix of each file and the problem',
            choices='bert_jax.labels.formats:FORMATS',
            unused=used_by(),
        ),
        encoding=key(
            'utf-8',
            "of the text files, a name of Python's codecs",
            unused=used_by(formats=TEXT_FILES, also_with='contexts'),
        ),
        header=key(
            None,
            'csv, tsv: whether the first row has the column names; if not, the names are '
            "'0', '1', …. Unset: yes, unless `columns` has numbers.",
            kind=bool,
            unused=used_by(formats=TABLES),
        ),
        separator=key(
            '',
            "of columns; '' = the default of the format",
            unused=used_by(formats=(*TABLES, 'conll')),
        ),
        quotes=key(
            'auto',
            "csv, tsv: whether double quotes may enclose fields, 'yes' or 'no'; 'auto' = yes in "
            'csv, and in tsv if the names of the header are quoted',
            choices=('auto', 'yes', 'no'),
            unused=used_by(formats=TABLES),
        ),
        escape=key(
            '', "csv, tsv: escape character, such as '\\\\'", unused=used_by(formats=TABLES)
        ),
        field_limit=key(
            1_000_000,
            'csv, tsv: maximum characters of a quoted field with line breaks',
            '[1, inf)',
            unused=used_by(formats=TABLES),
        ),
        lists=key(
            'auto',
            "texts such as ['a', 'b']: 'auto' = lists, in columns of csv and tsv that have only "
            "lists, and among the labels of multi_label; malformed elsewhere; 'no' = texts",
            choices=('auto', 'no'),
            unused=used_by((*one_text_or_label, *read_tables), lists),
        ),
        optional_columns=key(
            0,
            'csv, tsv: number of last columns that some rows have and others lack, such as 2 in '
            'the files of STS-B; those that the first row lacks have no names',
            '[0, inf)',
            unused=used_by(formats=TABLES),
        ),
        record=key(
            '',
            "xml: name of the elements that are records; '' = the children of the root",
            unused=used_by(formats=('xml',)),
        ),
        comment=key('', 'conll: prefix of lines to skip', unused=used_by(formats=('conll',))),
        label_from=key(
            'suffix',
            "lines, files: 'suffix' (x.pos), 'stem' (pos.txt), 'folder' (pos/1.txt)",
            choices='bert_jax.labels.text_lines:LABEL_FROM',
            unused=used_by(formats=('lines', 'files')),
        ),
        documents=key(
            False,
            "conll, conllu, brat: one example per document (-DOCSTART-, '# newdoc', file) instead "
            'of one per sentence or line',
            unused=used_by(formats=('conll', 'conllu', 'brat')),
        ),
        columns=section(
            "Maps fields to columns, by name or index; '' or () = not in the file; "
            "'{title}: {body}' joins columns.",
            unused=used_by(formats=ROWS),
            id=key('', "'' = file:line"),
            text=key('text', 'the text, or the first text of a pair', unused=rows_of_texts),
            texts=key(
                ('text',),
                'embedding: the text; or the query, its document and documents that do not answer '
                'it (sparse_embedding too); reranking: the query and its documents. A column may '
                'have a list of texts; a list in the second column has several documents that '
                'answer the query.',
                unused=used_by(GROUPS, ROWS),
            ),
            scores=key(
                (),
                'embedding: the similarity of a pair, or a number for each document from a '
                'teacher (sparse_embedding too); reranking: the relevance of each document, or '
                'the number of a teacher',
                unused=used_by(GROUPS, ROWS),
            ),
            vectors=key(
                (),
                'embedding: a list of numbers for each text, the vector of a teacher or guide',
                unused=used_by(('embedding',), ROWS),
            ),
            text2=key(
                '', 'the second text of a pair', unused=used_by((*with_texts, *TARGETS), ROWS)
            ),
            target=key(
                'target',
                'generation: the text to write, or a list of references; the first one is learned',
                unused=used_by(TARGETS, ROWS),
            ),
            label=key(
                'label',
                'the class, the number or the index of the choice; multi_label: a list of classes, '
                'or a text with classes between data.label_separator',
                unused=used_by((*with_texts, 'multiple_choice', 'embedding'), ROWS),
            ),
            labels=key(
                (),
                'instead of label, multi_label: a column of 0 and 1 per class; multi_regression: a '
                'column of numbers per target',
                unused=used_by(('multi_label', *NUMBERS), ROWS),
            ),
            probabilities=key(
                '',
                'classification: an object with the probability of each class, predicted by a '
                'model to distill (problem.temperature)',
                unused=used_by(('classification',), ROWS),
            ),
            fields=key(
                (),
                'prompt: columns that the template names, instead of text and text2',
                unused=used_by(('prompt', 'prompt_regression'), ROWS),
            ),
            choices=key(
                (),
                'one column per choice, or one column with a list',
                unused=used_by(('multiple_choice',), ROWS),
            ),
            marks=key(
                (),
                "two ranges, 'START:END' or 'START+TEXT'; with text2, one in each text",
                unused=used_by(MARKED, ROWS, 'inline_marks'),
            ),
            candidate_labels=key(
                (),
                'pairs the first mark with each other mark; a label column per pair',
                unused=used_by(MARKED, ROWS),
            ),
            tokens=key(
                'tokens',
                'a list of words; tagging: or a text with spaces between them',
                unused=used_by(('tagging', 'spans'), ROWS),
            ),
            tags=key(
                'tags',
                'a list of tags, or a text with spaces between them',
                unused=used_by(('tagging',), ROWS),
            ),
            sentence=key(
                '',
                'tagging: names the sentence of each row, for files with one word and its tag in a '
                'row (tokens, tags); a blank value is that of the row above',
                unused=used_by(('tagging',), ROWS),
            ),
            spans=key(
                'spans',
                'a list of [start, end, label], or of objects with these keys:',
                unused=used_by(('spans',), ROWS),
            ),
            span_start=key('start', 'offset of the first character or word', unused=span_objects),
            span_end=key('end', 'offset of the end (data.ends)', unused=span_objects),
            span_label=key('label', 'class of the span', unused=span_objects),
            word=key('0', 'conll', unused=used_by(formats=('conll',))),
            tag=key(
                '-1',
                "conll; conllu: 'upos', 'xpos', 'feats.Number', …",
                unused=used_by(('tagging', 'spans'), ('conll', 'conllu')),
            ),
            question=key('question', 'the question', unused=questions),
            context=key(
                'context',
                'the text that has the answer, or its id (data.contexts)',
                unused=questions,
            ),
            answers=key(
                ('answers',),
                'columns with a text or a list of texts; empty = no answer',
                unused=questions,
            ),
            answer_starts=key(
                (),
                'offsets in characters; () = the first occurrence of the answer',
                unused=questions,
            ),
            messages=key(
                'messages',
                'instructions: a list of objects with "role" and "content"; files without this '
                'column have system, prompt and answer',
                unused=conversations,
            ),
            system=key('', 'the system message, before all others', unused=conversations),
            prompt=key('prompt', 'the message of the user', unused=conversations),
            answer=key('answer', 'the answer of the assistant', unused=conversations),
        ),
        contexts=key(
            '',
            'file of lines ID<tab>TEXT, if columns.context has ids',
            on_resume='logged',
            unused=questions,
        ),
        scheme=key(
            'bio',
            "of the tags in the file: 'bio', 'iob1', 'bioes', 'none' (parts of speech)",
            choices='bert_jax.labels.tag_schemes:SCHEMES',
            unused=used_by(('tagging', 'spans'), {'tagging': tagging, 'spans': ('conll',)}),
        ),
        tags_as=key(
            'bio',
            "scheme to convert the tags to: 'bio', 'bioes'",
            choices=('bio', 'bioes'),
            unused=used_by(('tagging',), tagging),
        ),
        units=key(
            '',
            "of offsets: 'characters', 'words'; '' = words if the text is a list of words",
            choices=('', 'characters', 'words'),
            unused=used_by((*MARKED, 'spans', 'question_answering'), ROWS, 'inline_marks'),
        ),
        ends=key(
            '',
            "ends of spans in the file: 'exclusive', 'inclusive'; '' = exclusive, but inclusive "
            "for the columns 'tokenized_text' and 'ner' of GLiNER",
            choices=('', 'exclusive', 'inclusive'),
            unused=used_by((*MARKED, 'spans'), ROWS, 'inline_marks'),
        ),
        inline_marks=key(
            (),
            "tags around marked ranges, such as ('<e1>', '</e1>', '<e2>', '</e2>')",
            unused=used_by(MARKED, ROWS),
        ),
        first_choice=key(
            0, 'label of the first choice', '(-inf, inf)', unused=used_by(('multiple_choice',))
        ),
        choice_label=key(
            '',
            "multiple_choice: what a label is, the 'index' of a choice, the name of its 'column' "
            "or its 'text'; '' = decided once for each file",
            choices=('', 'index', 'column', 'text'),
            unused=used_by(('multiple_choice',)),
        ),
        label_separator=key(
            ',',
            'multi_label: between the classes of a text in columns.label',
            unused=used_by(('multi_label',)),
        ),
        skip_labels=key(
            (),
            "rows with these labels or scores are left out and counted: ('',), ('-',)",
            unused=used_by((*TEXTS, *MARKED, 'multiple_choice', *GROUPS, *TARGETS)),
        ),
        rename_labels=key(
            (),
            "('0=negative', '1=positive')",
            unused=used_by(
                (*with_texts, 'multiple_choice', 'tagging', 'spans', 'embedding', *TARGETS)
            ),
        ),
        malformed_fraction=key(
            0.01, 'maximum share of unreadable records; they are skipped and counted', '[0, 1]'
        ),
        misplaced_fraction=key(
            0.0, 'maximum share of records whose offsets do not fit their text', '[0, 1]'
        ),
    )
