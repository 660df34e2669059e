"""Tokenizers from files, as they are published."""

import json
import pathlib

from bert_jax import errors
from bert_jax.data.tokenizers import byte_bpe, sentence_piece, wordpiece
from bert_jax.data.tokenizers.tokenizer import Tokenizer, parse

_PATTERNS = ('tokenizer.json', 'vocab.txt', '*.model', '*vocab.json')
_IDS = ('file', 'xlm-roberta')
# What a folder's tokenizer_class or model_type says about its SentencePiece model.
_SENTENCEPIECE_CLASSES = {
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
    """Reads a tokenizer.json, vocab.txt, SentencePiece .model, or vocab.json with its merges.txt
    (`roberta-vocab.json` goes with `roberta-merges.txt`), or a folder that holds one of them.

    A tokenizer.json says itself whether it lowercases, and a tokenizer_config.json in the same
    folder has the last word for BERT's; `lowercase` decides for a bare vocab.txt. The other files
    are of cased vocabularies unless the folder's configuration says otherwise.

    The ids of a .model are those of the file, but XLM-R's are shifted: where tokenizer_config.json
    or config.json beside it names XLM-R, or after 'sentencepiece.bpe.model;ids=xlm-roberta'.
    Special tokens that a .model or a vocab.json lacks get ids after the last.

    Raises UserError if there is no such file or it is no tokenizer.
    """
    path, _, option = path.partition(';')
    folder = pathlib.Path(path).expanduser()
    file = find(folder)
    try:
        config = _configuration(folder) if folder.is_dir() else {}
        if file.suffix == '.model':
            choices = _sentencepiece_choices(config, option)
            settings = sentence_piece.settings(sentence_piece.read(file.read_bytes()), **choices)
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
            settings['normalizer'].update(_bert_normalization(config))
        return Tokenizer(json.dumps(settings))
    except errors.UserError as error:
        raise errors.UserError(f'tokenizer {str(file)!r}: {error}') from None
    except UnicodeDecodeError as error:
        raise errors.UserError(f'tokenizer {str(file)!r} is no UTF-8 text: {error}') from None
    except OSError as error:
        raise errors.UserError(f'tokenizer {str(file)!r}: {error.strerror}') from None


def holds_one(folder: pathlib.Path) -> bool:
    """Whether a folder holds a file that `load` reads."""
    return any(any(folder.glob(pattern)) for pattern in _PATTERNS)


def find(path: pathlib.Path) -> pathlib.Path:
    """The file to read: the path itself, or the one in it. Raises UserError if there is none."""
    if path.is_file():
        return path
    if not path.exists():
        raise errors.UserError(f'tokenizer {str(path)!r}: no such file or folder')
    for pattern in _PATTERNS:
        found = sorted(path.glob(pattern))
        if len(found) > 1:
            names = ', '.join(file.name for file in found)
            raise errors.UserError(f'tokenizer {str(path)!r} holds {names}: name one of them')
        if found:
            return found[0]
    raise errors.UserError(
        f'tokenizer {str(path)!r} holds neither tokenizer.json nor vocab.txt nor a .model nor '
        'vocab.json'
    )


def _configuration(folder: pathlib.Path) -> dict:
    """tokenizer_config.json, with the model_type of config.json."""
    config = {}
    for name in ('config.json', 'tokenizer_config.json'):
        try:
            found = json.loads((folder / name).read_text(encoding='utf-8'))
        except FileNotFoundError:
            continue
        except json.JSONDecodeError as error:
            raise errors.UserError(f'{name} beside it is no JSON: {error}') from None
        config |= found if name == 'tokenizer_config.json' else {'type': found.get('model_type')}
    return config


def _bert_normalization(config: dict) -> dict:
    """What a tokenizer_config.json decides, in the words of the BertNormalizer."""
    names = {
        'do_lower_case': 'lowercase',
        'strip_accents': 'strip_accents',
        'tokenize_chinese_chars': 'handle_chinese_chars',
    }
    return {ours: config[theirs] for theirs, ours in names.items() if theirs in config}


def _sentencepiece_choices(config: dict, option: str) -> dict:
    """Arguments of `sentence_piece.settings`."""
    if option:
        key, _, ids = option.partition('=')
        if key != 'ids' or ids not in _IDS:
            raise errors.unknown('option', option, [f'ids={ids}' for ids in _IDS])
        return {'fairseq_ids': ids == 'xlm-roberta'}
    name = config.get('tokenizer_class', config.get('type'))
    name = name.removesuffix('Fast') if name else None
    if name not in _SENTENCEPIECE_CLASSES:
        raise errors.UserError(
            f'the ids of a {name} do not follow from its SentencePiece model alone: give its '
            'tokenizer.json, or the .model itself to number the tokens as that file does'
        )
    choices = dict(_SENTENCEPIECE_CLASSES[name])
    if 'do_lower_case' in config:
        choices['lowercase'] = config['do_lower_case']
    if 'keep_accents' in config:
        choices['strip_accents'] = not config['keep_accents']
    return choices
