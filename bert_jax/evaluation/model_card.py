"""A README for a trained model: what it is, what it was trained on, how well it did."""

import json


def write(config, architecture, corpus, results: dict, examples: str) -> str:
    """The Markdown of the card: figures of the run, its config, the corpus' datasheet, cloze
    examples.
    """
    held_out = '\n'.join(f'| {name} | {value:.4g} |' for name, value in results['held_out'].items())
    stages = '; '.join(
        f'{steps:,} steps of {batch} × {length}'
        for steps, batch, length in zip(
            config.stages.steps,
            config.stages.batch_size,
            config.stages.sequence_length,
            strict=True,
        )
    )
    objectives = ' + '.join(
        f'{weight:g} × {name}' for name, weight in config.objectives.items() if weight
    )
    datasheet = (corpus.directory / 'DATASHEET.md').read_text(encoding='utf-8')
    return f"""# {config.model.architecture}, {architecture.num_layers} × {architecture.hidden_size}

A bidirectional encoder pretrained with bert_jax.

| | |
|---|---|
| parameters | {results['parameters']:,} |
| objective | {objectives} |
| initialized from | {config.init_from or 'random values'} |
| training | {stages} |
| tokens | {results['tokens']:,} in {results['train_seconds']:,.0f} s on {results['devices']} |
| optimizer | {config.optimizer.name} |
| learning rate | {config.schedule.learning_rate:g} ({config.schedule.name}) |
| skipped steps | {results['skipped_steps']} |

## Held-out figures

Documents never trained on. `unigram_entropy` is the loss of guessing by frequency alone;
`…_majority` the accuracy of always giving the most frequent answer.

| | |
|---|---|
{held_out}

![loss](loss.png)

## Limits

The model repeats what its text says, with its errors and its biases. It was not tested for any use
beyond the figures above.

## Cloze examples (held-out; bold where the first guess is right)

{examples}
{_one_level_down(datasheet)}
## Config

```json
{json.dumps(config.to_dict(), indent=2)}
```
"""


def _one_level_down(markdown: str) -> str:
    return ''.join(
        '#' + line if line.startswith('#') else line for line in markdown.splitlines(keepends=True)
    )
