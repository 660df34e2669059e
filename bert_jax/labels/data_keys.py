"""The keys of the config's `data` for labeled examples."""

import functools
from collections.abc import Callable, Mapping, Sequence

from ml_collections import ConfigDict

from bert_jax.config_keys import key, needs, overridden_by, section
from bert_jax.labels.formats import FORMATS, LISTS, TABLES, TEXT_FILES, WITH_COLUMNS
from bert_jax.labels.key_conditions import UsedBy, unused_fraction, unused_split_seed


def make_config(
    readable: Sequence[str] = (), used_keys: Mapping[str, Sequence[str]] | None = None
) -> ConfigDict:
    """Return the keys of the config's `data` for labeled examples, with their defaults.

    Args:
        readable: The formats of files that the kind of problem can read, to tell which keys have no
            effect.
        used_keys: `ProblemKind.data_keys`; None: all.
    """
    used = functools.partial(UsedBy, tuple(readable), None)
    own = functools.partial(UsedBy, tuple(readable), used_keys)
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
            unused=own(),
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
            f"{', '.join(map(repr, FORMATS))} (docs/labeled_data.md); '' = by the suffix of each "
            'file and the problem',
            choices='bert_jax.labels.formats:FORMATS',
            unused=used(),
        ),
        encoding=key(
            'utf-8',
            "of the text files, a name of Python's codecs",
            unused=used(formats=TEXT_FILES, also_with='contexts'),
        ),
        header=key(
            None,
            'csv, tsv: whether the first row has the column names; if not, the names are '
            "'0', '1', …. Unset: yes, unless `columns` has numbers.",
            kind=bool,
            unused=used(formats=TABLES),
        ),
        separator=key(
            '',
            "of columns; '' = the default of the format",
            unused=used(formats=(*TABLES, 'conll')),
        ),
        quotes=key(
            'auto',
            "csv, tsv: whether double quotes may enclose fields, 'yes' or 'no'; 'auto' = yes in "
            'csv, and in tsv if the names of the header are quoted',
            choices=('auto', 'yes', 'no'),
            unused=used(formats=TABLES),
        ),
        escape=key('', "csv, tsv: escape character, such as '\\\\'", unused=used(formats=TABLES)),
        field_limit=key(
            1_000_000,
            'csv, tsv: maximum characters of a quoted field with line breaks',
            '[1, inf)',
            unused=used(formats=TABLES),
        ),
        lists=key(
            'auto',
            "texts such as ['a', 'b']: 'auto' = lists, in columns of csv and tsv that have only "
            "lists, and among the labels of multi_label; malformed elsewhere; 'no' = texts",
            choices=('auto', 'no'),
            unused=own(formats=WITH_COLUMNS),
        ),
        optional_columns=key(
            0,
            'csv, tsv: number of last columns that some rows have and others lack, such as 2 in '
            'the files of STS-B; those that the first row lacks have no names',
            '[0, inf)',
            unused=used(formats=TABLES),
        ),
        record=key(
            '',
            "xml: name of the elements that are records; '' = the children of the root",
            unused=used(formats=('xml',)),
        ),
        comment=key('', 'conll: prefix of lines to skip', unused=used(formats=('conll',))),
        label_from=key(
            'suffix',
            "lines, files: 'suffix' (x.pos), 'stem' (pos.txt), 'folder' (pos/1.txt)",
            choices='bert_jax.labels.text_lines:LABEL_FROM',
            unused=used(formats=('lines', 'files')),
        ),
        documents=key(
            False,
            "conll, conllu, brat: one example per document (-DOCSTART-, '# newdoc', file) instead "
            'of one per sentence or line',
            unused=used(formats=('conll', 'conllu', 'brat')),
        ),
        columns=_columns(used, own),
        contexts=key(
            '',
            'file of lines ID<tab>TEXT, if columns.context has ids',
            on_resume='logged',
            unused=own(formats=WITH_COLUMNS),
        ),
        scheme=key(
            'bio',
            "of the tags in the file: 'bio', 'iob1', 'bioes', 'none' (parts of speech)",
            choices='bert_jax.labels.tag_schemes:SCHEMES',
            unused=own(),
        ),
        tags_as=key(
            'bio',
            "scheme to convert the tags to: 'bio', 'bioes'",
            choices=('bio', 'bioes'),
            unused=own(formats=('conll', *TABLES, *LISTS)),
        ),
        units=key(
            '',
            "of offsets: 'characters', 'words'; '' = words if the text is a list of words",
            choices=('', 'characters', 'words'),
            unused=own(formats=WITH_COLUMNS, without='inline_marks'),
        ),
        ends=key(
            '',
            "ends of spans in the file: 'exclusive', 'inclusive'; '' = exclusive, but inclusive "
            "for the columns 'tokenized_text' and 'ner' of GLiNER",
            choices=('', 'exclusive', 'inclusive'),
            unused=own(formats=WITH_COLUMNS, without='inline_marks'),
        ),
        inline_marks=key(
            (),
            "tags around marked ranges, such as ('<e1>', '</e1>', '<e2>', '</e2>')",
            unused=own(formats=WITH_COLUMNS),
        ),
        first_choice=key(0, 'label of the first choice', '(-inf, inf)', unused=own()),
        choice_label=key(
            '',
            "multiple_choice: what a label is, the 'index' of a choice, the name of its 'column' "
            "or its 'text'; '' = decided once for each file",
            choices=('', 'index', 'column', 'text'),
            unused=own(),
        ),
        label_separator=key(
            ',',
            'multi_label: between the classes of a text in columns.label',
            unused=own(),
        ),
        skip_labels=key(
            (),
            "rows with these labels or scores are left out and counted: ('',), ('-',)",
            unused=own(),
        ),
        rename_labels=key(
            (),
            "('0=negative', '1=positive')",
            unused=own(),
        ),
        malformed_fraction=key(
            0.01, 'maximum share of unreadable records; they are skipped and counted', '[0, 1]'
        ),
        misplaced_fraction=key(
            0.0, 'maximum share of records whose offsets do not fit their text', '[0, 1]'
        ),
    )


def _columns(used: Callable[..., UsedBy], own: Callable[..., UsedBy]) -> ConfigDict:
    """Return the keys of `data.columns`; see `make_config` for the conditions."""
    objects = own(formats=(*TABLES, *LISTS))
    return section(
        "Maps fields to columns, by name or index; '' or () = not in the file; "
        "'{title}: {body}' joins columns.",
        unused=own(formats=WITH_COLUMNS),
        id=key('', "'' = file:line", unused=used(formats=WITH_COLUMNS)),
        text=key('text', 'the text, or the first text of a pair'),
        texts=key(
            ('text',),
            'embedding: the text; or the query, its document and documents that do not answer '
            'it (sparse_embedding too); reranking: the query and its documents. A column may '
            'have a list of texts; a list in the second column has several documents that '
            'answer the query.',
        ),
        scores=key(
            (),
            'embedding: the similarity of a pair, or a number for each document from a '
            'teacher (sparse_embedding too); reranking: the relevance of each document, or '
            'the number of a teacher',
        ),
        vectors=key(
            (),
            'embedding: a list of numbers for each text, the vector of a teacher or guide',
        ),
        text2=key('', 'the second text of a pair'),
        target=key(
            'target',
            'generation: the text to write, or a list of references; the first one is learned',
        ),
        label=key(
            'label',
            'the class, the number or the index of the choice; multi_label: a list of classes, '
            'or a text with classes between data.label_separator',
        ),
        labels=key(
            (),
            'instead of label, multi_label: a column of 0 and 1 per class; multi_regression: a '
            'column of numbers per target',
        ),
        probabilities=key(
            '',
            'classification: an object with the probability of each class, predicted by a '
            'model to distill (problem.temperature)',
        ),
        fields=key(
            (),
            'prompt: columns that the template names, instead of text and text2',
        ),
        choices=key(
            (),
            'one column per choice, or one column with a list',
        ),
        marks=key(
            (),
            "two ranges, 'START:END' or 'START+TEXT'; with text2, one in each text",
            unused=own(formats=WITH_COLUMNS, without='inline_marks'),
        ),
        candidate_labels=key(
            (),
            'pairs the first mark with each other mark; a label column per pair',
        ),
        tokens=key(
            'tokens',
            'a list of words; tagging: or a text with spaces between them',
        ),
        tags=key(
            'tags',
            'a list of tags, or a text with spaces between them',
        ),
        sentence=key(
            '',
            'tagging: names the sentence of each row, for files with one word and its tag in a '
            'row (tokens, tags); a blank value is that of the row above',
        ),
        predicate=key(
            'predicate',
            'semantic_roles: the index of the predicate among the words; conll: the number of the '
            "column in which words that are not predicates have '-'",
            unused=own(formats=('conll', *WITH_COLUMNS)),
        ),
        roles=key(
            '',
            "semantic_roles, conll: the first column of roles; '' = the one after the predicates",
            unused=own(formats=('conll',)),
        ),
        spans=key(
            'spans',
            'a list of [start, end, label], or of objects with these keys:',
        ),
        span_start=key('start', 'offset of the first character or word', unused=objects),
        span_end=key('end', 'offset of the end (data.ends)', unused=objects),
        span_label=key('label', 'class of the span', unused=objects),
        word=key('0', 'conll', unused=used(formats=('conll',))),
        tag=key(
            '-1',
            "conll; conllu: 'upos', 'xpos', 'feats.Number', …",
            unused=own(formats=('conll', 'conllu')),
        ),
        question=key('question', 'the question'),
        context=key(
            'context',
            'the text that has the answer, or its id (data.contexts)',
        ),
        answers=key(
            ('answers',),
            'columns with a text or a list of texts; empty = no answer',
        ),
        answer_starts=key(
            (),
            'offsets in characters; () = the first occurrence of the answer',
        ),
        messages=key(
            'messages',
            'instructions: a list of objects with "role" and "content"; files without this '
            'column have system, prompt and answer',
        ),
        system=key('', 'the system message, before all others'),
        prompt=key('prompt', 'the message of the user'),
        answer=key('answer', 'the answer of the assistant'),
    )
