r"""Fine-tune a pretrained model on labeled examples: BERT's published hyperparameters.

    python -m bert_jax.main --config=configs/finetune.py:mnli --config.init_from=WEIGHTS

WEIGHTS is a run, a checkpoint or a Hugging Face folder. The word after the colon is one of

- a benchmark or a sample of configs/finetune_tasks.py: its data and its hyperparameters;
- few_shot: `prompt` on 16 examples of each class, five times (docs/prompting.md);
- for your own files, a kind of problem: classification ('file' is the same), regression,
  multi_label, multi_regression, multiple_choice, relation, word_in_context, coreference, tagging,
  semantic_roles, parsing, constituency, spans, question_answering, embedding, sparse_embedding,
  late_interaction, reranking, prompt, prompt_regression, generation, instructions.

    python -m bert_jax.main --config=configs/finetune.py:file --config.init_from=WEIGHTS \
        --config.data.train=reviews.tsv \
        --config.data.columns.text=review --config.data.columns.label=stars

Keys that are not set here are as in configs/base.py. `data` is documented in
bert_jax/labels/data_keys.py, `problem` in bert_jax/problems/kinds.
"""

from ml_collections import ConfigDict

from bert_jax.config_keys import key, overridden_by, section
from bert_jax.errors import unknown
from bert_jax.labels import data_keys
from bert_jax.problems import PROBLEMS
from bert_jax.reports import glue
from bert_jax.types import JsonObject
from configs import base
from configs.finetune_tasks import TASKS

_OWN_FILES = dict(
    data={}, recipe=dict(batch_size=32, learning_rate=2e-5, epochs=3, sequence_length=128)
)
PARAMETERS = ('file', *TASKS, *PROBLEMS)


def get_config(task: str = 'file') -> ConfigDict:
    """Return the config of a named task, or of a kind of problem on your own files."""
    named = _find(task)
    kind, recipe = named['kind'], named['recipe']
    config = base.get_config().unlock()
    for name in pretraining_only(config):
        del config[name]
    config.task = kind
    config.workdir = f'runs/{task}'
    config.model.architecture = None  # the architecture of init_from
    config.init_attention = key(
        'same',
        "Attention of the model at init_from: 'same' as it was pretrained, 'both' directions in a "
        "causal model, or 'causal' in one that was pretrained in both ways (GPT-BERT, UniLM).",
        choices=('same', 'both', 'causal'),
        unused='bert_jax.tasks.key_conditions:unused_attention',
    )
    unused = 'bert_jax.tasks.key_conditions:unused_head_states'
    config.model.head_states = key(
        None,
        "states that the head reads: 'last' layer, number of a layer (0: embeddings), "
        "'sum_last_4', 'mean_last_4', 'concat_last_4', or a learned 'mix' of all (ELMo)",
        kind=str,
        unused=unused,
    )
    config.model.head_lstm = section(
        'A bidirectional LSTM between these states and the head.',
        layers=key(None, 'number of layers; 0: none', '[0, inf)', kind=int, unused=unused),
        size=key(
            None, 'states of each direction; default 768', '[1, inf)', kind=int, unused=unused
        ),
    )
    problem = PROBLEMS[kind]
    config.data = data_keys.make_config(tuple(problem.readers), problem.data_keys)
    config.data.tokenizer = key(
        '',
        "Without init_from: a tokenizer file, or 'train:wordpiece:2000' to train one on the train "
        "split. With init_from: '' (the tokenizer of the weights).",
        on_resume='logged',
    )
    config.data.reading_threads = key(
        1, 'threads that build batches ahead of the training step', '[1, inf)', on_resume='free'
    )
    config.data.update(named['data'])
    keys: JsonObject = {**problem.keys}  # ConfigKey by name
    config.problem = section(**keys)
    config.problem.update(named.get('problem', {}))
    benchmark = (glue.GLUE | glue.SUPER_GLUE).get(task)
    if benchmark and kind in ('classification', 'regression'):
        config.problem.metrics = benchmark.metrics
        if benchmark.positive:
            config.problem.positive = benchmark.positive
    config.training = section(
        range='[1, inf)',
        epochs=key(
            float(recipe['epochs']),
            'passes over the train split; 0 if `steps` is set',
            '[0, inf)',
            on_resume='last stage',
        ),
        steps=key(0, 'training steps; 0 if `epochs` is set', '[0, inf)', on_resume='last stage'),
        batch_size=key(recipe['batch_size'], 'examples per step; for long texts, windows'),
        accumulation=key(1, 'micro-batches per step: less memory, same result', on_resume='free'),
        sequence_length=key(
            recipe['sequence_length'],
            'tokens per sequence, special tokens included; fewer if the model has fewer positions',
        ),
    )
    config.optimizer.name = 'adamw'
    config.schedule.name = 'linear'
    config.schedule.warmup_fraction = 0.1
    config.schedule.learning_rate = key(
        None,
        'Peak. Default: base_learning_rate × (768 / hidden_size)² in models narrower than '
        'BERT-base, at most 1e-3; with transfer.method, the rate published with the method.',
        '(0, inf)',
        kind=float,
        on_resume='logged',
        unused=overridden_by('sweep.learning_rates'),
    )
    config.schedule.base_learning_rate = key(
        recipe['learning_rate'],
        'for models as wide as BERT-base',
        '(0, inf)',
        on_resume='logged',
        unused=overridden_by('sweep.learning_rates', 'schedule.learning_rate'),
    )
    config.evaluation = section(
        'On the dev split.',
        on_resume='logged',
        every_steps=key(0, '0: once per epoch'),
        best=key(
            '',
            "A metric such as 'accuracy', or '' for none: the checkpoint with the best value is "
            'kept, and the run ends with its parameters.',
        ),
        patience=key(0, 'stop after this many evaluations without a better value; 0: never'),
    )
    config.compute.dtype = 'float32'
    config.checkpoint.every_steps = key(
        0,
        '0: only at the end, at signals and with evaluation.best',
        on_resume='free',
        unused=overridden_by('sweep.vmap'),
    )
    config.checkpoint.keep = 1
    config.logging.every_steps = 20
    config.update_from_flattened_dict(named.get('values', {}))
    return config.lock()


def pretraining_only(config: ConfigDict) -> list[str]:
    """Return the sections of configs/base.py that fine-tuning does not have."""
    options = [name for name in config if name in config.objectives]  # named after the objective
    return ['data', 'training', 'objectives', 'masking', 'editing', *options]


def _find(task: str) -> JsonObject:
    """Return the kind, data and recipe of a task. Raises UserError for an unknown one."""
    if task in TASKS:
        return TASKS[task]
    kind = 'classification' if task == 'file' else task
    if kind not in PROBLEMS:
        raise unknown('task', task, PARAMETERS)
    return dict(kind=kind, **_OWN_FILES)
