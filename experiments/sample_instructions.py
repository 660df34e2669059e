"""Writes the sample of demonstrations, bert_jax/labels/samples/instructions.jsonl.

    python experiments/sample_instructions.py

Small questions about words and numbers whose answers are certain: copying, choosing, sorting,
arithmetic. A part of them are conversations of several turns, with messages.
"""

import json
import pathlib
import random
import re

PATH = pathlib.Path(__file__).parents[1] / 'bert_jax' / 'labels' / 'samples' / 'instructions.jsonl'
WORDS = re.findall(
    r'\w+',
    'apple bird boat bread bridge cat cloud coat corn dog door fish garden gate hill horse '
    'house lamp lake leaf moon mouse night paper pear river road rose salt ship shoe snow '
    'spoon star stone storm street sugar table tree water window wind wolf',
)
NUMBERS = ['zero', 'one', 'two', 'three', 'four', 'five', 'six', 'seven', 'eight', 'nine', 'ten']
OPPOSITES = dict(
    hot='cold', big='small', long='short', old='new', dark='light', early='late', full='empty',
    fast='slow', open='closed', high='low',
)  # fmt: skip
SYSTEM = 'You answer with as few words as you can.'


def copy(rng):
    words = rng.sample(WORDS, rng.randint(1, 3))
    return f'Repeat: {" ".join(words)}', ' '.join(words)


def last(rng):
    words = rng.sample(WORDS, rng.randint(2, 4))
    return f'What is the last word of: {" ".join(words)}?', words[-1]


def first(rng):
    words = rng.sample(WORDS, rng.randint(2, 4))
    return f'What is the first word of: {" ".join(words)}?', words[0]


def order(rng):
    words = rng.sample(WORDS, 2)
    return f'Sort these words: {" ".join(words)}', ' '.join(sorted(words))


def reverse(rng):
    words = rng.sample(WORDS, rng.randint(2, 3))
    return f'Write these words from last to first: {" ".join(words)}', ' '.join(reversed(words))


def add(rng):
    a, b = rng.randint(0, 5), rng.randint(0, 5)
    return f'What is {NUMBERS[a]} plus {NUMBERS[b]}?', NUMBERS[a + b]


def larger(rng):
    a, b = rng.sample(range(11), 2)
    return f'Which is more, {NUMBERS[a]} or {NUMBERS[b]}?', NUMBERS[max(a, b)]


def opposite(rng):
    word = rng.choice([*OPPOSITES])
    noun = rng.choice(WORDS)
    return f'Say the opposite: the {noun} is {word}.', f'The {noun} is {OPPOSITES[word]}.'


KINDS = (copy, last, first, order, reverse, add, larger, opposite)


def main(number=320, seed=0):
    rng, seen, lines = random.Random(seed), set(), []
    while len(lines) < number:
        turns = [rng.choice(KINDS)(rng) for _ in range(1 if rng.random() < 0.85 else 2)]
        if seen & {question for question, _ in turns}:
            continue
        seen |= {question for question, _ in turns}
        (question, answer), *more = turns
        if not more:
            lines.append({'prompt': question, 'answer': answer})
            continue
        messages = [{'role': 'system', 'content': SYSTEM}] if rng.random() < 0.5 else []
        for question, answer in turns:
            messages.append({'role': 'user', 'content': question})
            messages.append({'role': 'assistant', 'content': answer})
        lines.append({'messages': messages})
    PATH.write_text(''.join(json.dumps(line) + '\n' for line in lines), encoding='utf-8')


if __name__ == '__main__':
    main()
