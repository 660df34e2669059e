"""What configs/finetune.py is made of: the keys of `data`, and of each named task its data and the
published recipe. Data only."""

# Every key of config.data that labeled examples have.
DATA = dict(
    # A benchmark of data/labeled/benchmarks.py, through TFDS, or '' and the files below.
    dataset='',
    data_dir='',  # where TFDS data lies; else $TFDS_DATA_DIR, ~/tensorflow_datasets
    download=False,  # fetch one that is not there
    language='en',  # of xnli's dev and test; of ud_pos the treebank, as in 'en_ewt'
    # Globs; 'sample:NAME' is one of bert_jax/data/samples/. Plain or .gz.
    train=(),
    dev=(),
    test=(),
    dev_fraction=0.1,  # of train, where there is no dev; 0 for none
    test_fraction=0.0,  # of train, where there is no test
    split_seed=0,
    group='',  # examples alike here stay on one side: a column, 'context', 'title', 'document'
    train_examples=0,  # so many of train at most, drawn by split_seed; 0 = all
    # 'csv', 'tsv', 'jsonl', 'json' (a list), 'conll', 'conllu', 'squad'; 'lines', 'files': a text a
    # line or file, its class by the file's name
    format='tsv',
    encoding='utf-8',
    header=True,  # the first row of csv, tsv names the columns; False: numbers from 0
    separator='',  # of columns; '' = as the format has it
    quotes='auto',  # do quotes enclose fields? 'yes', 'no'; 'auto' = in csv
    comment='',  # a line of conll that begins so is none
    label_from='suffix',  # lines, files: 'suffix' (x.pos), 'stem' (pos.txt), 'folder' (pos/1.txt)
    documents=False,  # conll, conllu: an example is a document (-DOCSTART-, '# newdoc')
    # Which column, by name or number, holds what; '' or () = none. Only those of the kind are read.
    columns=dict(
        id='',  # '' = file:line
        text='text',
        text2='',
        label='label',
        choices=(),  # a column each, or one with a list
        marks=(),  # two places, 'START:END' or 'START+TEXT'; with text2 one in each text
        candidate_labels=(),  # a label for each mark after the first, which is paired with it
        tokens='tokens',  # jsonl: list of words
        tags='tags',
        spans='spans',  # list of [start, end, label] or of objects with
        span_start='start',
        span_end='end',
        span_label='label',
        word='0',  # conll
        tag='-1',  # conll; conllu: 'upos', 'xpos', 'feats.Number'
        question='question',
        context='context',
        answers=('answers',),  # a column each: a text, a list of them, empty = no answer
        answer_starts=(),  # characters; () = the first place where the answer stands
    ),
    contexts='',  # a file of lines id, tab, text, where columns.context holds an id
    scheme='bio',  # of the tags: 'bio', 'iob1', 'bioes', 'none' (parts of speech)
    tags_as='bio',  # what they are turned into: 'bio', 'bioes'
    units='',  # of offsets: 'characters', 'words'; '' = words where the text is a list of them
    ends='exclusive',  # of offsets; 'inclusive'
    inline_marks=(),  # signs in the text around places, as in ('<e1>', '</e1>', '<e2>', '</e2>')
    first_choice=0,  # the number of the first choice in columns.label
    skip_labels=(),  # rows with these labels are left out and counted: ('',), ('-',)
    rename_labels=(),  # ('0=negative', '1=positive')
    malformed_fraction=0.01,  # of the rows of a split that may be unreadable; they are counted
    misplaced_fraction=0.0,  # of the rows whose spans, marks or answers do not fit their text
)

# Devlin et al. 2019, section 4.1 and appendix A.3: batch 16 or 32, rate 2e-5 … 5e-5, 2–4 epochs,
# warmup over a tenth of the steps. Batch, rate, epochs of GLUE as in the table of scores of the
# former Flax example of Hugging Face (32, 2e-5, 3; MRPC and WNLI 5).
_GLUE = dict(batch_size=32, learning_rate=2e-5, epochs=3, max_length=128)
_SMALL = _GLUE | dict(epochs=5)
_LONG = dict(batch_size=16, learning_rate=2e-5, epochs=3, max_length=512)
# Section 4.2: batch 32, 5e-5, 3 epochs (4.3 for SQuAD 2.0: 48, 5e-5, 2); the released code: batch
# 12, 3e-5, 2 epochs, 384 tokens with a stride of 128.
_SQUAD = dict(batch_size=12, learning_rate=3e-5, epochs=2, max_length=384)
_UNANSWERABLE = dict(problem=dict(no_answer=True))
_TAGGING = dict(batch_size=32, learning_rate=5e-5, epochs=4, max_length=128)
# A few dozen rows: many epochs, enough to see that a task learns.
_SAMPLE = dict(batch_size=8, learning_rate=1e-4, epochs=20, max_length=64)


def _benchmark(name: str, kind: str, recipe: dict, **data) -> dict:
    return dict(kind=kind, data=dict(dataset=name, **data), recipe=recipe)


def _sample(kind: str, file: str, format: str, columns=None, **data) -> dict:
    found = dict(train=(f'sample:{file}',), dev_fraction=0.25, format=format, **data)
    return dict(kind=kind, data=found | dict(columns=columns or {}), recipe=_SAMPLE)


# name → kind of task, what differs from DATA and in `problem`, recipe
TASKS: dict[str, dict] = {
    'cola': _benchmark('cola', 'classification', _GLUE),
    'sst2': _benchmark('sst2', 'classification', _GLUE),
    'mrpc': _benchmark('mrpc', 'classification', _SMALL),
    'stsb': _benchmark('stsb', 'regression', _GLUE),
    'qqp': _benchmark('qqp', 'classification', _GLUE),
    'mnli': _benchmark('mnli', 'classification', _GLUE),
    'mnli_mismatched': _benchmark('mnli_mismatched', 'classification', _GLUE),
    'qnli': _benchmark('qnli', 'classification', _GLUE),
    'rte': _benchmark('rte', 'classification', _GLUE),
    'wnli': _benchmark('wnli', 'classification', _SMALL),
    'boolq': _benchmark('boolq', 'classification', _LONG),
    'cb': _benchmark('cb', 'classification', _SMALL | dict(max_length=256)),
    'copa': _benchmark('copa', 'multiple_choice', _SMALL | dict(batch_size=16)),
    'multirc': _benchmark('multirc', 'classification', _LONG),
    'record': _benchmark('record', 'multiple_choice', _LONG | dict(batch_size=8, epochs=2)),
    'superglue_rte': _benchmark('superglue_rte', 'classification', _GLUE | dict(max_length=256)),
    'wic': _benchmark('wic', 'word_in_context', _GLUE),
    'wsc': _benchmark('wsc', 'coreference', _SMALL | dict(batch_size=16)),
    'squad1': _benchmark('squad1', 'question_answering', _SQUAD),
    'squad2': _benchmark('squad2', 'question_answering', _SQUAD) | _UNANSWERABLE,
    'conll2003': _benchmark('conll2003', 'tagging', _TAGGING),
    'ud_pos': _benchmark('ud_pos', 'tagging', _TAGGING, language='en_ewt'),
    'xnli': _benchmark('xnli', 'classification', _GLUE),
    'sample_sentiment': _sample('classification', 'sentiment.tsv', 'tsv'),
    'sample_pairs': _sample(
        'classification', 'pairs.csv', 'csv', dict(text='premise', text2='hypothesis')
    ),
    'sample_similarity': _sample(
        'regression', 'similarity.tsv', 'tsv', dict(text='first', text2='second', label='score')
    ),
    'sample_choice': _sample(
        'multiple_choice',
        'choice.jsonl',
        'jsonl',
        dict(text='premise', choices=('choice1', 'choice2')),
    ),
    'sample_entities': _sample('tagging', 'entities.conll', 'conll'),
    'sample_pos': _sample('tagging', 'pos.conllu', 'conllu', dict(tag='upos'), scheme='none'),
    'sample_spans': _sample('spans', 'spans.jsonl', 'jsonl'),
    'sample_relation': _sample(
        'relation', 'relation.tsv', 'tsv', inline_marks=('<e1>', '</e1>', '<e2>', '</e2>')
    ),
    'sample_wic': _sample(
        'word_in_context',
        'wic.jsonl',
        'jsonl',
        dict(text='sentence1', text2='sentence2', marks=('start1:end1', 'start2:end2')),
    ),
    'sample_coreference': _sample(
        'coreference',
        'coreference.tsv',
        'tsv',
        dict(
            marks=('pronoun_offset+pronoun', 'a_offset+a', 'b_offset+b'),
            candidate_labels=('a_coref', 'b_coref'),
        ),
    )
    | dict(problem=dict(metrics=('f1',), positive='TRUE', exclusive=True)),
    'sample_questions': _sample('question_answering', 'questions.json', 'squad', group='context')
    | _UNANSWERABLE,
}
