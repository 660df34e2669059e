"""Named fine-tuning tasks: their data and the published hyperparameters.

configs/finetune.py:NAME uses them.
"""

from typing import Any, TypeAlias

Values: TypeAlias = dict[str, Any]  # of config keys

# Devlin et al. 2019, section 4.1 and appendix A.3: batch size 16 or 32, learning rate 2e-5 to 5e-5,
# 2 to 4 epochs, warmup over a tenth of the steps. The values for GLUE are from Hugging Face's
# former Flax example (32, 2e-5, 3 epochs; 5 for MRPC and WNLI).
_GLUE = dict(batch_size=32, learning_rate=2e-5, epochs=3, sequence_length=128)
_SMALL = _GLUE | dict(epochs=5)
_LONG = dict(batch_size=16, learning_rate=2e-5, epochs=3, sequence_length=512)
# As in BERT's released code: batch size 12, 3e-5, 2 epochs, windows of 384 tokens with a stride of
# 128. The paper has 32, 5e-5, 3 epochs (section 4.2), and 48, 5e-5, 2 for SQuAD 2.0 (section 4.3).
_SQUAD = dict(batch_size=12, learning_rate=3e-5, epochs=2, sequence_length=384)
_UNANSWERABLE = dict(problem=dict(no_answer=True))
_TAGGING = dict(batch_size=32, learning_rate=5e-5, epochs=4, sequence_length=128)
# Gao et al. 2021 (LM-BFF), section 3 and appendix: 16 examples of each class for training and 16
# for dev, drawn five times, 1,000 steps. They try batch sizes of 2, 4, 8, rates of 1, 2, 5e-5.
_FEW_SHOT = dict(batch_size=8, learning_rate=1e-5, epochs=0, sequence_length=128)
_FEW_SHOT_PROTOCOL = {
    'training.steps': 1000,
    'evaluation.every_steps': 100,
    'evaluation.best': 'accuracy',
    'sweep.seeds': (13, 21, 42, 87, 100),
}
# The rate and the length of the MS MARCO models of sentence-transformers; larger batches have more
# negatives.
_EMBEDDING = dict(batch_size=64, learning_rate=2e-5, epochs=1, sequence_length=256)
# Khattab and Zaharia 2020, section 4.1: batches of 32, documents of 180 tokens; a rate of 1e-5 is
# that of ColBERTv2.
_LATE = dict(batch_size=32, learning_rate=1e-5, epochs=1, sequence_length=180)
# Near the MS MARCO rerankers of sentence-transformers; a batch has queries with their documents.
_RERANKING = dict(batch_size=16, learning_rate=2e-5, epochs=1, sequence_length=256)
# Near the chat models of dLLM: rows of 1,024 tokens and 1e-4 for a base model.
_INSTRUCTIONS = dict(batch_size=32, learning_rate=1e-4, epochs=3, sequence_length=1024)
# A few dozen examples: enough epochs to see that the model learns.
_SAMPLE = dict(batch_size=8, learning_rate=1e-4, epochs=20, sequence_length=64)


def _benchmark(name: str, kind: str, recipe: Values, **data: Any) -> Values:
    return dict(kind=kind, data=dict(dataset=name, **data), recipe=recipe)


def _sample(
    kind: str, file: str, format: str, columns: Values | None = None, **data: object
) -> Values:
    data |= dict(train=(f'sample:{file}',), dev_fraction=0.25, format=format, columns=columns or {})
    return dict(kind=kind, data=data, recipe=_SAMPLE)


# name → kind of problem, hyperparameters (`recipe`), keys of `data` and `problem` that differ from
# the defaults, and other keys that differ, by dotted name (`values`)
TASKS: dict[str, Values] = {
    'cola': _benchmark('cola', 'classification', _GLUE),
    'sst2': _benchmark('sst2', 'classification', _GLUE),
    'mrpc': _benchmark('mrpc', 'classification', _SMALL),
    'stsb': _benchmark('stsb', 'regression', _GLUE),
    'qqp': _benchmark('qqp', 'classification', _GLUE),
    'mnli': _benchmark('mnli', 'classification', _GLUE),
    'qnli': _benchmark('qnli', 'classification', _GLUE),
    'rte': _benchmark('rte', 'classification', _GLUE),
    'wnli': _benchmark('wnli', 'classification', _SMALL),
    'boolq': _benchmark('boolq', 'classification', _LONG),
    'cb': _benchmark('cb', 'classification', _SMALL | dict(sequence_length=256)),
    'copa': _benchmark('copa', 'multiple_choice', _SMALL | dict(batch_size=16)),
    'multirc': _benchmark('multirc', 'classification', _LONG),
    'record': _benchmark('record', 'multiple_choice', _LONG | dict(batch_size=8, epochs=2)),
    'superglue_rte': _benchmark(
        'superglue_rte', 'classification', _GLUE | dict(sequence_length=256)
    ),
    'wic': _benchmark('wic', 'word_in_context', _GLUE),
    'wsc': _benchmark('wsc', 'coreference', _SMALL | dict(batch_size=16)),
    'squad1': _benchmark('squad1', 'question_answering', _SQUAD),
    'squad2': _benchmark('squad2', 'question_answering', _SQUAD) | _UNANSWERABLE,
    'conll2003': _benchmark('conll2003', 'tagging', _TAGGING),
    'ud_pos': _benchmark('ud_pos', 'tagging', _TAGGING, language='en_ewt'),
    'xnli': _benchmark('xnli', 'classification', _GLUE),
    'few_shot': dict(
        kind='prompt', data=dict(shots=16), recipe=_FEW_SHOT, values=_FEW_SHOT_PROTOCOL
    ),
    'embedding': dict(kind='embedding', data=dict(columns=dict(label='')), recipe=_EMBEDDING),
    'sparse_embedding': dict(kind='sparse_embedding', data={}, recipe=_EMBEDDING),
    'late_interaction': dict(kind='late_interaction', data={}, recipe=_LATE),
    'reranking': dict(kind='reranking', data={}, recipe=_RERANKING),
    'sample_embedding': _sample(
        'embedding',
        'similarity.tsv',
        'tsv',
        dict(texts=('first', 'second'), scores=('score',), label=''),
    )
    | dict(problem=dict(loss='cosent')),
    'sample_sentiment': _sample('classification', 'sentiment.tsv', 'tsv'),
    'sample_pairs': _sample(
        'classification', 'pairs.csv', 'csv', dict(text='premise', text2='hypothesis')
    ),
    'sample_similarity': _sample(
        'regression', 'similarity.tsv', 'tsv', dict(text='first', text2='second', label='score')
    ),
    'sample_topics': _sample('multi_label', 'topics.tsv', 'tsv', dict(label='topics')),
    'sample_ratings': _sample(
        'multi_regression', 'ratings.csv', 'csv', dict(labels=('food', 'service'))
    ),
    'sample_choice': _sample(
        'multiple_choice',
        'choice.jsonl',
        'jsonl',
        dict(text='premise', choices=('choice1', 'choice2')),
    ),
    'sample_entities': _sample('tagging', 'entities.conll', 'conll'),
    'sample_pos': _sample('tagging', 'pos.conllu', 'conllu', dict(tag='upos'), scheme='none'),
    'sample_roles': _sample('semantic_roles', 'roles.conll', 'conll', dict(predicate='1')),
    'sample_trees': _sample('parsing', 'trees.conllu', 'conllu'),
    'sample_constituents': _sample('constituency', 'constituents.mrg', 'brackets'),
    'sample_spans': _sample('spans', 'spans.jsonl', 'jsonl'),
    'sample_relation': _sample(
        'relation', 'relation.tsv', 'tsv', inline_marks=('<e1>', '</e1>', '<e2>', '</e2>')
    ),
    'sample_wic': _sample(
        'word_in_context',
        'wic.jsonl',
        'jsonl',
        dict(text='sentence1', text2='sentence2', marks=('start1:end1', 'start2:end2')),
    ),
    'sample_coreference': _sample(
        'coreference',
        'coreference.tsv',
        'tsv',
        dict(
            marks=('pronoun_offset+pronoun', 'a_offset+a', 'b_offset+b'),
            candidate_labels=('a_coref', 'b_coref'),
        ),
    )
    | dict(problem=dict(metrics=('f1',), positive='TRUE', exclusive=True)),
    'sample_summaries': _sample('generation', 'summaries.jsonl', 'jsonl', dict(target='summary'))
    | dict(problem=dict(target_tokens=32)),
    'sample_questions': _sample('question_answering', 'questions.json', 'squad', group='context')
    | _UNANSWERABLE,
    'instructions': dict(kind='instructions', data={}, recipe=_INSTRUCTIONS),
    'sample_instructions': _sample('instructions', 'instructions.jsonl', 'jsonl')
    | dict(problem=dict(answer_tokens=12), recipe=_SAMPLE | dict(batch_size=16)),
}
