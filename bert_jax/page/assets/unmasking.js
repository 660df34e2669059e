/* Generation by unmasking, one token a step (inference/unmasking.py). */
'use strict';

const ORDERS = ['confidence', 'random', 'left to right'];

/**
 * The tokens of a text in which [MASK:5] is five masks, with masks after it.
 * @return {{ids: number[], isCut: boolean}} ids: without special tokens at the ends.
 */
function withGaps(model, text, newTokens) {
  const { tokenizer } = model;
  const [own, last] = [tokenizer.maskToken.slice(0, -1), tokenizer.maskToken.slice(-1)];
  const literal = (name) => name.replace(/[.*+?^${}()|[\]\\/]/g, '\\$&');
  const pattern = new RegExp(`(?:\\[MASK|${literal(own)})(?::(\\d+))?(?:\\]|${literal(last)})`, 'g');
  const expanded = text.replace(pattern, (_, size) => tokenizer.maskToken.repeat(Number(size ?? 1)));
  const ids = tokenizer.encode(expanded).map((token) => token.id);
  ids.push(...Array(newTokens).fill(tokenizer.description.mask_id));
  return { ids: ids.slice(0, model.room()), isCut: ids.length > model.room() };
}

/**
 * Fill the masks of a row, one a step.
 * @param {number[]} ids tokens without special tokens at the ends; changed in place.
 * @param {number} temperature 0 takes the most probable tokens.
 * @param {string} order one of ORDERS: which mask is filled first.
 * @param {() => boolean} isWanted polled; once it is false, the generation ends.
 * @param {() => number} random uniform in [0, 1).
 * @yields {{index: number, id: number, share: number}} the place that was filled, its token, and
 *     the probability of the token.
 */
async function* unmask(model, ids, temperature, order, isWanted, random = Math.random) {
  const { mask_id: mask } = model.tokenizer.description;
  for (;;) {
    const hidden = ids.flatMap((id, index) => (id === mask ? [index] : []));
    if (!hidden.length) return;
    const output = await model.run(model.layOut([ids.map((id) => ({ id }))]), isWanted);
    if (output === null) return;
    const candidates = order === 'left to right' ? hidden.slice(0, 1) : hidden;
    const guesses = candidates.map((index) => {
      const logits = writable(model, model.maskedLogits(output, index + 1));
      const noisy = temperature ? logits.map((x) => x / temperature + gumbel(random)) : logits;
      const [id] = topK(noisy, 1);
      return { index, id, share: softmax(logits)[id] };
    });
    const chosen =
      order === 'random'
        ? guesses[Math.floor(random() * guesses.length)]
        : guesses.reduce((best, guess) => (guess.share > best.share ? guess : best));
    ids[chosen.index] = chosen.id;
    yield chosen;
    if (!isWanted()) return;
  }
}

/** Logits without special tokens, which are never written. */
function writable(model, logits) {
  const { special_ids: special } = model.tokenizer.description;
  const allowed = Float32Array.from(logits);
  for (const id of special) allowed[id] = -Infinity;
  model.tokenizer.vocab.forEach((token, id) => {
    if (!token) allowed[id] = -Infinity;
  });
  return allowed;
}

function gumbel(random) {
  return -Math.log(-Math.log(random() || Number.MIN_VALUE));
}
