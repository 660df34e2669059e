/* Words of a text: as the tokenizer splits it, for display, and as labeled text is split. */
'use strict';

/**
 * The words of a row [CLS] text [SEP], as the tokenizer splits it.
 * @return {{label: string, first: number, end: number, start: ?number, stop: ?number}[]} positions
 *     in the row, and characters in the text (absent for [CLS] and [SEP]).
 */
function rowWords(model, tokens, text) {
  const { cls_id: cls, sep_id: sep } = model.tokenizer.description;
  const words = [{ label: model.tokenizer.vocab[cls], first: 0, end: 1 }];
  tokens.forEach((token, index) => {
    const position = index + 1;
    if (index && tokens[index - 1].word === token.word) {
      const word = words[words.length - 1];
      word.end = position + 1;
      word.stop = token.end;
    } else {
      words.push({ first: position, end: position + 1, start: token.start, stop: token.end });
    }
  });
  for (const word of words.slice(1)) word.label = text.slice(word.start, word.stop).trim() || '␣';
  const last = tokens.length + 1;
  words.push({ label: model.tokenizer.vocab[sep], first: last, end: last + 1 });
  return words;
}

/** The index of the longest word, which is shown first; a mask only if there is no other word. */
function longestWord(words, maskToken) {
  return (
    topK(
      words.map(({ label }) => (label === maskToken ? 0 : label.length)),
      1,
    )[0] ?? 0
  );
}

const IDEOGRAPH = '\\u3400-\\u4dbf\\u4e00-\\u9fff\\uf900-\\ufaff\\u{20000}-\\u{323af}';
const LETTER = '\\p{L}\\p{N}_';
const WORD = new RegExp(
  `[${IDEOGRAPH}]|(?:(?![${IDEOGRAPH}])[${LETTER}])+|[^${LETTER}\\p{White_Space}]`,
  'gu',
);
const ZERO_WIDTH = /^[\p{M}\p{Cf}\p{Cc}]$/u;
const ALPHANUMERIC = /^[\p{L}\p{N}]/u;
const ZERO_WIDTH_JOINER = '\u200d';

/** Whether the word that starts at `start` continues at `offset` (labels/word_spans.py). */
function continuesWord(text, start, offset) {
  const next = String.fromCodePoint(text.codePointAt(offset));
  if (ZERO_WIDTH.test(next)) return true;
  const before = Array.from(text.slice(start, offset)).at(-1);
  const areLetters = ALPHANUMERIC.test(text.slice(start)) && ALPHANUMERIC.test(next);
  return before === ZERO_WIDTH_JOINER || (ZERO_WIDTH.test(before) && areLetters);
}

/** Runs of letters and digits, single ideographs and single symbols: [start, end) of each. */
function splitAtPunctuation(text) {
  const words = [];
  for (const match of text.matchAll(WORD)) {
    const end = match.index + match[0].length;
    const last = words.at(-1);
    if (last && last[1] === match.index && continuesWord(text, last[0], match.index)) last[1] = end;
    else words.push([match.index, end]);
  }
  return words;
}

function splitAtWhiteSpace(text) {
  return [...text.matchAll(/\P{White_Space}+/gu)].map((match) => [
    match.index,
    match.index + match[0].length,
  ]);
}

/** A pattern for a character of scripts without spaces, with its vowel signs and accents. */
function singleCharacter(unspaced) {
  const inner = `[^${LETTER}\\p{White_Space}\\u200b]|(?<=[\\u1039\\u17d2])[${LETTER}]`;
  return `[${unspaced}](?:${inner})*`;
}

/** Like splitAtPunctuation, but text in scripts without spaces becomes single characters. */
function splitIntoCharacters(text, unspaced) {
  const pattern = new RegExp(`${singleCharacter(unspaced)}|[^${unspaced}\\u200b]+`, 'gu');
  return splitAtPunctuation(text).flatMap(([start, end]) =>
    [...text.slice(start, end).matchAll(pattern)].map((match) => [
      start + match.index,
      start + match.index + match[0].length,
    ]),
  );
}

/** Split a text into words as in the training of the model. */
function splitWords(text, problem) {
  if (problem.splitter === 'whitespace') return splitAtWhiteSpace(text);
  if (problem.splitter === 'characters') return splitIntoCharacters(text, problem.unspaced);
  return splitAtPunctuation(text);
}

/** Join words that touch and share a token, if it was added or one is a single character. */
function joinWords(tokenizer, text, words, unspaced) {
  const pattern = new RegExp(`^${singleCharacter(unspaced)}$`, 'u');
  const isCharacter = words.map(([start, end]) => pattern.test(text.slice(start, end)));
  const isShared = words.map(() => false); // whether a token also overlaps the previous word
  const isAdded = words.map(() => false); // whether this token was added
  for (const token of tokenizer.encode(text)) {
    const overlaps = ([start, end]) => start < token.end && token.start < end;
    const covered = words.flatMap((word, index) => (overlaps(word) ? [index] : []));
    for (const index of covered.slice(1)) {
      isShared[index] = true;
      isAdded[index] ||= tokenizer.isAdded(token.id);
    }
  }
  const joined = [];
  words.forEach(([start, end], index) => {
    const last = joined.at(-1);
    const mayJoin = isAdded[index] || isCharacter[index] || isCharacter[index - 1];
    if (last && isShared[index] && mayJoin && last[1] === start) last[1] = end;
    else joined.push([start, end]);
  });
  return joined;
}

/** The first word that a token overlaps; for a blank token, the word that starts at its end. */
function ownerOf(token, text, words) {
  const owner = words.findIndex(([start, end]) => start < token.end && token.start < end);
  if (owner >= 0 || text.slice(token.start, token.end).trim()) return owner;
  return words.findIndex(([start, end]) => start <= token.end && token.end < end);
}

/**
 * Tokens of a text, each with its `owner`, a word or −1. The text is tokenized in parts if a word
 * would have no separate token (tokenizers/alignment.py).
 */
function alignWords(tokenizer, text, words) {
  const splits = new Set();
  for (;;) {
    const tokens = encodeInParts(
      tokenizer,
      text,
      [...splits].sort((a, b) => a - b),
    );
    for (const token of tokens) token.owner = ownerOf(token, text, words);
    const owners = new Set(tokens.map((token) => token.owner));
    const missing = words.flatMap((_, word) => (owners.has(word) ? [] : [word]));
    const isShared = ([start]) => tokens.some((token) => token.start < start && token.end > start);
    const before = missing.filter((word) => word && isShared(words[word]));
    const more = before.map((word) => words[word - 1][1]).filter((end) => !splits.has(end));
    if (!more.length) return withDropped(tokenizer, tokens, words, missing);
    more.forEach((end) => splits.add(end));
  }
}

function encodeInParts(tokenizer, text, splits) {
  const bounds = [0, ...splits, text.length];
  return bounds.slice(1).flatMap((end, number) =>
    tokenizer.encode(text.slice(bounds[number], end)).map((token) => ({
      ...token,
      start: token.start + bounds[number],
      end: token.end + bounds[number],
    })),
  );
}

/** Insert an unknown token, in word order, for each word that the tokenizer drops. */
function withDropped(tokenizer, tokens, words, missing) {
  const all = [...tokens];
  for (const word of missing) {
    const [start, end] = words[word];
    const later = all.findIndex((token) => token.owner > word);
    const unknown = { id: tokenizer.description.unk_id, start, end, owner: word };
    all.splice(later < 0 ? all.length : later, 0, unknown);
  }
  return all;
}
