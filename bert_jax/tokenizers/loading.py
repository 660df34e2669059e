"""Loads tokenizers from published files."""

import json
import pathlib
from typing import TYPE_CHECKING

from bert_jax import errors, limits, schema
from bert_jax.files import read_bytes, read_json
from bert_jax.storage import paths, wrong_paths
from bert_jax.storage.names import is_number
from bert_jax.tokenizers import backend, folders, special_tokens
from bert_jax.tokenizers.folders import Configuration
from bert_jax.tokenizers.tokenizer import Tokenizer, parse
from bert_jax.types import JsonObject

if TYPE_CHECKING:
    from bert_jax.tokenizers.classes import TokenizerClass

_FILES = ('*.json', '*.txt', '*.model')  # files of a folder that describe its tokenizer
_PATTERNS = ('tokenizer.json', 'vocab.txt', '*.model', '*vocab.json')
# Names of classes that do not determine how files are read, and the classes used for their files.
_GENERIC = ('PreTrainedTokenizer', 'PreTrainedTokenizerFast', 'TokenizersBackend', None)
# The classes of files that belong to no class, the last for any file.
_DEFAULTS = ('RobertaTokenizer', 'DebertaV2Tokenizer', 'BertTokenizer')


def load(path: str, lowercase: bool = True, strip_accents: bool | None = None) -> Tokenizer:
    """Load a tokenizer.

    The class of the tokenizer in transformers determines how the files of a folder are read
    (`classes.CLASSES`). Its name is in tokenizer_config.json or config.json, or follows from the
    model_type. Without a class, a tokenizer.json is used as it is, and the ids of a SentencePiece
    .model are the indices of its pieces, unless the path ends in ';ids=xlm-roberta' or
    ';ids=camembert'. Missing special tokens of a .model or vocab.json get ids after the last.

    Args:
        path: A tokenizer.json, vocab.txt, SentencePiece .model or vocab.json (x-vocab.json belongs
            to x-merges.txt), or a folder with one of these files; or a run or a checkpoint.
        lowercase: Whether text is lowercased, for WordPiece, unless the folder sets do_lower_case.
        strip_accents: Whether accents are stripped, for WordPiece, unless the folder says so; None:
            if text is lowercased, as in BERT.

    Raises:
        UserError: The file does not exist, is not a supported tokenizer, or treats accents
            otherwise than `strip_accents`.
    """
    path, _, option = path.partition(';')
    folder = _fetch(path)
    if folder.is_dir() and not has_tokenizer(folder):  # early versions of sentence-transformers
        folder = next(folder.glob('0_Transformer'), folder)
    file = folder
    try:
        configuration = folders.read(folder) if folder.is_dir() else Configuration()
        configuration = configuration.with_accents(strip_accents)
        if not (tokenizer := _of_run(folder)):
            file = _find_file(folder, configuration.tokenizer_class)
            with backend.library_errors():
                settings = _read(file, configuration, lowercase, option)
                settings = folders.add_tokens(settings, configuration)
                if 'pad' in configuration.names:
                    settings = special_tokens.with_padding(settings, configuration.names['pad'])
                tokenizer = Tokenizer(json.dumps(settings))
            _check_names(tokenizer, configuration)
        if strip_accents not in (None, tokenizer.strip_accents):
            does = 'strips' if tokenizer.strip_accents else 'keeps'
            raise errors.UserError(
                f'strip_accents is {strip_accents}, but this tokenizer {does} accents; leave '
                'strip_accents out'
            )
        return tokenizer
    except errors.UserError as error:
        raise errors.UserError(f'tokenizer {str(file)!r}: {error}') from None
    except UnicodeDecodeError as error:
        raise errors.UserError(f'tokenizer {str(file)!r} is not UTF-8 text: {error}') from None
    except OSError as error:
        raise errors.UserError(f'tokenizer {str(file)!r}: {error.strerror}') from None


def _fetch(path: str) -> pathlib.Path:
    """Fetch a file, with the merges next to it, or a folder; return the local copy."""
    source = paths.bring(path, with_weights=False)
    if source.is_file():
        paths.fetch(source.parent, [source.name, '*merges.txt'], without=['*'])
    return paths.fetch(source, _FILES, without=['arrays', 'added'])  # of the checkpoints of a run


def _of_run(folder: pathlib.Path) -> Tokenizer | None:
    """The tokenizer of a checkpoint or of the newest checkpoint of a run; None elsewhere."""
    found = [path.parent for path in folder.glob('checkpoints/*/metadata.json')]
    checkpoints = [path for path in found if is_number(path.name)]
    newest = max(checkpoints, key=lambda path: int(path.name), default=folder)
    if not (newest / 'metadata.json').is_file():
        return None
    metadata = read_json(newest / 'metadata.json', limit=limits.LARGE_FILE)
    if 'tokenizer' not in metadata:
        return None
    place = f'{newest / "metadata.json"}: tokenizer'
    return Tokenizer(schema.convert(str, metadata['tokenizer'], place))


def has_tokenizer(folder: pathlib.Path) -> bool:
    """Whether a folder contains a file that `load` can read."""
    return any(any(folder.glob(pattern)) for pattern in _PATTERNS)


def _find_file(path: pathlib.Path, tokenizer_class: str | None) -> pathlib.Path:
    """The path if it is a file, else the file of the tokenizer in the folder."""
    if path.is_file():
        return path
    if not path.exists():
        raise errors.UserError(f'no such file or folder{wrong_paths.suggest(path)}')
    known = _find_class(tokenizer_class)
    patterns = list(_PATTERNS)
    if known:
        patterns.insert(1, known.pattern)
        if not known.reads_json:
            patterns.remove('tokenizer.json')
    for pattern in patterns:
        matches = sorted(path.glob(pattern))
        if len(matches) > 1:
            names = ', '.join(file.name for file in matches)
            raise errors.UserError(f'contains {names}: name one of these files')
        if matches:
            return matches[0]
    raise errors.UserError('contains no tokenizer.json, vocab.txt, .model or vocab.json')


def _read(
    file: pathlib.Path, configuration: Configuration, lowercase: bool, option: str
) -> JsonObject:
    """Read a file of any format as the contents of an equivalent tokenizer.json."""
    name = configuration.tokenizer_class
    known = _find_class(name)
    if option and file.suffix != '.model':
        raise errors.UserError(f'the option {option!r} is for SentencePiece models')
    if file.suffix == '.json' and not file.name.endswith('vocab.json'):
        settings = parse(read_bytes(file, limits.LARGE_FILE).decode('utf-8-sig'))
    else:
        from bert_jax.tokenizers import classes

        if option:
            ids = _ids(option)
            return classes.read_sentencepiece(file, Configuration(), lowercase, ids=ids)
        if known is None and name not in _GENERIC:
            raise errors.UserError(
                f'tokenizer_class {name} is not supported without a tokenizer.json; save one with '
                'save_pretrained of transformers, or pass the path of this file'
            )
        if known is None or not file.match(known.pattern):
            *others, last = map(classes.CLASSES.__getitem__, _DEFAULTS)
            known = next((c for c in others if file.match(c.pattern)), last)
        settings = known.read(file, configuration, lowercase)
    if known:
        known.override(settings, configuration, lowercase)
    return settings


def _find_class(name: str | None) -> 'TokenizerClass | None':
    """The class of this name, if there is one that determines how files are read."""
    if name in _GENERIC:
        return None
    from bert_jax.tokenizers.classes import CLASSES  # imports all kinds of vocabularies

    return CLASSES.get(name or '')


def _ids(option: str) -> str:
    from bert_jax.tokenizers import sentence_piece

    key, _, ids = option.partition('=')
    if key != 'ids' or ids not in sentence_piece.IDS:
        raise errors.unknown('option', option, [f'ids={ids}' for ids in sentence_piece.IDS])
    return ids


def _check_names(tokenizer: Tokenizer, configuration: Configuration) -> None:
    """Raise UserError if special tokens have other names than in the configuration."""
    # Without a known class, the template of tokenizer.json determines the tokens around a text.
    roles = special_tokens.NAMES if _find_class(configuration.tokenizer_class) else ('pad', 'mask')
    for role in roles:
        expected = configuration.names.get(role)
        if role not in tokenizer.role_ids:
            continue
        name = tokenizer.vocab[tokenizer.role_ids[role]]
        if expected not in (None, name):
            raise errors.UserError(f'{role}_token is {expected!r}, but the tokenizer has {name!r}')
