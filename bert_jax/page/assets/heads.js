/* Heads: from states to logits (models/heads). */
'use strict';

const CLASSIFIER_LAYERS = {
  linear: [],
  dense: ['transform'],
  dropout_dense: ['transform'],
  dense_norm: ['transform', 'norm'],
};

class Heads {
  constructor(encoder) {
    this.encoder = encoder;
    this.architecture = encoder.architecture;
  }

  /** Logits of every token for one final state. */
  masked(state) {
    const { prediction_act: act, prediction } = this.architecture;
    const { tensors } = this.encoder;
    const transformed = this.encoder.linear(state, 'mlm/head/transform').map(ACTIVATIONS[act]);
    const normed = this.encoder.norm(transformed, 'mlm/head/norm');
    const decoder = tensors.get(prediction.tied ? 'encoder/embeddings/token' : 'mlm/head/decoder');
    return linear(normed, decoder, tensors.get('mlm/head/bias'));
  }

  /** Logit of each token having been replaced (ELECTRA), from the final states. */
  replaced(states) {
    let x = states;
    if (this.architecture.detection_context) {
      const size = this.architecture.hidden_size;
      x = this.encoder.norm(
        x.map((value, i) => value + x[i % size]),
        'rtd/head/norm',
      );
    }
    const activate = ACTIVATIONS[this.architecture.hidden_act];
    return this.encoder.linear(
      this.encoder.linear(x, 'rtd/head/transform').map(activate),
      'rtd/head/output',
    );
  }

  /** Logits of a sequence's classes. */
  sequence(output) {
    const layers = CLASSIFIER_LAYERS[this.architecture.classifier.layers];
    return this.classify(this.pool(output), 'sequence_classification', layers);
  }

  /** Score of a choice, from the pooled state if the model has a pooler. */
  choice(output) {
    const layers = output.pooled ? [] : CLASSIFIER_LAYERS[this.architecture.classifier.layers];
    return this.classify(output.pooled ?? this.pool(output), 'multiple_choice', layers)[0];
  }

  /** Logits of each position's classes, [T, C], of token_classification or question_answering. */
  tokens(output, head) {
    const { classifier } = this.architecture;
    const layers = classifier.layers === 'dense_norm' ? CLASSIFIER_LAYERS.dense_norm : [];
    return this.classify(output.states.at(-1), head, layers);
  }

  classify(states, head, layers) {
    const activate = ACTIVATIONS[this.architecture.classifier.activation];
    let x = states;
    for (const layer of layers) {
      if (layer === 'norm') x = this.encoder.norm(x, `${head}/head/norm`);
      else x = this.encoder.linear(x, `${head}/head/transform`).map(activate);
    }
    return this.encoder.linear(x, `${head}/head/output`);
  }

  /** The vector that represents a sequence. */
  pool(output) {
    const { pooling, hidden_size: size } = this.architecture;
    const states = output.states.at(-1);
    if (pooling === 'pooler') return output.pooled;
    if (pooling === 'first') return states.subarray(0, size);
    if (pooling === 'last') return states.subarray(-size);
    return meanRow(states, size);
  }
}

function meanRow(states, size) {
  const mean = new Float32Array(size);
  const rows = states.length / size;
  states.forEach((value, i) => (mean[i % size] += value / rows));
  return mean;
}
