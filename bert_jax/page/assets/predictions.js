/* Predictions of fine-tuned models, as bert_jax/problems decodes them. */
'use strict';

/** Drop the last token of the longest text until the texts fit together. */
function truncateLongestFirst(texts, room) {
  const lengths = texts.map((tokens) => tokens.length);
  const total = () => lengths.reduce((sum, length) => sum + length, 0);
  while (total() > room) {
    const longest = Math.max(...lengths);
    lengths[lengths.lastIndexOf(longest)]--;
  }
  return texts.map((tokens, number) => tokens.slice(0, lengths[number]));
}

/** The row of one or two texts, truncated to the length of the training. */
function textRow(model, texts) {
  const tokens = texts.map((text) => model.tokenizer.encode(text));
  const room = model.room(texts.length, model.description.problem.max_length);
  const cut = truncateLongestFirst(tokens, room);
  return { row: model.layOut(cut), isCut: cut.some((kept, i) => kept.length < tokens[i].length) };
}

/** Probability of each class of a text or a pair of texts. */
async function classify(model, texts) {
  const { row, isCut } = textRow(model, texts);
  const logits = model.heads.sequence(await model.run(row));
  const { labels } = model.description.problem;
  const probabilities = Array.from(softmax(logits));
  return { labels, probabilities, best: topK(probabilities, 1)[0], isCut };
}

/** The score of a regression model. */
async function regress(model, texts) {
  const { row, isCut } = textRow(model, texts);
  const [logit] = model.heads.sequence(await model.run(row));
  const isSigmoid = model.description.problem.activation === 'sigmoid';
  return { score: isSigmoid ? 1 / (1 + Math.exp(-logit)) : logit, isCut };
}

/** Probability of each class, and the classes that reach their thresholds. */
async function chooseLabels(model, texts) {
  const { row, isCut } = textRow(model, texts);
  const logits = Array.from(model.heads.sequence(await model.run(row)));
  const { labels, settings, thresholds } = model.description.problem;
  const probabilities = logits.map((logit) => 1 / (1 + Math.exp(-logit)));
  const tuned = settings.thresholds === 'none' ? {} : thresholds;
  const chosen = labels.filter((label, i) => probabilities[i] >= (tuned[label] ?? settings.threshold));
  return { labels, probabilities, chosen, isCut };
}

/** The number of each target. */
async function regressTargets(model, texts) {
  const { row, isCut } = textRow(model, texts);
  const scores = Array.from(model.heads.sequence(await model.run(row)));
  return { labels: model.description.problem.labels, scores, isCut };
}

/** Probability of each choice after a premise. */
async function choose(model, premise, choices) {
  const scores = [];
  let isCut = false;
  for (const choice of choices) {
    const pair = textRow(model, [premise, choice]);
    isCut ||= pair.isCut;
    scores.push(model.heads.choice(await model.run(pair.row)));
  }
  const probabilities = softmax(scores);
  return { labels: choices, probabilities, best: topK(probabilities, 1)[0], isCut };
}

/** The tag of every word, and the entities if tags mark them. */
async function tag(model, text) {
  const { problem } = model.description;
  const all = splitWords(text, problem);
  if (!all.length) return { words: [], entities: [], isCut: false };
  const room = model.room(1, problem.max_length);
  const tokens = alignWords(model.tokenizer, text, all);
  const cut = tokens.slice(0, room);
  const numWords = new Set(cut.map((token) => token.owner).filter((owner) => owner >= 0)).size;
  const output = await model.run(model.layOut([cut]));
  const logits = model.heads.tokens(output, 'token_classification');
  const emissions = wordLogits(model, logits, cut, numWords);
  const hasChain = model.encoder.tensors.has('crf/start');
  const { tags, probabilities } = hasChain
    ? decodeChain(emissions, model.encoder.tensors)
    : decodeWords(emissions);
  const words = all.slice(0, numWords).map(([start, end], word) => ({
    start,
    end,
    text: text.slice(start, end),
    predicted: problem.labels[tags[word]],
    probability: probabilities[word][tags[word]],
  }));
  return { words, entities: entities(words, text, problem.entity_tags), isCut: cut.length < tokens.length };
}

/** Scores of each word: logits of its first token, or mean log probabilities of its tokens. */
function wordLogits(model, logits, tokens, numWords) {
  const { settings, labels } = model.description.problem;
  const size = labels.length;
  const usesMean = settings.decode_pieces === 'mean';
  return Array.from({ length: numWords }, (_, word) => {
    const rows = tokens.flatMap((token, index) =>
      token.owner === word ? [logits.slice((index + 1) * size, (index + 2) * size)] : [],
    );
    if (!usesMean) return rows[0];
    const logs = rows.map((row) => logSoftmax(row));
    return logs[0].map((_, label) => logs.reduce((sum, row) => sum + row[label], 0) / logs.length);
  });
}

function decodeWords(emissions) {
  return {
    tags: emissions.map((scores) => topK(scores, 1)[0]),
    probabilities: emissions.map((scores) => softmax(scores)),
  };
}

/** Entities that tags mark, as in conlleval; tags: tag → [prefix, label], null without entities. */
function entities(words, text, tags) {
  if (!tags) return [];
  const spans = [];
  let previous = ['', ''];
  for (const { predicted, probability, start, end } of words) {
    const [prefix, label] = tags[predicted];
    const isOpen = ['B', 'I'].includes(previous[0]) && previous[1] === label;
    const last = spans.at(-1);
    if (['I', 'E'].includes(prefix) && isOpen) {
      last.end = end;
      last.text = text.slice(last.start, end);
      last.probability = Math.min(last.probability, probability);
    } else if (prefix !== 'O') {
      spans.push({ start, end, text: text.slice(start, end), label, probability });
    }
    previous = [prefix, label];
  }
  return spans;
}

/** The best answers to a question in a context, as run_squad.py finds them. */
async function answer(model, question, context) {
  const { settings, thresholds, max_length: maxLength } = model.description.problem;
  const room = model.room(2, maxLength);
  const asked = model.tokenizer
    .encode(question)
    .slice(0, Math.min(settings.question_tokens, Math.floor(room / 2)));
  const all = model.tokenizer.encode(context);
  const tokens = all.slice(0, room - asked.length);
  const row = model.layOut([asked, tokens]);
  const logits = model.heads.tokens(await model.run(row), 'question_answering');
  const spans = rankSpans(logits, row.starts[1], tokens, settings);
  const nothing = logits[0] + logits[1];
  const scores = spans.map((span) => span.score);
  if (settings.no_answer || !scores.length) scores.push(nothing);
  const shares = softmax(scores);
  const answers = spans.map(({ start, end }, i) => ({
    ...trimmed(context, start, end),
    probability: shares[i],
  }));
  const surplus = spans.length ? nothing - spans[0].score : Infinity;
  const threshold = thresholds.no_answer_threshold ?? 0;
  const isAnswerable = !(settings.no_answer && surplus > threshold) && spans.length > 0;
  return { answers, isAnswerable, isCut: tokens.length < all.length };
}

/** The best legal spans of the n best starts and ends: {start, end, score} in characters. */
function rankSpans(logits, first, tokens, settings) {
  const side = (offset) => tokens.map((_, i) => logits[(first + i) * 2 + offset]);
  const [startLogits, endLogits] = [side(0), side(1)];
  const spans = new Map();
  for (const start of topK(startLogits, settings.n_best)) {
    for (const end of topK(endLogits, settings.n_best)) {
      if (end < start || end - start >= settings.answer_tokens) continue;
      const score = startLogits[start] + endLogits[end];
      const key = `${tokens[start].start} ${tokens[end].end}`;
      if (score <= (spans.get(key)?.score ?? -Infinity)) continue;
      spans.set(key, { start: tokens[start].start, end: tokens[end].end, score });
    }
  }
  return [...spans.values()].sort((a, b) => b.score - a.score).slice(0, settings.n_best);
}

/** A span without white space at its ends. */
function trimmed(text, start, end) {
  const span = text.slice(start, end);
  const from = start + span.length - span.trimStart().length;
  return { text: span.trim(), start: from, end: from + span.trim().length };
}
