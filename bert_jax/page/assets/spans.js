/* Labeled spans, nested or not: the head of models/heads/spans.py, and the choice of spans. */
'use strict';

const SPAN_THRESHOLD = 0.5; // unless a threshold was tuned on the dev split
const MAX_LOGIT = 4; // of attention inside a span

/** The labeled spans of a text: {start, end, text, label, probability}, in text order. */
async function labelSpans(model, text) {
  const { problem } = model.description;
  const words = joinWords(model.tokenizer, text, splitWords(text, problem), problem.unspaced);
  if (!words.length) return { spans: [], isCut: false };
  const all = alignWords(model.tokenizer, text, words);
  const tokens = all.slice(0, model.room(1, problem.max_length));
  const output = await model.run(model.layOut([tokens]));
  const head = new SpanHead(model, output.states.at(-1));
  const threshold = problem.thresholds.threshold ?? SPAN_THRESHOLD;
  const candidates = candidateSpans(tokens, words, problem.settings.max_span_words);
  const scored = candidates.map((span) => ({ ...span, ...head.best(span.from + 1, span.to + 1) }));
  const chosen = problem.settings.nested ? scored : withoutOverlaps(scored);
  const spans = chosen
    .filter(({ probability }) => probability > threshold)
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

/** Classes of spans from the states of their ends and the mean state inside. */
class SpanHead {
  constructor(model, states) {
    const { settings, labels } = model.description.problem;
    this.encoder = model.encoder;
    this.labels = labels;
    this.width = settings.width;
    this.activate = ACTIVATIONS[model.architecture.hidden_act];
    [this.start, this.end] = ['start', 'end'].map((side) => this.boundary(states, side, settings));
    this.inside = this.project(states, 'inside');
    this.weights = new Float64Array(this.inside.length / this.width).fill(1);
    if (settings.summary === 'attention') {
      this.weights = Float64Array.from(this.project(states, 'attention'), (score) =>
        Math.exp(MAX_LOGIT * Math.tanh(score)),
      );
    }
  }

  project(states, name) {
    return this.encoder.linear(states, `spans/head/${name}`);
  }

  boundary(states, side, settings) {
    const isDeep = settings.boundary === 'ffn';
    const inputs = isDeep ? this.project(states, `${side}_ffn`).map(this.activate) : states;
    return this.project(inputs, side);
  }

  /** The most probable label of the span of positions from … to, and its probability. */
  best(from, to) {
    const { width } = this;
    const hidden = new Float32Array(width);
    const bias = this.encoder.tensors.get('spans/head/bias').values;
    const total = this.weights.slice(from, to + 1).reduce((sum, weight) => sum + weight, 0);
    for (let i = 0; i < width; i++) {
      let summary = 0;
      for (let position = from; position <= to; position++) {
        summary += this.weights[position] * this.inside[position * width + i];
      }
      const ends = this.start[from * width + i] + this.end[to * width + i];
      hidden[i] = this.activate(ends + summary / total + bias[i]);
    }
    const probabilities = softmax(this.project(hidden, 'output')).slice(1); // the first: no label
    const [label] = topK(probabilities, 1);
    return { label: this.labels[label], probability: probabilities[label] };
  }
}
