"""Names of the special tokens, and the templates in which they surround one text or two."""

import re

import tokenizers

from bert_jax import errors

BERT = ('[PAD]', '[UNK]', '[CLS]', '[SEP]', '[MASK]')
ROBERTA = ('<s>', '<pad>', '</s>', '<unk>', '<mask>')

# The published names of each role: BERT, DeBERTa and ModernBERT; RoBERTa and XLM-R. ALBERT has
# some of either.
NAMES = {
    'pad': ('[PAD]', '<pad>'),
    'unk': ('[UNK]', '<unk>'),
    'cls': ('[CLS]', '<s>'),
    'sep': ('[SEP]', '</s>'),
    'mask': ('[MASK]', '<mask>'),
}

_LITERALS = re.compile('<(?=(s|pad|/s|unk|mask)>)')


def separate_literals(text: str) -> str:
    """Insert a space into each literal <s>, <pad>, … of a training text.

    Otherwise a subword could be learned that is identical to the special token.
    """
    return _LITERALS.sub('< ', text)


def find(ids: dict[str, int]) -> dict[str, int]:
    """Return the id of each role in a vocabulary; raise UserError if one is missing."""
    missing = [' or '.join(names) for names in NAMES.values() if ids.keys().isdisjoint(names)]
    if missing:
        raise errors.UserError(f'the vocabulary lacks {", ".join(missing)}')
    return {role: next(ids[n] for n in names if n in ids) for role, names in NAMES.items()}


def missing_names(ids: dict[str, int]) -> list[str]:
    """Return names for the roles that a vocabulary lacks: BERT's if it has another of BERT's."""
    style = int(ids.keys().isdisjoint(BERT))
    return [names[style] for names in NAMES.values() if ids.keys().isdisjoint(names)]


def add(backend: tokenizers.Tokenizer, names: list[str]) -> None:
    """Mark tokens as special.

    <mask> absorbs the space before it, as in RoBERTa and XLM-R, because the space belongs to the
    word that it replaces.
    """
    for name in names:
        token = tokenizers.AddedToken(name, special=True, normalized=False, lstrip=name == '<mask>')
        backend.add_special_tokens([token])


def template(
    ids: dict[str, int], has_types: bool = False
) -> tokenizers.processors.TemplateProcessing:
    """Return the template for one text or two.

    [CLS] A [SEP] B [SEP] with types 0 and 1 (BERT, ALBERT, DeBERTa); or, if the vocabulary has <s>
    and `has_types` is false, <s> A </s> </s> B </s> with type 0 (RoBERTa, XLM-R).
    """
    cls, sep = (next(name for name in NAMES[role] if name in ids) for role in ('cls', 'sep'))
    pair = f'{cls} $A {sep} $B:1 {sep}:1'
    if cls == '<s>' and not has_types:
        pair = f'{cls} $A {sep} {sep} $B {sep}'
    return tokenizers.processors.TemplateProcessing(
        single=f'{cls} $A {sep}', pair=pair, special_tokens=[(n, ids[n]) for n in (cls, sep)]
    )
