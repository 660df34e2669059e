"""Limits on what a file may ask for, far above every published model.

A file above a limit is refused before memory is allocated; the error has the limit (SECURITY.md).
"""

SMALL_FILE = 2**24  # bytes of a file that describes others: config.json, README.md, an index
LARGE_FILE = 2**28  # bytes of a vocabulary, of the record of a run (which has one), of a manifest
JSON_CONTAINERS = 4_000_000  # objects and lists of a JSON file: 88 bytes of memory each
VOCABULARY = 10_000_000  # ids of a tokenizer, rows of an embedding table
LAYERS = 1_000  # layers of an architecture
WIDTH = 1_000_000  # every other size of an architecture, and its number of positions
PIECE_CHARACTERS = 1_000  # characters of a token
PIECES_CHARACTERS = 10_000_000  # characters of all pieces of SentencePiece: 350 bytes of memory
WORD_CHARACTERS = 1_000  # characters of a word that WordPiece divides, in cubic time
GROWTH = 1_000  # characters that one character of a text can become when it is normalized
STEPS = 1_000  # steps of a normalizer, of a pre-tokenizer, or of a decoder
PATTERN_CHARACTERS = 10_000  # characters of a regular expression of a tokenizer
PATTERN_SECONDS = 5  # of a processor, for hard texts if a pattern may try exponentially many ways
SHARED_STORAGE = 16  # bytes of all tensors of a PyTorch file per byte of the file: tied weights
MARKUP_DEPTH = 100  # XML or HTML elements inside each other
TAG_CHARACTERS = 100_000  # from the < of a tag of HTML to the next >
OPEN_TAGS = 100  # further tags that begin before it
EXPANSION = 1_000  # decompressed bytes per byte of a compressed file, above EXPANDED bytes
EXPANDED = 2**30
# Files that a repository of the Hugging Face Hub may list.
LISTED_FILES = 200_000
BATCH_BYTES = 2**26  # of the rows of a table that are read at a time, unless it is one row
PART_EXPANSION = 8  # bytes per byte of the file that a page of a table becomes, above PART_BYTES
PART_BYTES = 2**28
