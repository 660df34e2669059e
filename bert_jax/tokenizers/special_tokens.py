"""Names of the special tokens, and the templates that put them around one text or two."""

import json
import re
from collections.abc import Iterable, Mapping

import tokenizers

from bert_jax import errors
from bert_jax.types import JsonObject

BERT = ('[PAD]', '[UNK]', '[CLS]', '[SEP]', '[MASK]')
ROBERTA = ('<s>', '<pad>', '</s>', '<unk>', '<mask>')

# Role → published names: of BERT, DeBERTa and ModernBERT; of RoBERTa and XLM-R. ALBERT has a mix.
NAMES = {
    'pad': ('[PAD]', '<pad>'),
    'unk': ('[UNK]', '<unk>'),
    'cls': ('[CLS]', '<s>'),
    'sep': ('[SEP]', '</s>'),
    'mask': ('[MASK]', '<mask>'),
}

CLS_TYPE = 2  # token type of XLNet's [CLS], which follows the texts
# Role → special token of XLNet, where <s> and </s> have no role.
XLNET = {role: f'<{role}>' for role in NAMES}

# Ends a text of left-to-right models, and stands for the roles in END_ROLES that have no token.
END = '<|endoftext|>'
END_ROLES = ('cls', 'sep', 'pad')

_LANGUAGE = re.compile(r'\[?(([a-z]{2,3}(?:-[a-z]+)?)(_[A-Z]{2})?)\]?')
_LITERALS = re.compile('<(?=(s|pad|/s|unk|mask|cls|sep|eod|eop)>)')


def separate_literals(text: str) -> str:
    """Insert a space into each literal <s>, <pad>, … of a training text.

    Otherwise training could learn a subword that is identical to the special token.
    """
    return _LITERALS.sub('< ', text)


def names(ids: Mapping[str, int], known: Mapping[str, str]) -> dict[str, str]:
    """Return the token of each role.

    The token is, in this order: the entry of `known` (role → token); a published name that is in
    the vocabulary; a published name to add, BERT's if the vocabulary has any of BERT's, else
    RoBERTa's.
    """
    style = int(ids.keys().isdisjoint(BERT))
    return {
        role: known.get(role) or next((n for n in published if n in ids), published[style])
        for role, published in NAMES.items()
    }


def extend(ids: Mapping[str, int], names: Mapping[str, str]) -> dict[str, int]:
    """Return the vocabulary, with missing special tokens added after the last id."""
    missing = [name for name in dict.fromkeys(names.values()) if name not in ids]
    first = max(ids.values(), default=-1) + 1
    return {**ids, **{name: first + number for number, name in enumerate(missing)}}


def with_padding(settings: JsonObject, name: str) -> JsonObject:
    """Return the contents of a tokenizer.json that names its padding token.

    Models made of language models may pad with the token that ends texts.
    """
    ids = {token['content']: token['id'] for token in settings['added_tokens']}
    if name in NAMES['pad'] or name not in ids:
        return settings
    padding = dict(strategy='BatchLongest', direction='Right', pad_to_multiple_of=None)
    return settings | {
        'padding': padding | {'pad_id': ids[name], 'pad_type_id': 0, 'pad_token': name}
    }


def named_padding(settings: JsonObject) -> JsonObject | None:
    """Return the padding that `with_padding` made; None for a padding token with a known name."""
    padding = settings.get('padding')
    name = padding.get('pad_token') if isinstance(padding, dict) else None
    if not isinstance(name, str):
        return None
    named = with_padding({'added_tokens': [], **settings, 'padding': None}, name)
    found: JsonObject | None = named['padding']
    return found


def find_in_settings(settings: JsonObject, ids: dict[str, int]) -> dict[str, int]:
    """Return the id of each role of a tokenizer.json; raise UserError if a role has no token.

    A byte-level BPE may have no unknown token. The tokenizer of a left-to-right model, which has no
    token before or after a text but END, needs no unknown and mask tokens; the roles in END_ROLES
    that have no token are left out as well. A template without a token before a text (T5, mBART)
    has no cls, and needs no mask token.

    The template has the tokens around a text, and the model has its unknown token; published names
    alone could be wrong, because mmBERT has an <s> for HTML beside its <bos>. The other roles have
    a published name or a name that contains the role, such as <|mask|>.
    """
    special = [token['content'] for token in settings['added_tokens'] if token['special']]
    around = around_text(settings.get('post_processor'))
    known = around | {'unk': _unknown(settings['model'])}
    if padding := settings.get('padding'):
        known['pad'] = padding['pad_token']
    role_ids: dict[str, int] = {}
    begins_plain = around.get('sep') is not None and around.get('cls') is None
    for role, published in NAMES.items():
        if role == 'cls' and begins_plain:
            continue
        candidates = [known.get(role), *(name for name in published if name in special)]
        candidates += [*published, *(name for name in special if role in name.lower())]
        name = next((name for name in candidates if name in ids), None)
        if name is not None:
            role_ids[role] = ids[name]
    ends = {role_ids[role] for role in ('cls', 'sep') if role in role_ids}
    is_left_to_right = END in ids and ends <= {ids[END]}
    optional = {*NAMES} if is_left_to_right else {'cls', 'mask'} if begins_plain else set()
    if '"ByteLevel"' in json.dumps(settings.get('pre_tokenizer')):
        optional |= {'unk'}  # every byte has a token
    for role in NAMES:
        if role not in role_ids and role not in optional:
            raise lacking(role)
    return role_ids


def lacking(role: str) -> errors.UserError:
    """The error for a role without a token."""
    return errors.UserError(f'the vocabulary lacks {" or ".join(NAMES[role])}')


def around_text(processor: JsonObject | None) -> dict[str, str | None]:
    """Return the tokens next to a text: cls before it and sep after it, None if there is none."""
    for step in (processor or {}).get('processors', [processor or {}]):
        if 'cls' in step:
            return {role: step[role][0] for role in ('cls', 'sep')}
        if step.get('single'):
            before, after = _ends(step)
            if is_cls_last(processor):  # XLNet
                before = [after[1]]
            return {'cls': next(iter(before), None), 'sep': next(iter(after), None)}
    return {}


def is_cls_last(processor: JsonObject | None) -> bool:
    """Whether a template puts two tokens after a text and none before it: A [SEP] [CLS].

    The second is not a language, which ends texts of mBART.
    """
    for step in (processor or {}).get('processors', [processor or {}]):
        if step.get('single'):
            before, after = _ends(step)
            return not before and len(after) == 2 and not language_codes(after[1])
    return False


def suffix(processor: JsonObject | None) -> tuple[str, ...]:
    """Return the tokens behind the one that ends a text, such as the language of mBART."""
    for step in (processor or {}).get('processors', [processor or {}]):
        if step.get('single') and not is_cls_last(processor):
            return tuple(_ends(step)[1][1:])
    return ()


def language_codes(token: str) -> tuple[str, ...]:
    """Return the codes of the language that a token stands for; () for other tokens.

    [cy] has the code cy, as in fairseq; en_XX has the codes en_XX and en, as in mBART.
    """
    match = _LANGUAGE.fullmatch(token)
    if match and (match[3] or token.startswith('[')):
        return tuple(dict.fromkeys((match[1], match[2])))
    return ()


def _ends(step: JsonObject) -> tuple[list[str], list[str]]:
    """The special tokens before and after a text in a template."""
    names = [item.get('SpecialToken', {}).get('id') for item in step['single']]
    place = names.index(None) if None in names else len(names)
    return names[:place], [name for name in names[place:] if name is not None]


def _unknown(model: JsonObject) -> str | None:
    if model.get('unk_id') is not None:
        model = {'unk_token': model['vocab'][model['unk_id']][0]}
    token: str | None = model.get('unk_token')
    return token


def contents(backend: tokenizers.Tokenizer) -> JsonObject:
    """The tokenizer.json of a tokenizer of the library."""
    settings: JsonObject = json.loads(backend.to_str())
    return settings


def added(name: str) -> tokenizers.AddedToken:
    """Return a special token as the library adds it.

    <mask> absorbs the space before it, as in RoBERTa and XLM-R, because the space belongs to the
    masked word.
    """
    return tokenizers.AddedToken(name, special=True, normalized=False, lstrip=name == '<mask>')


def add(backend: tokenizers.Tokenizer, names: Iterable[str]) -> None:
    """Add special tokens in this order."""
    backend.add_tokens([added(name) for name in names])


def template(
    names: Mapping[str, str],
    ids: Mapping[str, int],
    has_types: bool = False,
    cls_last: bool = False,
) -> tokenizers.processors.TemplateProcessing:
    """Return the template for one text or two.

    The template is [CLS] A [SEP] B [SEP] with types 0 and 1 (BERT, ALBERT, DeBERTa); or, if 'cls'
    is <s> and `has_types` is false, <s> A </s> </s> B </s> with type 0 (RoBERTa, XLM-R); or, if
    `cls_last`, A [SEP] B [SEP] [CLS] with types 0, 1 and 2 (XLNet).

    Args:
        names: The token of each role.
        ids: The id of each token.
        has_types: Whether the model has token types.
        cls_last: Whether [CLS] follows the texts.
    """
    cls, sep = names['cls'], names['sep']
    single = f'{cls} $A {sep}'
    pair = f'{cls} $A {sep} $B:1 {sep}:1'
    if cls == '<s>' and not has_types:
        pair = f'{cls} $A {sep} {sep} $B {sep}'
    if cls_last:
        single, pair = f'$A {sep} {cls}:2', f'$A {sep} $B:1 {sep}:1 {cls}:2'
    return tokenizers.processors.TemplateProcessing(
        single=single, pair=pair, special_tokens=[(n, ids[n]) for n in (cls, sep)]
    )
