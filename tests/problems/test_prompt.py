"""Prompts as a fine-tuning problem: loss, packed rows, and runs from data to predictions."""

import json
import random

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

import bert_jax
from bert_jax import export, main
from bert_jax.averages import mean
from bert_jax.errors import UserError
from bert_jax.examples.finetune_batches import BatchShape
from bert_jax.labels.examples import PromptExample
from bert_jax.problems import PROBLEMS
from bert_jax.problems.base import Calibration
from bert_jax.problems.finetuning_model import EncodedExamples
from bert_jax.problems.prompt import PROMPT
from bert_jax.problems.prompt_regression import ENDS, PROMPT_REGRESSION
from bert_jax.reports import ensemble
from configs import finetune
from tests.end_to_end import small
from tests.interop import published
from tests.tasks.small_problems import TEXT, answers, batches, fit, large_params, make

LABELS = ('a', 'b', 'c')
SETTINGS = {k: v for k, v in PROBLEMS['prompt'].settings.items() if k != 'labels'} | {
    'template': '{text} near the [MASK] !',
    'answers': ('a=sea|tram', 'b=the small', 'c=cow'),
}


def examples(number: int = 9, seed: int = 0) -> list[PromptExample]:
    rng, words = random.Random(seed), TEXT.split()
    return [
        PromptExample(
            str(i), ('text',), (' '.join(rng.choices(words, k=rng.randint(1, 9))),), LABELS[i % 3]
        )
        for i in range(number)
    ]


SLOW = pytest.mark.slow


@pytest.mark.parametrize(
    'name', ['bert', *(pytest.param(name, marks=SLOW) for name in ('deberta', 'modernbert'))]
)
def test_the_loss_is_the_cross_entropy_of_mean_log_probabilities(name):
    given = [*examples(), PromptExample('x', ('text',), ('no label',), None)]
    problem, model = make(PROMPT, LABELS, name=name, **SETTINGS | {'decoding': 'parallel'})
    params = large_params(model, EncodedExamples.of(problem, given))
    parts, terms = answers(model, params, given)
    # One row for each example, without packing.
    alone = [answers(model, params, [one], rows=1)[0][0] for one in given]
    for ours, theirs in zip(parts, alone, strict=True):
        np.testing.assert_allclose(
            problem.decoder.decode(given[0], ours, Calibration()).answers,
            problem.decoder.decode(given[0], theirs, Calibration()).answers,
            rtol=1e-4,
            atol=1e-12,
        )
    predictions = [
        problem.decoder.decode(one, own, Calibration())
        for one, own in zip(given, parts, strict=True)
    ]
    log_p = torch.tensor([one.answers for one in predictions]).log()
    words = [one.label for one in problem.encoding.answers.all]
    scores = torch.stack(
        [log_p[:, [word == label for word in words]].mean(-1) for label in LABELS], -1
    )
    gold = torch.tensor([LABELS.index(one.label) for one in given[:-1]])
    expected = torch.nn.functional.cross_entropy(scores[:-1], gold)
    assert float(mean(terms['classification'])) == pytest.approx(float(expected), rel=1e-4)
    right = (scores[:-1].argmax(-1) == gold).double().mean()
    assert float(mean(terms['accuracy'])) == pytest.approx(float(right))
    assert float(terms['accuracy'].count) == 9


@pytest.mark.parametrize('decoding', ['max_first', pytest.param('left_to_right', marks=SLOW)])
def test_masks_are_filled_one_by_one_in_packed_rows(decoding):
    given = examples(5)
    problem, model = make(PROMPT, LABELS, **SETTINGS | {'decoding': decoding})
    params = large_params(model, EncodedExamples.of(problem, given))
    parts, terms = answers(model, params, given)
    rounds = sum(len(one.pieces) - 1 for one in problem.encoding.answers.all)
    assert problem.encoding.answers.length_A.tolist() == [1, 2, 3, 1]
    assert all(len(own) == 1 + rounds for own in parts)
    assert all(
        not problem.encoding.further_items(one, own) for one, own in zip(given, parts, strict=True)
    )
    alone = [answers(model, params, [one], rows=1)[0][0] for one in given]
    for ours, theirs in zip(parts, alone, strict=True):
        np.testing.assert_allclose(
            problem.decoder.decode(given[0], ours, Calibration()).answers,
            problem.decoder.decode(given[0], theirs, Calibration()).answers,
            rtol=1e-4,
            atol=1e-12,
        )
    assert float(terms['accuracy'].count) == 5


def test_prompts_are_learned():
    given = examples(6)
    problem, model = make(PROMPT, LABELS, **SETTINGS)
    parts, losses = fit(model, given, steps=60)
    predicted = [
        problem.decoder.decode(one, own, Calibration())
        for one, own in zip(given, parts, strict=True)
    ]
    assert losses[-1] < 0.1 * losses[0]
    assert problem.decoder.score(given, predicted).metrics['accuracy'] == 1


def test_demonstrations_are_answered_examples_of_each_class():
    given = examples(9)
    settings = SETTINGS | {'demonstrations': 3}
    problem, model = make(PROMPT, LABELS, max_length=200, train=given, **settings)
    items = problem.encoding.encode(given[0])
    assert len(items) == 3
    decoded = [problem.encoding.tokenizer.decode(item[0].ids) for item in items]
    assert len(set(decoded)) > 1
    for text in decoded:
        asked, *shown = text.removesuffix(' [SEP]').split(' [SEP] ')
        assert '[MASK]' in asked
        for own, word in zip(shown, ('sea', 'the small', 'cow'), strict=True):
            filled = own.removesuffix('!').strip()
            assert filled.endswith(f'near the {word}')
            assert '[MASK]' not in own
        assert given[0].fields[0] not in ' '.join(shown)
    params = large_params(model, EncodedExamples.of(problem, given))
    parts, terms = answers(model, params, given)
    assert float(terms['accuracy'].count) == 3 * 9
    log_p = np.log(problem.decoder.decode(given[0], parts[0], Calibration()).answers)
    alone = [[score.log_p for score in own] for own in problem.encoding.partial_scores(parts[0])]
    assert np.std(alone, axis=0).min() > 0
    np.testing.assert_allclose(log_p, np.mean(alone, axis=0), rtol=1e-6)


def test_demonstrations_need_an_example_of_each_class():
    settings = SETTINGS | {'answers': ('a', 'b', 'c', 'd'), 'demonstrations': 1}
    with pytest.raises(UserError, match="there is none of 'd'"):
        make(PROMPT, (*LABELS, 'd'), train=examples(3), **settings)


def test_regression_minimizes_the_divergence_from_two_ends():
    given = [one._replace(label=i / 2) for i, one in enumerate(examples(9))]
    given[3] = given[3]._replace(label=None)
    settings = {k: v for k, v in PROBLEMS['prompt_regression'].settings.items() if k != 'labels'}
    settings |= {'template': SETTINGS['template'], 'answers': ('low=sea', 'high=cow|the small')}
    problem, model = make(PROMPT_REGRESSION, ENDS, **settings | {'highest': 5.0})
    params = large_params(model, EncodedExamples.of(problem, given))
    parts, terms = answers(model, params, given)
    predictions = [
        problem.decoder.decode(one, own, Calibration())
        for one, own in zip(given, parts, strict=True)
    ]
    known = [i for i in range(9) if i != 3]
    share = torch.tensor([given[i].label / 5 for i in known])
    target = torch.stack([share, 1 - share], -1)
    found = mean(terms['regression'])
    parallel, _ = make(
        PROMPT_REGRESSION, ENDS, **settings | {'highest': 5.0, 'decoding': 'parallel'}
    )
    log_p = [
        parallel.decoder.decode(given[i], parts[i][:1], Calibration()).classes.values()
        for i in known
    ]
    log_p = torch.tensor([list(own) for own in log_p]).log()
    expected = torch.nn.functional.kl_div(log_p, target, reduction='batchmean')
    assert float(found) == pytest.approx(float(expected), rel=1e-4)
    assert float(terms['regression'].count) == 8
    record = problem.decoder.to_record(given[1], predictions[1])
    assert record['predicted'] == pytest.approx(5 * predictions[1].classes['high'])
    assert (
        'pearson'
        in problem.decoder.score([given[i] for i in known], [predictions[i] for i in known])[0]
    )
    guess = problem.decoder.blind_guesses([], [given[i] for i in known])[0]
    assert problem.decoder.to_record(given[0], guess)['predicted'] == pytest.approx(
        np.mean([given[i].label for i in known])
    )
    with pytest.raises(UserError, match='the label 9.0 is not between problem.lowest=0 and'):
        problem.encoding.encode(given[0]._replace(label=9.0))
    with pytest.raises(UserError, match='problem.lowest is 5, but problem.highest is 1'):
        make(PROMPT_REGRESSION, ENDS, **settings | {'lowest': 5.0})


def test_a_field_that_the_data_lacks_is_refused():
    settings = SETTINGS | {'template': '{title} [MASK]'}
    with pytest.raises(UserError, match=r'has the field \{title\}, but the data has text; set'):
        make(PROMPT, LABELS, train=examples(1), **settings)
    with pytest.raises(UserError, match='problem.template is empty; set it, such as'):
        make(PROMPT, LABELS, **SETTINGS | {'template': ''})


@pytest.fixture(scope='module')
def weights(tmp_path_factory):
    folder = tmp_path_factory.mktemp('weights') / 'bert'
    return published.folder(folder, max_position_embeddings=40)


def config_of(folder, weights, **more):
    rng, rows = random.Random(0), ['words\tkind']
    for _ in range(24):
        topic = rng.choice(['sea', 'farm'])
        chosen = rng.sample(small.TOPICS[topic], 2)
        rows.append(f'the {chosen[0]} and the {chosen[1]}\t{topic}')
    (folder / 'data.tsv').write_text('\n'.join(rows))
    config = finetune.get_config('prompt')
    keys = {
        'workdir': str(folder / 'run'),
        'init_from': str(weights) if weights else '',
        'data.train': (str(folder / 'data.tsv'),),
        'data.dev_fraction': 0.25,
        'data.columns.fields': ('words',),
        'data.columns.label': 'kind',
        'problem.template': '{words} near the [MASK] .',
        'problem.answers': ('sea=ship|wxyz', 'farm=cow'),
        'training.epochs': 0.0,
        'training.steps': 3,
        'training.batch_size': 8,
        'training.sequence_length': 24,
        'evaluation.every_steps': 3,
    }
    given = {key.replace('__', '.'): value for key, value in more.items()}
    config.update_from_flattened_dict(keys | given)
    return config


def test_a_finished_run_predicts_evaluates_and_is_exported(tmp_path, weights, no_loader_process):
    results = main.run(config_of(tmp_path, weights))
    assert results['held_out'].keys() >= {'accuracy', 'classification_loss'}
    run = tmp_path / 'run'
    assert '| accuracy |' in (run / 'README.md').read_text()
    records = [json.loads(line) for line in (run / 'dev/predictions.jsonl').open()]
    assert len(records) == 6
    model = bert_jax.load(run)
    assert model.tasks[-2:] == ('generate', 'prompt')
    found = model.prompt([{'words': one['texts'][0]} for one in records])
    for ours, theirs in zip(found, records, strict=True):
        assert ours['predicted'] == theirs['predicted']
        assert ours['probability'] == pytest.approx(theirs['probability'], rel=1e-4)
    before = bert_jax.load(weights).with_prompt('{words} near the [MASK] .', ['sea=ship', 'x=cow'])
    after = model.with_prompt('{words} near the [MASK] .', ['sea=ship', 'x=cow'])
    given = [{'words': 'the sea'}]
    assert before.prompt(given)[0]['probability'] != after.prompt(given)[0]['probability']
    scores = model.evaluate([str(tmp_path / 'data.tsv')]).scores.metrics
    assert 0 <= scores['accuracy'] <= 1
    export.export(export.Request(model=str(run), output=str(tmp_path / 'exported')))
    assert bert_jax.load(tmp_path / 'exported').prompt(given) == model.prompt(given)


@pytest.mark.slow  # a finished run and packed rows with several masks are quick
def test_a_run_with_demonstrations_keeps_them(tmp_path, weights):
    # Prompts with one and with four masks share a row that is longer than the model's 40 positions.
    more = {'problem__demonstrations': 2, 'training__sequence_length': 40}
    main.run(config_of(tmp_path, weights, **more))
    run = tmp_path / 'run'
    (record, *_) = [json.loads(line) for line in (run / 'dev/predictions.jsonl').open()]
    (found,) = bert_jax.load(run).prompt([{'words': record['texts'][0]}])
    assert found['predicted'] == record['predicted']
    assert found['probability'] == pytest.approx(record['probability'], rel=1e-4)


@pytest.mark.slow  # its loss and its answers are tested above
def test_a_run_of_regression_predicts_numbers(tmp_path, weights):
    config = config_of(tmp_path, weights)
    given = {'data.train': config.data.train, 'init_from': config.init_from}
    rows = (tmp_path / 'data.tsv').read_text().replace('sea', '4.5').replace('farm', '1')
    (tmp_path / 'data.tsv').write_text(rows)
    regression = finetune.get_config('prompt_regression')
    regression.update_from_flattened_dict(
        given
        | {
            'workdir': str(tmp_path / 'run'),
            'data.dev_fraction': 0.25,
            'data.columns.text': 'words',
            'data.columns.label': 'kind',
            'problem.template': '{text} near the [MASK] .',
            'problem.answers': ('high=ship', 'low=cow'),
            'problem.highest': 5.0,
            'training.epochs': 0.0,
            'training.steps': 2,
            'training.sequence_length': 24,
        }
    )
    results = main.run(regression)
    assert results['held_out'].keys() >= {'pearson', 'regression_loss'}
    (record,) = bert_jax.load(tmp_path / 'run').prompt(['the ship'])
    assert 0 <= record['predicted'] <= 5


def test_only_unlabeled_prompts_are_masked_and_only_in_training():
    given = [*examples(4), *(one._replace(label=None) for one in examples(6, seed=1))]
    problem, model = make(PROMPT, LABELS, **SETTINGS | {'mlm_weight': 1e-4})
    assert problem.loss.weights == {'classification': 1 - 1e-4, 'mlm': 1e-4}
    encoded = EncodedExamples.of(problem, given)
    ((batch, _),) = batches(encoded, BatchShape(16, 64, 16))
    np.testing.assert_array_equal(model.rows(batch).input_ids_BT, batch['input_ids'])
    seeds_R = jnp.arange(16, dtype=jnp.uint32)
    masked_ids = np.asarray(model.rows(batch, seeds_R).input_ids_BT)
    again = np.asarray(model.rows(batch, seeds_R + 16).input_ids_BT)
    changed = masked_ids != batch['input_ids']
    assert changed.any()
    assert (masked_ids != again).any()
    assert not changed[(batch['is_unlabeled'] == 0) | (batch['mask_slot'] > 0)].any()
    params = large_params(model, encoded)
    outputs = jax.jit(model.outputs)(params, batch, seeds_R)
    terms = problem.loss.terms(outputs, batch)
    # 15 % of the tokens of each sequence, at least one.
    sizes = [
        max(1, round(0.15 * len(sequence.ids)))
        for one in given[4:]
        for item in problem.encoding.encode(one)
        for sequence in item
    ]
    assert float(terms['mlm'].count) == sum(sizes)
    assert float(terms['classification'].count) == 4
    logits, labels, weights = outputs['masked']
    expected = torch.nn.functional.cross_entropy(
        torch.tensor(np.asarray(logits))[np.asarray(weights) > 0],
        torch.tensor(np.asarray(labels))[np.asarray(weights) > 0].long(),
    )
    assert float(mean(terms['mlm'])) == pytest.approx(float(expected), rel=1e-4)
    unmasked = jax.eval_shape(lambda: problem.loss.terms(model.outputs(params, batch), batch))
    assert 'mlm' not in unmasked


def test_an_epoch_has_three_unlabeled_examples_for_each_labeled_one():
    train, unlabeled = examples(2), [one._replace(label=None) for one in examples(9)] * 2
    problem, _ = make(PROMPT, LABELS, **SETTINGS | {'mlm_weight': 1e-4})
    mixed = problem.encoding.training_examples(train, unlabeled)
    assert [one.label is None for one in mixed].count(True) == 18
    assert [one.label is None for one in mixed].count(False) == 6
    with pytest.raises(UserError, match='mlm_weight is 0.0001, but there are 0 unlabeled'):
        problem.encoding.training_examples(train, [])


@pytest.mark.slow  # its terms are tested above
def test_a_run_with_the_auxiliary_loss_of_pet(tmp_path, weights):
    (tmp_path / 'more.tsv').write_text('words\n' + 'the ship and the cow\n' * 20)
    more = {
        'data__unlabeled': (str(tmp_path / 'more.tsv'),),
        'problem__mlm_weight': 0.0001,
        'logging__every_steps': 1,
    }
    results = main.run(config_of(tmp_path, weights, **more))
    assert 'mlm_loss' not in results['held_out']
    logged = [json.loads(line) for line in (tmp_path / 'run/metrics.jsonl').open()]
    assert any(value > 0 for line in logged for key, value in line.items() if key.endswith('mlm'))


@pytest.mark.slow  # reports/test_ensemble.py; test_classification.py distills
def test_a_classifier_is_trained_on_the_answers_of_an_ensemble(tmp_path, weights):
    texts, paths = ['the ship', 'the cow and the barn', 'a wave', 'the hen'] * 4, []
    model = bert_jax.load(weights)
    for number, words in enumerate((['ship', 'cow'], ['wave', 'barn'])):
        prompted = model.with_prompt(
            '{text} near the [MASK] .', dict(zip(('sea', 'farm'), words, strict=True))
        )
        paths.append(tmp_path / f'{number}.jsonl')
        records = prompted.prompt(texts, probabilities=True)
        paths[-1].write_text(''.join(json.dumps(own) + '\n' for own in records))
    soft = tmp_path / 'soft.jsonl'
    ensemble.main([*map(str, paths), f'--output={soft}'])
    student = finetune.get_config('classification')
    student.update_from_flattened_dict(
        {
            'workdir': str(tmp_path / 'run'),
            'init_from': str(weights),
            'data.train': (str(soft),),
            'data.dev_fraction': 0.25,
            'data.columns.probabilities': 'probabilities',
            'problem.temperature': 2.0,
            'training.epochs': 0.0,
            'training.steps': 2,
            'training.sequence_length': 24,
        }
    )
    assert np.isfinite(main.run(student)['held_out']['classification_loss'])
    (record,) = bert_jax.load(tmp_path / 'run').classify(['the ship'])
    assert record['predicted'] in ('sea', 'farm')


@pytest.mark.slow  # tasks/test_sweep.py draws and compares
def test_a_few_shot_sweep_reports_the_mean_over_its_draws(tmp_path, weights):
    own = config_of(tmp_path, weights)
    few = finetune.get_config('few_shot')
    assert few.sweep.seeds == (13, 21, 42, 87, 100)
    assert (few.data.shots, few.training.steps, few.evaluation.every_steps) == (16, 1000, 100)
    few.update(dict(workdir=str(tmp_path / 'sweep'), init_from=own.init_from))
    few.problem.update(own.problem.to_dict())
    few.data.columns.update(own.data.columns.to_dict())
    few.update_from_flattened_dict(
        {
            'data.train': own.data.train,
            'data.test_fraction': 0.4,
            'data.shots': 2,
            'training.steps': 1,
            'training.batch_size': 4,
            'training.sequence_length': 24,
            'evaluation.every_steps': 1,
            'sweep.seeds': (13, 21),
        }
    )
    found = main.run(few)
    accuracy = found['other_splits']['test']['accuracy']
    assert accuracy['mean'] == pytest.approx(np.mean(accuracy['values']))
    assert len(accuracy['values']) == 2
    drawn = [
        [json.loads(line)['id'] for line in (tmp_path / f'sweep/seed_{seed}/dev' / name).open()]
        for seed in (13, 21)
        for name in ('predictions.jsonl',)
    ]
    assert [len(own) for own in drawn] == [4, 4]
    assert drawn[0] != drawn[1]


def test_unlabeled_examples_are_refused_where_nothing_uses_them():
    kind = PROBLEMS['classification'].load()
    settings = dict(PROBLEMS['classification'].settings)
    problem, _ = make(kind, settings.pop('labels') or LABELS, **settings)
    with pytest.raises(UserError, match='data.unlabeled has no use for this kind of problem'):
        problem.encoding.training_examples([], examples(1))


def test_weights_without_the_head_are_refused(tmp_path):
    bare = published.folder(tmp_path / 'bare', 'BertModel', max_position_embeddings=40)
    with pytest.raises(UserError, match="the head 'mlm' .* the weights of init_from lack it; set"):
        main.run(config_of(tmp_path, bare))
    with pytest.raises(UserError, match="the head 'mlm' further, but init_from is empty; set"):
        main.run(config_of(tmp_path, None, data__tokenizer='train:wordpiece:60'))
