"""Special tokens by their published names, and how they frame one text or two."""

import re

import tokenizers

from bert_jax import errors

BERT = ('[PAD]', '[UNK]', '[CLS]', '[SEP]', '[MASK]')
ROBERTA = ('<s>', '<pad>', '</s>', '<unk>', '<mask>')

# The names of each role, as published: BERT, DeBERTa and ModernBERT; RoBERTa and XLM-R; ALBERT
# takes some of either.
NAMES = {
    'pad': ('[PAD]', '<pad>'),
    'unk': ('[UNK]', '<unk>'),
    'cls': ('[CLS]', '<s>'),
    'sep': ('[SEP]', '</s>'),
    'mask': ('[MASK]', '<mask>'),
}

_LITERALS = re.compile('<(?=(s|pad|/s|unk|mask)>)')


def broken(text: str) -> str:
    """Text to train on in which no literal <s> is left: of it a piece would be made that is taken
    for the special token."""
    return _LITERALS.sub('< ', text)


def find(ids: dict[str, int]) -> dict[str, int]:
    """The id of each role in a vocabulary. Raises UserError naming the roles it lacks."""
    found = {
        role: next((ids[name] for name in names if name in ids), None)
        for role, names in NAMES.items()
    }
    missing = [' or '.join(NAMES[role]) for role, index in found.items() if index is None]
    if missing:
        raise errors.UserError(f'the vocabulary lacks {", ".join(missing)}')
    return found


def complete(ids: dict[str, int]) -> list[str]:
    """Names for the roles a vocabulary lacks, those of BERT if it has one of BERT's already."""
    style = 0 if any(name in ids for name in BERT) else 1
    return [names[style] for names in NAMES.values() if not any(name in ids for name in names)]


def add(backend: tokenizers.Tokenizer, names: list[str]):
    """Marks tokens as special. <mask> takes the space before it, as in RoBERTa and XLM-R, for the
    word it stands for has that space inside."""
    backend.add_special_tokens(
        [
            tokenizers.AddedToken(name, special=True, normalized=False, lstrip=name == '<mask>')
            for name in names
        ]
    )


def frame(ids: dict[str, int], types: bool = False) -> tokenizers.processors.TemplateProcessing:
    """[CLS] A [SEP] B [SEP] with types 0 and 1 (BERT, ALBERT, DeBERTa), or, where <s> starts a
    text, <s> A </s> </s> B </s> of type 0 (RoBERTa, XLM-R), unless types are asked for."""
    cls, sep = (next(name for name in NAMES[role] if name in ids) for role in ('cls', 'sep'))
    pair = f'{cls} $A {sep} $B:1 {sep}:1'
    if cls == '<s>' and not types:
        pair = f'{cls} $A {sep} {sep} $B {sep}'
    return tokenizers.processors.TemplateProcessing(
        single=f'{cls} $A {sep}', pair=pair, special_tokens=[(n, ids[n]) for n in (cls, sep)]
    )
