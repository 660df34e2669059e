/* Byte-level BPE, as in GPT-2 and RoBERTa. Bytes are written as letters; Ġ is the space. */
'use strict';

const BYTE_WORD =
  /'(?:s|t|re|ve|m|ll|d)| ?\p{L}+| ?\p{N}+| ?[^\p{White_Space}\p{L}\p{N}]+|\p{White_Space}+(?!\P{White_Space})|\p{White_Space}+/gu;

/** The letter of each byte: printable bytes as themselves, the others from code 256 on. */
function byteLetters() {
  let next = 256;
  return Array.from({ length: 256 }, (_, byte) => {
    const isPrintable = (byte > 32 && byte < 127) || (byte > 160 && byte !== 173);
    return String.fromCharCode(isPrintable ? byte : next++);
  });
}

class ByteBPE {
  constructor(description, ids) {
    this.ids = ids;
    this.prefixed = description.add_prefix_space;
    this.ignoresMerges = description.ignore_merges;
    this.letters = byteLetters();
    this.bytes = new Map(this.letters.map((letter, byte) => [letter, byte]));
    this.encoder = new TextEncoder();
    this.decoder = new TextDecoder();
    this.ranks = new Map();
    for (const [rank, [left, right]] of description.merges.entries()) {
      this.ranks.set(`${left} ${right}`, rank);
    }
  }

  /** A token as text; bytes of an incomplete character are shown as U+FFFD. */
  surface(token) {
    const bytes = Array.from(token, (letter) => this.bytes.get(letter));
    const text = bytes.includes(undefined) ? token : this.decoder.decode(Uint8Array.from(bytes));
    return { text: text.trimStart() || '␣', joins: !text.startsWith(' ') };
  }

  *words(traced) {
    for (const match of traced.text.matchAll(BYTE_WORD)) {
      yield [match.index, match.index + match[0].length];
    }
  }

  /** Subwords of a word: [id, start, end] in its units; bytes of a character share its range. */
  subwords(word) {
    const symbols = [];
    let offset = 0;
    for (const character of word) {
      const end = offset + character.length;
      for (const byte of this.encoder.encode(character)) {
        symbols.push([this.letters[byte], offset, end]);
      }
      offset = end;
    }
    const whole = symbols.map(([letter]) => letter).join('');
    if (this.ignoresMerges && this.ids.has(whole)) return [[this.ids.get(whole), 0, word.length]];
    while (this.mergeBest(symbols));
    return symbols
      .filter(([token]) => this.ids.has(token))
      .map(([token, start, end]) => [this.ids.get(token), start, end]);
  }

  /** Merge the first pair with the lowest rank in place; return whether there was one. */
  mergeBest(symbols) {
    let best = -1;
    let bestRank = Infinity;
    for (let i = 0; i + 1 < symbols.length; i++) {
      const rank = this.ranks.get(`${symbols[i][0]} ${symbols[i + 1][0]}`);
      if (rank < bestRank) [best, bestRank] = [i, rank];
    }
    if (best < 0) return false;
    const [[left, start], [right, , end]] = symbols.slice(best, best + 2);
    symbols.splice(best, 2, [left + right, start, end]);
    return true;
  }
}
