/* The page: loads the weights, and shows one view at a time. */
'use strict';

const TYPING_PAUSE = 120; // milliseconds

class App {
  constructor(model) {
    this.model = model;
    this.occurrences = new Occurrences(model);
    this.turn = 0;
    this.text = model.description.text ?? this.exampleText();
    this.lines = model.description.texts;
    this.views = this.makeViews();
  }

  exampleText() {
    const mask = this.model.tokenizer.maskToken;
    return this.model.has('mlm')
      ? `The old ${mask} looked at her and smiled.`
      : 'She sat on the bank of the river and watched the water.';
  }

  get texts() {
    return Occurrences.parse(this.lines);
  }

  makeViews() {
    const views = [];
    if (this.model.description.problem) views.push(predictionView(this));
    if (this.model.has('mlm')) {
      views.push(new FillMaskView(this), new UnmaskingView(this), new LogOddsView(this));
    }
    if (this.model.has('rtd')) views.push(new ReplacedView(this));
    return [...views, new AttentionView(this), new NeighborsView(this), new SensesView(this)];
  }

  /** A note for a text that was too long; '' for other texts. */
  cutNote(isCut) {
    const { max_length: length } = this.model.architecture;
    return isCut ? `The text is longer than ${length} tokens; its end was cut. ` : '';
  }

  /** Build the page below an element and show the first view. */
  mount(root) {
    this.textArea = element('textarea', { rows: 3, spellcheck: 'false' });
    this.textArea.value = this.text;
    const typed = debounce(() => this.changeText(this.textArea.value), TYPING_PAUSE);
    this.textArea.addEventListener('input', typed);
    this.maskButton = element(
      'button',
      { type: 'button', onclick: () => this.insertMask() },
      `Insert ${this.model.tokenizer.maskToken}`,
    );
    this.tokenLine = element('p', { class: 'tokens' });
    this.textSection = element(
      'section',
      { class: 'input' },
      labeled('Text', this.textArea),
      this.maskButton,
      this.tokenLine,
    );
    this.textsArea = element('textarea', { rows: 8, spellcheck: 'false' });
    this.textsArea.value = this.lines.join('\n');
    this.textsArea.addEventListener(
      'input',
      debounce(() => {
        this.lines = this.textsArea.value.split('\n');
        this.refresh();
      }, 500),
    );
    this.textsSection = element(
      'details',
      { class: 'input' },
      element('summary', {}, 'Texts: one a line, or a label, a tab and a text'),
      labeled(`Texts (at most ${MOST_TEXTS})`, this.textsArea),
    );
    this.panel = element('section', { role: 'tabpanel', id: 'panel', 'aria-labelledby': 'tab-0' });
    root.replaceChildren(this.tabs(), this.textSection, this.panel, this.textsSection);
    const linked = this.views.findIndex((view) => `#${view.id}` === location.hash);
    this.show(Math.max(0, linked));
    matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => this.refresh());
  }

  tabs() {
    this.tabButtons = this.views.map((view, index) =>
      element(
        'button',
        {
          type: 'button',
          role: 'tab',
          id: `tab-${index}`,
          'aria-controls': 'panel',
          onclick: () => this.show(index),
        },
        view.title,
      ),
    );
    withArrowKeys(this.tabButtons, 0, (index) => this.show(index));
    return element(
      'div',
      { role: 'tablist', 'aria-label': 'Views', class: 'tabs' },
      ...this.tabButtons,
    );
  }

  show(index) {
    this.view = this.views[index];
    history.replaceState(null, '', `#${this.view.id}`);
    this.tabButtons.forEach((button, i) => {
      button.setAttribute('aria-selected', String(i === index));
      button.tabIndex = i === index ? 0 : -1;
    });
    this.panel.setAttribute('aria-labelledby', `tab-${index}`);
    this.panel.replaceChildren(...this.view.panel);
    this.textSection.hidden = !this.view.usesText;
    this.maskButton.hidden = !this.view.usesMask;
    this.textsSection.hidden = !this.view.usesTexts;
    this.refresh();
  }

  changeText(text) {
    this.text = text;
    this.refresh();
  }

  replaceText(start, end, replacement) {
    this.textArea.value = this.text.slice(0, start) + replacement + this.text.slice(end);
    this.changeText(this.textArea.value);
  }

  insertMask() {
    const { selectionStart: start, selectionEnd: end } = this.textArea;
    this.textArea.setRangeText(this.model.tokenizer.maskToken, start, end, 'end');
    this.textArea.focus();
    this.changeText(this.textArea.value);
  }

  /** Update the shown view; computations for earlier texts stop. */
  async refresh() {
    const turn = ++this.turn;
    this.showTokens();
    document.documentElement.dataset.state = 'busy';
    await this.view.update(() => turn === this.turn);
    if (turn === this.turn) document.documentElement.dataset.state = 'ready';
  }

  showTokens() {
    const { tokens } = this.model.tokens(this.text);
    const names = tokens.map(({ id }) => element('span', {}, this.model.tokenizer.token(id)));
    const line = this.tokenLine;
    line.replaceChildren(`${tokens.length} tokens: `, ...names);
    line.tabIndex = line.scrollHeight > line.clientHeight ? 0 : -1;
  }
}

/** A line about the model. */
function factsOf(description) {
  const { architecture, num_parameters: parameters, dtype, tokenizer } = description;
  return [
    `${architecture.num_layers} layers × ${architecture.num_heads} heads, width ${architecture.hidden_size}`,
    `${(parameters / 1e6).toFixed(1)} M parameters, ${dtype}`,
    `${tokenizer.vocab.length.toLocaleString('en')} tokens`,
    'computed in this page, without a network',
  ].join(' · ');
}

function start() {
  const source = (id) => document.getElementById(id);
  const description = JSON.parse(source('description').textContent);
  source('facts').textContent = factsOf(description);
  // Wait until the page is painted, because decoding many weights takes a second.
  setTimeout(() => {
    const bytes = decodeBase64(source('weights').textContent.trim());
    source('weights').remove();
    window.app = new App(new Model(description, bytes));
    window.app.mount(source('app'));
  }, 20);
}

if (typeof document !== 'undefined') start();
