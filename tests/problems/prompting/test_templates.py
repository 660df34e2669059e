"""Templates: parsing, tokens as fill_mask has them, and truncation of texts alone."""

from collections import Counter

import pytest

from bert_jax import tokenizers
from bert_jax.errors import UserError
from bert_jax.problems.prompting.templates import Template
from bert_jax.tokenizers.special_token_layout import SpecialTokenLayout
from tests.tasks.small_problems import TEXT

KINDS = {'wordpiece': 90, 'bytebpe': 300, 'unigram': 60}


def layout(kind: str = 'wordpiece', length: int = 64, types: int = 2) -> SpecialTokenLayout:
    tokenizer = tokenizers.train(f'{kind}:{KINDS[kind]}', iter([TEXT] * 3), True)
    return SpecialTokenLayout(tokenizer, length, types)


def fill(source: str, own: SpecialTokenLayout, num_masks=(1,), counts=None, **values):
    counted = Counter() if counts is None else counts
    return Template(source).fill(values, own, num_masks, counted)


@pytest.mark.parametrize('kind', KINDS)
def test_a_filled_template_has_the_tokens_of_the_same_text_typed_by_hand(kind):
    own = layout(kind)
    (prompt,) = fill('a {text}! near, the [MASK] : {text2}', own, text='Old ship', text2='the cow')
    mask = own.tokenizer.vocab[own.tokenizer.mask_id]
    typed = f'a Old ship! near, the {mask} : the cow'
    expected = own.lay_out(own.tokenizer.encode_batch([typed], special=True).ids[0])
    assert prompt.ids.tolist() == expected.ids.tolist()
    assert (prompt.mask_slots > 0).tolist() == (expected.ids == own.tokenizer.mask_id).tolist()


def test_more_masks_are_numbered_and_leave_the_other_tokens_alone():
    own = layout()
    one, three = fill('{text} [MASK] .', own, (1, 3), text='the sea')
    assert three.mask_slots.tolist() == [0, 0, 0, 1, 2, 3, 0, 0]
    is_kept = three.mask_slots < 2
    assert three.ids[is_kept].tolist() == one.ids.tolist()
    pieces = own.tokenizer.encode_batch(['the old sea']).ids[0]
    filled = three.with_pieces(pieces, [0, 2])
    assert filled.ids[3:6].tolist() == [pieces[0], own.tokenizer.mask_id, pieces[2]]
    assert filled.mask_slots.tolist() == [0, 0, 0, 0, 2, 0, 0, 0]


@pytest.mark.parametrize('kind', KINDS)
def test_only_texts_are_shortened_at_their_ends(kind):
    own, counts = layout(kind, length=36), Counter()
    source = 'old {text} and the [MASK] near {text2} .'
    long, short = fill(source, own, (1, 2), counts, text=TEXT, text2='a gull')
    assert len(short.ids) == 36
    assert len(long.ids) == 35
    shown = own.tokenizer.decode(short.ids)
    decoded = own.tokenizer.decode(
        fill(source, layout(kind, 500), text=TEXT, text2='a gull')[0].ids
    )
    mask = own.tokenizer.vocab[own.tokenizer.mask_id]
    first, last = decoded.partition(mask)[0].rpartition('and')[0], decoded.partition(mask)[2]
    assert shown.endswith(last)
    assert first.startswith(shown[:16].strip())
    assert counts == {'texts truncated to 36 tokens': 1}
    with pytest.raises(UserError, match='the template has .* tokens besides its texts'):
        fill(source, layout(kind, 8), text='a', text2='b')


def test_a_separator_starts_the_second_token_type():
    own = layout()
    (prompt,) = fill('{text} [SEP] [MASK], {text2}', own, text='the sea', text2='a tram')
    expected = own.lay_out(
        *own.tokenizer.encode_batch(['the sea ', ' [MASK], a tram'], special=True).ids
    )
    assert prompt.ids.tolist() == expected.ids.tolist()
    assert prompt.token_type_ids.tolist() == expected.token_type_ids.tolist()
    assert prompt.token_type_ids[prompt.mask_slots > 0].tolist() == [1]


def test_special_tokens_in_a_text_are_text():
    own = layout()
    (prompt,) = fill('{text} [MASK]', own, text='a [MASK] [SEP] b')
    assert (prompt.ids == own.tokenizer.mask_id).sum() == 1
    assert (prompt.ids == own.tokenizer.sep_id).sum() == 1


def test_changes_of_a_field_adapt_its_case_and_its_stop():
    own = layout()
    source = '{text:no_stop}? [MASK], {text2:lower_first, no_stop}'
    changed = fill(source, own, text='the ship.', text2='Nobody saw it!')
    plain = fill('{text}? [MASK], {text2}', own, text='the ship', text2='nobody saw it')
    assert changed[0].ids.tolist() == plain[0].ids.tolist()


@pytest.mark.parametrize(
    ('source', 'message'),
    [
        ('{text} is good', r"'\{text\} is good', which has no \[MASK\]; give it one$"),
        ('{text} [MASK] [MASK]', r'has 2 \[MASK\]; give it one$'),
        ('{text} [SEP] [MASK] [SEP] {a}', r'has 2 \[SEP\]; give it at most one$'),
        ('It was [MASK].', r'which has no field; give it one, such as \{text\}$'),
        ('{text [MASK]', r'write \{\{ for a literal brace'),
        ('{} [MASK]', 'a field without a name'),
        ('{text:upper} [MASK]', "unknown change of {text} 'upper'; known: lower_first, no_stop"),
    ],
)
def test_a_bad_template_is_one_clear_line(source, message):
    with pytest.raises(UserError, match=message) as error:
        Template(source)
    assert '\n' not in str(error.value)


def test_a_fullwidth_mask_in_a_text_is_not_the_answer():
    own = SpecialTokenLayout(
        tokenizers.train('unigram:60', ['It was great, a text <mask> near the sea. '] * 9), 32, 1
    )
    template = Template('{text} It was [MASK].')
    (filled,) = template.fill({'text': 'a text ＜mask＞'}, own, [1], Counter())
    (expected,) = template.fill({'text': 'a text'}, own, [1], Counter())
    assert filled.mask_slots.tolist().count(1) == expected.mask_slots.tolist().count(1) == 1
    assert filled.mask_slots[-4:].tolist() == expected.mask_slots[-4:].tolist()
