/* Predictions of fine-tuned models. */
'use strict';

const CHOICES = 'She liked the view.\nShe opened an account.';

/** A view with its own inputs; `predict` returns the summary and elements to show for them. */
class PredictionView {
  constructor(app, labels, examples, predict) {
    this.app = app;
    this.id = 'prediction';
    this.title = 'Prediction';
    this.predict = predict;
    const refresh = debounce(() => app.refresh(), 150);
    this.inputs = labels.map((_, i) => {
      const area = element('textarea', { rows: i ? 3 : 2, oninput: refresh });
      area.value = examples[i] ?? '';
      return area;
    });
    this.status = statusLine();
    this.results = element('div');
    this.panel = [
      ...labels.map((label, i) => labeled(label, this.inputs[i])),
      this.status,
      this.results,
    ];
  }

  async update(isWanted) {
    const values = this.inputs.map((input) => input.value);
    if (!values[0].trim()) {
      this.status.textContent = 'Type a text.';
      this.results.replaceChildren();
      return;
    }
    const { summary, content, isCut } = await this.predict(this.app.model, values);
    if (!isWanted()) return;
    this.status.textContent = this.app.cutNote(isCut) + summary;
    this.results.replaceChildren(...content);
  }
}

function shownClasses({ labels, probabilities, best, isCut }) {
  const order = topK(probabilities, 12);
  const rows = order.map((index) => ({ name: labels[index], share: probabilities[index] }));
  return {
    summary: `Predicted: ${labels[best]}.`,
    content: [barList('Probabilities', rows)],
    isCut,
  };
}

async function shownClassification(model, [text, second]) {
  return shownClasses(await classify(model, second?.trim() ? [text, second] : [text]));
}

async function shownLabels(model, [text, second]) {
  const { labels, probabilities, chosen, isCut } = await chooseLabels(
    model,
    second?.trim() ? [text, second] : [text],
  );
  const order = topK(probabilities, 12);
  const rows = order.map((index) => ({ name: labels[index], share: probabilities[index] }));
  return {
    summary: `Predicted: ${chosen.join(', ') || 'no class'}.`,
    content: [barList('Probabilities', rows)],
    isCut,
  };
}

async function shownTargets(model, [text, second]) {
  const { labels, scores, isCut } = await regressTargets(
    model,
    second?.trim() ? [text, second] : [text],
  );
  const numbers = labels.map((label, index) => `${label} ${scores[index].toFixed(3)}`);
  return { summary: `Predicted: ${numbers.join(', ')}.`, content: [], isCut };
}

async function shownRegression(model, [text, second]) {
  const { score, isCut } = await regress(model, second?.trim() ? [text, second] : [text]);
  return { summary: `Predicted: ${score.toFixed(3)}.`, content: [], isCut };
}

async function shownChoice(model, [premise, lines]) {
  const choices = lines.split('\n').filter((line) => line.trim());
  if (!choices.length) return { summary: 'Type choices, one a line.', content: [] };
  return shownClasses(await choose(model, premise, choices));
}

async function shownTags(model, [text]) {
  const { words, entities, isCut } = await tag(model, text);
  const { labels } = model.description.problem;
  const groups = [...new Set(labels.map((label) => label.replace(/^[BIES]-/, '')))];
  const color = (label) => `group-${groups.indexOf(label.replace(/^[BIES]-/, '')) % 6}`;
  const items = words.map((word) =>
    element(
      'li',
      { class: word.predicted === 'O' ? '' : color(word.predicted) },
      element('span', {}, word.text),
      element('small', { title: percent(word.probability) }, word.predicted),
    ),
  );
  const names = entities.map(
    ({ text, label, probability }) => `${text} (${label}, ${percent(probability)})`,
  );
  return {
    summary: names.length ? `Entities: ${names.join('; ')}.` : `${words.length} words.`,
    content: [element('ol', { class: 'tags', 'aria-label': 'Tags of the words' }, ...items)],
    isCut,
  };
}

async function shownSpans(model, [text]) {
  const { spans, isCut } = await labelSpans(model, text);
  const rows = spans.map(({ label, text, probability }) => ({
    name: `${label}: ${text}`,
    share: probability,
  }));
  const summary = `${spans.length} labeled spans.`;
  return { summary, content: [barList('Labeled spans', rows)], isCut };
}

async function shownAnswers(model, [question, context]) {
  const { answers, isAnswerable, isCut } = await answer(model, question, context);
  const rows = answers
    .slice(0, 5)
    .map(({ text, probability }) => ({ name: text, share: probability }));
  const content = [barList('Answers', rows)];
  if (!isAnswerable) return { summary: 'The context has no answer.', content, isCut };
  const [{ start, end, text }] = answers;
  content.push(element('p', { class: 'context' }, markedText(context, start, end, 300)));
  return { summary: `Answer: ${text}`, content, isCut };
}

/** The view of a fine-tuned model. */
function predictionView(app) {
  const { kind, num_texts: texts } = app.model.description.problem;
  const text = app.text;
  const inputs = texts === 2 ? ['Text', 'Second text'] : ['Text'];
  if (texts === null) inputs.push('Second text (optional)');
  const views = {
    classification: () => new PredictionView(app, inputs, [text], shownClassification),
    regression: () => new PredictionView(app, inputs, [text, text], shownRegression),
    multi_label: () => new PredictionView(app, inputs, [text], shownLabels),
    multi_regression: () => new PredictionView(app, inputs, [text, text], shownTargets),
    multiple_choice: () =>
      new PredictionView(app, ['Premise', 'Choices, one a line'], [text, CHOICES], shownChoice),
    tagging: () => new PredictionView(app, ['Text'], [text], shownTags),
    spans: () => new PredictionView(app, ['Text'], [text], shownSpans),
    question_answering: () =>
      new PredictionView(app, ['Question', 'Context'], ['Where did she sit?', text], shownAnswers),
  };
  return views[kind]();
}
