"""Training: the losses and gradients of sentence-transformers from the same weights and texts."""

import dataclasses
import json
import random

import flax.linen as nn
import jax
import numpy as np
import pytest
import torch
from flax import traverse_util

import bert_jax
from bert_jax import averages, export, main, predict, tree_paths
from bert_jax.errors import UserError
from bert_jax.tasks import make_task
from bert_jax.training import optimizers
from bert_jax.training.state import abstract_state, initial_state
from configs import finetune
from tests.training import synthetic

theirs = pytest.importorskip(
    'sentence_transformers.multi_vector_encoder.losses', reason='sentence-transformers is missing'
)
from sentence_transformers import MultiVectorEncoder  # noqa: E402
from sentence_transformers.multi_vector_encoder import scoring  # noqa: E402

from tests.problems.late_interaction import folders  # noqa: E402

pytestmark = pytest.mark.usefixtures('no_loader_process_in_file')
ROWS, BATCH = 12, 6


def rows(columns: int) -> list[list[str]]:
    chosen = random.Random(0)
    words = folders.WORDS[7:19]
    return [
        [' '.join(chosen.choices(words, k=chosen.randint(1, 9))) for _ in range(columns)]
        for _ in range(ROWS)
    ]


def config_of(tmp_path, init_from, columns=3, scores=0, **keys):
    """The config of a run on a table with texts and, of documents, scores."""
    names = [f'text{number}' for number in range(columns)]
    scored = [f'score{number}' for number in range(scores)]
    lines = [[*names, *scored]]
    for number, texts in enumerate(rows(columns)):
        lines.append([*texts, *(f'{np.sin(number + 2 * place):.3f}' for place in range(scores))])
    path = tmp_path / 'train.tsv'
    path.write_text(''.join('\t'.join(line) + '\n' for line in lines))
    config = finetune.get_config('late_interaction')
    config.init_from = str(init_from)
    config.data.update(train=(str(path),), dev_fraction=0.0)
    config.data.columns.update(texts=tuple(names), scores=tuple(scored))
    config.training.update(steps=3, epochs=0.0, batch_size=BATCH, sequence_length=32)
    config.workdir = str(tmp_path / 'run')
    config.update_from_flattened_dict({key.replace('__', '.'): v for key, v in keys.items()})
    return config


@pytest.fixture(scope='module')
def folder(tmp_path_factory):
    return folders.sentence_transformers(tmp_path_factory.mktemp('late') / 'model')


def params_of(task):
    """The parameters that training starts from, by name."""
    optimizer = optimizers.build(synthetic.OPTIMIZER, lambda step: 1e-3)
    mesh, rules = task.mesh, task.config.sharding_rules
    with jax.set_mesh(mesh), nn.logical_axis_rules(rules):
        state = initial_state(task, optimizer, abstract_state(task, optimizer, mesh, rules), 0)
    return tree_paths.flatten(jax.device_get(state.params))


def loss_and_gradient(task, step):
    """The loss of a batch, and its gradient by the names of the parameters."""
    batch = task.source.batch(step)

    def loss(flat):
        params = traverse_util.unflatten_dict(flat, sep='/')
        terms = task.terms(params, batch, None, train=False)
        return averages.mean(terms['late_interaction'])

    value, gradient = jax.jit(jax.value_and_grad(loss))(params_of(task))
    return float(value), {name: np.asarray(array) for name, array in gradient.items()}


def examples_of(task, step):
    """The texts and the scores of the examples of a batch, in order."""
    size = task.source.order.batch_size
    epoch, first = divmod(step * size, task.source.order.size)
    chosen = task.source.order.epoch(epoch)[first : first + size]
    return [task.splits.train[number] for number in chosen]


def of_theirs(folder, make, examples, with_scores):
    model = MultiVectorEncoder(str(folder), device='cpu')
    model.eval()
    features = []
    for place in range(len(examples[0].texts)):
        side = 'document' if place else 'query'
        texts = [example.texts[place] for example in examples]
        own = model.preprocess(texts, prompt=model.prompts[side], task=side)
        features.append({**own, 'task': side})
    labels = torch.tensor([example.scores for example in examples]) if with_scores else None
    loss = make(model)(features, labels)
    loss.backward()
    gradient = {name: own.grad for name, own in model.named_parameters() if own.grad is not None}
    return float(loss.detach()), gradient


LOSSES = {
    'contrastive': (theirs.MultiVectorMultipleNegativesRankingLoss, scoring.XTRScores(top_k=9)),
    'distill_kl': (theirs.MultiVectorDistillKLDivLoss, scoring.XTRKDScores(top_k=9)),
    'margin_mse': (theirs.MultiVectorMarginMSELoss, None),
}


@pytest.mark.parametrize(
    ('name', 'xtr'), [(name, False) for name in LOSSES] + [('contrastive', True)]
)
def test_losses_and_gradients_are_those_of_sentence_transformers(folder, tmp_path, name, xtr):
    keys = {'problem__mask_equal_texts': False} if name == 'contrastive' else {}
    keys |= dict(problem__scoring='xtr', problem__top_k=9) if xtr else {}
    scores = 0 if name == 'contrastive' else 2
    task = make_task(config_of(tmp_path, folder, scores=scores, problem__loss=name, **keys))
    make, xtr_scores = LOSSES[name]
    options = {'similarity_fct': xtr_scores} if xtr else {}
    found, gradient = loss_and_gradient(task, 1)
    examples = examples_of(task, 1)
    expected, reference = of_theirs(folder, lambda m: make(m, **options), examples, scores > 0)
    assert found == pytest.approx(expected, rel=1e-6)
    pairs = {
        'late_interaction/head/projection/kernel': '1.linear.weight',
        'encoder/embeddings/token': '0.model.embeddings.word_embeddings.weight',
        'encoder/layers_0/feedforward/output/kernel': '0.model.encoder.layer.0.output.dense.weight',
    }
    for ours, other in pairs.items():
        wanted = reference[other].numpy()
        own = gradient[ours] if 'embeddings' in ours else gradient[ours].T
        assert np.abs(wanted).max() > 1e-4
        np.testing.assert_allclose(own[: len(wanted)], wanted, atol=1e-5 * np.abs(wanted).max())


def test_micro_batches_of_one_row_have_the_loss_and_gradient_of_the_batch(folder, tmp_path):
    task = make_task(config_of(tmp_path, folder))
    number = task.source.shape.rows
    assert number > 2
    config = task.config.copy_and_resolve_references()
    config.training.accumulation = number
    loss, expected = loss_and_gradient(task, 0)
    micro_loss, found = loss_and_gradient(dataclasses.replace(task, config=config), 0)
    assert micro_loss == pytest.approx(loss, rel=1e-6)
    largest = max(np.abs(array).max() for array in expected.values())
    for name, array in expected.items():
        np.testing.assert_allclose(found[name], array, atol=1e-5 * largest)


def test_the_settings_and_the_projection_are_those_of_the_folder(folder, tmp_path):
    task = make_task(config_of(tmp_path, folder))
    kept = task.problem.setup.kept
    assert kept['late']['expansion'] == 10
    assert kept['late']['document_length'] == 12
    assert kept['late']['skip_words'] == ('.', ',', '?')
    assert kept['prompts'] == {'query': 'the ', 'document': 'a '}
    assert task.start.params['late_interaction/head/projection/kernel'].shape == (32, 16)
    changed = dict(problem__skip_punctuation=False, problem__skip_words=('ship',))
    changed |= dict(problem__expansion=0, problem__query_prompt='', problem__query_length=5)
    task = make_task(config_of(tmp_path, folder, **changed))
    kept = task.problem.setup.kept
    assert kept['late']['skip_words'] == ('ship',)
    assert kept['late']['expansion'] == 0
    assert kept['prompts'] == {'query': '', 'document': 'a '}
    items = [task.problem.encoding.encode(one) for one in task.splits.train]
    assert max(len(own[0][0].ids) for own in items) == 5
    assert max(len(own[1][0].ids) for own in items) > 5


@pytest.mark.parametrize(
    ('columns', 'scores', 'keys', 'message'),
    [
        (2, 0, dict(query_length=9), 'query_length is 9, but queries are filled up to 10 tokens'),
        (2, 0, dict(skip_words=('taxi',)), "skip_words has 'taxi', which is not a token of the"),
        (2, 1, dict(loss='distill_kl'), '2 texts, but problem.loss=distill_kl needs at least 3'),
        (2, 1, dict(loss='margin_mse'), '2 texts, but problem.loss=margin_mse needs at least 3'),
        (3, 0, dict(loss='distill_kl'), 'no scores, but problem.loss=distill_kl needs them'),
        (3, 1, dict(loss='distill_kl'), '1 scores, must be 2'),
        (2, 0, dict(vector_size=64), 'vector_size is 64, but vectors of init_from have 16 numbers'),
        (1, 0, {}, '1 text, but problem.loss=contrastive needs at least 2'),
    ],
)
def test_settings_that_cannot_be_trained_are_one_line(
    folder, tmp_path, columns, scores, keys, message
):
    settings = {f'problem__{name}': value for name, value in keys.items()}
    with pytest.raises(UserError, match=message) as error:
        make_task(config_of(tmp_path, folder, columns, scores, **settings))
    assert '\n' not in str(error.value)


def test_a_run_answers_after_it_was_trained_and_exported(folder, tmp_path, capsys):
    """Through the commands: training, vectors, export, and formats that it has or lacks."""
    config = config_of(tmp_path, folder, data__dev_fraction=0.3, training__batch_size=4)
    main.run(config)
    results = json.loads((tmp_path / 'run/results.json').read_text())
    assert {'accuracy', 'mrr', 'late_interaction_loss'} <= results['held_out'].keys()
    export.main([f'--model={config.workdir}', f'--output={tmp_path}/exported'])
    ours = bert_jax.load(config.workdir)
    vectors = ours.embed_late(folders.DOCUMENTS)
    _, documents, scores = folders.of_theirs(tmp_path / 'exported')
    for own, other in zip(vectors, documents, strict=True):
        np.testing.assert_allclose(own, other, atol=1e-5)
    found = ours.similarity(folders.QUERIES, folders.DOCUMENTS)
    np.testing.assert_allclose(found, scores, atol=1e-5)
    (tmp_path / 'texts.txt').write_text('\n'.join(folders.DOCUMENTS[:2]) + '\n')
    paths = f'--input={tmp_path}/texts.txt', f'--output={tmp_path}/vectors.npz'
    predict.main([f'--model={config.workdir}', '--task=embed_late', *paths])
    stored = np.load(tmp_path / 'vectors.npz')
    assert stored['offsets'].tolist() == np.cumsum([0, *map(len, vectors[:2])]).tolist()
    np.testing.assert_allclose(stored['embeddings'], np.concatenate(vectors[:2]), atol=1e-6)
    capsys.readouterr()
    with pytest.raises(SystemExit):
        export.main(
            [
                f'--model={config.workdir}',
                f'--output={tmp_path}/other',
                '--format=sentence_transformers',
            ]
        )
    line = capsys.readouterr().err.splitlines()[-1]
    assert '--format=huggingface writes a folder for MultiVectorEncoder' in line
