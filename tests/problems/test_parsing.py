"""Dependency parsing: gold trees survive encoding and decoding; scores, packing, bad input."""

import collections
import itertools
import json

import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax import predict
from bert_jax.labels import dependencies
from bert_jax.labels.examples import ParsedExample
from bert_jax.labels.records import InvalidRecord
from bert_jax.metrics import attachment
from bert_jax.models.heads.biaffine import WORD
from bert_jax.models.rows import Rows
from bert_jax.problems.base import Calibration
from bert_jax.problems.finetuning_model import EncodedExamples
from bert_jax.problems.parsing import PARSING
from bert_jax.problems.spanning_tree import best_tree
from tests.labels.reading import read
from tests.tasks.small_problems import TEXT, answers, fit, large_params, make

LABELS = ('det', 'nsubj', 'obj', 'punct', 'root')
SETTINGS = dict(arc_width=12, relation_width=8)


def random_tree(number, rng):
    """The heads of a random tree with one root, mostly not projective."""
    order, heads = rng.permutation(number), [0] * number
    for place, word in enumerate(order[1:], 1):
        heads[word] = int(order[rng.integers(place)]) + 1
    return tuple(heads)


def random_examples(number=12, seed=0):
    rng, words = np.random.default_rng(seed), TEXT.split()
    for name in range(number):
        chosen = [str(word) for word in rng.choice(words, rng.integers(1, 9))]
        ends = np.cumsum([len(word) + 1 for word in chosen])
        offsets = tuple(
            (int(e) - 1 - len(w), int(e) - 1) for w, e in zip(chosen, ends, strict=True)
        )
        heads = random_tree(len(chosen), rng)
        relations = tuple('root' if h == 0 else str(rng.choice(LABELS[:-1])) for h in heads)
        yield ParsedExample(str(name), ' '.join(chosen), offsets, heads, relations)


EXAMPLES = list(random_examples())


@pytest.fixture(scope='module')
def parser():
    return make(PARSING, LABELS, train=EXAMPLES, **SETTINGS)


def test_the_best_tree_is_that_of_networkx():
    networkx = pytest.importorskip('networkx')
    rng = np.random.default_rng(0)
    for number in [1, 2, 3, 4, 7, 12] * 6:
        scores_WU = rng.normal(0, 10, (number, number + 1)).round(int(rng.integers(3)))
        heads_W = best_tree(scores_WU)
        # One root: networkx has no such constraint, so the best over every choice of the root.
        best = -np.inf
        for root in range(number):
            graph = networkx.DiGraph()
            graph.add_edge(0, root + 1, weight=scores_WU[root, 0])
            for word, head in itertools.permutations(range(number), 2):
                graph.add_edge(head + 1, word + 1, weight=scores_WU[word, head + 1])
            tree = networkx.maximum_spanning_arborescence(graph, preserve_attrs=True)
            best = max(best, sum(tree.edges[edge]['weight'] for edge in tree.edges))
        assert scores_WU[np.arange(number), heads_W].sum() == pytest.approx(best)
        dependencies.check_tree(list(map(str, heads_W)))  # one root, no cycle


def test_gold_scores_give_the_gold_tree(parser):
    """Also with a row that other sentences share."""
    problem, _ = parser
    for example in EXAMPLES:
        ((sequence,),) = problem.encoding.encode(example)
        fields, shift = sequence.tokens, 5
        size = len(sequence.ids)
        arcs = np.full((size, size + shift), -7.0)
        places = np.flatnonzero(fields['word'] == WORD)
        arcs[places, places + fields['head_offset'][places] + shift] = 0
        relations = np.zeros(arcs.shape, int)
        relations[places] = fields['relation'][places, None] - 1
        part = {
            'word': fields['word'],
            'position': np.arange(size) + shift,
            'arcs': arcs,
            'relations': relations,
            'relation_log_p': np.zeros(arcs.shape),
        }
        parse = problem.decoder.decode(example, [[part]], Calibration())
        assert tuple(parse.heads) == example.heads
        assert tuple(parse.relations) == example.relations
        assert parse.probabilities == [(1.0, 1.0)] * len(example.words)


def test_a_parser_learns_random_trees_and_packing_changes_nothing(parser):
    problem, model = parser
    parts, losses = fit(model, EXAMPLES, 120)
    assert losses[-1] < 0.2 < losses[0]
    predictions = [
        problem.decoder.decode(e, p, Calibration()) for e, p in zip(EXAMPLES, parts, strict=True)
    ]
    assert problem.decoder.score(EXAMPLES, predictions).metrics['las'] > 0.97
    params = large_params(model, EncodedExamples.of(problem, EXAMPLES))
    packed, terms = answers(model, params, EXAMPLES, rows=1, length=64)
    assert terms['arcs'].count == sum(len(example.words) for example in EXAMPLES)
    for number in (0, 5, 9):
        example = EXAMPLES[number]
        (alone,), _ = answers(model, params, [example], rows=1, length=30)
        together = problem.decoder.decode(example, packed[number], Calibration())
        expected = problem.decoder.decode(example, alone, Calibration())
        assert together.heads == expected.heads
        assert together.relations == expected.relations
        np.testing.assert_allclose(together.probabilities, expected.probabilities, atol=1e-4)


def test_losses_and_relations_are_those_of_an_obvious_loop(parser):
    problem, model = parser
    example = max(EXAMPLES, key=lambda example: len(example.words))
    encoded = EncodedExamples.of(problem, [example])
    params = large_params(model, encoded)
    parts, terms = answers(model, params, [example], rows=1, length=30)
    (((part,),),) = parts
    ((sequence,),) = encoded.problem.encoding.encode(example)
    fields, arc_loss = sequence.tokens, 0.0
    places = np.flatnonzero(fields['word'] == WORD)
    columns = [0, *places]
    for place in places:
        own = part['arcs'][place, columns]
        assert np.exp(own).sum() == pytest.approx(1, abs=1e-5)
        assert np.exp(own[columns.index(place)]) == 0  # not its own head
        arc_loss -= part['arcs'][place, place + fields['head_offset'][place]]
        root, other = part['relations'][place, 0], part['relations'][place, columns[1:]]
        assert LABELS[root] == 'root'  # as in the train split: only the root has it
        assert LABELS.index('root') not in other
    assert terms['arcs'].sum == pytest.approx(arc_loss, rel=1e-5)
    rows = Rows.of(encoded.items.batch(np.array([0]), np.array([0]), (1, 30, 1)))
    scores = model.model.apply({'params': params}, rows).heads['biaffine']
    relation_loss = 0.0
    for place in places:
        head = place + fields['head_offset'][place]
        d, h = scores.dependents_BTE[0, place], scores.heads_BTE[0, head]
        logits = np.array([float(d @ weight @ h) for weight in scores.relations_CEE])
        relation_loss += np.log(np.exp(logits).sum()) - logits[fields['relation'][place] - 1]
    assert terms['relations'].sum == pytest.approx(relation_loss, rel=1e-3)
    assert jnp.isfinite(scores.arcs_BTU).all()


def test_words_beyond_the_sequence_have_no_prediction_and_count_as_wrong():
    problem, model = make(PARSING, LABELS, max_length=6, train=EXAMPLES, **SETTINGS)
    example = max(EXAMPLES, key=lambda example: len(example.words))
    encoded = EncodedExamples.of(problem, [example])
    missing = problem.setup.counts['words beyond the sequence length']
    assert 0 < missing < len(example.words)
    parts, _ = answers(model, large_params(model, encoded), [example])
    parse = problem.decoder.decode(example, parts[0], Calibration())
    assert parse.heads.count(None) == missing
    assert problem.decoder.score([example], [parse]).metrics['uas'] <= 1 - missing / len(
        parse.heads
    )
    record = problem.decoder.to_record(example, parse)
    assert record['words'][-1]['probability'] is None
    assert dependencies.new_sentence(record)[-1].split('\t')[6:8] == ['_', '_']


def test_scores_are_those_of_the_official_rules():
    """All words count, and relations without their subtypes; per sentence for the intervals."""
    gold = [
        attachment.DependencyTree((2, 0, 2), ('nmod:poss', 'root', 'punct')),
        attachment.DependencyTree((0,), 'r'),
    ]
    own = [
        attachment.DependencyTree((2, 0, 1), ('nmod', 'root', 'punct')),
        attachment.DependencyTree((0,), 's'),
    ]
    scores = attachment.score(gold, own)
    assert scores.metrics == {'las': 2 / 4, 'uas': 3 / 4, 'las_subtypes': 1 / 4}
    of_rows = attachment.score_rows(gold, own)(np.array([0, 0, 1]))
    assert of_rows == {'las': 4 / 7, 'uas': 5 / 7, 'las_subtypes': 2 / 7}
    rows = {row[0]: row[1:] for row in scores.tables['Relations'].rows}
    assert rows['punct'] == (0, 0, 0, 1)
    assert rows['root'] == (1, 1, 1, 1)


CONLLU = """\
# sent_id = a
# text = Je vais du parc, don't.
1	Je	_	PRON	_	_	2	nsubj	2:nsubj	_
2	vais	_	VERB	_	_	0	root	_	_
3-4	du	_	_	_	_	_	_	_	_
3	de	_	ADP	_	_	5	case	_	_
4	le	_	DET	_	_	5	det	_	_
5	parc	_	NOUN	_	_	2	obl	_	SpaceAfter=No
6	,	_	PUNCT	_	_	2	punct	_	_
6.1	vu	_	VERB	_	_	_	_	2:conj	_
7-8	don't	_	_	_	_	_	_	_	SpaceAfter=No
7	do	_	AUX	_	_	2	aux	_	_
8	n't	_	PART	_	_	2	advmod	_	_
9	.	_	PUNCT	_	_	2	punct	_	_
"""


def test_words_of_multiword_tokens_are_in_the_text_and_empty_nodes_are_left_out():
    counts = collections.Counter()
    words = dependencies.read_words(CONLLU.splitlines(), counts)
    assert words.text == "Je vais de le parc, don't."
    found = [words.text[start:end] for start, end in words.offsets]
    assert found == ['Je', 'vais', 'de', 'le', 'parc', ',', 'do', "n't", '.']
    assert counts['multiword_tokens_replaced_by_their_words'] == 1
    assert counts['empty_nodes'] == 1


def test_predicted_trees_replace_heads_and_relations_and_nothing_else():
    lines = CONLLU.splitlines()
    record = {'words': [{'head': n, 'relation': f'r{n}'} for n in range(9)]}
    written = dependencies.with_tree(lines, record)
    assert len(written) == len(lines)
    for before, after in zip(lines, written, strict=True):
        old, new = before.split('\t'), after.split('\t')
        if old[0].isdecimal():
            number = int(old[0]) - 1
            assert new[6:9] == [str(number), f'r{number}', '_']
            assert new[:6] + new[9:] == old[:6] + old[9:]
        else:
            assert after == before


@pytest.mark.parametrize(
    ('heads', 'message'),
    [
        (('0', '3', '2'), 'cycle at word 2'),
        (('0', '0', '1'), 'sentences_with_several_roots'),
        (('2', '1', '1'), 'the tree has no root'),
        (('0', '4', '1'), "the head '4' is not one of the 3 words or 0"),
        (('0', '_', '1'), "the head '_'"),
    ],
)
def test_heads_that_are_not_a_tree_are_refused(heads, message):
    with pytest.raises(InvalidRecord, match=message):
        dependencies.check_tree(heads)


def test_sentences_with_several_roots_are_counted_and_left_out(tmp_path):
    rows = [[str(n), 'w', *'_' * 4, '0' if n < 3 else '1', 'dep', '_', '_'] for n in (1, 2, 3)]
    several = '\n'.join(map('\t'.join, rows))
    (tmp_path / 'a.conllu').write_text(f'{CONLLU}\n{several}\n\n{CONLLU}\n{several}\n')
    splits = read('parsing', train=(f'{tmp_path}/a.conllu',), dev_fraction=0.0)
    assert len(splits.train) == 2
    assert splits.report['sentences_with_several_roots'] == 2
    assert not splits.report['malformed']


def test_predict_reads_and_writes_conllu(tmp_path, parser):
    from tests.inference import small_runs

    run = small_runs.save_run(tmp_path / 'run', 'parsing')
    (tmp_path / 'in.conllu').write_text(CONLLU + '\n' + CONLLU.replace('= a', '= b'))
    arguments = [f'--model={run}', '--task=parse', f'--input={tmp_path / "in.conllu"}']
    predict.main([*arguments, f'--output={tmp_path / "out.conllu"}'])
    predict.main([*arguments, f'--output={tmp_path / "out.jsonl"}'])
    sentences = dependencies.split_sentences((tmp_path / 'out.conllu').read_text().splitlines())
    records = [json.loads(line) for line in (tmp_path / 'out.jsonl').read_text().splitlines()]
    assert [record['id'] for record in records] == ['a', 'b']
    for sentence, record in zip(sentences, records, strict=True):
        words = dependencies.read_words(sentence, collections.Counter())
        heads = dependencies.check_tree([row[6] for row in words.rows])
        assert list(heads) == [word['head'] for word in record['words']]
        assert [row[7] for row in words.rows] == [word['relation'] for word in record['words']]
    (tmp_path / 'in.txt').write_text('the ship, near\n')
    arguments[2] = f'--input={tmp_path / "in.txt"}'
    predict.main([*arguments, f'--output={tmp_path / "new.conllu"}'])
    lines = (tmp_path / 'new.conllu').read_text().splitlines()
    assert lines[:2] == ['# sent_id = input 1', '# text = the ship, near']
    assert [line.split('\t')[1] for line in lines[2:6]] == ['the', 'ship', ',', 'near']
    assert lines[3].endswith('SpaceAfter=No')


def test_a_sentence_that_is_not_conllu_is_one_line(tmp_path, capsys):
    from tests.inference import small_runs

    run = small_runs.save_run(tmp_path / 'run', 'parsing')
    (tmp_path / 'in.conllu').write_text(CONLLU + '\n1\tword\n')
    with pytest.raises(SystemExit):
        predict.main(
            [f'--model={run}', '--task=parse', f'--input={tmp_path / "in.conllu"}', '--output=-']
        )
    assert 'in.conllu, sentence 2: not CoNLL-U: 2 columns' in capsys.readouterr().err
