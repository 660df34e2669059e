/* The Transformer encoder of models/encoders/transformer.py. */
'use strict';

class Encoder {
  /**
   * @param architecture fields of models/architecture.py.
   * @param {Map} tensors by the names of the parameters.
   */
  constructor(architecture, tensors, isCausal) {
    this.architecture = architecture;
    this.tensors = tensors;
    this.isCausal = isCausal;
  }

  /**
   * Run the encoder; a generator that yields before each layer, so that the page stays responsive.
   * @return {{states: Float32Array[], attention: Float32Array[], pooled: ?Float32Array}} states of
   *     the embeddings and of each layer [T, D], attention of each layer [H, T, T].
   */
  *run(ids, types) {
    const { layer_numbers: layers, norms } = this.architecture;
    let x = this.embed(ids, types);
    const states = [x];
    const attention = [];
    for (const [layer, number] of layers.entries()) {
      yield layer;
      const weights = [];
      x = this.layer(x, layer, `encoder/layers_${number}`, weights);
      states.push(x);
      attention.push(weights[0]);
    }
    if (norms.placement !== 'post') {
      x = this.norm(x, 'encoder/final_norm');
      states[states.length - 1] = x;
    }
    const size = this.architecture.hidden_size;
    const pooled = this.architecture.pooler
      ? this.linear(x.subarray(0, size), 'encoder/pooler').map(Math.tanh)
      : null;
    return { states, attention, pooled };
  }

  linear(x, name) {
    const bias = this.tensors.get(`${name}/bias`);
    return linear(x, this.tensors.get(`${name}/kernel`), bias);
  }

  norm(x, name) {
    const { norms, layer_norm_eps: epsilon } = this.architecture;
    const scale = this.tensors.get(`${name}/scale`);
    if (norms.function === 'rms_norm') return rmsNorm(x, scale, epsilon);
    return layerNorm(x, scale, this.tensors.get(`${name}/bias`), epsilon);
  }

  embed(ids, types) {
    const { kind: positions, first } = this.architecture.positions;
    const table = (name) => this.tensors.get(`encoder/embeddings/${name}`);
    const width = table('token').shape[1];
    const x = new Float32Array(ids.length * width);
    const addRow = (name, position, row) => {
      const vector = table(name).values.subarray(row * width, (row + 1) * width);
      for (let i = 0; i < width; i++) x[position * width + i] += vector[i];
    };
    const numTypes = this.architecture.type_vocab_size;
    ids.forEach((id, position) => {
      addRow('token', position, id);
      if (positions === 'learned') addRow('position', position, position);
      if (positions === 'offset') addRow('position', position, position + first);
      if (numTypes) addRow('type', position, numTypes > 1 ? types[position] : 0);
    });
    const normed = this.architecture.norms.embeddings ? this.norm(x, 'encoder/embeddings/norm') : x;
    const isProjected = this.architecture.embedding_size !== null;
    return isProjected ? this.linear(normed, 'encoder/embeddings/projection') : normed;
  }

  /** One block; appends its attention [H, T, T] to `weights`. */
  layer(x, layer, name, weights) {
    const skipsNorm = layer === 0 && this.architecture.norms.placement === 'pre_except_first';
    const attend = (states) => this.attend(states, layer, `${name}/attention`, weights);
    const between = this.update(x, attend, skipsNorm ? null : `${name}/attention_norm`);
    const feed = (states) => this.feedForward(states, `${name}/feedforward`);
    return this.update(between, feed, `${name}/feedforward_norm`);
  }

  /** The residual connection around attention or feed-forward. */
  update(x, compute, norm) {
    const normalize = (states) => (norm ? this.norm(states, norm) : states);
    if (this.architecture.norms.placement !== 'post') return add(x, compute(normalize(x)));
    return normalize(add(x, compute(x)));
  }

  attend(x, layer, name, weights) {
    const { hidden_size: size, num_heads: heads, attention: options } = this.architecture;
    const length = x.length / size;
    let query = this.linear(x, `${name}/query`);
    let key = this.linear(x, `${name}/key`);
    const value = this.linear(x, `${name}/value`);
    if (options.kind === 'rotary') {
      const isLocal = this.architecture.windows[layer] !== null;
      const theta = (isLocal && options.local_theta) || options.theta;
      [query, key] = [query, key].map((states) => this.rotate(states, theta));
    }
    const bias = this.attentionBias(layer, length);
    const attention = new Float32Array(heads * length * length);
    const mixed = new Float32Array(length * size);
    for (let head = 0; head < heads; head++) {
      const matrix = attention.subarray(head * length * length, (head + 1) * length * length);
      attendHead(query, key, value, matrix, mixed, head, size, size / heads, bias(head));
    }
    weights.push(attention);
    return this.linear(mixed, `${name}/output`);
  }

  /** Head → (query, key) → bias of a score; −∞ for keys that are not visible. */
  attentionBias(layer, length) {
    const { attention, windows, num_heads: heads } = this.architecture;
    const window = windows[layer] ?? length;
    const slopes = attention.kind === 'alibi' ? alibiSlopes(heads) : Array(heads).fill(0);
    return (head) => (t, u) => {
      const distance = Math.abs(t - u);
      const isVisible = distance <= window && (!this.isCausal || u <= t);
      return isVisible ? -slopes[head] * distance : -Infinity;
    };
  }

  /** Rotate pairs of features k, k + K/2 of each head by position · frequency (RoFormer). */
  rotate(x, theta) {
    const { hidden_size: size, num_heads: heads } = this.architecture;
    const headSize = size / heads;
    const half = headSize / 2;
    const y = new Float32Array(x.length);
    for (let start = 0; start < x.length; start += headSize) {
      const position = Math.floor(start / size);
      for (let j = 0; j < half; j++) {
        const angle = position * theta ** (-j / half);
        const [first, second] = [x[start + j], x[start + j + half]];
        y[start + j] = first * Math.cos(angle) - second * Math.sin(angle);
        y[start + j + half] = second * Math.cos(angle) + first * Math.sin(angle);
      }
    }
    return y;
  }

  feedForward(x, name) {
    const { hidden_act: act, feedforward, intermediate_size: size } = this.architecture;
    const activate = ACTIVATIONS[act];
    const inner = this.linear(x, `${name}/input`);
    if (feedforward === 'dense') return this.linear(inner.map(activate), `${name}/output`);
    // The activated half and the gate are side by side in each row.
    const gated = new Float32Array(inner.length / 2);
    for (let i = 0; i < gated.length; i++) {
      const index = Math.floor(i / size) * 2 * size + (i % size);
      gated[i] = activate(inner[index]) * inner[index + size];
    }
    return this.linear(gated, `${name}/output`);
  }
}

/**
 * One head: softmax(Q Kᵀ / √K + bias) V.
 * @param {Float32Array} query, key, value [T, D] with all heads side by side.
 * @param {Float32Array} weights [T, T], filled.
 * @param {Float32Array} mixed [T, D], filled at the features of this head.
 */
function attendHead(query, key, value, weights, mixed, head, size, headSize, bias) {
  const length = query.length / size;
  const offset = head * headSize;
  for (let t = 0; t < length; t++) {
    const row = weights.subarray(t * length, (t + 1) * length);
    for (let u = 0; u < length; u++) {
      let score = 0;
      for (let k = 0; k < headSize; k++) {
        score += query[t * size + offset + k] * key[u * size + offset + k];
      }
      row[u] = score / Math.sqrt(headSize) + bias(t, u);
    }
    row.set(softmax(row));
    for (let u = 0; u < length; u++) {
      for (let k = 0; k < headSize; k++) {
        mixed[t * size + offset + k] += row[u] * value[u * size + offset + k];
      }
    }
  }
}

/** Slopes of ALiBi, as in models/visibility.py. */
function alibiSlopes(heads) {
  const power = 2 ** Math.floor(Math.log2(heads));
  const slopes = Array.from({ length: power }, (_, i) => 2 ** ((-8 * (i + 1)) / power));
  const between = Array.from({ length: power }, (_, i) => 2 ** ((-4 * (2 * i + 1)) / power));
  return [...slopes, ...between.slice(0, heads - power)];
}
