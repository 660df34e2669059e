/* Linear-chain conditional random fields (models/crf.py). */
'use strict';

/**
 * The best tags of a chain of words, and the marginal probabilities of all tags.
 * @param {Float32Array[]} emissions logits of each word [C].
 * @param {Map} tensors with crf/transition [C, C], crf/start and crf/end [C].
 * @return {{tags: number[], probabilities: number[][]}}
 */
function decodeChain(emissions, tensors) {
  const [transition, start, end] = ['transition', 'start', 'end'].map(
    (name) => tensors.get(`crf/${name}`).values,
  );
  const size = start.length;
  const last = emissions.length - 1;
  const unary = emissions.map((scores, word) =>
    Array.from(scores, (score, tag) => {
      return score + (word === 0 ? start[tag] : 0) + (word === last ? end[tag] : 0);
    }),
  );
  const pair = (left, right) => transition[left * size + right];
  return { tags: viterbi(unary, pair), probabilities: marginals(unary, pair) };
}

function viterbi(unary, pair) {
  let best = unary[0];
  const pointers = [];
  for (const scores of unary.slice(1)) {
    const from = scores.map(
      (_, tag) =>
        topK(
          best.map((score, left) => score + pair(left, tag)),
          1,
        )[0],
    );
    pointers.push(from);
    best = scores.map((score, tag) => score + best[from[tag]] + pair(from[tag], tag));
  }
  const tags = [topK(best, 1)[0]];
  for (const from of pointers.reverse()) tags.unshift(from[tags[0]]);
  return tags;
}

/** Forward and backward sums of each word, multiplied and normalized. */
function marginals(unary, pair) {
  const forward = chainSums(unary, pair);
  const backward = chainSums([...unary].reverse(), (right, left) => pair(left, right)).reverse();
  return unary.map((scores, word) =>
    softmax(scores.map((score, tag) => forward[word][tag] + backward[word][tag] - score)),
  );
}

/** For each word and tag, the log of the sum over all earlier tags, including the tag's score. */
function chainSums(unary, pair) {
  const sums = [unary[0]];
  for (const scores of unary.slice(1)) {
    const before = sums.at(-1);
    sums.push(
      scores.map(
        (score, tag) => score + logSumExp(before.map((sum, left) => sum + pair(left, tag))),
      ),
    );
  }
  return sums;
}
