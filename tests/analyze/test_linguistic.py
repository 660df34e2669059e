"""Linguistic evaluation during pretraining measures what inference measures on the same weights."""

import contextlib
import json

import flax.linen as nn
import jax
import numpy as np
import pytest

from bert_jax.analyze.measures import ridge_probe
from bert_jax.errors import UserError
from bert_jax.inference.predictor import Predictor
from bert_jax.loaded.loaded_model import LoadedModel
from bert_jax.models.rows import Rows
from bert_jax.tasks.pretraining import TEXT_ROWS, builder
from bert_jax.training import sharding
from tests.end_to_end import small

PAIRS = {
    'order': [('the ship near the storm', 'near ship the the storm'), ('the cow .', '. cow the')],
    'number': [
        (f'the {a} near the {b} .', f'the {b} and {a}')
        for a in ('wave', 'salt')
        for b in ('moon', 'star', 'barn')
    ],
}
WORDS = [('the', 'DET'), ('ship', 'NOUN'), ('near', 'ADP'), ('a', 'DET'), ('rockets', 'NOUN')]
CAUSAL = {'objectives__mlm': 0.0, 'objectives__clm': 1.0}


@pytest.fixture(scope='module')
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp('data')
    rows = [
        {'sentence_good': good, 'sentence_bad': bad, 'linguistics_term': 'all', 'UID': name}
        for name, own in PAIRS.items()
        for good, bad in own
    ]
    (folder / 'pairs.jsonl').write_text('\n'.join(map(json.dumps, rows)))
    lines = []
    for start in range(12):
        for number in range(1, 4 + start % 3):
            word, tag = WORDS[(start + number) % len(WORDS)]
            lines.append('\t'.join([str(number), word, '_', tag, *['_'] * 6]))
        lines.append('')
    (folder / 'words.conllu').write_text('\n'.join(lines) + '\n')
    return folder


def config(data, **more):
    settings = {
        'data__segments': 'single',
        'objectives__nsp': 0.0,
        'evaluation__linguistic__pairs': (f'{data}/pairs.jsonl',),
        'evaluation__linguistic__treebank': (f'{data}/words.conllu',),
        'evaluation__linguistic__isotropy': True,
        'evaluation__linguistic__max_share': 1.0,
        'evaluation__every_steps': 0,
        **small.ONE_STAGE,
        'training__steps': (100,),
    }
    return small.config(data, **settings | more)


@contextlib.contextmanager
def large_parameters(task):
    with (
        jax.set_mesh(sharding.make_mesh({'data': 2, 'fsdp': 1, 'tensor': 4})),
        nn.logical_axis_rules(task.config.sharding_rules),
    ):
        yield jax.tree.map(
            lambda leaf: 3 * leaf, sharding.unbox(jax.jit(task.init)(jax.random.key(0)))
        )


@pytest.mark.eight_devices
@pytest.mark.parametrize('objective', [{}, CAUSAL])
def test_the_metrics_are_those_of_inference(objective, data, monkeypatch):
    task = builder.build(config(data, **objective))
    features = []
    monkeypatch.setattr(ridge_probe, 'accuracy', lambda x, *_: features.append(x) or 0.5)
    with large_parameters(task) as params:
        (evaluator,) = task.evaluators
        metrics = evaluator(params)
    tokenizer, is_causal = task.corpus.tokenizer, bool(objective)
    model = LoadedModel(
        None, task.start.architecture, jax.device_get(params), tokenizer, is_causal=is_causal
    )
    predictor = Predictor(model)
    expected = {}
    for name, own in PAIRS.items():
        scores = [[s.total for s in predictor.pseudo_likelihood(pair)] for pair in own]
        expected[name] = np.mean([good > bad for good, bad in scores])
    assert metrics['pairs'] == pytest.approx(np.mean(list(expected.values())))
    numbers = [len(own) for own in PAIRS.values()]
    assert metrics['pairs/all'] == pytest.approx(
        np.average(list(expected.values()), weights=numbers)
    )

    words, texts = [], []
    for start in range(12):
        texts.append([WORDS[(start + number) % 5][0] for number in range(1, 4 + start % 3)])
    embedded = predictor.embed(list(map(' '.join, texts)), 'tokens')
    for text, states in zip(texts, embedded, strict=True):
        pieces = [len(tokenizer.encode_ids([word])[0]) for word in text]
        words += [states[1 + first] for first in np.cumsum([0, *pieces[:-1]])]
    np.testing.assert_allclose(features[0], words, atol=1e-4)

    source = task.held_out[(16, 16)][None]  # more examples than fit into a batch
    text = source.examples(np.arange(min(TEXT_ROWS, source.num_examples)))
    for layer in range(2):
        states = model_states(task, params, text)[layer]
        is_word = (text['attention_mask'] > 0) & ~np.isin(text['input_ids'], tokenizer.special_ids)
        is_word |= text['input_ids'] == tokenizer.unk_id
        unit = states[is_word] / np.linalg.norm(states[is_word], axis=-1, keepdims=True)
        cosines = unit @ unit.T
        mean = (cosines.sum() - np.trace(cosines)) / (len(unit) * (len(unit) - 1))
        assert metrics[f'mean_cosine/{layer}'] == pytest.approx(mean, abs=1e-5)


def model_states(task, params, batch):
    encoder = task.model.with_heads()
    apply = jax.jit(lambda p, rows: encoder.apply({'params': p}, rows, all_hidden=True))
    return np.asarray(apply(params, Rows.of(batch)).states.all_hidden_LBTD)


def test_pairs_are_as_many_as_the_share_of_the_computation_allows(data):
    def lines(**more):
        task = builder.build(config(data, **more))
        return [line for line in task.describe() if line.startswith('linguistic')]

    def share(found):
        return float(found[-1].split(', ')[1].split('%')[0]) / 100

    *_, all_pairs, cost = lines()
    assert '8 minimal pairs, up to 20 of a paradigm' in all_pairs
    assert '1 evaluations' in cost
    limit = share([cost]) - 0.001
    *_, fewer, cost = lines(evaluation__linguistic__max_share=limit)
    assert 'up to 5 of a paradigm' in fewer
    assert share([cost]) <= limit
    times = {'evaluation__every_steps': 40, 'evaluation__steps': (0, 7, 40, 500)}
    assert '5 evaluations' in lines(**times)[-1]  # at 0, 7, 40, 80, 100
    with pytest.raises(UserError, match='above max_share=0.001; evaluate less often'):
        lines(evaluation__linguistic__max_share=0.001)


def test_a_model_whose_encoder_predicts_no_tokens_is_refused(data):
    replaced = {'objectives__rtd': 50.0, 'masking__mask': 0.85, 'masking__random': 0.0}
    with pytest.raises(UserError, match='pairs needs an objective with which the encoder'):
        builder.build(config(data, **replaced))
    rows = {'sentence_good': 'the ' * 15, 'sentence_bad': 'the'}
    (data / 'long.jsonl').write_text(json.dumps(rows))
    pairs = {'evaluation__linguistic__pairs': (f'{data}/long.jsonl',)}
    with pytest.raises(UserError, match='a sentence has 17 tokens; the model takes 16'):
        builder.build(config(data, **pairs, model__max_position_embeddings=16))
