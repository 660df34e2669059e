"""Folders as transformers writes and opens them: config.json, weights, tokenizer."""

import fnmatch
import json
import pathlib
import shutil
from collections.abc import Iterable

import jax
import jax.numpy as jnp
import numpy as np

from bert_jax.data import tokenizers
from bert_jax.errors import UserError
from bert_jax.interop import card, families, naming, pretrained, weights
from bert_jax.interop.families.family import Family
from bert_jax.interop.pretrained import HEADS, Pretrained
from bert_jax.models.architecture import Architecture, Compute

_LOGITS_TOLERANCE = 1e-6  # of the largest logit, between two runs of the same program


def load(
    path: str | pathlib.Path, heads: Iterable[str] = (), allow_missing: Iterable[str] = ()
) -> Pretrained:
    """Reads a local folder.

    Args:
      heads: heads the model must have besides those in the folder.
      allow_missing: patterns (re.search) of our parameter names, such as '^mlm/'; where a weight
        for one is missing, the parameter comes from the initialisation and is named in `fresh`.

    Raises UserError for an unknown model_type or a config value whose mathematics we lack, a
    weight left over, missing, of another shape, NaN or infinite, a damaged file, and a tokenizer
    with more tokens than the model has embeddings.
    """
    folder = pathlib.Path(path)
    config = _read_json(folder / 'config.json')
    try:
        family = families.by_model_type(config.get('model_type'))
        architecture = family.read_config(config)
        labels = _labels(config)
    except UserError as error:
        raise UserError(f'{folder / "config.json"}: {error}') from None
    published = next(iter(config.get('architectures') or ()), None)
    found = weights.read(folder)
    tokenizer = load_tokenizer(folder, architecture)
    if published in family.without_pooler:
        allow_missing = (*allow_missing, '^encoder/pooler/')
    heads = {*heads, *family.classes.get(published, ())}
    params, fresh = from_weights(family, architecture, found, folder, heads, allow_missing)
    return Pretrained(family.model_type, architecture, params, tokenizer, labels, fresh)


def from_weights(
    family: Family,
    architecture: Architecture,
    found: dict[str, np.ndarray],
    where: pathlib.Path,
    heads: Iterable[str] = (),
    allow_missing: Iterable[str] = (),
) -> tuple[dict, tuple[str, ...]]:
    """Our parameters from a state dict of the family, and the names of the fresh ones; the checks
    are those of `load`. Heads with a weight in `found` are added to `heads`."""
    places = naming.places(family.table, architecture, family.heads)
    found = {_todays_name(family, name): array for name, array in found.items()}
    if not any(name.startswith(family.prefix) for name in found):  # a bare encoder
        found = {_with_prefix(family, name, places): array for name, array in found.items()}
    found = _without_repetitions(family, found, where)
    wanted = set(heads) | {_head(ours) for ours, place in places.items() if place.name in found}
    heads = tuple(name for name in HEADS if name in wanted)
    places = {o: place for o, place in places.items() if _head(o) in (*heads, None)}

    missing = [ours for ours, place in places.items() if place.name not in found]
    left_over = sorted(found.keys() - {place.name for place in places.values()})
    if left_over:
        lacking = [places[ours].name for ours in missing]
        also = f' (and lacks {pretrained.some(lacking)})' if lacking else ''
        raise UserError(
            f'{where}: a {family.model_type} model has no place for the weights '
            f'{pretrained.some(left_over)}{also}'
        )
    described = {ours: f'{places[ours].name} ({ours})' for ours in missing}
    pretrained.check_missing(described, tuple(allow_missing), where)
    names = {place.name: ours for ours, place in places.items()}
    weights.check_values(found, where)
    params = {}
    for name, array in found.items():
        place = places[names[name]]
        if array.shape != place.shape:
            raise UserError(
                f'{where}: {name} is {list(array.shape)}, but by the config {list(place.shape)}'
            )
        params[names[name]] = place.to_ours(array)
    return pretrained.fill(params, architecture, heads)


def load_tokenizer(folder: pathlib.Path, architecture: Architecture) -> tokenizers.Tokenizer | None:
    """The tokenizer of a folder, None if it has none. Raises UserError if its vocabulary is larger
    than the model's."""
    if not tokenizers.holds_one(folder):
        return None
    tokenizer = tokenizers.load(str(folder))
    if tokenizer.vocab_size > architecture.vocab_size:
        raise UserError(
            f'{folder}: the tokenizer has {tokenizer.vocab_size} tokens, but the model has '
            f'embeddings for {architecture.vocab_size} (vocab_size)'
        )
    return tokenizer


def save(model: Pretrained, path: str | pathlib.Path):
    """Writes a folder that transformers opens with from_pretrained, with all heads.

    It is written under another name, read back, and put in place when the model in it gives the
    same logits. Raises UserError if `path` exists, the model holds values that are not finite, or
    the logits differ.
    """
    path = pathlib.Path(path)
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise UserError(f'{path} is there already; choose another folder or remove it')
    partial = path.with_name(path.name + '.partial')
    try:
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        _write(model, partial)
        _compare(model, load(partial))
        partial.rename(path)
    except OSError as error:
        raise UserError(f'{path} cannot be written: {error.strerror}') from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def left_out(model: Pretrained) -> tuple[str, ...]:
    """Names of the parameters that the published class with the model's heads has no place for:
    the pooler, where no head uses it."""
    family = families.by_model_type(model.family)
    if family.class_of(model.heads) not in family.without_pooler:
        return ()
    return tuple(n for n in pretrained.by_name(model.params) if n.startswith('encoder/pooler/'))


def _write(model: Pretrained, folder: pathlib.Path):
    family = families.by_model_type(model.family)
    published = family.class_of(model.heads)
    config = {'architectures': [published], 'model_type': family.model_type, 'dtype': 'float32'}
    config |= family.write_config(model.architecture)
    if family.read_config(config) != model.architecture:
        raise UserError(f'a {family.model_type} config cannot express {model.architecture}')
    if model.labels:
        config['id2label'] = dict(enumerate(model.labels))
        config['label2id'] = {label: number for number, label in enumerate(model.labels)}
    if model.tokenizer is not None:
        config['pad_token_id'] = model.tokenizer.pad_id
        _write_tokenizer(model, folder)
    (folder / 'config.json').write_text(_json(config), encoding='utf-8')

    places = naming.places(family.table, model.architecture, model.heads)
    skipped, prefix = left_out(model), family.prefix if not model.heads else ''
    params = pretrained.by_name(model.params)
    weights.write(
        folder / weights.SAFETENSORS,
        {
            place.name.removeprefix(prefix): place.to_theirs(params[ours])
            for ours, place in places.items()
            if ours not in skipped
        },
    )
    (folder / 'README.md').write_text(card.write(model, published), encoding='utf-8')


def _write_tokenizer(model: Pretrained, folder: pathlib.Path):
    tokenizer = model.tokenizer
    tokenizer.save(folder)
    names = ('pad', 'unk', 'cls', 'sep', 'mask')
    settings = {
        f'{name}_token': tokenizer.vocab[getattr(tokenizer, f'{name}_id')] for name in names
    }
    settings['do_lower_case'] = tokenizer.lowercase
    settings['tokenizer_class'] = 'PreTrainedTokenizerFast'  # takes all from tokenizer.json
    settings['model_max_length'] = model.architecture.max_length
    types = ['token_type_ids'] if model.architecture.type_vocab_size > 1 else []
    settings['model_input_names'] = ['input_ids', *types, 'attention_mask']
    (folder / 'tokenizer_config.json').write_text(_json(settings), encoding='utf-8')
    if tokenizer.kind == 'wordpiece' and all(t and '\n' not in t for t in tokenizer.vocab):
        text = ''.join(f'{token}\n' for token in tokenizer.vocab)
        (folder / 'vocab.txt').write_text(text, encoding='utf-8')


def _compare(live: Pretrained, written: Pretrained):
    """Raises UserError unless both give the same logits for a batch of arbitrary tokens."""
    architecture = live.architecture
    rng = np.random.default_rng(0)
    length = min(16, architecture.max_position_embeddings)
    ids = rng.integers(0, architecture.vocab_size, (2, length), dtype=np.int32)
    types = (np.arange(length) >= length // 2) * np.full((2, 1), architecture.type_vocab_size - 1)
    mask = np.arange(length) < np.array([[length], [max(1, length - 3)]])
    ours, theirs = (
        jax.device_get(
            pretrained.outputs(
                architecture,
                Compute(),
                jax.tree.map(jnp.asarray, model.params),
                ids,
                mask.astype(np.int32),
                types.astype(np.int32),
            )
        )
        for model in (live, written)
    )
    for name, values in ours.items():
        if not np.isfinite(values).all():
            raise UserError(f'the model cannot be saved: its {name} are not finite')
        difference = np.abs(values - theirs[name]).max()
        if difference > _LOGITS_TOLERANCE * max(1, np.abs(values).max()):
            raise UserError(
                f'not saved: {name} of the written model differ from the live one by {difference:g}'
            )


def _todays_name(family: Family, name: str) -> str:
    for old, new in family.old_names.items():
        if name.endswith(old):
            return name.removesuffix(old) + new
    return name


def _with_prefix(family: Family, name: str, places: dict[str, naming.Place]) -> str:
    full = family.prefix + name
    known = {place.name for place in places.values()} | {*family.buffers, *family.duplicates}
    return full if full in known else name


def _without_repetitions(family: Family, found: dict, where: pathlib.Path) -> dict:
    """`found` without buffers and second copies, which must hold what they should."""
    found = dict(found)
    for name in list(found):
        if any(fnmatch.fnmatchcase(name, pattern) for pattern in family.buffers):
            array = found.pop(name)
            if not (array == np.arange(array.shape[-1])).all():
                raise UserError(f'{where}: {name} is not 0, 1, 2, …')
    for copy, original in family.duplicates.items():
        if copy in found:
            array = found.pop(copy)
            if not np.array_equal(array, found.setdefault(original, array)):
                raise UserError(f'{where}: {copy} differs from {original}, to which it is tied')
    return found


def _head(ours: str) -> str | None:
    part = ours.partition('/')[0]
    return part if part in HEADS else None


def _labels(config: dict) -> tuple[str, ...]:
    """The class names by id. Raises UserError if id2label and label2id disagree."""
    by_id = {int(number): label for number, label in (config.get('id2label') or {}).items()}
    if sorted(by_id) != list(range(len(by_id))):
        raise UserError(f'id2label has the ids {sorted(by_id)}, which are not 0, 1, 2, …')
    ids = config.get('label2id')
    if by_id and ids and ids != {label: number for number, label in by_id.items()}:
        raise UserError('id2label and label2id disagree')
    return tuple(by_id[number] for number in range(len(by_id)))


def _read_json(path: pathlib.Path) -> dict:
    try:
        value = json.loads(path.read_text(encoding='utf-8'))
    except OSError as error:
        raise UserError(f'{path}: {error.strerror}') from error
    except ValueError as error:
        raise UserError(f'{path} is no JSON: {error}') from error
    if not isinstance(value, dict):
        raise UserError(f'{path} is no config: not a JSON object')
    return value


def _json(value: dict) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False) + '\n'
