"""Counts text that looks like personal data: mail addresses, phone numbers and similar.

It matches patterns: some matches are not personal data (invented addresses in novels and manuals),
and names or addresses in prose have no pattern. Numbers with a checksum must pass it.
"""

import re
from collections import Counter
from collections.abc import Callable

# One search for all numbers, without lookbehind: several searches would slow down preparation.
_NUMBER = re.compile('[0-9][0-9 ().-]{5,}[0-9]', re.ASCII)
_ACCOUNT = re.compile('[A-Z][A-Z][0-9][0-9](?: ?[A-Z0-9]{4}){3,7}(?: ?[A-Z0-9]{1,3})?', re.ASCII)
# Mail addresses are found from their '@': a search from the first character takes quadratic time.
_MAIL_DOMAIN = re.compile(r'@(?<=[\w.+-]@)[\w-]+(?:\.[\w-]+)*\.[a-zA-Z]{2,}')
_NORTH_AMERICAN = re.compile(r'\(?[2-9]\d\d\)?[ .-]\d{3}[ .-]\d{4}')
_IP_ADDRESS = re.compile(r'\d{1,3}(?:\.\d{1,3}){3}')


def count(text: str) -> Counter[str]:
    """Return how often each kind of personal data seems to occur in a text."""
    counts: Counter[str] = Counter()
    if '@' in text:
        counts['mail addresses'] = _count_mail_addresses(text)
    for match in _NUMBER.finditer(text):
        number = _with_sign(text, match)
        counts.update(name for name, accepts in NUMBERS.items() if number and accepts(number))
    for match in _ACCOUNT.finditer(text):
        is_account = _is_whole(text, match) and _is_account_number(match.group())
        counts['bank account numbers (IBAN)'] += is_account
    return +counts  # drops zeros


def _count_mail_addresses(text: str) -> int:
    """Count the matches of [\\w.+-]+ and `_MAIL_DOMAIN` that do not overlap, in linear time."""
    number = end = 0
    for match in _MAIL_DOMAIN.finditer(text):
        if match.start() > end:  # a character before '@' is not part of the address before
            number, end = number + 1, match.end()
    return number


def _is_phone_number(text: str) -> bool:
    """E.164: 8 to 15 digits after a plus; or the North American form with separators."""
    is_international = text[0] == '+' and 8 <= len(_digits(text)) <= 15
    return bool(is_international or _NORTH_AMERICAN.fullmatch(text))


def _is_card_number(text: str) -> bool:
    """ISO/IEC 7812: 13 to 19 digits with a correct Luhn checksum."""
    digits = [int(digit) for digit in reversed(_digits(text))]
    if not (13 <= len(digits) <= 19 and re.fullmatch('[0-9 -]+', text) and any(digits)):
        return False
    doubled = [sum(divmod(2 * digit, 10)) for digit in digits[1::2]]
    return (sum(digits[::2]) + sum(doubled)) % 10 == 0


def _is_ip_address(text: str) -> bool:
    """Dotted IPv4, four numbers up to 255."""
    return bool(_IP_ADDRESS.fullmatch(text)) and all(int(part) < 256 for part in text.split('.'))


NUMBERS: dict[str, Callable[[str], bool]] = {
    'phone numbers': _is_phone_number,
    'payment card numbers': _is_card_number,
    'IP addresses': _is_ip_address,
}
KINDS = ('mail addresses', *NUMBERS, 'bank account numbers (IBAN)')


def _is_account_number(text: str) -> bool:
    """ISO 13616: the checksum modulo 97."""
    compact = text.replace(' ', '')
    return int(''.join(str(int(c, 36)) for c in compact[4:] + compact[:4])) % 97 == 1


def _digits(text: str) -> str:
    return ''.join(filter(str.isdigit, text))


def _with_sign(text: str, match: re.Match[str]) -> str:
    """A number with the '+' or '(' before it; '' if it is part of a longer word or number."""
    if not _is_whole(text, match):
        return ''
    before = text[match.start() - 1] if match.start() else ' '
    return (before if before in '+(' else '') + match.group()


def _is_whole(text: str, match: re.Match[str]) -> bool:
    """Whether no letter, digit, dot or underscore is right before, and no letter or digit after."""
    before = text[match.start() - 1] if match.start() else ''
    after = text[match.end() : match.end() + 1]
    return not (before.isalnum() or before in ('.', '_') or after.isalnum())
