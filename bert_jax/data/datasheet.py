"""What a person should know about a corpus, in words."""

from bert_jax.data import tokenizers


def write(manifest: dict, tokenizer: tokenizers.Tokenizer) -> str:
    """What a person should know about the corpus, as Markdown."""
    made_from = manifest['made_from']
    splits = manifest['splits']
    total = sum(split['tokens'] for split in splits.values())
    lines = [
        '# Datasheet of a tokenized corpus',
        '',
        f'Made {manifest["created"]} by `bert_jax.prepare` from {len(manifest["sources"])} '
        f'source(s); {total:,} tokens. Machine-readable twin of this page: `manifest.json`.',
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
        f'Unknown words ({unk}): {unknown:,}, {unknown / total:.2%} of the tokens.',
        '',
        f'Held-out rule: a document is held out if the hash of its text, read as a number in '
        f'[0, 1), is below {made_from["held_out_fraction"]:g}, wherever it stands and whatever '
        'else is in the corpus. A source none of whose documents falls there holds out the one '
        'with the smallest hash; one all of whose documents do keeps the one with the largest '
        'for training. Copies within a source fall on the same side. A source of one document '
        'follows the first rule; only if all sources are such, the smallest hash is held out.',
        '',
        '## Vocabulary',
        '',
        f'{tokenizer.kind}, {tokenizer.vocab_size:,} tokens, from `{made_from["tokenizer"]}`; text '
        f'is normalized as tokenizer.json says ({case}). '
        f'Fingerprint `{tokenizer.fingerprint}`.',
    ]
    if made_from['tokenizer'].startswith('train:'):
        lines += [
            '',
            f'It was trained on the documents of both splits: all of them, or evenly spaced '
            f'paragraphs of {tokenizers.TRAINING_CHARACTERS:,} characters if there are more. '
            f'A language with the share p of all characters had a share ∝ p^α of it, α = '
            f'{made_from["language_alpha"]:g}.',
        ]
    lines += [
        '',
        f'Special tokens are not stored; text that looks like one (`{mask}`) is ordinary text.',
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
