"""Patterns of personal data: what counts, what does not, and where the counts go."""

import random
import re

import pytest

from bert_jax.text import personal_data

FOUND = {
    'Write to a.person+list@mail.example.org, or b@x.de.': {'mail addresses': 2},
    'Call +49 30 901820 or (415) 555-2671 or 415-555-2671!': {'phone numbers': 3},
    'Paid with 4111 1111 1111 1111 and 4111111111111111.': {'payment card numbers': 2},
    'The host 192.168.0.12 answers.': {'IP addresses': 1},
    'Transfer to DE89 3704 0044 0532 0130 00 or GB82WEST12345698765432.': {
        'bank account numbers (IBAN)': 2
    },
}
NOT_FOUND = [
    'An @ alone, a@b, @name and 12@ are none.',
    'In 1914 - 1918 and 1939 - 1945 ; pages 100-200, 300-400.',
    'Paid with 4111 1111 1111 1112.',  # checksum
    'Version 1.2.3.400 and 1.2.3.4.5 and v10.0.0.1 and 3.14159265.',
    'DE89 3704 0044 0532 0130 01 has a wrong checksum.',
    '2024-01-02 12 30 45, x4111111111111111, 0 0 0 0 0 0 0 0 0 0 0 0 0 0',
]


@pytest.mark.parametrize('text', FOUND)
def test_patterns_with_correct_checksums_are_counted(text):
    assert personal_data.count(text) == FOUND[text]


@pytest.mark.parametrize('text', NOT_FOUND)
def test_other_numbers_and_signs_are_not_counted(text):
    assert personal_data.count(text) == {}


@pytest.mark.parametrize('alphabet', ['a@.', 'ab@.-+ ', 'a1@.é_-\n,'])
def test_mail_addresses_are_the_matches_of_the_plain_pattern(alphabet):
    pattern = re.compile(r'[\w.+-]+@[\w-]+(?:\.[\w-]+)*\.[a-zA-Z]{2,}')
    draw = random.Random(0)
    for _ in range(20_000):
        text = ''.join(draw.choices(alphabet, k=draw.randint(0, 18)))
        assert personal_data.count(text)['mail addresses'] == len(pattern.findall(text)), text


def test_an_address_and_a_data_uri_of_4_million_characters():
    """A search from the first character of an address took hours."""
    assert personal_data.count('a@b.com data:' + 'A1b+' * 10**6) == {'mail addresses': 1}
