/* WordPiece, as in BERT: words are split greedily into the longest known subwords. */
'use strict';

const PUNCTUATION = /[!-/:-@[-`{-~\p{P}]/u;

class WordPiece {
  constructor(description, ids) {
    this.ids = ids;
    this.unknown = description.unk_id;
    this.prefix = description.continuation;
    this.maxCharacters = description.max_characters;
  }

  /** Words of a traced text: [start, end) in its units. */
  *words(traced) {
    let start = 0;
    let end = 0;
    for (const character of traced.text) {
      const isSpace = WHITE_SPACE.test(character);
      const isAlone = isSpace || PUNCTUATION.test(character);
      if (isAlone && end > start) yield [start, end];
      if (isAlone) start = end;
      end += character.length;
      if (isAlone && !isSpace) yield [start, end];
      if (isAlone) start = end;
    }
    if (end > start) yield [start, end];
  }

  /** A token as text; a token with the continuation prefix joins the text before it. */
  surface(token) {
    const joins = token.startsWith(this.prefix);
    return { text: joins ? token.slice(this.prefix.length) : token, joins };
  }

  /** Subwords of a word: [id, start, end] in its units. */
  subwords(word) {
    const unknown = [[this.unknown, 0, word.length]];
    const bounds = [0];
    for (const character of word) bounds.push(bounds[bounds.length - 1] + character.length);
    const last = bounds.length - 1;
    if (last > this.maxCharacters) return unknown;
    const subwords = [];
    for (let first = 0; first < last;) {
      let end = last;
      let id;
      for (; end > first; end--) {
        const piece = word.slice(bounds[first], bounds[end]);
        id = this.ids.get(first ? this.prefix + piece : piece);
        if (id !== undefined) break;
      }
      if (id === undefined) return unknown;
      subwords.push([id, bounds[first], bounds[end]]);
      first = end;
    }
    return subwords;
  }
}
