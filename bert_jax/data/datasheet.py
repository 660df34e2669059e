"""The datasheet of a corpus: origin, contents, held-out rule, vocabulary and files."""

from typing import Any

from bert_jax.data import tokenizers


def render(manifest: dict[str, Any], tokenizer: tokenizers.Tokenizer) -> str:
    """Returns the datasheet of a corpus as Markdown."""
    made_from = manifest['made_from']
    splits = manifest['splits']
    total = sum(split['tokens'] for split in splits.values())
    lines = [
        '# Datasheet of a tokenized corpus',
        '',
        f'Made {manifest["created"]} by `bert_jax.prepare` from {len(manifest["sources"])} '
        f'source(s): {total:,} tokens. See `manifest.json` for the same in JSON.',
        '',
        '## Sources',
        '',
    ]
    for index, source in enumerate(manifest['sources']):
        lines += [
            f'{index + 1}. `{source["spec"]}`',
            f'   - language: {source["language"] or "not stated"}',
            f'   - license: {source["license"] or "not stated"}',
        ]
        lines += [
            f'   - {key.replace("_", " ")}: {count:,}'
            for key, count in sorted(source['report'].items())
        ]
    lines += [
        '',
        '## Contents',
        '',
        '| split | source | language | documents | sentences | tokens |',
        '|---|---|---|---:|---:|---:|',
    ]
    for name, split in splits.items():
        for index, source in enumerate(manifest['sources']):
            shards = [shard for shard in split['shards'] if shard['source'] == index]
            counts = ' | '.join(
                f'{sum(shard[key] for shard in shards):,}'
                for key in ('documents', 'sentences', 'tokens')
            )
            lines.append(f'| {name} | {index + 1} | {source["language"]} | {counts} |')
    unk, mask = (tokenizer.vocab[index] for index in (tokenizer.unk_id, tokenizer.mask_id))
    unknown = sum(split['unknown_tokens'] for split in splits.values())
    case = 'lowercased' if tokenizer.lowercase else 'case kept'
    lines += [
        '',
        f'Unknown tokens ({unk}): {unknown:,}, {unknown / total:.2%} of all tokens.',
        '',
        f'Held-out rule: a document is held out if the hash of its text, as a number in [0, 1), is '
        f'below {made_from["held_out_fraction"]:g}, whatever its position and the rest of the '
        'corpus. Copies within a source are therefore on the same side. If this puts all '
        'documents of a source on one side, the document closest to the threshold changes sides. '
        'A source with a single document follows the rule as it is; only if all sources have a '
        'single document, the one with the smallest hash is held out.',
        '',
        '## Vocabulary',
        '',
        f'{tokenizer.kind}, {tokenizer.vocab_size:,} tokens, from `{made_from["tokenizer"]}`; text '
        f'is normalized as tokenizer.json says ({case}). '
        f'Fingerprint: `{tokenizer.fingerprint}`.',
    ]
    if made_from['tokenizer'].startswith('train:'):
        lines += [
            '',
            'It was trained on the documents of both splits: on all of them, or on evenly spaced '
            f'paragraphs with {tokenizers.TRAINING_CHARACTERS:,} characters if they are longer. '
            'A language with the share p of all characters makes up a share ∝ p^α of the training '
            f'text, α = {made_from["language_alpha"]:g}.',
        ]
    lines += [
        '',
        f'Special tokens are not stored. Text that looks like one (`{mask}`) is ordinary text.',
        '',
        '## Files',
        '',
        'Made with ' + ', '.join(f'{k} {v}' for k, v in manifest['versions'].items()) + '.',
        '',
        '| file | bytes | sha256 |',
        '|---|---:|---|',
    ]
    lines += [
        f'| {name} | {file["bytes"]:,} | `{file["sha256"]}` |'
        for name, file in manifest['files'].items()
    ]
    return '\n'.join(lines) + '\n'
