/* Words in the contexts of texts of one's own: nearest neighbors, and a picture of senses. */
'use strict';

const MOST_TEXTS = 200;
const NEIGHBORS = 12;

/** The words of texts with the states of all layers, computed once for each text. */
class Occurrences {
  constructor(model) {
    this.model = model;
    this.known = new Map();
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

  /** All words of the texts: {label, text, word, output}; null if no longer wanted. */
  async of(texts, isWanted, progress) {
    const found = [];
    for (const [number, { label, text }] of texts.entries()) {
      if (!this.known.has(text)) {
        progress(number, texts.length);
        const { tokens } = this.model.tokens(text);
        const row = this.model.layOut([tokens]);
        const output = await complete(this.model.encoder.run(row.ids, row.types), isWanted);
        if (output === null) return null;
        const words = rowWords(this.model, tokens, text).slice(1, -1);
        this.known.set(text, { words, output: { states: output.states } });
      }
      const { words, output } = this.known.get(text);
      found.push(...words.map((word) => ({ label, text, word, output })));
    }
    return found;
  }
}

/** A choice of layer: each, and the mean of the last four. */
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

/** The words of the texts whose vectors are nearest to that of a word in the typed text. */
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
        'Cosine between the vector of the chosen word in its context and those of all words of ' +
          'the texts below in theirs; a word is the mean of its subwords.',
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
    const progress = (number, total) => {
      this.status.textContent = `Reading text ${number + 1} of ${total} …`;
    };
    const all = await this.app.occurrences.of(this.app.texts, isWanted, progress);
    if (all !== null) this.show(words[this.word], output, all, this.app.cutNote(isCut));
  }

  show(word, output, all, note) {
    const size = this.app.model.architecture.hidden_size;
    const layer = chosenLayer(this.layer);
    const query = wordVector(output, word, layer, size);
    const others = all.filter((own) => own.text !== this.app.text);
    const cosines = others.map((own) =>
      cosine(query, wordVector(own.output, own.word, layer, size)),
    );
    const best = topK(cosines, NEIGHBORS);
    const [own, nearest] = [word, others[best[0]]?.word].map((one) => {
      return shorten(one?.label ?? '', LONGEST_NAME);
    });
    this.status.textContent = best.length
      ? `${note}Nearest to “${own}”: “${nearest}”.`
      : 'There are no texts; type some below.';
    const rows = best.map((index) => {
      const { text, word: own } = others[index];
      return element(
        'li',
        {},
        element('span', { class: 'number' }, cosines[index].toFixed(3)),
        markedText(text, own.start, own.stop),
      );
    });
    const label = `Neighbors of ${word.label}`;
    this.results.replaceChildren(element('ol', { class: 'texts', 'aria-label': label }, ...rows));
  }
}

/** The occurrences of a word in the texts, in the plane of their two principal components. */
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
    const progress = (number, total) => {
      this.status.textContent = `Reading text ${number + 1} of ${total} …`;
    };
    const all = await this.app.occurrences.of(this.app.texts, isWanted, progress);
    if (all === null) return;
    const frequent = frequentWords(all);
    this.suggestions.replaceChildren(...frequent.map((value) => element('option', { value })));
    this.word.value ||= frequent[0] ?? '';
    const wanted = this.word.value.trim().toLowerCase();
    const found = all.filter(({ word }) => word.label.toLowerCase() === wanted);
    if (found.length < 3) {
      this.status.textContent = `“${wanted}” is ${found.length} times in the texts; at least 3 are needed.`;
      this.results.replaceChildren();
      return;
    }
    this.show(found, wanted);
  }

  show(found, wanted) {
    const size = this.app.model.architecture.hidden_size;
    const layer = chosenLayer(this.layer);
    const vectors = found.map(({ output, word }) => wordVector(output, word, layer, size));
    const { points, shares } = principalComponents(vectors);
    const groups = [...new Set(found.map(({ label }) => label))];
    const marks = found.map(({ label, text }, i) => ({
      x: points[i][0],
      y: points[i][1],
      group: groups.indexOf(label),
      title: text,
    }));
    this.status.textContent =
      `${found.length} occurrences of “${wanted}”; the two components hold ` +
      `${percent(shares[0] + shares[1])} of the variance of its vectors.`;
    const label = `Principal components of “${wanted}”; the list has the texts`;
    const plot = scatterPlot(label, marks, this.results.clientWidth);
    this.results.replaceChildren(
      plot,
      legend(groups),
      this.texts(found, plot, groups),
      element(
        'button',
        { type: 'button', onclick: () => download('vectors.tsv', vectorsTable(found, vectors)) },
        'Save the vectors (TSV)',
      ),
    );
  }

  /** The texts of the points; the point of the text under the pointer is enlarged. */
  texts(found, plot, groups) {
    const circles = plot.querySelectorAll('.point');
    const rows = found.map(({ label, text, word }, i) => {
      const highlight = (isOn) => circles[i].classList.toggle('highlighted', isOn);
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
function vectorsTable(found, vectors) {
  return found
    .map(({ label, word, text }, i) => [label, word.label, text, ...vectors[i]].join('\t'))
    .join('\n');
}

function download(name, text) {
  const url = URL.createObjectURL(new Blob([text], { type: 'text/tab-separated-values' }));
  element('a', { href: url, download: name }).click();
  URL.revokeObjectURL(url);
}
