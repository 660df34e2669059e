"""Text of many languages in every Unicode normalization form, for tests of SentencePiece."""

import random
import unicodedata

FORMS = ('NFC', 'NFD', 'NFKC', 'NFKD')

# Words with tones, vowel signs, syllable blocks, ligatures and compatibility characters.
WORDS = {
    'amharic': 'ሰላም ኢትዮጵያ የሰው ልጅ ሁሉ ነጻ ሆኖ ይወለዳል።',
    'arabic': 'السَّلامُ عليكم ﷲ ﷺ ﻻ إِنَّ اللغة العربية آمين رئيس مؤمن ١٢٣',
    'bengali': 'বাংলা ভাষা কোনো ড়াকা ঢ়েঁকি যায়',
    'chinese': '中文 字符，测试。 豈 更 車 ①②③ ㎏ ５０％ （北京） ﹏',
    'czech': 'Příliš žluťoučký kůň úpěl ďábelské ódy',
    'english': "The ﬁnal ﬂight’s cost… was ½ of “£10” naïve café don't 1,234.5",
    'french': 'L’été où naquît ma sœur ; ça coûte 10\u00a0€ « déjà »',
    'german': 'Straße Übergrößenträger äöüß ſ ẞ',
    'greek': 'ᾧ ἄνδρα μοι ἔννεπε Μοῦσα ᾗ ᾄδω ὦ πολύτροπον Ά ΐ ΰ',
    'hebrew': 'שָׁלוֹם עֲלֵיכֶם בְּרֵאשִׁית שּׁ ﬡ יִהְיֶה',
    'hindi': 'क़लम ज़मीन सड़क पढ़ना फ़र्क़ नमस्ते क्षेत्र ज्ञान',
    'japanese': 'ガラス パリ ｶﾞﾗｽ ﾊﾟﾘ がんばって！ 東京タワー ㌔ ㍿ か\u3099',
    'korean': '한국어를 공부합니다 값 닭 않다 괜찮아요 ㄱㄴㄷ ﾡ',
    'latvian': 'Šodien ir ļoti jauks laiks ģimenē ķēniņš',
    'lithuanian': 'Ąžuolas ėjo į žalią pievą i̇̀ ū̃ ẽ',
    'polish': 'Zażółć gęślą jaźń łódź ŉ ǆ',
    'tamil': 'தமிழ் மொழி கொ கோ கௌ ஸ்ரீ',
    'thai': 'น้ำ ทำงาน กำลัง ที่นี่ สวัสดีครับ ๑๒๓',
    'turkish': 'İstanbul ılık çiğ şöför güneş',
    'ukrainian': 'Її їжак йшов ґанком є й ё',
    'vietnamese': 'Tiếng Việt là ngôn ngữ của người Việt. Bế tắc bề mặt bệ đỡ bể bơi trường',
    'yoruba': 'Ẹ̀kọ́ ní ilé-ìwé ọ̀nà tó dára ẹ̀mí gígùn ọ̀rẹ́ ẹ̀fọ́',
}


def lines(number: int, seed: int = 0) -> list[str]:
    """Lines of random words, each of one language and in one form, or in several forms."""
    chosen = random.Random(seed)
    words = [WORDS[name].split(' ') for name in sorted(WORDS)]
    return [
        transform(' '.join(chosen.choices(words[index % len(words)], k=8)), chosen)
        for index in range(number)
    ]


def transform(line: str, chosen: random.Random) -> str:
    """Write a line in a random form, or each character in a form of its own."""
    form = chosen.choice((*FORMS, 'mixed'))
    if form != 'mixed':
        return unicodedata.normalize(form, line)
    return ''.join(unicodedata.normalize(chosen.choice(FORMS), character) for character in line)
