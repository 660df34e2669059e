"""Text sources: `open_source` opens 'NAME:LOCATION;option=value;…' as a document stream.

To add a source, write a subclass of `base.Source` and add it to `SOURCES`.
"""

import os
import textwrap

from bert_jax import errors
from bert_jax.lazy_table import LazyTable
from bert_jax.text import text_files
from bert_jax.text.sources.base import Document, Option, Piece, Source

__all__ = [
    'SOURCES',
    'Document',
    'Option',
    'Piece',
    'Source',
    'describe_sources',
    'open_source',
    'parse_source',
    'with_kind',
]

SOURCES: LazyTable[type[Source]] = LazyTable(
    {
        'sample': 'bert_jax.text.sources.sample:SampleSource',
        'text': 'bert_jax.text.sources.files:TextSource',
        'jsonl': 'bert_jax.text.sources.files:JsonLinesSource',
        'parquet': 'bert_jax.text.sources.tables:ParquetSource',
        'hf': 'bert_jax.text.sources.tables:HuggingFaceSource',
        'tfds': 'bert_jax.text.sources.tfds:TfdsSource',
        'canaries': 'bert_jax.text.sources.canaries:CanarySource',
    }
)
_KIND_OF_SUFFIX = {
    **dict.fromkeys(('.jsonl', '.json', '.jsonlines', '.ndjson'), 'jsonl'),
    **dict.fromkeys(('.parquet', '.arrow', '.feather'), 'parquet'),
}


def open_source(spec: str) -> Source:
    """Open a source, for example 'text:books/*.txt;language=en', and list its files.

    Raises:
        UserError: The spec is invalid (see `parse_source`), or the location has no files.
    """
    source = parse_source(spec)
    source.list_files()
    return source


def parse_source(spec: str) -> Source:
    """Return the source of a spec without listing its files, to read given units of work.

    Option values are taken literally, with spaces. Locations and option values cannot contain a
    semicolon.

    Raises:
        UserError: The source or an option is unknown, or a value is invalid.
    """
    head, *settings = spec.split(';')
    name, _, location = head.strip().partition(':')
    if name not in SOURCES and _looks_like_path(head.strip()):
        raise errors.UserError(
            f'source {spec!r} is a path without the kind of source; write {with_kind(spec)!r}'
        )
    source_class = errors.look_up('source', name, SOURCES)
    if source_class.location and not location:
        raise errors.UserError(
            f'source {spec!r} has no {source_class.location}; write {usage(name)}'
        )
    if location and not source_class.location:
        raise errors.UserError(f'source {spec!r}: {name} takes options only, not {location!r}')
    options = {key: option.default for key, option in source_class.options.items()}
    for setting in settings:
        key, equals, value = setting.partition('=')
        key = key.strip()
        if key not in options:
            raise errors.unknown(f'option of source {name}', key, options)
        if not equals:
            raise errors.UserError(f'source {spec!r}: option {key} has no value; write {key}=…')
        options[key] = value
    return source_class(spec, location, options)


def _looks_like_path(location: str) -> bool:
    """Whether a source without a kind is meant to be files: '/my/texts', 's3://bucket/a.txt'."""
    if os.path.exists(location):
        return True
    name, colon, rest = location.partition(':')
    if colon and name.isidentifier() and not rest.startswith('//'):  # a kind, such as 'txt:/a.txt'
        return False
    return '/' in location or '.' in location


def with_kind(spec: str) -> str:
    """Put the kind of source that reads a path in front of it: 'a.jsonl' → 'jsonl:a.jsonl'."""
    location, semicolon, settings = spec.strip().partition(';')
    suffix = os.path.splitext(text_files.uncompressed_name(location))[1].lower()
    kind = _KIND_OF_SUFFIX.get(suffix, 'text')
    is_folder = '://' not in location and os.path.isdir(os.path.expanduser(location))
    saved = ('dataset_dict.json', 'dataset_info.json', 'state.json')  # by Hugging Face datasets
    if is_folder and any(os.path.exists(f'{location}/{name}') for name in saved):
        return f'hf:{spec.strip()}'
    files = f'{location.rstrip("/")}/*' if is_folder else location
    return f'{kind}:{files}{semicolon}{settings}'


def usage(name: str) -> str:
    """Return the form of a spec without options, such as 'text:GLOB'."""
    return f'{name}:{SOURCES[name].location}'.removesuffix(':')


def describe_sources() -> str:
    """Return a help text with every source and its options, one per line."""
    lines = []
    for name, source_class in SOURCES.items():
        lines.append(f'  {usage(name)}: {source_class.description}')
        for key, option in source_class.options.items():
            default = f' (default: {option.default})' if option.default else ''
            text = f'{key}=…: {option.help}{default}'
            lines += textwrap.wrap(text, 96, initial_indent=' ' * 6, subsequent_indent=' ' * 10)
    return '\n'.join(lines)
