/* Labeled spans, nested or not: the head of models/heads/spans.py, and the choice of spans. */
'use strict';

const MAX_LOGIT = 4; // of attention inside a span
const MAX_SCORE = 40; // of self-attention inside a span

/** The labeled spans of a text: {start, end, text, label, probability}, in text order. */
async function labelSpans(model, text) {
  const { problem } = model.description;
  const words = joinWords(model.tokenizer, text, splitWords(text, problem), problem.unspaced);
  if (!words.length) return { spans: [], isCut: false };
  const all = alignWords(model.tokenizer, text, words);
  const tokens = all.slice(0, model.room(1, problem.max_length));
  const output = await model.run(model.layOut([tokens]));
  const head = new SpanHead(model, output.states.at(-1));
  const { decoding, max_span_words: longest, nested } = problem.settings;
  const threshold = problem.settings.threshold ?? problem.thresholds.threshold;
  const isLabeled = ({ probability, noLabel }) =>
    probability > (decoding === 'argmax' ? noLabel : threshold);
  const labeled = candidateSpans(tokens, words, longest)
    .map((span) => ({ ...span, ...head.best(span.from + 1, span.to + 1) }))
    .filter(isLabeled);
  const spans = (nested ? labeled : withoutOverlaps(labeled))
    .sort((a, b) => a.first - b.first || a.last - b.last)
    .map(({ first, last, label, probability }) => {
      const [start, end] = [words[first][0], words[last][1]];
      return { start, end, text: text.slice(start, end), label, probability };
    });
  return { spans, isCut: tokens.length < all.length };
}

/** All spans of at most `longest` words: words first … last, tokens from … to. */
function candidateSpans(tokens, words, longest) {
  const tokensOfWords = words.map((_, word) =>
    tokens.flatMap((token, index) => (token.owner === word ? [index] : [])),
  );
  return tokensOfWords.flatMap((starts, first) =>
    tokensOfWords.slice(first, first + longest).flatMap((ends, size) => {
      if (!starts.length || !ends.length) return [];
      return [{ first, last: first + size, from: starts[0], to: ends.at(-1) }];
    }),
  );
}

/** Drop spans that overlap a more probable span. */
function withoutOverlaps(spans) {
  const chosen = [];
  for (const span of [...spans].sort((a, b) => b.probability - a.probability)) {
    const isFree = chosen.every((other) => other.last < span.first || span.last < other.first);
    if (isFree) chosen.push(span);
  }
  return chosen;
}

/** Classes of spans from the states of their ends and a summary of the states inside. */
class SpanHead {
  constructor(model, states) {
    const { settings, labels } = model.description.problem;
    this.encoder = model.encoder;
    this.labels = labels;
    this.width = settings.width;
    this.activate = ACTIVATIONS[model.architecture.hidden_act];
    [this.start, this.end] = ['start', 'end'].map((side) => this.boundary(states, side, settings));
    this.inside = this.project(states, 'inside');
    this.length = this.inside.length / this.width;
    this.weights = new Float64Array(this.length).fill(1);
    if (settings.summary === 'attention') {
      this.weights = Float64Array.from(this.project(states, 'attention'), (score) =>
        Math.exp(MAX_LOGIT * Math.tanh(score)),
      );
    }
    this.attention = settings.summary === 'self_attention' ? this.attend(states) : null;
  }

  /** exp(score) of each query and key, [T, T]. */
  attend(states) {
    const { width, length } = this;
    const [queries, keys] = ['query', 'key'].map((name) => this.project(states, name));
    return Float64Array.from({ length: length * length }, (_, index) => {
      const [query, key] = [Math.floor(index / length) * width, (index % length) * width];
      let score = 0;
      for (let i = 0; i < width; i++) score += queries[query + i] * keys[key + i];
      score /= Math.sqrt(width);
      return Math.exp(Math.min(Math.max(score, -MAX_SCORE), MAX_SCORE));
    });
  }

  /** The share of each position from … to in the summary of the span. */
  shares(from, to) {
    const inside = (weights) => weights.subarray(from, to + 1);
    const total = (weights) => weights.reduce((sum, weight) => sum + weight, 0);
    const { length } = this;
    const rows = this.attention
      ? Array.from({ length: to + 1 - from }, (_, number) =>
          inside(this.attention.subarray((from + number) * length, (from + number + 1) * length)),
        )
      : [inside(this.weights)];
    const normalized = rows.map((row) => row.map((weight) => weight / total(row)));
    return normalized[0].map((_, i) => total(normalized.map((row) => row[i])) / rows.length);
  }

  project(states, name) {
    return this.encoder.linear(states, `spans/head/${name}`);
  }

  boundary(states, side, settings) {
    const isDeep = settings.boundary === 'ffn';
    const inputs = isDeep ? this.project(states, `${side}_ffn`).map(this.activate) : states;
    return this.project(inputs, side);
  }

  /** The best label of the span of positions from … to, its probability, and that of no label. */
  best(from, to) {
    const { width } = this;
    const hidden = new Float32Array(width);
    const bias = this.encoder.tensors.get('spans/head/bias').values;
    const shares = this.shares(from, to);
    for (let i = 0; i < width; i++) {
      let summary = 0;
      for (let position = from; position <= to; position++) {
        summary += shares[position - from] * this.inside[position * width + i];
      }
      const ends = this.start[from * width + i] + this.end[to * width + i];
      hidden[i] = this.activate(ends + summary + bias[i]);
    }
    const [noLabel, ...probabilities] = softmax(this.project(hidden, 'output'));
    const [label] = topK(probabilities, 1);
    return { label: this.labels[label], probability: probabilities[label], noLabel };
  }
}
