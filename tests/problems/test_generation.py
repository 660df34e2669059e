"""Generation: rows, the loss of targets alone, label smoothing, templates, what is refused."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from ml_collections import ConfigDict

from bert_jax import problems, progress, tokenizers
from bert_jax.averages import mean
from bert_jax.errors import UserError
from bert_jax.inference.generate_options import never_written
from bert_jax.inference.problem_writer import ProblemWriter
from bert_jax.labels.examples import TargetExample
from bert_jax.models.architecture import Compute
from bert_jax.models.architecture_parts import DecoderStack
from bert_jax.models.model import Model
from bert_jax.models.rows import Rows
from bert_jax.problems.base import Setup
from bert_jax.problems.finetuning_model import EncodedExamples, FineTuningModel
from bert_jax.problems.generation import templates
from bert_jax.problems.generation.problem import GENERATION, Written
from bert_jax.problems.generation.smoothing import smoothed_cross_entropy
from bert_jax.tokenizers.special_token_layout import SpecialTokenLayout
from tests.tasks import small_problems

EXAMPLES = [
    TargetExample('1', ('the small ship near the sea .',), ('the old anchor',)),
    TargetExample('2', ('who saw the cow in the barn ?',), ('nobody saw the cow .', 'nobody')),
    TargetExample('3', ('a red tram',), ('a red tram on the bridge !',)),
]


def build(train=EXAMPLES, max_length=48, start=None, tokenizer=None, **settings):
    kind = 'unigram:60:languages=cy,en:cls=no' if start == 'language' else 'wordpiece:90'
    tokenizer = tokenizer or tokenizers.train(kind, iter([small_problems.TEXT] * 3), True)
    layout = SpecialTokenLayout(tokenizer, max_length, 0)
    defaults = problems.find('generation').settings | {'target_tokens': 16, 'metrics': ('rouge1',)}
    setup = Setup(
        ConfigDict(defaults | settings),
        layout,
        kept={'decoder_start': start},
        is_causal=not start,
    )
    return GENERATION.build_for(list(train), setup)


def make(problem, architecture):
    model = Model(architecture, Compute(), problem.loss.heads(), problem.encoding.is_causal)
    wrapped = FineTuningModel(problem, model)
    encoded = EncodedExamples.of(problem, EXAMPLES)
    return model, small_problems.large_params(wrapped, encoded), wrapped


def writer(problem, model, params=None):
    bars = functools.partial(progress.evaluation_bar, is_shown=False)
    return ProblemWriter.of(problem, model, params, 64, bars)


@pytest.mark.parametrize('form', ['uniform', 'fairseq'])
def test_smoothing_equals_torch_and_the_formula_of_fairseq(form):
    import torch

    rng = np.random.default_rng(0)
    logits_XV, labels_X = 9 * rng.normal(size=(50, 31)).astype('f'), rng.integers(0, 31, 50)
    loss_X = smoothed_cross_entropy(jnp.asarray(logits_XV), labels_X, 0.1, form)
    log_p_XV = torch.log_softmax(torch.tensor(logits_XV, dtype=torch.float64), -1)
    if form == 'uniform':
        expected_X = torch.nn.functional.cross_entropy(
            log_p_XV, torch.tensor(labels_X), label_smoothing=0.1, reduction='none'
        )
    else:
        other = 0.1 / 30
        nll_X = -log_p_XV[np.arange(50), labels_X]
        expected_X = (1 - 0.1 - other) * nll_X - other * log_p_XV.sum(-1)
    np.testing.assert_allclose(loss_X, expected_X.numpy(), rtol=1e-6)
    plain_X = smoothed_cross_entropy(jnp.asarray(logits_XV), labels_X, 0.0, form)
    np.testing.assert_allclose(plain_X, -log_p_XV[np.arange(50), labels_X].numpy(), rtol=1e-6)


def test_only_the_target_and_its_end_are_learned():
    """The loss of packed rows equals a loop over single rows and their target tokens."""
    problem = build()
    architecture = small_problems.architecture('gpt2')
    model, params, wrapped = make(problem, architecture)
    _, terms = small_problems.answers(wrapped, params, EXAMPLES)
    tokenizer, losses = problem.encoding.tokenizer, []
    for example in EXAMPLES:
        source = problem.encoding.source_ids(example)
        (words,) = tokenizer.encode_batch([example.targets[0]]).ids
        ids = [*source, *words, tokenizer.sep_id]
        assert list(source)[-1] == tokenizer.sep_id
        rows = Rows(np.array([ids], np.int32), np.ones((1, len(ids)), np.int32))
        logits_TV = np.asarray(model.apply({'params': params}, rows).heads['clm'], np.float64)[0]
        log_p_TV = logits_TV - np.log(np.exp(logits_TV).sum(-1, keepdims=True))
        losses += [-log_p_TV[place - 1, ids[place]] for place in range(len(source), len(ids))]
    assert mean(terms['generation']) == pytest.approx(np.mean(losses), rel=1e-5)
    assert terms['generation'].count == len(losses)


@pytest.mark.parametrize(('name', 'start'), [('bart', 'sep'), ('t5', 'pad'), ('mbart', 'language')])
def test_a_decoder_learns_targets_and_writes_the_most_probable_tokens(name, start):
    """Packed sources and targets equal single ones; written tokens equal a loop without a cache."""
    languages = {} if name != 'mbart' else {'source_language': 'cy', 'target_language': 'en'}
    problem = build(start=start, target_tokens=14, label_smoothing=0.1, **languages)
    tokenizer = problem.encoding.tokenizer
    decoder = DecoderStack(1, start)
    architecture = small_problems.architecture(name, decoder=decoder, max_position_embeddings=60)
    model, params, wrapped = make(problem, architecture)
    _, terms = small_problems.answers(wrapped, params, EXAMPLES)
    first = [tokenizer.cls_id] if name == 'bart' else []
    before = tokenizer.language_ids['en'] if languages else tokenizer.role_ids[start]
    ends = [tokenizer.language_ids['cy']] if languages else []
    for example in EXAMPLES:
        source = problem.encoding.source_ids(example).tolist()
        assert source[-1 - len(ends) :] == [tokenizer.sep_id, *ends]

    @jax.jit
    def apply(source_BT, target_BU):
        target = Rows(target_BU, (target_BU >= 0).astype(jnp.int32))
        rows = Rows(source_BT, (source_BT >= 0).astype(jnp.int32), target=target)
        return model.apply({'params': params}, rows).heads['seq2seq']

    def log_p(example, read):
        source = problem.encoding.source_ids(example)
        padded = (np.pad(ids, (0, 48 - len(ids)), constant_values=-1) for ids in (source, read))
        logits_UV = apply(*(ids[None].astype(np.int32) for ids in padded))[0, : len(read)]
        logits_UV = np.asarray(logits_UV, np.float64)[:, : tokenizer.vocab_size]
        return logits_UV - np.log(np.exp(logits_UV).sum(-1, keepdims=True))

    nll = []
    for example in EXAMPLES:
        (words,) = tokenizer.encode_batch([example.targets[0]]).ids
        learned = [*first, *words[: 13 - len(first)], tokenizer.sep_id]
        nll += (-log_p(example, [before, *learned[:-1]])[np.arange(len(learned)), learned]).tolist()
    assert terms['nll'].count == len(nll)
    assert mean(terms['nll']) == pytest.approx(np.mean(nll), rel=1e-5)

    never = []  # a decoder may write special tokens, as in transformers
    written = writer(problem, model, params).write_targets(problem.encoding, EXAMPLES)
    for example, tokens in zip(EXAMPLES, written, strict=True):
        ids = first.copy()
        while len(ids) < 14 and ids[-1:] != [tokenizer.sep_id]:
            next_V = log_p(example, [before, *ids])[-1]
            next_V[never] = -np.inf
            is_last = name != 't5' and len(ids) == 13  # BART and mBART are made to end
            ids.append(tokenizer.sep_id if is_last else int(next_V.argmax()))
        assert tokens['ids'].tolist() == ids


def test_long_sources_and_targets_are_truncated_and_counted():
    problem = build(target_tokens=4, max_length=12)
    source, target = (
        f(EXAMPLES[1]) for f in (problem.encoding.source_ids, problem.encoding.target_ids)
    )
    assert (len(source), len(target)) == (8, 4)
    assert source[-1] == target[-1] == problem.encoding.tokenizer.sep_id
    assert +problem.setup.counts == {
        'truncated sources': 1,
        'truncated targets (problem.target_tokens)': 1,
    }


@pytest.mark.parametrize('start', [None, 'pad'])
def test_the_end_of_a_template_stays_when_a_text_is_truncated(start):
    problem = build(
        start=start, target_tokens=4, max_length=24, template='{text} {text2} who ? the ship'
    )
    encoding, texts = problem.encoding, ('a red tram on the bridge ' * 9, 'the cow in the barn')
    ids = encoding.source_ids(TargetExample('1', texts, ('a tram',))).tolist()
    assert len(ids) == 24 - (4 if start is None else 0)
    written = encoding.tokenizer.decode_text(ids)
    assert written.startswith('a red tram on the')
    assert written.endswith('who? the ship')
    assert 'the cow in' in written
    with pytest.raises(UserError, match='template has .* tokens besides its texts'):
        build(max_length=12, target_tokens=8, template='{text} the ship the ship').encoding.encode(
            TargetExample('1', ('a',), None)
        )


def test_sentinels_are_written_and_belong_to_the_text():
    """T5 fills spans with them; BERT-like causal models write no special token."""
    tokenizer = tokenizers.train('unigram:90:sentinels=4:cls=no', iter([small_problems.TEXT] * 3))
    problem = build(start='pad', tokenizer=tokenizer, target_tokens=40)
    text = '<extra_id_0> the ship <extra_id_1> a cow <extra_id_2>'
    ids = problem.encoding.target_ids(TargetExample('1', ('a <extra_id_0> sea',), (text,)))
    assert {*tokenizer.sentinel_ids[:3]} < {*ids.tolist()}
    written = problem.decoder.written({'ids': ids, 'log_p': np.zeros(len(ids))}).text
    assert written.replace(' ', '') == text.replace(' ', '')
    architecture = small_problems.architecture('t5', decoder=DecoderStack(1, 'pad'))
    architecture = dataclasses.replace(architecture, vocab_size=tokenizer.vocab_size + 2)
    model = Model(architecture, Compute(), problem.loss.heads())
    size = tokenizer.vocab_size
    assert never_written(writer(problem, model)) == [size, size + 1]  # ids without a token
    causal = model.clone(architecture=dataclasses.replace(architecture, decoder=None))
    assert {*tokenizer.special_ids} < {*never_written(writer(problem, causal))}


def test_white_space_at_the_start_of_a_target_is_learned_and_written():
    """Such as the indentation of code."""
    tokenizer = tokenizers.train('bytebpe:300', iter([small_problems.TEXT]))
    problem = build(tokenizer=tokenizer, max_length=90, target_tokens=40)
    text = '    x = 1\n    return x'
    ids = problem.encoding.target_ids(TargetExample('1', ('a',), (text,)))
    tokens = {'ids': ids, 'log_p': np.zeros(len(ids))}
    assert problem.decoder.written(tokens).text == text


def test_names_of_special_tokens_in_sources_and_targets_are_these_tokens():
    problem = build(start='pad')
    encoding, tokenizer = problem.encoding, problem.encoding.tokenizer
    example = TargetExample('1', ('the [MASK] ship',), ('a [MASK] tram [SEP]',))
    assert encoding.source_ids(example).tolist().count(tokenizer.mask_id) == 1
    target = encoding.target_ids(example).tolist()
    assert tokenizer.mask_id in target
    assert target.count(tokenizer.sep_id) == 1  # the end that the file has written
    assert not +problem.setup.counts
    encoding.target_ids(TargetExample('1', ('a',), ('a [SEP] tram',)))
    encoding.target_ids(TargetExample('1', ('a',), ('a \u2603 tram',)))
    encoding.source_ids(TargetExample('1', ('a \u2603 tram',), None))
    assert +problem.setup.counts == {
        'targets with the token that ends a text inside': 1,
        'targets with characters unknown to the vocabulary': 1,
        'sources with characters unknown to the vocabulary': 1,
    }


def test_scores_stand_beside_the_source_and_its_first_sentences():
    text = 'The ship left. The sea was calm. Nobody spoke. It rained.'
    examples = [TargetExample(n, (text,), ('The ship left. The sea was calm.',)) for n in range(4)]
    problem = build(examples, metrics=('rouge1', 'bleu'))
    predictions = [Written('The ship left.', -1.0, n > 0) for n in range(4)]
    scores = problem.decoder.score(examples, predictions)
    rows = {row[0]: row[1:] for row in scores.tables['Baselines'].rows}
    assert set(rows) == {'model', 'lead-3', 'copy'}
    assert rows['model'][:-1] == tuple(scores.metrics.values())
    assert rows['copy'][-1] == 11
    assert rows['lead-3'][-1] == 9
    assert scores.tables['Ends'].rows == [(0.75,)]
    (best, *_) = problem.decoder.blind_guesses(examples, examples)
    assert best.text == 'The ship left. The sea was calm.'  # the most frequent target
    (best, *_) = problem.decoder.blind_guesses(EXAMPLES, examples)
    assert best.text == 'The ship left. The sea was calm. Nobody spoke.'


def test_templates_make_texts_of_tasks():
    problem = build(template='stsb', round_numbers=0.2)
    example = TargetExample('7', ('A {text} man.', 'A dog.'), ('3.71',))
    (expected,) = problem.encoding.tokenizer.encode_batch(
        ['stsb sentence1: A {text} man. sentence2: A dog.']
    ).ids
    np.testing.assert_array_equal(problem.encoding.source_ids(example)[1:-1], expected)
    assert problem.decoder.references(example) == ['3.8']
    assert templates.round_number('2.5', 1.0, '') == '2'
    with pytest.raises(UserError, match='example 7: 1 texts, but problem.template .* has 2'):
        problem.encoding.source_ids(TargetExample('7', ('A man.',), None))
    for target in ('good', 'inf', 'nan', '1e400', '1_000'):
        with pytest.raises(UserError, match=f"the target '{target}' is not a finite number"):
            templates.round_number(target, 0.2, '7')
    for template, message in (('{text3} {text}', 'has {text3}'), ('none', 'lacks {text}')):
        with pytest.raises(UserError, match=message):
            build(template=template)


def test_what_cannot_be_learned_is_refused():
    with pytest.raises(UserError, match="unknown problem.target_language ''; known: cy, en"):
        build(start='language', source_language='cy')
    with pytest.raises(UserError, match="unknown problem.source_language 'cz'; known: cy, en"):
        build(start='language', source_language='cz', target_language='en')
    with pytest.raises(UserError, match="target_language is 'en', but the texts of the model have"):
        build(start='sep', target_language='en')
    with pytest.raises(UserError, match='leaves no room for a source in the 16 tokens'):
        build(max_length=16)
    with pytest.raises(UserError, match='min_new_tokens is 17'):
        build(min_new_tokens=17)
    with pytest.raises(UserError, match='example 9: the target .* has no token'):
        build().encoding.encode(TargetExample('9', ('the ship',), ('\u200b',)))
