"""A small reranking task: queries with lists of documents."""

import json

from configs import finetune
from tests.end_to_end import small

WORDS = [word for topic in small.TOPICS.values() for word in topic]
SIZES = dict(hidden_size=32, num_layers=2, num_heads=2, intermediate_size=48)


def rows(number: int = 24) -> list[dict]:
    """Queries of a word, and two to four documents, of which those with the word are relevant."""
    made = []
    for n in range(number):
        word, others = WORDS[n % len(WORDS)], [WORDS[(n + k) % len(WORDS)] for k in (3, 7, 11)]
        documents = [
            f'the {word} near the {others[0]}',
            *(f'a {one}' for one in others[: 1 + n % 3]),
        ]
        scores = [1, *[0] * (len(documents) - 1)]
        made.append({'query': f'the {word}', 'documents': documents[::-1], 'scores': scores[::-1]})
    return made


def config_of(folder, lines: list[dict] | None = None, **keys):
    path = folder / 'train.jsonl'
    path.write_text(''.join(json.dumps(row) + '\n' for row in lines or rows()))
    config = finetune.get_config('reranking')
    config.model.update(architecture='bert', hidden_dropout=0.0, attention_dropout=0.0, **SIZES)
    config.data.update(train=(str(path),), tokenizer='train:wordpiece:120', dev_fraction=0.25)
    config.data.columns.update(texts=('query', 'documents'), scores=('scores',))
    config.training.update(steps=4, epochs=0.0, batch_size=6, sequence_length=24)
    config.schedule.learning_rate = 1e-3
    config.evaluation.every_steps = 0
    config.workdir = str(folder / 'run')
    config.update_from_flattened_dict({key.replace('__', '.'): v for key, v in keys.items()})
    return config
