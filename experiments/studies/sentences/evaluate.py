"""Scores the sentence splitter against the sentence boundaries of CoNLL-U files.

python -m experiments.studies.sentences.evaluate en_ewt-ud-dev.conllu
"""

import argparse
import time
from typing import NamedTuple

from bert_jax import errors
from bert_jax.text.sentences import split_sentences

STOPS = '.!?…。！？।؟۔։።'
CLOSERS = '"\'”’»)]'


def read_documents(path: str) -> list[list[list[str]]]:
    """Read documents, their paragraphs and gold sentences from the comments of a CoNLL-U file."""
    documents = []
    try:
        with open(path, encoding='utf-8') as file:
            for line in file:
                if line.startswith('# newdoc') or not documents:
                    documents.append([])
                if line.startswith(('# newdoc', '# newpar')) or not documents[-1]:
                    documents[-1].append([])
                if line.startswith('# text = '):
                    documents[-1][-1].append(line.removeprefix('# text = ').strip())
    except (OSError, UnicodeError) as error:
        raise errors.UserError(f'cannot read {path}: {error}') from error
    documents = [[part for part in document if part] for document in documents]
    return [document for document in documents if document]


def ends(sentences: list[str]) -> list[int]:
    """Return the end of each sentence, counted in characters without white space."""
    positions, position = [], 0
    for sentence in sentences:
        position += len(''.join(sentence.split()))
        positions.append(position)
    return positions


def has_stop(sentence: str) -> bool:
    return sentence.rstrip(CLOSERS + ' ').endswith(tuple(STOPS))


def scores(true: set, predicted: set) -> str:
    hits = len(true & predicted)
    precision, recall = hits / max(len(predicted), 1), hits / max(len(true), 1)
    f1 = 2 * hits / max(len(true) + len(predicted), 1)
    return f'precision {precision:.3f}  recall {recall:.3f}  F1 {f1:.3f}  of {len(true)} boundaries'


class Boundaries(NamedTuple):
    """Sentence boundaries, as (number of the document, characters before the boundary).

    Attributes:
        true: Ends of gold sentences.
        predicted: Ends of the sentences of `split_sentences`.
        paragraphs: Ends of paragraphs.
        no_stop: Ends of gold sentences without a stop.
        speed: MB/s.
    """

    true: set
    predicted: set
    paragraphs: set
    no_stop: set
    speed: float


def find_boundaries(documents: list[list[list[str]]], language: str) -> Boundaries:
    """Split documents, given as paragraphs of gold sentences."""
    true, predicted, paragraphs, no_stop = set(), set(), set(), set()
    size, seconds = 0, 0.0
    for number, document in enumerate(documents):
        sentences = [sentence for paragraph in document for sentence in paragraph]
        text = '\n\n'.join(map(' '.join, document))
        size += len(text.encode())
        start = time.perf_counter()
        split = split_sentences(text, language)
        seconds += time.perf_counter() - start
        places = [(number, end) for end in ends(sentences)]
        true.update(places)
        no_stop.update(
            place
            for place, sentence in zip(places, sentences, strict=True)
            if not has_stop(sentence)
        )
        paragraphs.update((number, end) for end in ends([' '.join(part) for part in document]))
        predicted.update((number, end) for end in ends(split))
    return Boundaries(true, predicted, paragraphs, no_stop, size / seconds / 1e6)


def evaluate(documents: list[list[list[str]]], num_shown: int = 0, language: str = 'en'):
    """Print the scores, and up to `num_shown` missed and up to `num_shown` wrong boundaries."""
    true, predicted, paragraphs, no_stop, speed = find_boundaries(documents, language)
    print(f'{len(documents)} documents, {speed:.1f} MB/s')
    print('all, with ends of paragraphs:        ', scores(true, predicted))
    true, predicted = true - paragraphs, predicted - paragraphs
    print('inside paragraphs:                   ', scores(true, predicted))
    print('inside, after a sentence with a stop:', scores(true - no_stop, predicted - no_stop))
    plain = [''.join(''.join(map(''.join, document)).split()) for document in documents]
    for kind, places in (('missed', true - predicted), ('wrong', predicted - true)):
        for number, end in sorted(places)[:num_shown]:
            before, after = plain[number][:end], plain[number][end:]
            print(f'{kind}: {before[-40:]} | {after[:30]}')


@errors.exit_cleanly
def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('files', nargs='+', metavar='CONLLU')
    parser.add_argument(
        '--show', type=int, default=0, help='number of missed and of wrong boundaries to print'
    )
    parser.add_argument('--language', default='en', help='ISO 639 code (default: en)')
    arguments = parser.parse_args()
    documents = [document for path in arguments.files for document in read_documents(path)]
    if not documents:
        raise errors.UserError(f'no sentences in {", ".join(arguments.files)}')
    evaluate(documents, arguments.show, arguments.language)


if __name__ == '__main__':
    main()
