/* A model: tokenizer, encoder and heads together. */
'use strict';

const PAUSE_AFTER = 40; // milliseconds of computation without letting the page react
const CACHE_SIZE = 3; // results of the encoder, which are large for long texts

class Model {
  /**
   * @param description the JSON that page/contents.py wrote.
   * @param {Uint8Array} bytes the weights.
   */
  constructor(description, bytes) {
    this.description = description;
    this.architecture = description.architecture;
    this.tokenizer = new Tokenizer(description.tokenizer);
    const tensors = readTensors(bytes, description.tensors);
    this.encoder = new Encoder(this.architecture, tensors, description.is_causal);
    this.heads = new Heads(this.encoder);
    this.cache = new Map();
  }

  has(head) {
    return this.description.heads.includes(head);
  }

  /**
   * The row of one or two texts with special tokens (tokenizers/special_token_layout.py).
   * @param {object[][]} texts tokens of each text.
   * @return {{ids: number[], types: number[], starts: number[]}} starts: position of the first
   *     token of each text.
   */
  layOut(texts) {
    const { cls_id: cls, sep_id: sep } = this.tokenizer.description;
    const row = { ids: [cls], types: [0], starts: [] };
    texts.forEach((tokens, number) => {
      const type = this.architecture.type_vocab_size > 1 ? number : 0;
      if (number && this.doublesSeparator) row.ids.push(sep);
      row.starts.push(row.ids.length);
      row.ids.push(...tokens.map((token) => token.id), sep);
      while (row.types.length < row.ids.length) row.types.push(type);
    });
    return row;
  }

  /** Whether two texts have two separators between them, as in RoBERTa. */
  get doublesSeparator() {
    const { tokenizer, architecture } = this;
    return (
      tokenizer.vocab[tokenizer.description.cls_id] === '<s>' && architecture.type_vocab_size <= 1
    );
  }

  /** The maximum number of tokens of texts, without special tokens. */
  room(numTexts = 1, maxLength = this.architecture.max_length) {
    return maxLength - 2 - (numTexts - 1) * (this.doublesSeparator ? 2 : 1);
  }

  /** Tokens of a text that fit into the model. */
  tokens(text) {
    const tokens = this.tokenizer.encode(text);
    return { tokens: tokens.slice(0, this.room()), isCut: tokens.length > this.room() };
  }

  /**
   * Run the encoder on a row of `layOut`.
   * @param {() => boolean} isWanted polled between layers; once it is false, the result is null.
   */
  async run(row, isWanted = () => true) {
    const key = `${row.ids} ${row.types}`;
    if (!this.cache.has(key)) {
      const output = await complete(this.encoder.run(row.ids, row.types), isWanted);
      if (output === null) return null;
      if (this.cache.size >= CACHE_SIZE) this.cache.delete(this.cache.keys().next().value);
      this.cache.set(key, output);
    }
    return this.cache.get(key);
  }

  /** Logits of all tokens of the vocabulary at a position of a result of `run`. */
  maskedLogits(output, position) {
    const size = this.architecture.hidden_size;
    const state = output.states.at(-1).subarray(position * size, (position + 1) * size);
    return this.heads.masked(state);
  }

  /**
   * Log probability of a filling of the mask at a position of a row, in nats. The subwords of the
   * filling are predicted from left to right, each given the subwords before it.
   */
  async logProbability(row, position, filling, isWanted) {
    const mask = this.tokenizer.description.mask_id;
    const widened = { ids: [...row.ids], types: [...row.types] };
    widened.ids.splice(position, 1, ...filling.map(() => mask));
    widened.types.splice(position, 1, ...filling.map(() => row.types[position]));
    let total = 0;
    for (const [number, id] of filling.entries()) {
      const output = await this.run(widened, isWanted);
      if (output === null) return null;
      total += logSoftmax(this.maskedLogits(output, position + number))[id];
      widened.ids[position + number] = id;
    }
    return total;
  }
}

/** Run a generator to its end with pauses; null if it is no longer wanted. */
async function complete(generator, isWanted) {
  let pausedAt = performance.now();
  for (;;) {
    const { done, value } = generator.next();
    if (done) return value;
    if (performance.now() - pausedAt < PAUSE_AFTER) continue;
    await new Promise((resolve) => setTimeout(resolve));
    if (!isWanted()) return null;
    pausedAt = performance.now();
  }
}
