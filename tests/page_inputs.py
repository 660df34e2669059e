"""The files that README and the pages of docs/ speak of: small texts and labeled data."""

import json
import pathlib
import random

_NOUNS = ('dog', 'film', 'function', 'list', 'bank', 'river', 'string', 'mechanic', 'clerk', 'die')
_VERBS = ('returns', 'sees', 'likes', 'takes', 'argued', 'lends')
_ADJECTIVES = ('great', 'terrible', 'good', 'bad', 'fine', 'lost', 'old')


def sentence(rng: random.Random) -> str:
    """A sentence whose words follow a simple grammar."""
    first, second = rng.choices(_NOUNS, k=2)
    subject = rng.choice((f'The {rng.choice(_ADJECTIVES)} {first}', 'He', 'She', f'His {first}'))
    return f'{subject} {rng.choice(_VERBS)} a {second} because it was {rng.choice(_ADJECTIVES)}.'


def write(folder: pathlib.Path) -> None:
    """Write all files into the folder in which the commands run."""
    rng = random.Random(0)
    for name in ('mine', 'books', 'novels'):
        (folder / name).mkdir(exist_ok=True)
        for number in range(120):
            text = ' '.join(sentence(rng) for _ in range(12))
            (folder / name / f'{number}.txt').write_text(text)
    lines = [sentence(rng) for _ in range(40)]
    reviews = [
        (f'{sentence(rng)} It was {word}.', label)
        for _ in range(150)
        for word, label in (('great', 'positive'), ('terrible', 'negative'))
    ]
    rows = [f'{text}\t{label}' for text, label in reviews]
    trees = '\n'.join(map(_tree, range(60)))
    pair = {'sentence_good': 'The dog barks.', 'sentence_bad': 'The dog bark.'}
    pairs = [pair | {'field': 'morphology', 'linguistics_term': 'agreement', 'UID': 'a'}] * 20
    for name, text in {
        'texts.txt': lines,
        'answers.md': ['## Motivation', 'Collected for a course about language models.'],
        'sentences.txt': lines,
        'new.txt': lines[:2],
        'reviews.txt': lines,
        'shots.jsonl': map(json.dumps, [{'text': 'Slow.', 'label': 'negative'}]),
        'demonstrations.jsonl': [
            json.dumps({'prompt': f'Repeat: {word}', 'answer': word}) for word in _NOUNS * 4
        ],
        'texts.tsv': ['text', *lines],
        'news.tsv': ['article\tsummary', *(f'{line} {line}\t{line}' for line in lines)],
        'reviews.tsv': ['text\tlabel', *rows],
        'test.tsv': ['text\tlabel', *rows[:40]],
        'new.csv': ['text,label', *(f'"{text}",{label}' for text, label in reviews[:20])],
        'reviews.csv': [
            'review,stars',
            *(f'"{text}",{5 if label == "positive" else 1}' for text, label in reviews),
        ],
        'questions.csv': [
            'question,answer',
            *(f'"What is in {number}? {text}",{text}' for number, text in enumerate(lines)),
        ],
        'pairs.tsv': ['the [[bank]] of the river\tthe [[bank]] lends a list\tdifferent'] * 4
        + ['the [[bank]] of the dog\tthe [[bank]] of the clerk\tsame'] * 4,
        'plan.txt': [
            'isotropy --input=texts.txt --limit=200',
            'probe --input=en_ewt-ud-train.conllu --dev=en_ewt-ud-dev.conllu',
            'heads --input=en_ewt-ud-dev.conllu',
        ],
        'en_ewt-ud-train.conllu': [trees],
        'en_ewt-ud-dev.conllu': [trees],
        'blimp/data/agreement.jsonl': map(json.dumps, pairs),
        'winobias/pro_stereotyped_type1.txt.dev': [
            '1 [The mechanic] argued with the clerk because [he] was bad.'
        ],
        'winobias/anti_stereotyped_type1.txt.dev': [
            '1 [The mechanic] argued with the clerk because [she] was bad.'
        ],
    }.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text('\n'.join(text) + '\n')


def _tree(number: int) -> str:
    """A sentence with its dependency tree in CoNLL-U."""
    noun, verb = _NOUNS[number % len(_NOUNS)], _VERBS[number % len(_VERBS)]
    words = (('The', 'DET', 2, 'det'), (noun, 'NOUN', 3, 'nsubj'), (verb, 'VERB', 0, 'root'))
    words += (('a', 'DET', 5, 'det'), ('list', 'NOUN', 3, 'obj'))
    lines = [
        f'{place}\t{word}\t_\t{tag}\t_\t_\t{head}\t{relation}\t_\t_'
        for place, (word, tag, head, relation) in enumerate(words, start=1)
    ]
    return '\n'.join([f'# sent_id = {number}', *lines, ''])
