"""The declared conditions of the keys of `data` agree with the keys that the readers read."""

import json

import pyarrow
import pytest
from pyarrow import parquet

from bert_jax import problems
from bert_jax.config_keys import entries
from bert_jax.errors import UserError
from bert_jax.problems import PROBLEMS
from configs import finetune

TEXT = 'Anné saw Ben .'
ROW = {
    'id': 'a',
    'text': TEXT,
    'text2': 'Ben left .',
    'label': 'yes',
    'red': 'first',
    'blue': 'second',
    'start': 0,
    'end': 4,
    'tagged': '<a>Anné</a> saw <b>Ben</b> .',
    'question': 'Who saw Ben ?',
    'context': TEXT,
    'answers': 'Anné',
    'answer_starts': 0,
    'predicate': 1,
}
LISTS = {
    'tokens': TEXT.split(),
    'objects': [
        {'text': word, 'start': start, 'end': end}
        for word, start, end in [('Anné', 0, 4), ('saw', 5, 8), ('Ben', 9, 12), ('.', 13, 14)]
    ],
    'tags': ['B-PER', 'O', 'B-PER', 'O'],
    'messages': [
        {'role': 'user', 'content': 'Who?'},
        {'role': 'assistant', 'content': 'Ben.'},
    ],
    'spans': [{'start': 0, 'end': 1, 'label': 'PER'}],
    'probabilities': {'yes': 0.75, 'no': 0.25},
}
LABELS = {'multiple_choice': '0', 'regression': '1.5', 'prompt_regression': '1.5'}
QUESTION = {
    'id': 'q',
    'question': ROW['question'],
    'answers': [{'text': 'Anné', 'answer_start': 0}],
}
SQUAD = {'data': [{'paragraphs': [{'context': TEXT, 'qas': [QUESTION]}]}]}
CONLLU = '\n'.join(
    f'{number}\t{word}\t_\tNOUN\t_\t_\t{number - 1}\tdep\t_\t_'
    for number, word in enumerate(TEXT.split(), 1)
)
ROLES = 'Anné\t-\t(A0*)\nsaw\tsee\t(V*)\nBen\t-\t(A1*)\n.\t-\t*'
TREE = '(S (NP (NNP Anné)) (VP (VBD saw) (NP (NNP Ben))) (. .))'
WORDS = '\n'.join(map('\t'.join, zip(TEXT.split(), LISTS['tags'], strict=True)))

PAIR = {'text2': 'text2'}
TEXTS = [{}, PAIR]
MARKS = {'marks': ('start:end', 'start:end')}
QUESTIONS = [{}, {'answer_starts': ('answer_starts',)}, {'contexts': 'other'}, {'units': 'words'}]
WEBANNO = """#FORMAT=WebAnno TSV 3.3
#T_SP=a.NamedEntity|value


#Text=Anné saw Ben .
1-1\t0-4\tAnné\tPER\t
1-2\t5-8\tsaw\t_\t
1-3\t9-12\tBen\t_\t
1-4\t13-14\t.\t_\t
"""
# Kind → settings with which its readers read all their keys; keys of columns have no 'data.'.
VARIANTS = {
    'classification': [*TEXTS, {'probabilities': 'probabilities'}],
    'regression': TEXTS,
    'multi_label': [*TEXTS, {'labels': ('start',), 'label': ''}],
    'multi_regression': [*TEXTS, {'labels': ('start', 'end'), 'label': ''}],
    'prompt': [*TEXTS, {'fields': ('text', 'text2')}],
    'prompt_regression': [*TEXTS, {'fields': ('text', 'text2')}],
    'embedding': [{'label': 'label'}, {'scores': ('start',)}],
    'multiple_choice': [{'choices': ('red', 'blue')}],
    'question_answering': QUESTIONS,
    'generation': [{'target': 'red'}, PAIR | {'target': 'label'}],
    'instructions': [
        {'messages': 'absent', 'prompt': 'question', 'answer': 'red', 'system': 'blue'},
        {'messages': 'messages'},
    ],
    'reranking': [{'scores': ('start',)}],
    'sparse_embedding': [{'scores': ('start',)}],
    'late_interaction': [{'scores': ('start',)}],
    'tagging': [{}, {'tokens': 'objects'}],
    'semantic_roles': [{}, {'tokens': 'objects'}, {'predicate': '1', 'roles': '2'}],
    'spans': [{}, {'tokens': 'absent'}],
}
MARKED = [
    MARKS | PAIR,
    MARKS | {'units': 'words'},
    MARKS | {'candidate_labels': ('label',)},
    {'text': 'tagged', 'inline_marks': ('<a>', '</a>', '<b>', '</b>')},
]
# Values that change what is read, for keys that only a fitting value changes.
OTHER = {
    'data.comment': 'A',
    'data.contexts': 'other',
    'data.encoding': 'latin-1',
    'data.inline_marks': ('Anné', 'Ben'),
    'data.rename_labels': (
        'yes=new',
        '0=1',
        '1.5=2',
        'B-PER=B-NEW',
        'PER=NEW',
        'NOUN=NEW',
        'A0=NEW',
    ),
    'data.separator': 's',
    'data.skip_labels': ('yes', '0', '1.5', 'PER'),
}
ELSEWHERE = {'data.tokenizer', 'data.reading_threads', 'data.unlabeled'}  # see finetuning_data


class Recorder:
    """The config's `data`, which adds the names of the keys that are read to `names`."""

    def __init__(self, config, names, prefix='data.'):
        self._config, self._names, self._prefix = config, names, prefix

    def __getitem__(self, name):
        value = self._config[name]
        self._names.add(f'{self._prefix}{name}')
        return Recorder(value, self._names, 'data.columns.') if name == 'columns' else value

    def __getattr__(self, name):
        return self[name] if name in self._config else getattr(self._config, name)


def write(folder, kind, file_format):
    """Write a file in a format with an example of a kind; return its name."""
    row = ROW | {'label': LABELS.get(kind, 'yes')}
    path = folder / f'{row["label"]}.{file_format}'
    separator = {'csv': ',', 'tsv': '\t'}.get(file_format)
    if separator:
        lists = {name: json.dumps(value) for name, value in LISTS.items()}
        row |= lists if kind in ('tagging', 'semantic_roles', 'spans') else {}
        cells = ['"' + str(cell).replace('"', '""') + '"' for cell in row.values()]
        lines = [separator.join(row), separator.join(cells)]
        path.write_text('\n'.join(lines), 'utf-8')
    elif file_format == 'xml':
        children = ''.join(f'<{name}>{value}</{name}>' for name, value in row.items())
        children += ''.join(f'<tokens>{word}</tokens>' for word in LISTS['tokens'])
        children += ''.join(f'<tags>{tag}</tags>' for tag in LISTS['tags'])
        children += ''.join(
            '<objects>'
            + ''.join(f'<{key}>{value}</{key}>' for key, value in one.items())
            + '</objects>'
            for one in LISTS['objects']
        )
        inside = f'<row>{children}</row>'
        if kind == 'spans':
            inside = f'<row>{TEXT.replace("Anné", "<PER>Anné</PER>")}</row>'
        if 'tagged' in row and 'columns.marks' in PROBLEMS[kind].data_keys:
            inside = inside.replace(row['tagged'], row['tagged'].replace('<', '&lt;'))
        path.write_text(f'<rows>{inside}</rows>', 'utf-8')
    elif file_format == 'parquet':
        parquet.write_table(pyarrow.Table.from_pylist([row | LISTS]), path)
    elif file_format == 'brat':
        path = folder / 'file.ann'
        path.write_text('T1\tPER 0 4\tAnné\n', 'utf-8')
        (folder / 'file.txt').write_text(TEXT, 'utf-8')
    else:
        texts = {
            'jsonl': json.dumps(row | LISTS, ensure_ascii=False),
            'json': json.dumps([row | LISTS], ensure_ascii=False),
            'squad': json.dumps(SQUAD, ensure_ascii=False),
            'labeled_lines': f'{row["label"]} {TEXT}',
            'conll': '{0}\n\n{0}\n'.format(ROLES if kind == 'semantic_roles' else WORDS),
            'brackets': TREE,
            'webanno': WEBANNO,
            'conllu': f'{CONLLU}\n\n{CONLLU}\n',
        }
        path.write_text(texts.get(file_format, TEXT), 'utf-8')
    return str(path)


def outcome(data, kind):
    """Return the examples, or the error without them."""
    try:
        return problems.read(data, kind).unsplit
    except UserError as error:
        return str(error)


def other_value(name, value, declaration):
    """Return a value of a key that changes what is read if the key is used."""
    if name in OTHER:
        return OTHER[name]
    if declaration.kind is bool:
        return not value
    if declaration.choices and isinstance(declaration.choices, tuple):
        return next(one for one in declaration.choices if one not in ('', value))
    changes = {str: 'zzz', tuple: ('zzz',), int: 7, float: 0.5}
    return changes[declaration.kind]


@pytest.mark.parametrize(
    ('kind', 'file_format'),
    [(kind, file_format) for kind, entry in PROBLEMS.items() for file_format in entry.readers],
)
def test_a_key_is_declared_as_used_where_the_readers_use_it(
    kind, file_format, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / 'other').write_text(f'{TEXT}\tBen saw Anné .', 'utf-8')
    path, read, declared = write(tmp_path, kind, file_format), set(), set()
    for settings in VARIANTS.get(kind, MARKED):
        config = finetune.get_config(kind)
        config.data.update(train=(path,), dev_fraction=0.0, format=file_format)
        config.data.label_from = 'stem'
        if file_format == 'tsv':
            config.data.quotes = 'yes'
        if file_format == 'conllu':
            config.data.columns.tag = 'upos'
        for name, value in settings.items():
            (config.data if name in config.data else config.data.columns)[name] = value
        before = outcome(Recorder(config.data, read), kind)
        keys = [one for one in entries(config) if one.name.startswith('data.')]
        for name, value, declaration in keys:
            if not (reason := declaration.why_unused(config, name)):
                declared.add(name)
                continue
            if name in ELSEWHERE:
                continue
            config.update_from_flattened_dict({name: other_value(name, value, declaration)})
            assert outcome(config.data, kind) == before, f'{name} is used although {reason}'
            config.update_from_flattened_dict({name: value})
    assert declared - read <= ELSEWHERE
