"""What a user should know about a finished corpus before training on it."""

from collections.abc import Iterator, Sequence

from bert_jax.text.held_out import DIVIDE
from bert_jax.text.held_out_share import NEAR
from bert_jax.text.sources import Source
from bert_jax.types import JsonObject

MAX_UNKNOWN = 0.02  # share of unknown tokens in a language


def find(manifest: JsonObject, sources: Sequence[Source]) -> list[str]:
    """Return warnings about a corpus, each a line.

    Args:
        manifest: Contents of manifest.json.
        sources: The sources, in the order of the manifest.
    """
    languages = list(dict.fromkeys(source.language for source in sources))
    lines = [*_markup(sources)]
    for language in languages:
        own = [index for index, source in enumerate(sources) if source.language == language]
        place = f' in language {language!r}' if len(languages) > 1 else ''
        lines += _unknown(manifest, own, place)
        lines += _held_out(manifest, [i for i in own if not sources[i].is_training_only], place)
    return lines


def _markup(sources: Sequence[Source]) -> Iterator[str]:
    """Warn of tables and web pages that were read as plain text."""
    for source in sources:
        if number := source.report.get('files_with_markup'):
            yield (
                f'{source.spec}: {number:,} file(s) such as '
                f'{source.first_place["files_with_markup"]} were read as plain text, with their '
                'markup: a model learns it too; convert them to plain text, or read JSON lines '
                'with jsonl:FILE;field=NAME and tables from Parquet'
            )


def _unknown(manifest: JsonObject, own: Sequence[int], place: str) -> Iterator[str]:
    """Warn of a language that the vocabulary does not cover."""
    tokens = sum(
        shard['tokens'] for split in manifest['splits'] for shard in _of(manifest, split, own)
    )
    unknown = sum(manifest['sources'][index]['report'].get('unknown_tokens', 0) for index in own)
    if unknown > MAX_UNKNOWN * tokens:
        reason = 'it lacks characters of this text'
        if manifest['tokenizer']['kind'] == 'wordpiece':
            reason += ', or words have more than 200 characters, as in text without spaces'
        yield (
            f'{unknown / tokens:.1%} of the tokens{place} are unknown to the vocabulary: {reason}; '
            'use a vocabulary trained on such text, or train:bytebpe, which knows all characters'
        )


def _held_out(manifest: JsonObject, own: Sequence[int], place: str) -> Iterator[str]:
    """Warn of a held-out share that is far from the requested fraction."""
    held_out, train = (
        sum(shard['tokens'] for shard in _of(manifest, split, own))
        for split in ('held_out', 'train')
    )
    fraction = manifest['made_from']['held_out_fraction']
    if not own or not held_out + train:
        return
    share = held_out / (held_out + train)
    if not fraction / NEAR <= share <= min(NEAR * fraction, (1 + fraction) / 2):
        yield (
            f'{share:.2%} of the tokens{place} are held out instead of {fraction:.2%}: the '
            'documents (or files, with held_out_by=file) are too few, too unequal or too often '
            f'copied; {DIVIDE}, or set held_out_fraction'
        )


def _of(manifest: JsonObject, split: str, own: Sequence[int]) -> list[JsonObject]:
    """The entries of the shards of a split that belong to these sources."""
    shards = manifest['splits'][split]['shards']
    return [shard for shard in shards if shard['source'] in own]
