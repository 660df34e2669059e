"""Held-out text with holes, and what the model puts into them."""

import numpy as np


def examples(task, params, number: int, top: int = 5) -> list[dict]:
    """`number` held-out segments of a pretraining task, all chosen tokens hidden behind [MASK].

    Each is {'text': str with [MASK], 'answers': [{'gold': token, 'guesses': [(token, probability),
    …]}, …]}.
    """
    masked, batch, probabilities_BPV = task.cloze(params, number)
    tokenizer = task.corpus.tokenizer
    found = []
    for row in range(len(masked.input_ids)):
        ids = masked.input_ids[row][batch['attention_mask'][row] > 0]
        slots = np.flatnonzero(masked.weights[row])
        slots = slots[np.argsort(masked.positions[row][slots])]
        answers = []
        for slot in slots:
            best = np.argsort(-probabilities_BPV[row, slot])[:top]
            guesses = [(tokenizer.vocab[i], float(probabilities_BPV[row, slot, i])) for i in best]
            answers.append({'gold': tokenizer.vocab[masked.labels[row, slot]], 'guesses': guesses})
        found.append({'text': tokenizer.decode(ids), 'answers': answers})
    return found


def as_markdown(found: list[dict]) -> str:
    """The examples for a reader; a right first guess is set in bold."""
    lines = []
    for example in found:
        lines += [f'> {example["text"]}', '']
        for answer in example['answers']:
            guesses = ', '.join(
                f'**`{token}`** {p:.2f}' if token == answer['gold'] else f'`{token}` {p:.2f}'
                for token, p in answer['guesses']
            )
            lines.append(f'- `{answer["gold"]}`: {guesses}')
        lines.append('')
    return '\n'.join(lines)
