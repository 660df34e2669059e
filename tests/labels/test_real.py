"""Reading published files; the expected counts are those of their documentation."""

import collections
import json

import pytest

from bert_jax.labels import dependencies
from bert_jax.labels.examples import Span
from tests.labels.reading import read


def everything(kind, columns=None, **settings):
    splits = read(kind, columns, dev_fraction=0.2, **settings)
    assert len(splits.dev) == pytest.approx(0.2 * len(splits.train + splits.dev), abs=1)
    return splits.train + splits.dev, splits.report


def test_sentence_polarity_has_5331_examples_of_each_class(real_data):
    found, _ = everything(
        'classification',
        train=(f'{real_data}/sentence_polarity/rt-polarity.*',),
        format='lines',
        encoding='latin-1',
    )
    assert collections.Counter(one.label for one in found) == {'pos': 5331, 'neg': 5331}


def test_banking77_has_10003_examples_of_all_categories(real_data):
    found, _ = everything(
        'classification',
        {'label': 'category'},
        train=(f'{real_data}/banking77/train.csv',),
        format='csv',
    )
    categories = json.loads((real_data / 'banking77/categories.json').read_text())
    assert len(found) == 10_003
    assert {one.label for one in found} == set(categories)


def test_med_nli_has_pairs_of_two_classes(real_data):
    found, _ = everything(
        'classification',
        {'text': 'sentence1', 'text2': 'sentence2', 'label': 'gold_label'},
        train=(f'{real_data}/med_nli/MED.tsv',),
    )
    labels = collections.Counter(one.label for one in found)
    assert labels == {'entailment': 2705, 'neutral': 2677}
    assert all(len(one.texts) == 2 for one in found)


@pytest.mark.parametrize(('name', 'scored'), [('question-question', 209), ('answers-forums', 375)])
def test_sts_scores_are_between_0_and_5(real_data, name, scored):
    path = real_data / f'sts_stackexchange/{name}.test.tsv'
    found, report = everything(
        'regression',
        {'text': '1', 'text2': '2', 'label': '0'},
        train=(str(path),),
        header=False,
        skip_labels=('',),
    )
    assert len(found) == scored
    assert report['skipped_by_label'] == len(path.read_text().splitlines()) - scored
    assert all(0 <= one.label <= 5 for one in found)


def test_the_english_web_treebank_has_its_words_and_tags(real_data):
    folder = real_data / 'ud_english_ewt'
    splits = read(
        'tagging',
        {'tag': 'upos'},
        train=(f'{folder}/*train.conllu.gz',),
        dev=(f'{folder}/*dev.conllu',),
        format='conllu',
        scheme='none',
    )
    assert (len(splits.train), len(splits.dev)) == (12_544, 2001)
    assert 'texts_made_of_words' not in splits.report
    for one in splits.train + splits.dev:
        assert len(one.words) == len(one.tags)
        assert 'X' in one.tags or '_' not in one.tags
        uncovered = list(one.text)
        for start, end in one.words:
            assert start < end
            uncovered[start:end] = ' ' * (end - start)
        assert not ''.join(uncovered).strip()
    # The second column, without multiword tokens and empty nodes.
    lines = (folder / 'en_ewt-ud-dev.conllu').read_text().splitlines()
    words = [line.split('\t') for line in lines if line.split('\t')[0].isdigit()]
    found = [one.text[start:end] for one in splits.dev for start, end in one.words]
    assert found == [fields[1] for fields in words]
    assert [tag for one in splits.dev for tag in one.tags] == [fields[3] for fields in words]


def test_the_english_web_treebank_has_its_trees(real_data):
    """Written back, they are the lines of the file without enhanced dependencies."""
    path = real_data / 'ud_english_ewt/en_ewt-ud-dev.conllu'
    found, report = everything('parsing', train=(str(path),), format='conllu')
    assert len(found) == 2001
    assert report['malformed'] == report['multiword_tokens_replaced_by_their_words'] == 0
    sentences = dependencies.split_sentences(path.read_text().splitlines())
    by_id = {one.id: one for one in found}
    for sentence in sentences:
        one = by_id[dependencies.read_words(sentence, collections.Counter()).sentence_id]
        trees = zip(one.heads, one.relations, strict=True)
        record = {'words': [{'head': head, 'relation': relation} for head, relation in trees]}
        for before, after in zip(sentence, dependencies.with_tree(sentence, record), strict=True):
            fields = before.split('\t')
            if fields[0].isdecimal():
                fields[8] = '_'
            assert after.split('\t') == fields


@pytest.mark.parametrize(
    ('files', 'without_a_word'),
    [('wnut17/*train.conll', 0), ('wnut17/*dev.conll', 0), ('broad_twitter_corpus/?.conll', 2)],
)
def test_named_entities_have_the_tags_of_the_file(real_data, files, without_a_word):
    found, report = everything('tagging', train=(f'{real_data}/{files}',), format='conll')
    expected = collections.Counter()
    for path in real_data.glob(files):
        pairs = [line.split('\t') for line in path.read_text().split('\n') if '\t' in line]
        expected.update(pair[1] for pair in pairs if pair[0].strip())
    assert collections.Counter(tag for one in found for tag in one.tags) == expected
    assert all(one.text == ' '.join(one.text[a:b] for a, b in one.words) for one in found)
    assert report['lines_without_a_word'] == without_a_word
    assert report['malformed'] == report['repaired_tags'] == 0


def test_genia_has_4714_spans_of_which_444_are_nested(real_data):
    path = real_data / 'genia_nested/dev.jsonlines'
    found, _ = everything(
        'spans',
        {'id': 'sent_id', 'spans': 'entity_mentions', 'span_label': 'entity_type'},
        train=(str(path),),
        format='jsonl',
    )
    assert len(found) == 1765
    spans = [span for one in found for span in one.spans]
    assert len(spans) == 4714
    nested = [
        any(a[:2] != b[:2] and b.start <= a.start and a.end <= b.end for b in one.spans)
        for one in found
        for a in one.spans
    ]
    assert sum(nested) == 444
    texts = {one.id: one for one in found}
    for line in path.read_text().splitlines():
        record = json.loads(line)
        one = texts[record['sent_id']]
        stated = [(m['text'], m['entity_type']) for m in record['entity_mentions']]
        assert stated == [(one.text[s.start : s.end], s.label) for s in one.spans]
        assert all(isinstance(span, Span) for span in one.spans)


def test_answers_of_qamr_are_in_their_contexts(real_data):
    splits = read(
        'question_answering',
        {'context': '0', 'question': '5', 'answers': ('6', '7', '8')},
        train=(f'{real_data}/qamr/dev.tsv',),
        contexts=f'{real_data}/qamr/wiki-sentences.tsv',
        header=False,
        units='words',
        group='0',
        dev_fraction=0.2,
    )
    found = splits.train + splits.dev
    assert len(found) == 18_908
    assert splits.report['malformed'] == splits.report['misplaced'] == 0
    assert splits.report['answers_with_gaps'] > 464  # the count for the first of the three answers
    for one in found:
        assert len(one.answers) == 3
        assert all(one.context[a.start : a.start + len(a.text)] == a.text for a in one.answers)
    assert not {one.context for one in splits.train} & {one.context for one in splits.dev}
    first = min(one for one in found if one.question == 'How many tirthankara are there?')
    assert first.context.split()[4] == first.answers[0].text


def test_gap_keeps_both_candidates_of_a_text_in_one_split(real_data):
    splits = read(
        'coreference',
        {
            'id': 'ID',
            'text': 'Text',
            'marks': ('Pronoun-offset+Pronoun', 'A-offset+A', 'B-offset+B'),
            'candidate_labels': ('A-coref', 'B-coref'),
        },
        train=(f'{real_data}/gap_coreference/gap-development.tsv',),
        dev_fraction=0.2,
    )
    found = splits.train + splits.dev
    assert len(found) == 4000
    assert collections.Counter(one.label for one in found).keys() == {'TRUE', 'FALSE'}
    for side in (splits.train, splits.dev):
        pairs = collections.Counter(one.id.rpartition('-')[0].rpartition('-')[0] for one in side)
        assert set(pairs.values()) == {2}
