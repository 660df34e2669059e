/* Words in the contexts of the user's texts: nearest neighbors, and a plot of senses. */
'use strict';

const MOST_TEXTS = 200;
const NEIGHBORS = 12;

/** The words of texts with the states of all layers, computed once for each text. */
class Occurrences {
  constructor(model) {
    this.model = model;
    this.encoded = new Map();
  }

  /** Lines 'TEXT' or 'LABEL<tab>TEXT' as {label, text}. */
  static parse(lines) {
    return lines
      .filter((line) => line.trim())
      .slice(0, MOST_TEXTS)
      .map((line) => {
        const [first, ...rest] = line.split('\t');
        return rest.length ? { label: first, text: rest.join(' ') } : { label: '', text: line };
      });
  }

  /**
   * All words of the texts: {label, text, word, output}; null if no longer wanted.
   * @param {Element} status shows the progress.
   */
  async of(texts, isWanted, status) {
    const occurrences = [];
    for (const [number, { label, text }] of texts.entries()) {
      if (!this.encoded.has(text)) {
        status.textContent = `Reading text ${number + 1} of ${texts.length} …`;
        const { tokens } = this.model.tokens(text);
        const row = this.model.layOut([tokens]);
        const output = await complete(this.model.encoder.run(row.ids, row.types), isWanted);
        if (output === null) return null;
        const words = rowWords(this.model, tokens, text).slice(1, -1);
        this.encoded.set(text, { words, output: { states: output.states } });
      }
      const { words, output } = this.encoded.get(text);
      occurrences.push(...words.map((word) => ({ label, text, word, output })));
    }
    return occurrences;
  }
}

/** A choice of every layer and the mean of the last four. */
function layerChoice(model, refresh) {
  const { num_layers: layers } = model.architecture;
  const options = [...Array(layers + 1).keys()].map((layer) =>
    element('option', { value: layer }, layer ? `layer ${layer}` : 'embeddings'),
  );
  if (layers >= MEAN_OF_LAST) {
    options.push(element('option', { value: 'mean' }, `mean of the last ${MEAN_OF_LAST} layers`));
  }
  const select = element('select', { onchange: refresh }, ...options);
  select.value = layers >= MEAN_OF_LAST ? 'mean' : layers;
  return select;
}

function chosenLayer(select) {
  return select.value === 'mean' ? 'mean' : Number(select.value);
}

/** The words of the texts whose vectors are nearest to the vector of a word in the typed text. */
class NeighborsView {
  constructor(app) {
    this.app = app;
    this.id = 'neighbors';
    this.title = 'Neighbors';
    this.usesText = true;
    this.usesTexts = true;
    this.word = null;
    this.layer = layerChoice(app.model, () => app.refresh());
    this.words = element('div');
    this.status = statusLine();
    this.results = element('div');
    this.panel = [
      this.words,
      labeled('Vectors of', this.layer),
      this.status,
      this.results,
      element(
        'p',
        { class: 'note' },
        'Cosine between the contextual vectors of the chosen word and of all words in the texts ' +
          'below. The vector of a word is the mean over its subwords.',
      ),
    ];
  }

  async update(isWanted) {
    const { model, text } = this.app;
    const { tokens, isCut } = model.tokens(text);
    const output = await model.run(model.layOut([tokens]), isWanted);
    if (output === null) return;
    const words = rowWords(model, tokens, text).slice(1, -1);
    if (!words.length) {
      this.status.textContent = 'Type a text.';
      return;
    }
    this.word ??= longestWord(words, model.tokenizer.maskToken);
    this.word = Math.min(this.word, words.length - 1);
    const choose = (index) => {
      this.word = index;
      this.app.refresh();
    };
    replaceContents(this.words, wordButtons('Choose a word', words, this.word, choose));
    const all = await this.app.occurrences.of(this.app.texts, isWanted, this.status);
    if (all !== null) this.show(words[this.word], output, all, this.app.cutNote(isCut));
  }

  show(query, output, all, note) {
    const size = this.app.model.architecture.hidden_size;
    const layer = chosenLayer(this.layer);
    const vector = wordVector(output, query, layer, size);
    const others = all.filter(({ text }) => text !== this.app.text);
    const cosines = others.map(({ output, word }) =>
      cosine(vector, wordVector(output, word, layer, size)),
    );
    const best = topK(cosines, NEIGHBORS);
    const [name, nearest] = [query, others[best[0]]?.word].map((word) =>
      shorten(word?.label ?? '', LONGEST_NAME),
    );
    this.status.textContent = best.length
      ? `${note}Nearest to “${name}”: “${nearest}”.`
      : 'There are no texts; type some below.';
    const rows = best.map((index) => {
      const { text, word } = others[index];
      return element(
        'li',
        {},
        element('span', { class: 'number' }, cosines[index].toFixed(3)),
        markedText(text, word.start, word.stop),
      );
    });
    const label = `Neighbors of ${query.label}`;
    this.results.replaceChildren(element('ol', { class: 'texts', 'aria-label': label }, ...rows));
  }
}

/** The occurrences of a word in the texts, in the plane of their first two principal components. */
class SensesView {
  constructor(app) {
    this.app = app;
    this.id = 'senses';
    this.title = 'Senses';
    this.usesTexts = true;
    const refresh = debounce(() => app.refresh(), 150);
    this.word = element('input', { type: 'text', list: 'frequent-words', oninput: refresh });
    this.word.value = app.model.description.word ?? '';
    this.layer = layerChoice(app.model, () => app.refresh());
    this.suggestions = element('datalist', { id: 'frequent-words' });
    this.status = statusLine();
    this.results = element('div');
    this.panel = [
      element(
        'div',
        { class: 'fields' },
        labeled('Word', this.word),
        labeled('Vectors of', this.layer),
      ),
      this.suggestions,
      this.status,
      this.results,
    ];
  }

  async update(isWanted) {
    const all = await this.app.occurrences.of(this.app.texts, isWanted, this.status);
    if (all === null) return;
    const frequent = frequentWords(all);
    this.suggestions.replaceChildren(...frequent.map((value) => element('option', { value })));
    this.word.value ||= frequent[0] ?? '';
    const name = this.word.value.trim().toLowerCase();
    const occurrences = all.filter(({ word }) => word.label.toLowerCase() === name);
    if (occurrences.length < 3) {
      this.status.textContent = `“${name}” occurs ${occurrences.length} times in the texts; at least 3 are needed.`;
      this.results.replaceChildren();
      return;
    }
    this.show(occurrences, name);
  }

  show(occurrences, name) {
    const size = this.app.model.architecture.hidden_size;
    const layer = chosenLayer(this.layer);
    const vectors = occurrences.map(({ output, word }) => wordVector(output, word, layer, size));
    const { points, shares } = principalComponents(vectors);
    const groups = [...new Set(occurrences.map(({ label }) => label))];
    const marks = occurrences.map(({ label, text }, i) => ({
      x: points[i][0],
      y: points[i][1],
      group: groups.indexOf(label),
      title: text,
    }));
    this.status.textContent =
      `${occurrences.length} occurrences of “${name}”; the two components hold ` +
      `${percent(shares[0] + shares[1])} of the variance of its vectors.`;
    const label = `Principal components of “${name}”; the list has the texts`;
    const plot = scatterPlot(label, marks, this.results.clientWidth);
    const save = () => download('vectors.tsv', vectorsTable(occurrences, vectors));
    this.results.replaceChildren(
      plot,
      legend(groups),
      this.texts(occurrences, plot, groups),
      element('button', { type: 'button', onclick: save }, 'Save the vectors (TSV)'),
    );
  }

  /** The texts of the points; the point of the text under the pointer is enlarged. */
  texts(occurrences, plot, groups) {
    const points = plot.querySelectorAll('.point');
    const rows = occurrences.map(({ label, text, word }, i) => {
      const highlight = (isOn) => points[i].classList.toggle('highlighted', isOn);
      return element(
        'li',
        {
          tabindex: 0,
          class: `group-${groups.indexOf(label) % 6}`,
          onpointerenter: () => highlight(true),
          onpointerleave: () => highlight(false),
          onfocus: () => highlight(true),
          onblur: () => highlight(false),
        },
        markedText(text, word.start, word.stop),
      );
    });
    return element('ol', { class: 'texts', 'aria-label': 'Texts of the points' }, ...rows);
  }
}

/** Names of the groups in their colors; nothing if texts have no labels. */
function legend(groups) {
  const names = groups.filter((name) => name);
  const items = names.map((name) =>
    element('li', { class: `group-${groups.indexOf(name) % 6}` }, name),
  );
  return element('ul', { class: 'legend', 'aria-label': 'Labels' }, ...items);
}

/** Words of at least four letters that occur three times or more, the most frequent first. */
function frequentWords(all) {
  const counts = new Map();
  for (const { word } of all) {
    const name = word.label.toLowerCase();
    if (/^\p{L}{4,}$/u.test(name)) counts.set(name, (counts.get(name) ?? 0) + 1);
  }
  const frequent = [...counts].filter(([, count]) => count > 2);
  return frequent
    .sort((a, b) => b[1] * b[0].length - a[1] * a[0].length)
    .map(([name]) => name)
    .slice(0, 20);
}

/** The vectors as a table: label, word, text, then the features. */
function vectorsTable(occurrences, vectors) {
  return occurrences
    .map(({ label, word, text }, i) => [label, word.label, text, ...vectors[i]].join('\t'))
    .join('\n');
}

function download(name, text) {
  const url = URL.createObjectURL(new Blob([text], { type: 'text/tab-separated-values' }));
  element('a', { href: url, download: name }).click();
  URL.revokeObjectURL(url);
}
