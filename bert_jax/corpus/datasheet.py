"""Renders the datasheet of a corpus: origin, contents, held-out rule, vocabulary and files.

What no program can count, people answer in free text (`add_answers`): the groups of questions of
Gebru et al. (2021, "Datasheets for Datasets", arXiv 1803.09010).
"""

import os
import re
from collections.abc import Mapping

from bert_jax import markdown, tokenizers
from bert_jax.errors import UserError, unknown
from bert_jax.files import read_text
from bert_jax.storage.path import Path
from bert_jax.text import personal_data, text_files
from bert_jax.types import JsonObject

# Group of questions → what to say, in short.
QUESTIONS = {
    'Motivation': 'why the text was collected, by whom, and who paid for it',
    'Composition': 'what a document is, what is missing, whom it is about, what may offend or harm',
    'Collection process': 'how, when and from whom it was collected, with whose consent',
    'Preprocessing': 'what was cleaned, filtered or labeled before, and where the raw text is',
    'Uses': 'what it has been used for, and what it should not be used for',
    'Distribution': 'who may have it, under which terms',
    'Maintenance': 'who keeps it, how errors are reported, when it is updated or deleted',
}
_ANSWERS = '## Questions of Gebru et al. (2021)'
_TEMPLATE = """\
# Datasheet of a tokenized corpus

Made {manifest[created]} by `bert_jax.prepare` from {num_sources} source(s): {total:,} tokens. \
See `manifest.json` for the same in JSON.

## Sources

{sources}

## Personal data

Matches of patterns, in both splits. A match may be an invented address or number, and names and \
addresses in prose have no pattern: a count of 0 does not mean that a text has no personal data.

| source | {personal_kinds} |
|---|{personal_rules}
{personal}

## Contents

| split | source | language | documents | sentences | tokens |
|---|---|---|---:|---:|---:|
{contents}

Unknown tokens ({unk}): {unknown:,}, {unknown_share:.2%} of all tokens.

Held-out rule: a document is held out if the hash of its text without whitespace, as a number in \
[0, 1), is below {made_from[held_out_fraction]:g}, regardless of its position and, with few \
exceptions, of the rest of the corpus. With `held_out_by=file` the text of its whole file is \
hashed. Copies are in the same split in all sources. If a split has fewer than two different \
documents of a language, the documents closest to the threshold change sides; the only document of \
a language is for training. If far more of the tokens would be held out, documents that are too \
large or have too many copies are for training, and others are held out. {held_out:.2%} of all \
tokens are held out.

## Vocabulary

{tokenizer.kind}, {tokenizer.vocab_size:,} tokens, from `{made_from[tokenizer]}`; \
text is normalized as tokenizer.json says ({case}). Fingerprint: `{tokenizer.fingerprint}`.
{training}
Special tokens are not stored. Text that looks like one (`{special}`) is ordinary text.

## Files

Made with {versions}.

| file | bytes | sha256 |
|---|---:|---|
{files}

{answers}
"""

_TRAINING = """
It was trained on the documents of both splits or, if they have more than \
{made_from[tokenizer_characters]:,} characters, on random lines with at most as many characters. A \
language with the share p of all characters makes up a share ∝ p^α of the training text, \
α = {made_from[language_alpha]:g}.
"""


def render(manifest: JsonObject, tokenizer: tokenizers.Tokenizer) -> str:
    """Return the datasheet of a corpus as Markdown."""
    made_from, sources, splits = (manifest[key] for key in ('made_from', 'sources', 'splits'))
    total, unknown = (
        sum(split[key] for split in splits.values()) for key in ('tokens', 'unknown_tokens')
    )
    special = {role: tokenizer.vocab[index] for role, index in tokenizer.role_ids.items()}
    source_lines, personal_rows, content_rows = [], [], []
    for number, source in enumerate(sources, start=1):
        personal = _personal_counts(source)
        report = sorted(source['report'].items() - personal.items())
        source_lines += [
            f'{number}. {markdown.code(source["spec"])}',
            *(
                f'   - {key}: {markdown.escape(source[key] or "not stated")}'
                for key in ('language', 'license')
            ),
            *(f'   - {key.replace("_", " ")}: {count:,}' for key, count in report),
            *(
                f'   - bad file: {markdown.escape(reason)}'
                for reason in source.get('bad_files', [])
            ),
        ]
        counts = ' | '.join(f'{count:,}' for count in personal.values())
        personal_rows.append(f'| {number} | {counts} |')
    for name, split in splits.items():
        for index, source in enumerate(sources):
            shards = [shard for shard in split['shards'] if shard['source'] == index]
            keys = ('documents', 'sentences', 'tokens')
            counts = ' | '.join(f'{sum(shard[key] for shard in shards):,}' for key in keys)
            content_rows.append(f'| {name} | {index + 1} | {source["language"]} | {counts} |')
    file_rows = [
        f'| {name} | {file["bytes"]:,} | `{file["sha256"]}` |'
        for name, file in manifest['files'].items()
    ]
    is_trained = made_from['tokenizer'].startswith('train:')
    return _TEMPLATE.format(
        manifest=manifest,
        made_from=made_from,
        tokenizer=tokenizer,
        num_sources=len(sources),
        total=total,
        sources='\n'.join(source_lines),
        personal_kinds=' | '.join(personal_data.KINDS),
        personal_rules='---:|' * len(personal_data.KINDS),
        personal='\n'.join(personal_rows),
        contents='\n'.join(content_rows),
        held_out=splits['held_out']['tokens'] / total,
        unk=special.get('unk', 'the vocabulary has no such token'),
        unknown=unknown,
        unknown_share=unknown / total,
        case=tokenizer.case,
        training=_TRAINING.format(made_from=made_from) if is_trained else '',
        special=special.get('mask', special['sep']),
        versions=', '.join(f'{name} {version}' for name, version in manifest['versions'].items()),
        files='\n'.join(file_rows),
        answers=_render_answers({}),
    )


def _personal_counts(source: JsonObject) -> dict[str, int]:
    """The count of each kind of personal data in a source, from its entry in the manifest."""
    return {kind: source['report'].get(kind, 0) for kind in personal_data.KINDS}


def read_answers(path: str | os.PathLike[str]) -> dict[str, str]:
    """Read answers to groups of QUESTIONS from a Markdown file.

    Args:
        path: a file with a heading such as `## Motivation` before each answer.

    Returns:
        Group → its answer, without the heading; only groups that are answered.

    Raises:
        UserError: the file cannot be read, has no heading, or has an unknown or repeated one.
    """
    text = '\n'.join(text_files.read_lines(os.fspath(path), 'utf-8'))
    before, *parts = re.split(r'^##? +(.+?) *$', text, flags=re.MULTILINE)
    if before.strip() or not parts:
        raise UserError(f'{path}: begin with a heading, such as "## {next(iter(QUESTIONS))}"')
    answers: dict[str, str] = {}
    for heading, answer in zip(parts[::2], parts[1::2], strict=True):
        name = heading.capitalize()
        if name not in QUESTIONS:
            raise unknown(f'heading of {path}', heading, QUESTIONS)
        if name in answers:
            raise UserError(f'{path} has the heading {heading!r} twice')
        answers[name] = answer.strip()
    return {name: answer for name, answer in answers.items() if answer}


def add_answers(directory: Path, answers: Mapping[str, str]) -> None:
    """Replace the answers in the datasheet of a finished corpus; see `read_answers`."""
    path = directory / 'DATASHEET.md'
    counted, _, _ = read_text(path).partition(_ANSWERS)
    path.write_text(f'{counted}{_render_answers(answers)}\n', encoding='utf-8')


def _render_answers(answers: Mapping[str, str]) -> str:
    parts = [_ANSWERS]
    for name, meaning in QUESTIONS.items():
        parts += [f'### {name}', answers.get(name, f'Not answered: {meaning}.')]
    return '\n\n'.join(parts)
