/* Normalization of text that remembers where each character came from. */
'use strict';

const WHITE_SPACE = /\p{White_Space}/u;
const BERT_REMOVED = /[\0\ufffd\p{Cc}\p{Cf}\p{Co}]/u;
const BERT_KEPT = /[\t\n\r]/;
const CJK =
  /[\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\u{20000}-\u{2a6df}\u{2a700}-\u{2b73f}\u{2b740}-\u{2b81f}\u{2b920}-\u{2ceaf}\u{2f800}-\u{2fa1f}]/u;
const CHARACTER = /[^]/gu;
// A character with its marks, or Korean letters, which compose to syllables.
const COMPOSING = /[\u1100-\u11ff]+|[^\p{M}]\p{M}*|\p{M}+/gu;

/**
 * A text and the positions of its UTF-16 units in the original: unit i stands for the original
 * units from starts[i] to ends[i].
 */
class TracedText {
  constructor(text, starts, ends) {
    this.text = text;
    this.starts = starts;
    this.ends = ends;
  }

  static of(text, offset) {
    const starts = Array.from({ length: text.length }, (_, i) => i + offset);
    return new TracedText(
      text,
      starts,
      starts.map((start) => start + 1),
    );
  }

  /** Replace every match of a global pattern by transform(match). */
  replace(pattern, transform) {
    const parts = [];
    const starts = [];
    const ends = [];
    for (const match of this.text.matchAll(pattern)) {
      const replacement = transform(match[0]);
      parts.push(replacement);
      const last = match.index + match[0].length - 1;
      for (let i = 0; i < replacement.length; i++) {
        starts.push(this.starts[match.index]);
        ends.push(this.ends[last]);
      }
    }
    return new TracedText(parts.join(''), starts, ends);
  }

  slice(start, end) {
    const [text, starts, ends] = [this.text, this.starts, this.ends];
    return new TracedText(text.slice(start, end), starts.slice(start, end), ends.slice(start, end));
  }

  /** This text after a space that stands for no character of the original. */
  withPrefixSpace() {
    const first = this.starts[0] ?? 0;
    return new TracedText(` ${this.text}`, [first, ...this.starts], [first, ...this.ends]);
  }
}

/** BERT's cleaning of a character (google-research/bert, tokenization.py, as in `tokenizers`). */
function bertCharacter(step, character) {
  let text = character;
  if (step.clean_text) {
    if (BERT_REMOVED.test(text) && !BERT_KEPT.test(text)) return '';
    if (WHITE_SPACE.test(text)) text = ' ';
  }
  if (step.handle_chinese_chars && CJK.test(text)) text = ` ${text} `;
  if (step.strip_accents ?? step.lowercase) text = text.normalize('NFD').replace(/\p{Mn}/gu, '');
  return step.lowercase ? lowercase(text) : text;
}

/** Lowercase each character by itself: a final Σ becomes σ, not ς. */
function lowercase(text) {
  return Array.from(text, (character) => character.toLowerCase()).join('');
}

const NORMALIZERS = {
  BertNormalizer: (traced, step) => traced.replace(CHARACTER, (match) => bertCharacter(step, match)),
  Lowercase: (traced) => traced.replace(CHARACTER, lowercase),
  NFC: (traced) => traced.replace(COMPOSING, (match) => match.normalize('NFC')),
};

/** Apply the steps of a tokenizer to a part of a text that starts at `offset`. */
function normalize(text, offset, steps) {
  return steps.reduce(
    (traced, step) => NORMALIZERS[step.type](traced, step),
    TracedText.of(text, offset),
  );
}
