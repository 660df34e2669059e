/* Text to token ids, as data/tokenizers does. */
'use strict';

class Tokenizer {
  /** @param description the JSON that page/tokenizers.py wrote. */
  constructor(description) {
    this.description = description;
    this.vocab = description.vocab;
    this.special = new Set(description.special_ids);
    const ids = new Map(this.vocab.map((token, id) => [token, id]));
    this.ids = ids;
    const names = [...this.special].map((id) => this.vocab[id]);
    const added = description.added_tokens;
    const excluded = new Set([...names, ...added.filter((t) => t.special).map((t) => t.content)]);
    // Ordinary text never becomes a special token, even if it reads like one.
    this.models =
      description.kind === 'wordpiece'
        ? { plain: new WordPiece(description, ids) }
        : {
            plain: new ByteBPE(description, ids, excluded),
            special: new ByteBPE(description, ids, new Set()),
          };
    this.patterns = {
      plain: addedTokens(added.filter((token) => !token.special)),
      special: addedTokens(added),
    };
  }

  /**
   * Tokens of a text, without [CLS] and [SEP].
   * @param {boolean} special whether a literal [MASK] in the text is the special token.
   * @return {{id: number, start: number, end: number, word: number}[]} range in the text, and
   *     number of the word that the token is part of.
   */
  encode(text, special = false) {
    const mode = special ? 'special' : 'plain';
    const model = this.models[mode] ?? this.models.plain;
    const tokens = [];
    let [end, word] = [0, 0];
    for (const match of text.matchAll(this.patterns[mode])) {
      word = this.encodePart(text.slice(end, match.index), end, model, word, tokens);
      end = match.index + match[0].length;
      const start = end - match[0].trimStart().length;
      tokens.push({ id: this.ids.get(match[0].trim()), start, end, word: word++ });
    }
    this.encodePart(text.slice(end), end, model, word, tokens);
    return tokens;
  }

  /** Append the tokens of a part without added tokens; return the number of the next word. */
  encodePart(part, offset, model, firstWord, tokens) {
    let word = firstWord;
    if (!part) return word;
    let traced = normalize(part, offset, this.description.normalizers);
    if (model.prefixed && traced.text && !traced.text.startsWith(' ')) {
      traced = traced.withPrefixSpace();
    }
    for (const [first, last] of model.words(traced)) {
      for (const [id, start, end] of model.subwords(traced.text.slice(first, last))) {
        tokens.push({ id, ...originalRange(traced, first + start, first + end), word });
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
    if (this.special.has(id) || !this.vocab[id]) return { text: token, joins: false };
    return this.models.plain.surface(token);
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

/** A pattern of added tokens, the longest first, with the white space that they absorb. */
function addedTokens(tokens) {
  if (!tokens.length) return /(?!)/g;
  const longestFirst = [...tokens].sort((a, b) => b.content.length - a.content.length);
  const alternatives = longestFirst.map(({ content, lstrip, rstrip }) => {
    const literal = content.replace(/[.*+?^${}()|[\]\\/]/g, '\\$&');
    return `${lstrip ? '\\p{White_Space}*' : ''}${literal}${rstrip ? '\\p{White_Space}*' : ''}`;
  });
  return new RegExp(alternatives.join('|'), 'gu');
}
