"""Prepares a corpus from a folder of books, without held-out books and without copies.

    python -m experiments.books.run --books='gutenberg/*.txt' --held_out='novels/*.txt' \\
        --leave_out='Anthony Trollope___*' --output=books

1. Leaves out books whose file name matches `--leave_out` (such as all books of an author), books
   that share passages with a file of `--held_out`, and books that a longer one contains.
2. Links the others in OUTPUT/text, and writes OUTPUT/selection.json: what became of every file.
3. Prepares OUTPUT/corpus, and writes OUTPUT/results.json with time, memory and unknown tokens.
"""

import argparse
import fnmatch
import glob
import json
import os
import pathlib
import random
import resource
import shutil
import subprocess
import sys
import time
from typing import Any

import tqdm

from experiments.books import passages
from experiments.books.passages import Book

SHARED_WITH_HELD_OUT = 0.02  # share of the passages of the shorter of two books: more than quotes
CONTAINED = 0.5


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split('\n')[0])
    parser.add_argument('--books', required=True, help='glob of text files')
    parser.add_argument('--held_out', help='glob of text files that no book may contain')
    parser.add_argument('--leave_out', action='append', default=[], help='pattern of file names')
    parser.add_argument('--words', type=float, help='about so many words, in random books')
    parser.add_argument('--tokenizer', default='train:wordpiece:16000')
    parser.add_argument('--output', type=pathlib.Path, required=True)
    flags = parser.parse_args()
    paths = find(flags.books)
    held_out = [passages.read(path) for path in find(flags.held_out)] if flags.held_out else []
    start = time.perf_counter()
    books = [passages.read(path) for path in tqdm.tqdm(paths, unit=' books')]
    reasons = select(books, held_out, flags.leave_out)
    kept = [book for book in books if book.path not in reasons]
    if flags.words:
        chosen = choose(kept, flags.words)
        reasons |= {book.path: 'not among the random books' for book in kept if book not in chosen}
        kept = chosen
    seconds = time.perf_counter() - start
    if not kept:
        sys.exit(f'error: none of the {len(books)} books is left')
    link(kept, flags.output / 'text')
    write(
        flags.output / 'selection.json',
        {'kept': {book.path.name: book.num_words for book in kept}}
        | {'left_out': {path.name: reason for path, reason in sorted(reasons.items())}},
    )
    result = {
        'read': {'books': len(books), 'words': sum(book.num_words for book in books)},
        'kept': {'books': len(kept), 'words': sum(book.num_words for book in kept)},
        'selection_seconds': round(seconds, 1),
    }
    print(f'kept {len(kept)} of {len(books)} books: see {flags.output}/selection.json')
    result |= prepare(flags.output, flags.tokenizer)
    write(flags.output / 'results.json', result)
    print(json.dumps(result, indent=2))


def find(pattern: str) -> list[pathlib.Path]:
    paths = sorted(path for path in map(pathlib.Path, glob.glob(pattern)) if path.is_file())
    if not paths:
        sys.exit(f'error: no file matches {pattern!r}')
    return paths


def select(books: list[Book], held_out: list[Book], patterns: list[str]) -> dict[pathlib.Path, str]:
    """Return why a book is left out, for each one that is."""
    reasons = {
        book.path: f'matches {pattern!r}'
        for book in books
        for pattern in patterns
        if fnmatch.fnmatchcase(book.path.name, pattern)
    }
    for pattern in patterns:
        if not any(fnmatch.fnmatchcase(book.path.name, pattern) for book in books):
            sys.exit(f'error: no book matches --leave_out={pattern!r}')
    held_out_passages = passages.union(held_out)
    for book in books:
        if book.path not in reasons and passages.are_in(book.passages, held_out_passages).any():
            found = passages.find_shared(book, held_out, SHARED_WITH_HELD_OUT)
            if found:
                reasons[book.path] = f'shares {found[1]:.0%} of the shorter text with {found[0]}'
    left = [book for book in books if book.path not in reasons]
    for path, (longer_name, share) in passages.find_repeated(left, CONTAINED).items():
        reasons[path] = f'{share:.0%} is in longer books, most in {longer_name}'
    return reasons


def choose(books: list[Book], num_words: float) -> list[Book]:
    """Return random books, the same ones every time, with about this many words."""
    shuffled = random.Random(0).sample(books, len(books))
    chosen, total = [], 0
    for book in shuffled:
        if total + book.num_words <= num_words:
            chosen.append(book)
            total += book.num_words
    return chosen


def link(books: list[Book], folder: pathlib.Path) -> None:
    """Link the files in a folder, which then has these files only."""
    if folder.exists():
        shutil.rmtree(folder)
    folder.mkdir(parents=True)
    for book in books:
        (folder / book.path.name).symlink_to(book.path.resolve())


def prepare_command(output: pathlib.Path, tokenizer: str) -> list[str]:
    """Return the arguments of Python that prepare the linked books."""
    return [
        '-m',
        'bert_jax.prepare',
        f'--input=text:{output}/text/*.txt;held_out_by=file;language=en;license=public domain',
        f'--tokenizer={tokenizer}',
        '--held_out_fraction=0.005',
        f'--output={output}/corpus',
    ]


def prepare(output: pathlib.Path, tokenizer: str) -> dict[str, Any]:
    """Run `bert_jax.prepare` and return what it took and what it made."""
    start = time.perf_counter()
    subprocess.run([sys.executable, *prepare_command(output, tokenizer)], check=True)
    seconds = time.perf_counter() - start
    manifest = json.loads((output / 'corpus' / 'manifest.json').read_text())
    splits = {
        name: {key: split[key] for key in ('documents', 'tokens', 'unknown_tokens')}
        for name, split in manifest['splits'].items()
    }
    return splits | {
        'preparation_seconds': round(seconds, 1),
        'peak_memory_bytes': resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024,
    }


def write(path: pathlib.Path, value: Any) -> None:
    path.write_text(json.dumps(value, indent=2, ensure_ascii=False) + os.linesep)


if __name__ == '__main__':
    main()
