"""Model cards: the README of a pretraining run and the README of an exported model."""

import json
import re
from collections.abc import Mapping, Sequence

from bert_jax import figures, markdown
from bert_jax.corpus.corpus import Corpus
from bert_jax.files import read_text
from bert_jax.models.architecture import Architecture
from bert_jax.tokenizers import Tokenizer
from bert_jax.types import Config, JsonObject

# The folders of an absolute path, but not of a URL.
_FOLDERS = re.compile(r'(?<![\w/.])(?:~[\w.-]*)?/(?!/)(?:[^\s/\'"`,;|<>()\[\]{}]+/)+')
_OF_EXPORT = ('library_name:', 'tags:')  # lines of a header that an export replaces
_BIASES = 'The model reproduces the statements of its training text, including errors and biases.'
_DECOMPOSED = """
With this vocabulary the tokenizers library, and so transformers, drops characters of decomposed
text, such as tones and vowel signs. Normalize texts first: `unicodedata.normalize('NFC', text)`.
"""
_MAX_LABELS = 100  # in a card


def pretrained(
    config: Config,
    stages: Sequence[Mapping[str, int]],
    architecture: Architecture,
    corpus: Corpus,
    results: JsonObject,
    held_out: Mapping[str, float],
    sections: Sequence[str],
    examples: str,
) -> str:
    """The card of a pretraining run, in Markdown.

    Args:
        stages: key of `config.training` → value, for each stage.
        results: what the training loop returns.
        held_out: the metrics of the table of held-out metrics.
        sections: further sections, in Markdown.
        examples: section of cloze examples or samples, in Markdown; may be empty.
    """
    facts = {
        'parameters': f'{results["parameters"]:,}',
        'objective': ' + '.join(
            f'{weight:g} × {name}' for name, weight in config.objectives.items() if weight
        ),
        'initialized from': markdown.escape(config.init_from) or 'random values',
        'training': '; '.join(
            '{steps:,} steps of {batch_size} × {sequence_length}'.format(**stage)
            for stage in stages
        ),
        'tokens': f'{results["tokens"]:,} in {results["train_seconds"]:,.0f} s on '
        f'{results["devices"]}',
        'optimizer': config.optimizer.name,
        'learning rate': f'{config.schedule.learning_rate:g} ({config.schedule.name})',
        'skipped steps': results['skipped_steps'],
    }
    datasheet = read_text(corpus.directory / 'DATASHEET.md')
    shown = {name: f'{value:.4g}' for name, value in held_out.items()}
    more = '\n'.join(sections)
    picture = '![loss](loss.png)\n\n' if figures.are_drawn() else ''
    return f"""{_title(config.model.architecture or 'Model', architecture)}
{_kind(architecture, config.objectives.get('clm', 0) > 0)} pretrained with bert_jax.

{table(facts)}
## Held-out metrics

Measured on documents that were not used for training. `unigram_entropy` is the loss of predicting
token frequencies; `…_majority` is the accuracy of always giving the most frequent answer.

{table(shown)}
{picture}{more}
## Limits

{_BIASES} It was not evaluated for any use beyond the metrics above.

{examples}
{_lower_headings(datasheet)}
## Config

{json_block(config.to_dict())}"""


def _kind(architecture: Architecture, is_causal: bool) -> str:
    if architecture.decoder is not None:
        return 'An encoder–decoder'
    return 'A causal language model' if is_causal else 'A bidirectional encoder'


def exported(
    *,
    family: str,
    published_class: str,
    architecture: Architecture,
    num_parameters: int,
    heads: Sequence[str],
    labels: Sequence[str],
    tokenizer: Tokenizer | None,
    details: JsonObject,
    run_card: str,
) -> str:
    """The card of a model in a Hugging Face folder, in Markdown.

    Args:
        published_class: the class of transformers with the encoder and all heads.
        details: what is recorded about the training; empty if nothing is.
        run_card: the card of the run, with its data, scores and config; may be empty.
    """
    facts = {
        'parameters': f'{num_parameters:,}',
        'heads': ', '.join(heads) or 'none',
        'tokenizer': f'{tokenizer.kind}, {tokenizer.vocab_size:,} tokens, {tokenizer.case}'
        if tokenizer is not None
        else 'none',
        'labels': _list_labels(labels),
    } | {name: value for name, value in vars(architecture).items() if value is not None}
    omitted = ['tokenizer'] + ['config'] * bool(run_card) + ['labels'] * (len(labels) > _MAX_LABELS)
    details = {name: value for name, value in details.items() if name not in omitted}
    training = f'\n## Training\n\nMetadata of the checkpoint:\n\n{json_block(details)}'
    run_header, page = markdown.split_header(run_card)
    if run_card:
        training += f'\n## The run\n\n{_lower_headings(_without_pictures(page))}'
    lines = [f'library_name: transformers\ntags: [{family}]']
    lines += [line for line in run_header.splitlines() if not line.startswith(_OF_EXPORT)]
    header = _without_folders('\n'.join(lines))
    training = _without_folders(training)
    kind = _kind(architecture, 'clm' in heads)
    return f"""---
{header}
---

{_title(family, architecture)}
{kind} exported by bert_jax, with the weights and heads of `{published_class}`.

```python
import transformers
model = transformers.{published_class}.from_pretrained("PATH")
tokenizer = transformers.AutoTokenizer.from_pretrained("PATH")
```

{table(facts)}
After the export, the folder was loaded again and computed the same logits as the original model.

## Limits

{_BIASES}
{_DECOMPOSED if tokenizer is not None and tokenizer.has_rules else ''}\
{training if details else ''}"""


def _without_folders(text: str) -> str:
    """Shorten absolute paths to the names of their files: others learn no folders of the user."""
    return _FOLDERS.sub('…/', text)


def _title(name: str | None, architecture: Architecture) -> str:
    return f'# {name}, {architecture.num_layers} × {architecture.hidden_size}\n'


def table(rows: JsonObject) -> str:
    """A Markdown table of names and values, without a header."""
    lines = [f'| {name} | {value} |\n' for name, value in rows.items()]
    return '| | |\n|---|---|\n' + ''.join(lines)


def json_block(value: JsonObject) -> str:
    """A value as JSON in a Markdown code block."""
    return f'```json\n{json.dumps(value, indent=2, ensure_ascii=False)}\n```\n'


def _without_pictures(markdown: str) -> str:
    return '\n'.join(line for line in markdown.split('\n') if line[:2] != '![')


def _lower_headings(markdown: str) -> str:
    lines = markdown.split('\n')
    return '\n'.join('#' + line if line.startswith('#') else line for line in lines)


def _list_labels(labels: Sequence[str]) -> str:
    """The labels, of thousands only the first, for a cell of a table."""
    more = f' … ({len(labels):,} in all, see config.json)' * (len(labels) > _MAX_LABELS)
    return markdown.escape(', '.join(labels[:_MAX_LABELS])) + more or 'none'
