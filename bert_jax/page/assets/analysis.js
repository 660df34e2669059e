/* Attention between words, vectors of words in context, and principal components. */
'use strict';

const MEAN_OF_LAST = 4;

/**
 * Attention between words: the sum over the subwords of the attended word, averaged over the
 * subwords of the attending word (Clark et al. 2019, arXiv 1906.04341, section 4.1). Rows sum to 1.
 * @param {Float32Array} attention [H, T, T] of a layer.
 * @return {Float32Array} [words, words].
 */
function wordAttention(attention, head, words) {
  const length = words.at(-1).end;
  const weights = attention.subarray(head * length * length, (head + 1) * length * length);
  const matrix = new Float32Array(words.length * words.length);
  words.forEach((from, row) => {
    const size = from.end - from.first;
    words.forEach((to, column) => {
      let sum = 0;
      for (let t = from.first; t < from.end; t++) {
        for (let u = to.first; u < to.end; u++) sum += weights[t * length + u];
      }
      matrix[row * words.length + column] = sum / size;
    });
  });
  return matrix;
}

/**
 * The vector of a word in context: the mean over its subwords, in one layer (0: embeddings), or in
 * the mean of the last four layers ('mean').
 */
function wordVector(output, word, layer, size) {
  const vector = new Float32Array(size);
  const layers = layer === 'mean' ? output.states.slice(-MEAN_OF_LAST) : [output.states[layer]];
  const share = layers.length * (word.end - word.first);
  for (const states of layers) {
    for (let i = word.first * size; i < word.end * size; i++) vector[i % size] += states[i] / share;
  }
  return vector;
}

function dot(x, y) {
  let sum = 0;
  for (let i = 0; i < x.length; i++) sum += x[i] * y[i];
  return sum;
}

function cosine(x, y) {
  return dot(x, y) / Math.sqrt(dot(x, x) * dot(y, y) || 1);
}

/**
 * Coordinates of vectors on their first principal components.
 * @param {Float32Array[]} vectors
 * @return {{points: number[][], shares: number[]}} a point for each vector, and the share of the
 *     variance that each component explains.
 */
function principalComponents(vectors, number = 2) {
  const rows = Float32Array.from(vectors.flatMap((vector) => [...vector]));
  const mean = meanRow(rows, vectors[0].length);
  const centered = vectors.map((vector) => vector.map((value, i) => value - mean[i]));
  // Eigenvectors of the Gram matrix, which is smaller than the covariance matrix.
  const products = centered.map((x) => centered.map((y) => dot(x, y)));
  const total = products.reduce((sum, row, i) => sum + row[i], 0);
  const points = vectors.map(() => []);
  const shares = [];
  for (let component = 0; component < number; component++) {
    const { vector, value } = largestEigenvector(products);
    vector.forEach((coordinate, i) => points[i].push(coordinate * Math.sqrt(Math.max(value, 0))));
    shares.push(total > 0 ? value / total : 0);
    products.forEach((row, i) => row.forEach((_, j) => (row[j] -= value * vector[i] * vector[j])));
  }
  return { points, shares };
}

/** Largest eigenvalue of a symmetric matrix and its unit eigenvector, by power iteration. */
function largestEigenvector(matrix, steps = 300) {
  let vector = matrix.map((_, i) => Math.cos(i + 1)); // an arbitrary but deterministic start
  let value = 0;
  for (let step = 0; step < steps; step++) {
    const next = matrix.map((row) => dot(row, vector));
    value = Math.sqrt(dot(next, next));
    if (value < 1e-12) return { vector: matrix.map(() => 0), value: 0 };
    vector = next.map((coordinate) => coordinate / value);
  }
  return { vector, value };
}
