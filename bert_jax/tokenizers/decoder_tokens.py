"""Additional special tokens of encoder–decoders: sentinels and languages."""

import json
import re
from collections.abc import Collection, Sequence

import tokenizers

from bert_jax.tokenizers import special_tokens
from bert_jax.types import JsonObject

MOST_SENTINELS = 1_000
# Languages of mBART cc25 (Liu et al. 2020, arXiv 2001.08210, table 1), in the order of their ids.
MBART_LANGUAGES = (
    'ar_AR', 'cs_CZ', 'de_DE', 'en_XX', 'es_XX', 'et_EE', 'fi_FI', 'fr_XX', 'gu_IN', 'hi_IN',
    'it_IT', 'ja_XX', 'kk_KZ', 'ko_KR', 'lt_LT', 'lv_LV', 'my_MM', 'ne_NP', 'nl_XX', 'ro_RO',
    'ru_RU', 'si_LK', 'tr_TR', 'vi_VN', 'zh_CN',
)  # fmt: skip
_SENTINEL = re.compile(r'▁?<extra_id_(\d+)>')


def sentinel(number: int) -> str:
    """Return the name of a sentinel, which stands for a hidden span (T5)."""
    return f'<extra_id_{number}>'


def find_sentinels(vocab: Sequence[str]) -> tuple[int, ...]:
    """Return the ids of sentinels 0, 1, … up to the first that the vocabulary lacks."""
    ids = {int(m[1]): i for i, token in enumerate(vocab) if (m := _SENTINEL.fullmatch(token))}
    return tuple(ids[number] for number in range(len(ids)) if number in ids)


def find_languages(special: Collection[str]) -> dict[str, str]:
    """Return code of a language, such as 'cy' or 'en_XX' → its special token.

    A token with a country, as in mBART, is known by both codes.
    """
    found: dict[str, str] = {}
    for token in special:
        full, *short = special_tokens.language_codes(token) or ('',)
        if full:
            found[full] = token
        for code in short:
            found.setdefault(code, token)
    return found


def extend(
    settings: JsonObject, sentinels: int, languages: Sequence[str], starts_texts: bool
) -> JsonObject:
    """Return the contents of a tokenizer.json with further special tokens behind the others.

    Args:
        settings: Contents of a tokenizer.json.
        sentinels: How many sentinels; the first gets the last id, as in T5.
        languages: Codes of languages.
        starts_texts: Whether a text starts with a special token; if not, A </s> is a text.
    """
    backend = tokenizers.Tokenizer.from_str(json.dumps(settings))
    names = [f'[{code}]' for code in languages]
    special_tokens.add(backend, names + [sentinel(n) for n in reversed(range(sentinels))])
    if not starts_texts:
        ids = backend.get_vocab(with_added_tokens=True)
        sep = special_tokens.around_text(settings['post_processor'])['sep']
        assert sep is not None  # every trained tokenizer has one
        backend.post_processor = end_template(sep, (), ids)
    return special_tokens.contents(backend)


def end_template(
    sep: str, suffix: Sequence[str], ids: dict[str, int]
) -> tokenizers.processors.TemplateProcessing:
    """Return the template A </s>, and A </s> B </s> for two texts (T5).

    With a suffix, the language of mBART: A </s> [en], and A B </s> [en].
    """
    end = [sep, *suffix]
    between = [] if suffix else [sep]
    return tokenizers.processors.TemplateProcessing(
        single=['$A', *end],
        pair=['$A', *between, '$B', *end],
        special_tokens=[(name, ids[name]) for name in dict.fromkeys(end)],
    )
