"""Loading tokenizers from published files."""

import json
import pathlib

from bert_jax import errors
from bert_jax.data.tokenizers import classes, folders, sentence_piece, special_tokens
from bert_jax.data.tokenizers.classes import CLASSES, Settings
from bert_jax.data.tokenizers.folders import Configuration
from bert_jax.data.tokenizers.tokenizer import Tokenizer, parse
from bert_jax.storage import paths

_FILES = ('*.json', '*.txt', '*.model')  # what a folder says of its tokenizer
_PATTERNS = ('tokenizer.json', 'vocab.txt', '*.model', '*vocab.json')
# Classes that say nothing about files, and those that read files without a class.
_COMPLETE = ('PreTrainedTokenizer', 'PreTrainedTokenizerFast', 'TokenizersBackend', None)
_CLASSLESS = (CLASSES['RobertaTokenizer'], CLASSES['DebertaV2Tokenizer'])


def load(path: str, lowercase: bool = True) -> Tokenizer:
    """Load a tokenizer.

    The class of the tokenizer in transformers determines how the files of a folder are read
    (`classes.CLASSES`). It is named by tokenizer_config.json or config.json, or follows from the
    model_type. Without a class, tokenizer.json is complete, and the ids of a SentencePiece .model
    are those of its pieces, unless the path ends in ';ids=xlm-roberta' or ';ids=camembert'.
    Missing special tokens of a .model or vocab.json get ids after the last.

    Args:
        path: A tokenizer.json, vocab.txt, SentencePiece .model or vocab.json (x-vocab.json belongs
            to x-merges.txt), or a folder with one of them.
        lowercase: Whether text is lowercased, for WordPiece, unless the folder says so.

    Raises:
        UserError: The file does not exist or does not hold a tokenizer.
    """
    path, _, option = path.partition(';')
    folder = _fetch(path)
    if folder.is_dir() and not has_tokenizer(folder):  # early versions of sentence-transformers
        folder = next(folder.glob('0_Transformer'), folder)
    file = folder
    try:
        configuration = folders.read(folder) if folder.is_dir() else Configuration()
        file = find(folder, configuration.tokenizer_class)
        settings = _read(file, configuration, lowercase, option)
        tokenizer = Tokenizer(json.dumps(folders.add_tokens(settings, configuration)))
        _check_names(tokenizer, configuration)
        return tokenizer
    except errors.UserError as error:
        raise errors.UserError(f'tokenizer {str(file)!r}: {error}') from None
    except UnicodeDecodeError as error:
        raise errors.UserError(f'tokenizer {str(file)!r} is not UTF-8 text: {error}') from None
    except OSError as error:
        raise errors.UserError(f'tokenizer {str(file)!r}: {error.strerror}') from None


def _fetch(path: str) -> pathlib.Path:
    """The local copy of a file or folder; with a file also the merges next to it."""
    found = paths.path(path)
    if paths.is_in_bucket(path) and found.is_file():
        paths.fetch(found.parent, [found.name, '*merges.txt'], without=['*'])
    return paths.fetch(path, _FILES, without=['checkpoints'])


def has_tokenizer(folder: pathlib.Path) -> bool:
    """Whether a folder contains a file that `load` can read."""
    return any(any(folder.glob(pattern)) for pattern in _PATTERNS)


def find(path: pathlib.Path, tokenizer_class: str | None = None) -> pathlib.Path:
    """Return the path if it is a file, else the tokenizer in the folder; UserError if none.

    Args:
        path: A file or folder.
        tokenizer_class: Its class, which may need a file of its own.
    """
    if path.is_file():
        return path
    if not path.exists():
        raise errors.UserError('no such file or folder')
    complete, *others = _PATTERNS
    known = CLASSES.get(tokenizer_class or '')
    patterns = [complete, *others]
    if known:
        patterns = [*([complete] if known.reads_json else []), known.pattern, *others]
    for pattern in patterns:
        found = sorted(path.glob(pattern))
        if len(found) > 1:
            names = ', '.join(file.name for file in found)
            raise errors.UserError(f'contains {names}: name one of them')
        if found:
            return found[0]
    raise errors.UserError('contains no tokenizer.json, vocab.txt, .model or vocab.json')


def _read(
    file: pathlib.Path, configuration: Configuration, lowercase: bool, option: str
) -> Settings:
    """The contents of a tokenizer.json with the same meaning."""
    name = configuration.tokenizer_class
    known = CLASSES.get(name or '')
    if option and file.suffix != '.model':
        raise errors.UserError(f'the option {option!r} is for SentencePiece models')
    if file.suffix == '.json' and not file.name.endswith('vocab.json'):
        settings = parse(file.read_bytes().decode('utf-8'))
    elif option:
        return classes.read_sentencepiece(file, Configuration(), lowercase, ids=_ids(option))
    elif known is None and name not in _COMPLETE:
        raise errors.UserError(
            f'tokenizer_class {name} is not supported without a tokenizer.json; save one with '
            'save_pretrained of transformers, or name this file itself'
        )
    else:
        if known is None or not file.match(known.pattern):
            known = next((c for c in _CLASSLESS if file.match(c.pattern)), CLASSES['BertTokenizer'])
        settings = known.read(file, configuration, lowercase)
    if known:
        known.override(settings, configuration, lowercase)
    return settings


def _ids(option: str) -> str:
    key, _, ids = option.partition('=')
    if key != 'ids' or ids not in sentence_piece.IDS:
        raise errors.unknown('option', option, [f'ids={ids}' for ids in sentence_piece.IDS])
    return ids


def _check_names(tokenizer: Tokenizer, configuration: Configuration) -> None:
    """Raise UserError if special tokens have other names than the folder says."""
    # Without a known class, the template of tokenizer.json determines the tokens around a text.
    roles = special_tokens.NAMES if configuration.tokenizer_class in CLASSES else ('pad', 'mask')
    for role in roles:
        given = configuration.names.get(role)
        found = tokenizer.vocab[getattr(tokenizer, f'{role}_id')]
        if given not in (None, found):
            raise errors.UserError(f'{role}_token is {given!r}, but the tokenizer has {found!r}')
