/* Text to token ids, as bert_jax/tokenizers does. */
'use strict';

// A letter of \w in Unicode, at an end of a text.
const WORD_END = /[\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\p{Join_Control}]$/u;
const WORD_START = /^[\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\p{Join_Control}]/u;

class Tokenizer {
  /** @param description the JSON that page/tokenizers.py wrote. */
  constructor(description) {
    this.description = description;
    this.vocab = description.vocab;
    const ids = new Map(this.vocab.map((token, id) => [token, id]));
    this.ids = ids;
    this.model =
      description.kind === 'wordpiece'
        ? new WordPiece(description, ids)
        : new ByteBPE(description, ids);
    const { added_tokens: added, normalizers } = description;
    this.whole = new Set([...description.special_ids, ...added.map((token) => token.id)]);
    this.added = new AddedTokens(added.filter((token) => !token.normalized));
    // These are recognized in the normalized text.
    this.normalizedAdded = new AddedTokens(
      added
        .filter((token) => token.normalized)
        .map((token) => ({ ...token, content: normalize(token.content, 0, normalizers).text })),
    );
  }

  /**
   * Tokens of a text, without [CLS] and [SEP]; a literal [MASK] in the text is the special token.
   * @return {{id: number, start: number, end: number, word: number}[]} range in the text, and
   *     number of the word that the token is part of.
   */
  encode(text) {
    const tokens = [];
    let word = 0;
    for (const { id, start, end } of this.added.split(text)) {
      if (id === undefined) {
        word = this.encodePart(text.slice(start, end), start, word, tokens);
      } else {
        const solid = end - text.slice(start, end).trimStart().length;
        tokens.push({ id, start: solid, end, word: word++ });
      }
    }
    return tokens;
  }

  /** Append the tokens of a part without added tokens; return the number of the next word. */
  encodePart(part, offset, firstWord, tokens) {
    let word = firstWord;
    const traced = normalize(part, offset, this.description.normalizers);
    for (const { id, start, end } of this.normalizedAdded.split(traced.text)) {
      if (id === undefined) word = this.encodeWords(traced.slice(start, end), word, tokens);
      else tokens.push({ id, ...originalRange(traced, start, end), word: word++ });
    }
    return word;
  }

  encodeWords(traced, firstWord, tokens) {
    let word = firstWord;
    const isPrefixed = this.model.prefixed && !traced.text.startsWith(' ');
    const text = isPrefixed ? traced.withPrefixSpace() : traced;
    for (const [first, last] of this.model.words(text)) {
      for (const [id, start, end] of this.model.subwords(text.text.slice(first, last))) {
        tokens.push({ id, ...originalRange(text, first + start, first + end), word });
      }
      word++;
    }
    return word;
  }

  /** The name of a token; an embedding may have more rows than the vocabulary has tokens. */
  token(id) {
    return this.vocab[id] || `[${id}]`;
  }

  /**
   * A token as text.
   * @return {{text: string, joins: boolean}} joins: it follows the previous text without a space.
   */
  surface(id) {
    const token = this.token(id);
    if (this.whole.has(id) || !this.vocab[id]) return { text: token, joins: false };
    return this.model.surface(token);
  }

  /** Whether the token is recognized in a text before the text is split into words. */
  isAdded(id) {
    return this.whole.has(id) && id !== this.description.unk_id;
  }

  get maskToken() {
    return this.vocab[this.description.mask_id];
  }
}

/** The range in the original text of units of a traced text, without leading spaces. */
function originalRange(traced, first, stop) {
  let solid = first;
  while (solid < stop && traced.text[solid] === ' ') solid++;
  const end = traced.ends[stop - 1];
  return { start: solid < stop ? traced.starts[solid] : end, end };
}

/** Added tokens, the longest of which is found in a text, with the white space they absorb. */
class AddedTokens {
  constructor(tokens) {
    this.tokens = new Map(tokens.map((token) => [token.content, token]));
    const longestFirst = [...this.tokens.keys()].sort((a, b) => b.length - a.length);
    const literals = longestFirst.map((name) => name.replace(/[.*+?^${}()|[\]\\/]/g, '\\$&'));
    this.pattern = literals.length ? new RegExp(literals.join('|'), 'gu') : /(?!)/g;
  }

  /** Split a text into ranges that are not empty; the range of an added token has its id. */
  *split(text) {
    let done = 0;
    for (const { 0: name, index } of text.matchAll(this.pattern)) {
      const token = this.tokens.get(name);
      const [before, after] = [text.slice(0, index), text.slice(index + name.length)];
      if (token.single_word && (WORD_END.test(before) || WORD_START.test(after))) continue;
      const start = token.lstrip ? Math.max(done, before.trimEnd().length) : index;
      const end = token.rstrip ? text.length - after.trimStart().length : index + name.length;
      if (done < start) yield { start: done, end: start };
      yield { id: token.id, start, end };
      done = end;
    }
    if (done < text.length) yield { start: done, end: text.length };
  }
}
