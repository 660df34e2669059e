"""The README of an exported model."""

import json

from bert_jax.interop import pretrained
from bert_jax.interop.pretrained import Pretrained
from bert_jax.models import parameters


def write(model: Pretrained, published: str) -> str:
    """The Markdown of the card; `published` is the class of transformers that has all weights."""
    architecture = model.architecture
    heads = ', '.join(model.heads) or 'none'
    tokenizer = 'none'
    if model.tokenizer is not None:
        case = ', lowercased' if model.tokenizer.lowercase else ', cased'
        tokenizer = f'{model.tokenizer.kind}, {model.tokenizer.vocab_size:,} tokens{case}'
    sizes = '\n'.join(
        f'| {name} | {value} |' for name, value in vars(architecture).items() if value is not None
    )
    return f"""---
library_name: transformers
tags: [{model.family}]
---

# {model.family}, {architecture.num_layers} × {architecture.hidden_size}

A bidirectional encoder, exported by bert_jax. The weights and heads are those of `{published}`.

```python
import transformers
model = transformers.{published}.from_pretrained("PATH")
tokenizer = transformers.AutoTokenizer.from_pretrained("PATH")
```

| | |
|---|---|
| parameters | {num_parameters(model):,} |
| heads | {heads} |
| tokenizer | {tokenizer} |
| labels | {', '.join(model.labels) or 'none'} |
{sizes}

Before this folder was put in place, it was read back and gave the logits of the model it was
written from.

## Limits

The model repeats what its training text says, with its errors and its biases.
{_training(model.about)}"""


def num_parameters(model: Pretrained) -> int:
    """As published: without the padding rows of the vocabulary."""
    number = pretrained.num_labels(model.params)
    boxed = pretrained.abstract(model.architecture, model.heads, number)
    return parameters.num_parameters(boxed, model.architecture)


def _training(about: dict) -> str:
    if not about:
        return ''
    facts = {name: value for name, value in about.items() if name != 'tokenizer'}
    return f"""
## Training

What the checkpoint says of itself:

```json
{json.dumps(facts, indent=2, ensure_ascii=False)}
```
"""
