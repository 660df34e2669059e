"""Loading tokenizers from published files."""

import json
import pathlib
from typing import Any

from bert_jax import errors
from bert_jax.data.tokenizers import byte_bpe, sentence_piece, wordpiece
from bert_jax.data.tokenizers.tokenizer import Tokenizer, parse

_PATTERNS = ('tokenizer.json', 'vocab.txt', '*.model', '*vocab.json')
_IDS = ('file', 'xlm-roberta')
# Option of a tokenizer_config.json → option of the BertNormalizer.
_BERT_NORMALIZATION = {
    'do_lower_case': 'lowercase',
    'strip_accents': 'strip_accents',
    'tokenize_chinese_chars': 'handle_chinese_chars',
}
# tokenizer_class or model_type of a folder → settings of its SentencePiece model.
_SENTENCEPIECE_CLASSES: dict[str | None, dict[str, bool]] = {
    'XLMRobertaTokenizer': {'fairseq_ids': True},
    'xlm-roberta': {'fairseq_ids': True},
    'AlbertTokenizer': {'lowercase': True, 'strip_accents': True},
    'albert': {'lowercase': True, 'strip_accents': True},
    'DebertaV2Tokenizer': {},
    'deberta-v2': {},
    'PreTrainedTokenizer': {},
    None: {},
}


def load(path: str, lowercase: bool = True) -> Tokenizer:
    """Load a tokenizer.

    Case: a tokenizer.json determines whether text is lowercased; for BERT's, a
    tokenizer_config.json in the same folder takes precedence. The other files have cased
    vocabularies unless the folder's configuration says otherwise.

    Ids: a SentencePiece .model determines its ids, except that XLM-R shifts them. This is the case
    if the tokenizer_config.json or config.json in the folder names XLM-R, or if the path ends in
    ';ids=xlm-roberta'. Missing special tokens of a .model or vocab.json get ids after the last.

    Args:
        path: A tokenizer.json, vocab.txt, SentencePiece .model or vocab.json (x-vocab.json belongs
            to x-merges.txt), or a folder with one of them.
        lowercase: Whether text is lowercased; only used for a bare vocab.txt.

    Raises:
        UserError: The file does not exist or does not hold a tokenizer.
    """
    path, _, option = path.partition(';')
    folder = pathlib.Path(path).expanduser()
    file = find(folder)
    try:
        config = _configuration(folder) if folder.is_dir() else {}
        if file.suffix == '.model':
            options = _sentencepiece_options(config, option)
            settings = sentence_piece.settings(sentence_piece.read(file.read_bytes()), **options)
        elif option:
            raise errors.UserError(f'the option {option!r} is for SentencePiece models')
        elif file.name.endswith('vocab.json'):
            merges = file.with_name(file.name.removesuffix('vocab.json') + 'merges.txt')
            prefixed = bool(config.get('add_prefix_space', False))
            settings = byte_bpe.settings(*byte_bpe.read(file, merges), add_prefix_space=prefixed)
        elif file.suffix == '.json':
            settings = parse(file.read_bytes().decode('utf-8'))
        else:
            vocab = wordpiece.read_vocab(file.read_bytes().decode('utf-8'))
            settings = wordpiece.settings(vocab, lowercase)
        if (settings.get('normalizer') or {}).get('type') == 'BertNormalizer':
            for theirs in config.keys() & _BERT_NORMALIZATION:
                settings['normalizer'][_BERT_NORMALIZATION[theirs]] = config[theirs]
        return Tokenizer(json.dumps(settings))
    except errors.UserError as error:
        raise errors.UserError(f'tokenizer {str(file)!r}: {error}') from None
    except UnicodeDecodeError as error:
        raise errors.UserError(f'tokenizer {str(file)!r} is not UTF-8 text: {error}') from None
    except OSError as error:
        raise errors.UserError(f'tokenizer {str(file)!r}: {error.strerror}') from None


def has_tokenizer(folder: pathlib.Path) -> bool:
    """Whether a folder contains a file that `load` can read."""
    return any(any(folder.glob(pattern)) for pattern in _PATTERNS)


def find(path: pathlib.Path) -> pathlib.Path:
    """Return the path if it is a file, else the tokenizer in the folder; UserError if none."""
    if path.is_file():
        return path
    if not path.exists():
        raise errors.UserError(f'tokenizer {str(path)!r}: no such file or folder')
    for pattern in _PATTERNS:
        found = sorted(path.glob(pattern))
        if len(found) > 1:
            names = ', '.join(file.name for file in found)
            raise errors.UserError(f'tokenizer {str(path)!r} contains {names}: name one of them')
        if found:
            return found[0]
    raise errors.UserError(
        f'tokenizer {str(path)!r} contains no tokenizer.json, vocab.txt, .model or vocab.json'
    )


def _configuration(folder: pathlib.Path) -> dict[str, Any]:
    """The contents of tokenizer_config.json and, as 'type', the model_type of config.json."""
    config: dict[str, Any] = {}
    for name in ('config.json', 'tokenizer_config.json'):
        try:
            found = json.loads((folder / name).read_text(encoding='utf-8'))
        except FileNotFoundError:
            continue
        except json.JSONDecodeError as error:
            raise errors.UserError(f'{name} in its folder is not valid JSON: {error}') from None
        config |= found if name == 'tokenizer_config.json' else {'type': found.get('model_type')}
    return config


def _sentencepiece_options(config: dict[str, Any], option: str) -> dict[str, bool]:
    """The keyword arguments of `sentence_piece.settings`."""
    if option:
        key, _, ids = option.partition('=')
        if key != 'ids' or ids not in _IDS:
            raise errors.unknown('option', option, [f'ids={ids}' for ids in _IDS])
        return {'fairseq_ids': ids == 'xlm-roberta'}
    name = config.get('tokenizer_class', config.get('type'))
    name = name.removesuffix('Fast') if name else None
    if name not in _SENTENCEPIECE_CLASSES:
        raise errors.UserError(
            f'the SentencePiece model of a {name} does not determine its ids: name its '
            'tokenizer.json, or the .model file to use the ids of that file'
        )
    options = dict(_SENTENCEPIECE_CLASSES[name])
    if 'do_lower_case' in config:
        options['lowercase'] = config['do_lower_case']
    if 'keep_accents' in config:
        options['strip_accents'] = not config['keep_accents']
    return options
